package fakes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Resend's bounds.
const (
	keyLife       = 24 * time.Hour
	maxKey        = 256 // bytes
	maxRecipients = 50
)

// ResendConfig says how the double behaves. Only Key is required.
type ResendConfig struct {
	Key    string               // the account's
	Domain string               // that mails must come from; "": any
	Refuse func(to string) bool // for good; nil: nobody
	Limit  int                  // calls within a second of the clock; 0: any number
	Faults Faults
	Now    func() time.Time // nil: the machine's clock
}

// Resend is a double of Resend's API, as far as one mail per call goes.
type Resend struct {
	ledger
	config ResendConfig
	mux    *http.ServeMux
	keys   map[string]*kept
	second int64 // of the rate limit
	calls  int   // within it
}

// kept is what Resend remembers of a key.
type kept struct {
	body     [sha256.Size]byte
	since    time.Time
	inFlight bool
	id       string // "": nothing has been taken yet
}

// NewResend returns a double.
func NewResend(c ResendConfig) *Resend {
	if c.Now == nil {
		c.Now = time.Now
	}
	d := &Resend{ledger: newLedger(c.Faults), config: c, mux: http.NewServeMux(), keys: map[string]*kept{}}
	d.mux.HandleFunc("POST /emails", d.send)
	d.mux.HandleFunc("/emails", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "This method is not allowed here")
	})
	d.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "There is no such endpoint")
	})
	return d
}

// ServeHTTP answers a call.
func (d *Resend) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// refuse answers as Resend does. The message may quote the call, as Resend's do.
func refuse(w http.ResponseWriter, status int, name, message string) {
	answer(w, status, map[string]any{"statusCode": status, "name": name, "message": message})
}

func (d *Resend) send(w http.ResponseWriter, r *http.Request) {
	switch token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
	case !ok:
		refuse(w, http.StatusUnauthorized, "missing_api_key", "There is no API key")
		return
	case token != d.config.Key:
		refuse(w, http.StatusForbidden, "invalid_api_key", "No such API key: "+token)
		return
	}
	if !d.admit(w) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if given := len(r.Header.Values("Idempotency-Key")) > 0; given && (key == "" || len(key) > maxKey) {
		refuse(w, http.StatusBadRequest, "invalid_idempotency_key", "Keys have 1 to 256 characters: "+key)
		return
	}
	body, err := readBody(w, r)
	if err != nil { // it broke off, or has no end
		refuse(w, http.StatusBadRequest, "validation_error", "The body cannot be read")
		return
	}
	m, ok := d.readMail(w, body)
	if !ok {
		return
	}
	if key != "" {
		if !d.begin(w, key, sha256.Sum256(body)) {
			return
		}
		defer d.end(key)
	}
	fault := d.call(key)
	switch fault {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Too many requests")
		return
	case Unavailable:
		refuse(w, http.StatusInternalServerError, "application_error", "It failed for "+m.To[0])
		return
	case CutBefore:
		cut()
	}
	id := d.take(Delivery{Key: key, To: m.To[0], Text: m.Subject, Body: body})
	d.loseAnswer(fault, key, r)
	answer(w, http.StatusOK, map[string]string{"id": id})
}

// admit keeps the rate limit, about which the headers of every answer tell.
func (d *Resend) admit(w http.ResponseWriter) bool {
	if d.config.Limit == 0 {
		return true
	}
	d.mu.Lock()
	if s := d.config.Now().Unix(); s != d.second {
		d.second, d.calls = s, 0
	}
	d.calls++
	left := d.config.Limit - d.calls
	d.mu.Unlock()
	h := w.Header()
	h.Set("Ratelimit-Limit", strconv.Itoa(d.config.Limit))
	h.Set("Ratelimit-Remaining", strconv.Itoa(max(0, left)))
	h.Set("Ratelimit-Reset", "1")
	if left < 0 {
		h.Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Too many requests")
	}
	return left >= 0
}

// letter is the part of a call that the double looks at.
type letter struct {
	From, Subject, HTML, Text string
	To, CC, BCC               list
	ReplyTo                   list `json:"reply_to"`
	Tags                      []struct{ Name, Value string }
	Attachments               []struct {
		Filename, Path string
		Content        []byte // in base64
	}
}

// list is a list of addresses, or one alone.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

func (d *Resend) readMail(w http.ResponseWriter, body []byte) (letter, bool) {
	var m letter
	if err := json.Unmarshal(body, &m); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "validation_error", err.Error())
		return m, false
	}
	from, err := mail.ParseAddress(m.From)
	recipients := append(append(append(list{}, m.To...), m.CC...), m.BCC...)
	status, name, about := http.StatusUnprocessableEntity, "", ""
	switch {
	case m.From == "" || len(m.To) == 0 || m.Subject == "" || m.HTML+m.Text == "":
		name, about = "missing_required_field", "from, to, subject, html or text"
	case err != nil:
		name, about = "invalid_from_address", m.From
	case d.config.Domain != "" && !strings.HasSuffix(from.Address, "@"+d.config.Domain):
		status, name, about = http.StatusForbidden, "validation_error", "The domain is not verified: "+from.Address
	case len(recipients) > maxRecipients:
		name, about = "validation_error", "more than 50 recipients"
	}
	for _, a := range append(recipients, m.ReplyTo...) {
		if _, err := mail.ParseAddress(a); name == "" && (err != nil || d.refuses(d.config.Refuse, a)) {
			name, about = "validation_error", "Invalid address: "+a
		}
	}
	for _, tag := range m.Tags {
		if name == "" && (!tagForm(tag.Name) || !tagForm(tag.Value)) {
			name, about = "validation_error", "Invalid tag: "+tag.Name
		}
	}
	for _, a := range m.Attachments {
		if name == "" && (a.Filename == "" || a.Path == "" && len(a.Content) == 0) {
			name, about = "invalid_attachment", a.Filename
		}
	}
	if name != "" {
		refuse(w, status, name, about)
	}
	return m, name == ""
}

// tagForm reports whether s can be the name or the value of a tag.
func tagForm(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool {
		letter, digit := r|0x20 >= 'a' && r|0x20 <= 'z', r >= '0' && r <= '9'
		return !letter && !digit && r != '_' && r != '-'
	})
}

// begin holds a call against what is remembered of its key, and lets it pass if nothing speaks against it.
func (d *Resend) begin(w http.ResponseWriter, key string, body [sha256.Size]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.keys[key]
	if k == nil || !k.inFlight && d.config.Now().Sub(k.since) >= keyLife {
		k = &kept{body: body, since: d.config.Now()}
		d.keys[key] = k
	}
	switch {
	case k.body != body:
		refuse(w, http.StatusConflict, "invalid_idempotent_request", "The key came with another body: "+key)
	case k.inFlight:
		refuse(w, http.StatusConflict, "concurrent_idempotent_requests", "The key is in use: "+key)
	default:
		k.inFlight = true
		return true
	}
	return false
}

// end remembers a key only if a mail was taken under it.
func (d *Resend) end(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys[key].inFlight = false; d.keys[key].id == "" {
		delete(d.keys, key)
	}
}

// take keeps a mail, unless one is remembered under its key, and returns its id or that one's.
func (d *Resend) take(m Delivery) (id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.keys[m.Key]
	if k != nil && k.id != "" {
		d.record.Repeated[m.Key]++
		return k.id
	}
	m.ID = uuid.NewSHA1(uuid.Nil, fmt.Append(nil, len(d.record.Accepted))).String()
	d.record.Accepted = append(d.record.Accepted, m)
	if k != nil {
		k.id = m.ID
	}
	return m.ID
}

package fakes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// KapsoConfig says how the double behaves. Only Keys is required.
type KapsoConfig struct {
	Keys      map[string]string    // the key, or token, of each phone number id
	Templates map[string]int       // those that exist, and how many parameters each has; nil: all, with any
	Refuse    func(to string) bool // not on WhatsApp; nil: all are
	Faults    Faults
}

// Kapso is a double of the API for WhatsApp that Kapso offers, and of Meta's, whose form it has: template messages alone.
// There is no key that it recognises a repeat by; biz_opaque_callback_data is no more than recorded.
type Kapso struct {
	ledger
	config KapsoConfig
	mux    *http.ServeMux
}

// NewKapso returns a double. A sender's base URL is the double's and /meta/whatsapp/v24.0, or just a version as at Meta.
func NewKapso(c KapsoConfig) *Kapso {
	d := &Kapso{ledger: newLedger(c.Faults), config: c, mux: http.NewServeMux()}
	d.mux.HandleFunc("POST /meta/whatsapp/{version}/{number}/messages", d.send)
	d.mux.HandleFunc("POST /{version}/{number}/messages", d.send)
	return d
}

// ServeHTTP answers a call.
func (d *Kapso) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// graph answers as the Graph API refuses. The message may quote the call.
func graph(w http.ResponseWriter, status, code int, message string) {
	answer(w, status, map[string]any{"error": map[string]any{
		"message": fmt.Sprintf("(#%d) %s", code, message), "type": "OAuthException", "code": code,
		"error_data": map[string]string{"messaging_product": "whatsapp", "details": message}, "fbtrace_id": "A-fake",
	}})
}

// text is the part of a call that the double looks at.
type text struct {
	Product  string `json:"messaging_product"`
	To, Type string
	Template struct {
		Name       string
		Language   struct{ Code string }
		Components []struct {
			Type       string
			Parameters []struct{ Type, Text string }
		}
	}
	Callback string `json:"biz_opaque_callback_data"`
}

var phone = regexp.MustCompile(`^\+?[0-9]{7,15}$`)

// maxCallback is in bytes.
const maxCallback = 512

func (d *Kapso) send(w http.ResponseWriter, r *http.Request) {
	want, exists := d.config.Keys[r.PathValue("number")]
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch key := r.Header.Get("X-Api-Key"); {
	case !exists:
		graph(w, http.StatusBadRequest, 33, "There is no such object: "+r.PathValue("number"))
		return
	case bearer && token != want:
		graph(w, http.StatusUnauthorized, 190, "No such access token: "+token)
		return
	case !bearer && key != want: // Kapso's own, without a code
		answer(w, http.StatusUnauthorized, map[string]string{"error": "Invalid API key " + key})
		return
	}
	body, err := readBody(w, r)
	var m text
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		graph(w, http.StatusBadRequest, 100, "The body cannot be read")
		return
	}
	params, ok := d.read(w, m)
	if !ok {
		return
	}
	fault := d.call(m.Callback)
	switch fault {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		graph(w, http.StatusTooManyRequests, 130429, "Too many messages from this number")
		return
	case Unavailable:
		graph(w, http.StatusInternalServerError, 131000, "Something went wrong with "+m.To)
		return
	case CutBefore:
		cut()
	}
	id := d.take(Delivery{Key: m.Callback, To: m.To, Text: strings.Join(params, " · "), Body: body})
	d.loseAnswer(fault, m.Callback, r)
	answer(w, http.StatusOK, map[string]any{
		"messaging_product": "whatsapp",
		"contacts":          []map[string]string{{"input": m.To, "wa_id": strings.TrimPrefix(m.To, "+")}},
		"messages":          []map[string]string{{"id": id}},
	})
}

// read returns the template's parameters, or refuses the message.
func (d *Kapso) read(w http.ResponseWriter, m text) (params []string, ok bool) {
	for _, c := range m.Template.Components {
		for _, p := range c.Parameters {
			params = append(params, p.Text)
		}
	}
	wanted, exists := d.config.Templates[m.Template.Name]
	switch {
	case m.Product != "whatsapp" || m.Type != "template" || m.Template.Name == "" || m.Template.Language.Code == "":
		graph(w, http.StatusBadRequest, 131008, "A required parameter is missing")
	case len(m.Callback) > maxCallback:
		graph(w, http.StatusBadRequest, 100, "biz_opaque_callback_data is too long")
	case !phone.MatchString(m.To):
		graph(w, http.StatusBadRequest, 131009, "No phone number: "+m.To)
	case d.config.Templates != nil && !exists:
		graph(w, http.StatusNotFound, 132001, "There is no template "+m.Template.Name)
	case d.config.Templates != nil && len(params) != wanted:
		graph(w, http.StatusBadRequest, 132000, "The template has another number of parameters")
	case d.refuses(d.config.Refuse, m.To):
		graph(w, http.StatusBadRequest, 131026, "Not on WhatsApp: "+m.To)
	default:
		return params, true
	}
	return nil, false
}

func (d *Kapso) take(m Delivery) (id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.ID = fmt.Sprintf("wamid.%08X", len(d.record.Accepted)+1)
	d.record.Accepted = append(d.record.Accepted, m)
	return m.ID
}

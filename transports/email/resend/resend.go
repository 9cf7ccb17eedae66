// Package resend is an [email.Sender] over the HTTP API of Resend.
//
// It promises one request per call, under the mail's idempotency key, and the same bytes for the same mail. Resend
// remembers a key for 24 hours: within them a repeat is answered, and not sent again. After that, and so after a lane's
// attempts have stretched beyond a day, the key no longer protects. A new release of the application that renders the
// same message differently is told apart by Resend, which then refuses the repeat.
//
// An accepted mail has been accepted by Resend; bounces and complaints come later, and not through this package. What
// each answer means is data, see [DefaultOutcomes]. Reply-To, attachments and batches are not offered.
package resend

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// DefaultBaseURL is where mails go unless [BaseURL] says otherwise.
const DefaultBaseURL = "https://api.resend.com"

// maxKey is Resend's limit for a key, in bytes.
const maxKey = 256

// Sender sends mails through one account. It is safe for concurrent use. It prints and logs as a fixed word.
type Sender struct {
	apiKey string
	base   string
	caller *http.Client
	client httpsend.Client
	table  httpsend.Table
	err    error
}

var _ email.Sender = (*Sender)(nil)

// Option changes what New sets up.
type Option func(*Sender)

// BaseURL sends the mails elsewhere: an https address, or an http one on this machine.
func BaseURL(base string) Option {
	return func(s *Sender) { s.base = strings.TrimRight(base, "/") }
}

// HTTPClient sets the client that makes the calls; nil is the default one, which verifies certificates, gives up
// connecting after 10 s, uses no proxy and reads no environment. Redirects are never followed, whatever the client says.
func HTTPClient(c *http.Client) Option {
	return func(s *Sender) { s.caller = c }
}

// Outcomes replaces or adds lines of [DefaultOutcomes]. Each is OK or has a category.
func Outcomes(lines map[string]state.Outcome) Option {
	return func(s *Sender) { s.table = s.table.With(lines) }
}

// New returns a Sender for the account of apiKey. What is wrong with key or options, [Sender.Validate] says, which
// [email.New] asks; nothing can be sent then.
func New(apiKey string, options ...Option) *Sender {
	s := &Sender{apiKey: apiKey, base: DefaultBaseURL, table: DefaultOutcomes()}
	for _, o := range options {
		o(s)
	}
	s.client = httpsend.New(s.caller)
	s.err = s.table.Check()
	if !httpsend.HeaderValue(apiKey) {
		s.err = &state.InvalidError{Field: "apiKey", Reason: "is empty, or not printable ASCII without blanks"}
	} else if err := httpsend.CheckURL(s.base); err != nil {
		s.err = &state.InvalidError{Field: "BaseURL", Reason: err.Error()}
	}
	return s
}

// Validate returns a [state.InvalidError] that names what is wrong with the key or an option, or nil.
func (s *Sender) Validate() error { return s.err }

const redacted = "resend (key withheld)"

// String returns a fixed word.
func (Sender) String() string { return redacted }

// GoString keeps %#v from printing the key.
func (Sender) GoString() string { return redacted }

// LogValue keeps log/slog from printing the key.
func (Sender) LogValue() slog.Value { return slog.StringValue(redacted) }

// Send makes one attempt, which ends with ctx at the latest. OK means that Resend took the mail; ExternalID is its id,
// or "" where the answer has none. A refusal is looked up by status and name, then by status, see [DefaultOutcomes]; an
// answer without a line there is transient. A wait that Resend asks for is passed on.
//
// Without an answer the outcome is in category red, with the codes dns, conexion_rechazada, conexion, tls,
// conexion_cortada and timeout: NotCalled where no request was written, Ambiguous where one was.
//
// Without any call: rechazado/clave_invalida for a key that is empty, longer than 256 bytes or not printable ASCII;
// credenciales/configuracion_invalida where [Sender.Validate] has an error.
func (s *Sender) Send(ctx context.Context, m email.Mail) state.Outcome {
	if s.err != nil {
		return state.Outcome{Category: state.CategoryCredentials, Code: httpsend.CodeBadConfig, Account: true}
	}
	if !httpsend.HeaderValue(m.IdempotencyKey) || len(m.IdempotencyKey) > maxKey {
		return state.Outcome{Category: state.CategoryRejected, Code: state.CodeBadKey}
	}
	body, err := json.Marshal(struct {
		From    string   `json:"from"`
		To      []string `json:"to"`
		Subject string   `json:"subject"`
		HTML    string   `json:"html,omitempty"`
		Text    string   `json:"text,omitempty"`
	}{m.From, []string{m.To}, m.Subject, m.HTML, m.Text})
	if err != nil { // texts do not fail
		return state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}
	}
	answer, lost, ok := s.client.Post(ctx, httpsend.Request{
		URL:            s.base + "/emails",
		Authentication: [2]string{"Authorization", "Bearer " + s.apiKey},
		IdempotencyKey: m.IdempotencyKey,
		Body:           body,
	})
	switch {
	case !ok:
		return lost
	case answer.Accepted():
		var mail struct{ ID string }
		_ = json.Unmarshal(answer.Body, &mail) // accepted all the same
		return state.Outcome{OK: true, ExternalID: httpsend.ID(mail.ID)}
	}
	return s.refusal(answer)
}

// Package kapso is a [whatsapp.Sender] over the Graph API for WhatsApp, as Kapso offers it, or as Meta does.
//
// It promises one request per call, and the same bytes for the same message. WhatsApp has no idempotency key: when an
// answer is lost the message may have been accepted. Such an attempt is Ambiguous, and what follows is up to the lane's
// policy: by default it is tried again, so that the recipient may get it twice; with [state.Policy].HoldAmbiguous the
// message ends as fallido, code ambiguo, for a person to decide. The message's key goes along as
// biz_opaque_callback_data, which comes back in status notices: with it, a held message can be found and settled.
//
// An accepted message has been accepted; that it could not be delivered is told later, and not through this package. What
// each answer means is data, see [DefaultOutcomes].
package kapso

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/httpsend"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// DefaultBaseURL is where messages go unless [BaseURL] says otherwise.
const DefaultBaseURL = "https://api.kapso.ai/meta/whatsapp/v24.0"

// Codes of messages that are refused without any call.
const (
	CodeBadNumber      = "numero_invalido"     // numero: not 7 to 15 digits, with or without a plus sign before them
	CodeBadCredentials = "credencial_invalida" // credenciales: an id or a key that cannot travel in a request
)

// Sender sends messages on the accounts it is given. It is safe for concurrent use, and holds no credentials.
type Sender struct {
	base   string
	bearer bool
	caller *http.Client
	client httpsend.Client
	table  httpsend.Table
	err    error
}

var _ whatsapp.Sender = (*Sender)(nil)

// Option changes what New sets up.
type Option func(*Sender)

// BaseURL sends the messages elsewhere: an https address, version included, or an http one on this machine. For Meta it
// is https://graph.facebook.com/ and the version, together with [Bearer].
func BaseURL(base string) Option {
	return func(s *Sender) { s.base = strings.TrimRight(base, "/") }
}

// Bearer sends the credentials' APIKey as a WhatsApp token, which Meta asks for and Kapso takes, instead of as a project
// key of Kapso's.
func Bearer() Option {
	return func(s *Sender) { s.bearer = true }
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

// New returns a Sender. What is wrong with the options, [Sender.Validate] says, which [whatsapp.New] asks; nothing can be
// sent then.
func New(options ...Option) *Sender {
	s := &Sender{base: DefaultBaseURL, table: DefaultOutcomes()}
	for _, o := range options {
		o(s)
	}
	s.client = httpsend.New(s.caller)
	s.err = s.table.Check()
	if err := httpsend.CheckURL(s.base); err != nil {
		s.err = &state.InvalidError{Field: "BaseURL", Reason: err.Error()}
	}
	return s
}

// Validate returns a [state.InvalidError] that names the option that is wrong, or nil.
func (s *Sender) Validate() error { return s.err }

// String returns a fixed word.
func (s *Sender) String() string { return "kapso" }

// GoString returns a fixed word.
func (s *Sender) GoString() string { return s.String() }

// LogValue returns a fixed word.
func (s *Sender) LogValue() slog.Value { return slog.StringValue(s.String()) }

var (
	numberForm = regexp.MustCompile(`^\+?[0-9]{7,15}$`)
	idForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) // it becomes a part of the address
)

// Send makes one attempt, which ends with ctx at the latest. OK means that the message was taken; ExternalID is its id
// (wamid), or "" where the answer has none. A refusal is looked up by its Graph code, whatever the status; without one by
// the status, see [DefaultOutcomes]. A code that is in no line, or cannot be read, is transient unless the status says
// more than that the request was refused; the stored code then begins with "desconocido:".
//
// Without an answer the outcome is in category red, with the codes dns, conexion_rechazada, conexion, tls,
// conexion_cortada and timeout: NotCalled where no request was written, Ambiguous where one was.
//
// Without any call: numero/numero_invalido, credenciales/sin_credenciales (a part of them is empty),
// credenciales/credencial_invalida, and credenciales/configuracion_invalida where [Sender.Validate] has an error.
func (s *Sender) Send(ctx context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
	switch {
	case s.err != nil:
		return state.Outcome{Category: state.CategoryCredentials, Code: httpsend.CodeBadConfig, Account: true}
	case c.APIKey == "" || c.PhoneNumberID == "":
		return state.Outcome{Category: state.CategoryCredentials, Code: state.CodeNoCredentials}
	case !httpsend.HeaderValue(c.APIKey) || !idForm.MatchString(c.PhoneNumberID):
		return state.Outcome{Category: state.CategoryCredentials, Code: CodeBadCredentials, Account: true}
	case !numberForm.MatchString(m.To):
		return state.Outcome{Category: state.CategoryNumber, Code: CodeBadNumber}
	}
	body, err := json.Marshal(requestFor(m))
	if err != nil { // texts do not fail
		return state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}
	}
	authentication := [2]string{"X-API-Key", c.APIKey}
	if s.bearer {
		authentication = [2]string{"Authorization", "Bearer " + c.APIKey}
	}
	answer, lost, ok := s.client.Post(ctx, httpsend.Request{
		URL:            s.base + "/" + url.PathEscape(c.PhoneNumberID) + "/messages",
		Authentication: authentication,
		Body:           body,
	})
	switch {
	case !ok:
		return lost
	case answer.Accepted():
		var taken struct{ Messages []struct{ ID string } }
		_ = json.Unmarshal(answer.Body, &taken) // accepted all the same
		if len(taken.Messages) == 0 {
			return state.Outcome{OK: true}
		}
		return state.Outcome{OK: true, ExternalID: httpsend.ID(taken.Messages[0].ID)}
	}
	return s.refusal(answer)
}

// request is the body, in the order in which it is written.
type request struct {
	Product  string   `json:"messaging_product"`
	Kind     string   `json:"recipient_type"`
	To       string   `json:"to"`
	Type     string   `json:"type"`
	Template template `json:"template"`
	Callback string   `json:"biz_opaque_callback_data,omitempty"`
}

type template struct {
	Name     string `json:"name"`
	Language struct {
		Code string `json:"code"`
	} `json:"language"`
	Components []component `json:"components,omitempty"`
}

type component struct {
	Type       string      `json:"type"`
	Parameters []parameter `json:"parameters"`
}

type parameter struct {
	Type string `json:"type"`
	Name string `json:"parameter_name,omitempty"`
	Text string `json:"text"`
}

func requestFor(m whatsapp.TemplateMessage) request {
	r := request{
		Product: "whatsapp", Kind: "individual", To: m.To, Type: "template",
		Template: template{Name: m.Template}, Callback: m.IdempotencyKey,
	}
	r.Template.Language.Code = m.Language
	if len(m.Params) > 0 {
		body := component{Type: "body"}
		for _, p := range m.Params {
			body.Parameters = append(body.Parameters, parameter{Type: "text", Name: p.Name, Text: p.Value})
		}
		r.Template.Components = []component{body}
	}
	return r
}

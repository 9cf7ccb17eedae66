package notification

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// Option changes what New sets up.
type Option func(*Transport)

// Bearer sends token along, as "Authorization: Bearer …".
func Bearer(token string) Option { return Header("Authorization", "Bearer "+token) }

// Header sends a header of the service's own along, for instance X-API-Key. There is one such header: the last option that
// sets it counts. The name is of letters, digits, '-' and '_', and none that the request has anyway; the value is
// printable ASCII.
func Header(name, value string) Option {
	return func(t *Transport) { t.header = &[2]string{name, value} }
}

// BareIdempotencyKeys sends the message's key, tenant:key, along as Idempotency-Key, for a service that recognises repeats
// by it. It is written as it is, as most services want it.
func BareIdempotencyKeys() Option {
	return func(t *Transport) { t.key = func(key string) string { return key } }
}

// QuotedIdempotencyKeys is [BareIdempotencyKeys] with the key in double quotes, as the IETF's draft for the header has it.
func QuotedIdempotencyKeys() Option {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return func(t *Transport) {
		t.key = func(key string) string { return `"` + escape.Replace(key) + `"` }
	}
}

// Body makes the body of a message's request, to be written as JSON. Without it that is {"code": the template, "recipient":
// the destination, "variables": the data}. It is called at every attempt, by many goroutines at once, and must give the
// same for the same message each time: no clock, no chance, no data that may have changed.
//
// An error discards the message (plantilla/render), unless it is wrapped with [state.Transient]: then the attempt is
// retried (red/render). A panic, and what encoding/json cannot write, count as errors.
func Body(f func(ctx context.Context, m transports.Message) (any, error)) Option {
	return func(t *Transport) { t.body = f }
}

// Accepted are the only statuses, of 200 to 299, that mean the service took the job. Without it all of them do. Another 2xx
// is then looked up like a refusal: it is transient and ambiguous, unless [Outcomes] has a line.
func Accepted(statuses ...int) Option {
	return func(t *Transport) { t.accepted = append([]int{}, statuses...) }
}

// IDField says where in an accepted job's answer its id is: the names of JSON fields, from the outside in, with dots
// between them, as in "data.job.id". Without it that is "id". Only texts and numbers count, of up to 255 letters, digits
// and ._:=+/- characters.
func IDField(path string) Option {
	return func(t *Transport) { t.idField = path }
}

// CodeField says where in a refusal's body its machine code is, in the form of [IDField]. Without it that is "code".
func CodeField(path string) Option {
	return func(t *Transport) { t.codeField = path }
}

// Outcomes replaces or adds lines of [DefaultOutcomes]. Each is OK or has a category.
func Outcomes(lines map[string]state.Outcome) Option {
	return func(t *Transport) { t.table = t.table.With(lines) }
}

// HTTPClient sets the client that makes the calls; nil is the default one, which verifies certificates, gives up
// connecting after 10 s, uses no proxy and reads no environment. Redirects are never followed, whatever the client says.
func HTTPClient(c *http.Client) Option {
	return func(t *Transport) { t.caller = c }
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// reserved are the headers that a request has anyway, and the one with which net/http would repeat it by itself.
var reserved = []string{
	"Connection", "Content-Length", "Content-Type", "Host", "Idempotency-Key", "Trailer", "Transfer-Encoding", "User-Agent",
	"X-Idempotency-Key",
}

func (t *Transport) validate() error {
	if err := httpsend.CheckURL(t.url); err != nil {
		return invalid("url", err.Error())
	}
	if t.header != nil {
		name, words := t.header[0], strings.Split(t.header[1], " ") // a scheme and a secret, or a secret alone
		switch {
		case !headerName.MatchString(name) || slices.Contains(reserved, http.CanonicalHeaderKey(name)):
			return invalid("Header", "has a name that is none for a header, or taken")
		case slices.ContainsFunc(words, func(w string) bool { return !httpsend.HeaderValue(w) }):
			return invalid("Header", "has a value that is empty, or not printable ASCII")
		}
	}
	switch {
	case t.body == nil:
		return invalid("Body", "is nil")
	case t.accepted != nil && len(t.accepted) == 0:
		return invalid("Accepted", "names no status")
	case slices.ContainsFunc(t.accepted, func(status int) bool { return status/100 != 2 }):
		return invalid("Accepted", "has a status that is not of 200 to 299")
	case t.idField == "":
		return invalid("IDField", "is empty")
	case t.codeField == "":
		return invalid("CodeField", "is empty")
	}
	return t.table.Check()
}

func invalid(field, reason string) error { return &state.InvalidError{Field: field, Reason: reason} }

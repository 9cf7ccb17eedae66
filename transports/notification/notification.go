// Package notification carries messages of the channel notificacion to a notification service of one's own: an HTTP API
// that takes a job, answers, and does the sending with a queue, retries and a log that are its own.
//
// Such a service is reliable from its queue on. What nobody covers is the call before it: when that fails after the change
// behind it was committed, the notice is nowhere, and no queue retries what it was never given. Here the intent is a row,
// written in the transaction of the change; it becomes enviado when the service ACCEPTS the job, and not before. What the
// service makes of it afterwards is the service's to say: this is no second queue.
//
// # When best effort is enough
//
// Most notices can be lost. The question is not how important one is, but whether there is another way for the user to get
// it. A reminder that was lost comes again tomorrow, and a copy of what the screen shows is no loss: call the service
// directly, twice at most, and log it. A lost activation link leaves an account that nobody can use: that one goes through
// the outbox.
//
// # What makes two intents the same
//
// Of two messages with one key, a tenant has the first alone, for as long as its row is kept. So the key says which notice
// of which fact it is, and nothing else: "activacion-" and the user's id. A time or a random part makes every repeated
// request another notice; the address alone swallows the notice of the next fact. Where a user may ask for another copy,
// that request is a fact of its own, and its id belongs into the key: "activacion-reenvio-" and the request's id.
//
// # What it promises
//
// It makes one request per attempt, never a second one by itself, in the same bytes each time, and follows no redirect. A
// job whose answer was lost is posted again, so that the service may get it twice: let it recognise repeats, see
// [BareIdempotencyKeys], or carry the key in the body, see [Body]. Give the lane a Timeout of 10 to 15 s: the service only
// has to put the job into its queue.
package notification

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/internal/adapter"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// Channel is the delivery channel that a message for this transport names. The Channels of a store's configuration have to
// list it: it is none of the default ones.
const Channel = "notificacion"

// Transport is the [transports.Transport] of the channel notificacion. It is safe for concurrent use. It prints and logs as
// a fixed word.
type Transport struct {
	url       string
	header    *[2]string          // nil: none
	key       func(string) string // how a key is written in its header; nil: it is not
	body      func(context.Context, transports.Message) (any, error)
	accepted  []int // nil: any 2xx
	idField   string
	codeField string
	table     httpsend.Table
	caller    *http.Client
	client    httpsend.Client
}

// New returns a Transport that posts jobs to url: an https address without query, or an http one on this machine. A url or
// an option that makes no sense is a [state.InvalidError] that names it. It calls nobody.
func New(url string, options ...Option) (*Transport, error) {
	t := &Transport{url: url, body: job, idField: "id", codeField: "code", table: DefaultOutcomes()}
	for _, o := range options {
		o(t)
	}
	if err := t.validate(); err != nil {
		return nil, err
	}
	t.client = httpsend.New(t.caller)
	return t, nil
}

const redacted = "notification service (withheld)"

// String returns a fixed word.
func (Transport) String() string { return redacted }

// GoString keeps %#v from printing address and key.
func (Transport) GoString() string { return redacted }

// LogValue keeps log/slog from printing address and key.
func (Transport) LogValue() slog.Value { return slog.StringValue(redacted) }

// Send makes one attempt, which ends with ctx at the latest. OK means that the service took the job; ExternalID is the id
// that its answer names, see [IDField], or "" where there is none. What any other answer means is data, see
// [DefaultOutcomes]; a wait that the service asks for is passed on, and the lane's policy caps it.
//
// Without an answer the outcome is in category red, with the codes dns, conexion_rechazada, conexion, tls,
// conexion_cortada and timeout: NotCalled where no request was written, Ambiguous where one was.
//
// Without any call, as charged attempts: plantilla/render and red/render, see [Body]; red/timeout, where ctx ended first;
// and, where keys go along, rechazado/clave_invalida for one that is empty or not printable ASCII.
func (t *Transport) Send(ctx context.Context, m transports.Message) state.Outcome {
	request := httpsend.Request{URL: t.url}
	if t.header != nil {
		request.Authentication = *t.header
	}
	if t.key != nil {
		if !httpsend.HeaderValue(m.IdempotencyKey) {
			return state.Outcome{Category: state.CategoryRejected, Code: state.CodeBadKey}
		}
		request.IdempotencyKey = t.key(m.IdempotencyKey)
	}
	body, refused, ok := adapter.Render(ctx, func(ctx context.Context) ([]byte, error) {
		v, err := t.body(ctx, m)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	if !ok {
		return refused
	}
	request.Body = body
	answer, lost, ok := t.client.Post(ctx, request)
	switch {
	case !ok:
		return lost
	case answer.Accepted() && (t.accepted == nil || slices.Contains(t.accepted, answer.Status)):
		return state.Outcome{OK: true, ExternalID: httpsend.ID(word(answer.Body, t.idField))}
	}
	return t.table.Coded(answer, word(answer.Body, t.codeField))
}

// job is the body where nobody asks for another one.
func job(_ context.Context, m transports.Message) (any, error) {
	return struct {
		Code      string          `json:"code"`
		Recipient string          `json:"recipient"`
		Variables json.RawMessage `json:"variables"`
	}{m.Template, m.Destination, m.Data}, nil
}

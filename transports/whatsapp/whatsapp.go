// Package whatsapp carries messages of the channel whatsapp: it looks up the tenant's credentials, makes the template's
// parameters of a message's data, and hands both to a [Sender].
//
// It always sends an approved template, never free text: whether the recipient wrote within the last 24 hours cannot be
// known when a message leaves minutes or hours after it was enqueued. It promises one call to the sender per attempt,
// and none for a message that cannot be sent.
//
// WhatsApp has no idempotency key. When an answer is lost the message may have been accepted, and a retry may deliver
// it twice; a lane can hold such messages instead. Phone numbers go out as they were enqueued.
package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

// Channel is the delivery channel that a message for this transport names.
const Channel = "whatsapp"

// DefaultLanguage is the template language where Config names none.
const DefaultLanguage = "es_AR"

// CodeBadParameter is the code, with category plantilla, of a parameter that WhatsApp would refuse.
const CodeBadParameter = "parametro_invalido"

// MaxParameterLength is the most characters (not bytes) that a parameter may have.
const MaxParameterLength = 1024

// Config says through what messages leave, on whose account, and with which parameters.
type Config struct {
	// Sender hands a template message to a provider. Required.
	Sender Sender

	// Credentials looks up the account of a tenant. Required. It is called at every attempt, by many goroutines at once;
	// ctx ends at the attempt's timeout. nil without an error, or empty credentials, mean that the tenant has none: its
	// message is discarded. An error is taken to pass, and the attempt is retried. There is no fallback to any other
	// account.
	Credentials func(ctx context.Context, tenant string) (*Credentials, error)

	// Params makes the template's parameters of a message. It may be called many times for one message, and must give
	// the same each time. An error discards the message, unless it is wrapped with [state.Transient]: then the attempt is
	// retried. A panic counts as an error.
	//
	// nil: data that are a JSON array are the positional parameters, in order. They must be strings, numbers (which keep
	// their digits) or booleans; a null or anything nested discards the message. Other data give no parameters.
	Params func(ctx context.Context, m transports.Message) ([]Param, error)

	// Language is the language of all templates, as WhatsApp writes it, for example "pt_BR". Empty: es_AR.
	Language string
}

// Transport is the [transports.Transport] of the channel whatsapp. It is safe for concurrent use.
type Transport struct {
	config Config
}

// New returns a Transport. A missing Sender or Credentials, or a Language that is not made of letters, digits and '_',
// is a [state.InvalidError] that names the field. An error of the sender's own Validate is passed on.
func New(c Config) (*Transport, error) {
	if f, ok := c.Sender.(SenderFunc); c.Sender == nil || ok && f == nil {
		return nil, &state.InvalidError{Field: "Sender", Reason: "is not set"}
	}
	if err := adapter.Validate(c.Sender); err != nil {
		return nil, err
	}
	if c.Credentials == nil {
		return nil, &state.InvalidError{Field: "Credentials", Reason: "is not set"}
	}
	if c.Language == "" {
		c.Language = DefaultLanguage
	}
	if strings.ContainsFunc(c.Language, func(r rune) bool {
		letter, digit := r|0x20 >= 'a' && r|0x20 <= 'z', r >= '0' && r <= '9'
		return !letter && !digit && r != '_'
	}) {
		return nil, &state.InvalidError{Field: "Language", Reason: "is not a language code"}
	}
	if c.Params == nil {
		c.Params = paramsFromData
	}
	return &Transport{c}, nil
}

// Send looks up the credentials, makes the parameters and makes one call to the sender, in this order. The sender's
// outcome is passed on; a failure without a code gets its category as the code. Without any call it answers:
//
//   - credenciales/sin_credenciales: the tenant has none
//   - red/credenciales_excepcion: the look-up failed, panicked or did not return before ctx ended
//   - plantilla/render, red/render: making the parameters failed, for good or with [state.Transient]
//   - plantilla/parametro_invalido: a parameter is blank, longer than [MaxParameterLength] characters, or holds a line
//     break, a tab or another control character, or more than four spaces in a row, all of which WhatsApp refuses; or
//     only some of the parameters have names, or two have the same one
//   - red/timeout: ctx ended before the sender was called
//
// All of these are charged attempts. A panic of the sender is not caught: it is the worker that knows what to do.
func (t *Transport) Send(ctx context.Context, m transports.Message) state.Outcome {
	credentials, err := adapter.Call(ctx, func(ctx context.Context) (*Credentials, error) {
		return t.config.Credentials(ctx, m.TenantID)
	})
	switch {
	case err != nil:
		return state.Outcome{Category: state.CategoryNetwork, Code: state.CodeCredentialsLookup}
	case credentials == nil || *credentials == Credentials{}:
		return state.Outcome{Category: state.CategoryCredentials, Code: state.CodeNoCredentials}
	}
	params, refused, ok := adapter.Render(ctx, func(ctx context.Context) ([]Param, error) {
		return t.config.Params(ctx, m)
	})
	if !ok {
		return refused
	}
	if !sendable(params) {
		return state.Outcome{Category: state.CategoryTemplate, Code: CodeBadParameter}
	}
	return adapter.Named(t.config.Sender.Send(ctx, *credentials, TemplateMessage{
		To:             m.Destination,
		Template:       m.Template,
		Language:       t.config.Language,
		Params:         params,
		IdempotencyKey: m.IdempotencyKey,
	}))
}

// errNotFlat says that an element of the data cannot be a parameter.
var errNotFlat = errors.New("an element is null, an array or an object")

// paramsFromData copies numbers as they are written, so that no digit is lost.
func paramsFromData(_ context.Context, m transports.Message) ([]Param, error) {
	var elements []json.RawMessage
	if !strings.HasPrefix(strings.TrimLeft(string(m.Data), " \t\r\n"), "[") {
		return nil, nil
	}
	if err := json.Unmarshal(m.Data, &elements); err != nil {
		return nil, err
	}
	params := make([]Param, len(elements))
	for i, e := range elements {
		switch e[0] {
		case 'n', '[', '{':
			return nil, errNotFlat
		case '"':
			if err := json.Unmarshal(e, &params[i].Value); err != nil {
				return nil, err
			}
		default:
			params[i].Value = string(e)
		}
	}
	return params, nil
}

// sendable reports whether WhatsApp would take the parameters.
func sendable(params []Param) bool {
	names := map[string]bool{}
	for _, p := range params {
		if p.Name != "" {
			names[p.Name] = true
		}
		if strings.TrimSpace(p.Value) == "" || !utf8.ValidString(p.Value) ||
			utf8.RuneCountInString(p.Value) > MaxParameterLength ||
			strings.Contains(p.Value, "     ") || strings.ContainsFunc(p.Value, breaksLine) {
			return false
		}
	}
	return len(names) == 0 || len(names) == len(params)
}

func breaksLine(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

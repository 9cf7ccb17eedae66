package whatsapp

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/recado-dev/recado/state"
)

// Credentials are the account that a tenant's messages leave from. They print and log as a fixed word, except in an
// unexported field of another struct, where fmt calls no method; encoding/json shows all of them.
type Credentials struct {
	PhoneNumberID string // the provider's id of the sending number
	APIKey        string
}

const redacted = "whatsapp credentials (withheld)"

// String returns a fixed word.
func (Credentials) String() string { return redacted }

// GoString keeps %#v from printing the key.
func (Credentials) GoString() string { return redacted }

// LogValue keeps log/slog from printing the key.
func (Credentials) LogValue() slog.Value { return slog.StringValue(redacted) }

// Param is one parameter of a template's body. Positional ones have no name, and their order counts. It prints and logs as
// a fixed word.
type Param struct {
	Name  string
	Value string
}

const redactedParam = "template parameter (withheld)"

// String returns a fixed word.
func (Param) String() string { return redactedParam }

// GoString keeps %#v from printing personal data.
func (Param) GoString() string { return redactedParam }

// LogValue keeps log/slog from printing personal data.
func (Param) LogValue() slog.Value { return slog.StringValue(redactedParam) }

// TemplateMessage is what a Sender is handed. It prints and logs as its template and language alone: recipient,
// parameters and key are personal data.
type TemplateMessage struct {
	To             string // as it was enqueued
	Template       string
	Language       string
	Params         []Param // all named or none; nil: the template has none
	IdempotencyKey string  // not for the provider to recognise a repeat, but to find the message in its notices
}

// String returns template and language.
func (m TemplateMessage) String() string {
	return fmt.Sprintf("template %s (%s)", m.Template, m.Language)
}

// GoString keeps %#v from printing personal data.
func (m TemplateMessage) GoString() string { return m.String() }

// LogValue keeps log/slog from printing personal data.
func (m TemplateMessage) LogValue() slog.Value { return slog.StringValue(m.String()) }

// Sender hands template messages to a provider. It is called by many goroutines at once.
//
// Send makes one call, never a second one by itself, and returns when ctx ends at the latest. The outcome says what is
// known: Ambiguous when the provider may have taken the message, NotCalled when it was certainly never reached.
// Categories and codes are machine words; no number, parameter, credential or text of the provider goes into them.
//
// A Sender may have a method Validate() error, which New asks: its constructor can then stand in a literal.
type Sender interface {
	Send(ctx context.Context, c Credentials, m TemplateMessage) state.Outcome
}

// SenderFunc adapts a function to a Sender.
type SenderFunc func(ctx context.Context, c Credentials, m TemplateMessage) state.Outcome

// Send calls f.
func (f SenderFunc) Send(ctx context.Context, c Credentials, m TemplateMessage) state.Outcome {
	return f(ctx, c, m)
}

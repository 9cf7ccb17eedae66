package email

import (
	"context"
	"log/slog"
	"time"

	"github.com/recado-dev/recado/state"
)

// Mail is what a Sender is handed. All of it is the same at every attempt of a message.
//
// It prints and logs as a fixed word: every field is personal data.
type Mail struct {
	From           string // one address, perhaps with a display name
	To             string // one bare address
	Subject        string // one line, not blank
	HTML           string // HTML or Text may be empty, not both
	Text           string
	IdempotencyKey string    // for a provider that recognises a repeated call by it
	Date           time.Time // when the message was enqueued: a Date header that does not change with the attempts
}

const redacted = "mail (content withheld)"

// String returns a fixed word.
func (Mail) String() string { return redacted }

// GoString keeps %#v from printing personal data.
func (Mail) GoString() string { return redacted }

// LogValue keeps log/slog from printing personal data.
func (Mail) LogValue() slog.Value { return slog.StringValue(redacted) }

// Sender hands mails to a provider. It is called by many goroutines at once.
//
// Send makes one call, never a second one by itself, and returns when ctx ends at the latest. The outcome says what is
// known: Ambiguous when the provider may have taken the mail, NotCalled when it was certainly never reached. Categories
// and codes are machine words; no address, content, key or text of the provider goes into them.
//
// A Sender may have a method Validate() error, which New asks: its constructor can then stand in a literal.
type Sender interface {
	Send(ctx context.Context, m Mail) state.Outcome
}

// SenderFunc adapts a function to a Sender.
type SenderFunc func(ctx context.Context, m Mail) state.Outcome

// Send calls f.
func (f SenderFunc) Send(ctx context.Context, m Mail) state.Outcome { return f(ctx, m) }

// Package transports is how a message leaves: a [Transport] makes one attempt and says what it came to.
//
// A transport promises one call per attempt, no retry of its own, obedience to its context, and an outcome that tells
// apart what was accepted, refused, ambiguous and certainly not sent. It holds no policy: retries, waits and limits are
// the worker's. Adapters for a channel (email, whatsapp) live below this package and take their sender from the caller.
package transports

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/recado-dev/recado/state"
)

// Transport makes attempts for one channel. It is called by many goroutines at once.
type Transport interface {
	// Send makes one attempt. ctx ends at the attempt's timeout; whatever Send returns after that is too late. Everything
	// about the attempt is in the outcome: there is no error, and a panic counts as transient.
	Send(ctx context.Context, m Message) state.Outcome
}

// Func adapts a function to a Transport.
type Func func(ctx context.Context, m Message) state.Outcome

// Send calls f.
func (f Func) Send(ctx context.Context, m Message) state.Outcome { return f(ctx, m) }

// Message is what a transport is handed. All of it but Attempt is the same at every attempt of a row, byte for byte.
//
// It prints and logs as its id and channel alone: destination, data and key are personal data.
type Message struct {
	ID             string
	TenantID       string
	Channel        string
	Destination    string
	Template       string
	Data           json.RawMessage // valid JSON
	IdempotencyKey string          // what the provider gets: tenant:key, printable ASCII, at most 256 bytes
	CreatedAt      time.Time       // when the message was enqueued
	Headers        map[string]string
	Attempt        int // 1 for the first
	MaxAttempts    int
}

// String returns id and channel.
func (m Message) String() string { return fmt.Sprintf("message %s (%s)", m.ID, m.Channel) }

// GoString keeps %#v from printing personal data.
func (m Message) GoString() string { return m.String() }

// LogValue keeps log/slog from printing personal data.
func (m Message) LogValue() slog.Value { return slog.StringValue(m.String()) }

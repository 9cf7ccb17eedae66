package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Observer is told what happens, for logs, metrics and traces. Its methods are called from many goroutines and must not
// block; a panic in one is ignored. Channel, outcome class, category, event and verdict come from small fixed sets and
// may be labels of a metric; ids and codes may not.
type Observer interface {
	// Claimed is called after every claim, empty and failed ones included.
	Claimed(Claimed)

	// Attempt is called before each call of a transport. The context it returns is the one the transport gets, so that it
	// can carry a span; the function is called with the outcome, or with the timeout when the call outlives it. Category,
	// code and external id are as they are stored: a transport's own text, where it gives any, is gone.
	Attempt(context.Context, Attempt) (context.Context, func(state.Outcome))

	// Settled is called once a message's result is stored, or has turned out impossible to store. The sum of these events
	// is the sum of the reports.
	Settled(Settled)
}

// Claimed describes a claim.
type Claimed struct {
	Channel  string
	Messages int           // handed out
	Closed   int           // closed without a call
	Took     time.Duration // of the claim itself
	ErrCode  string        // with Failed: the database's code, which may be ""
	Failed   bool
}

// Attempt describes a call that is about to be made. It prints and logs as id, channel and count alone: tenant and headers
// are the application's.
type Attempt struct {
	ID          string
	TenantID    string
	Channel     string
	Template    string
	Attempt     int // 1 for the first
	MaxAttempts int
	Waited      time.Duration     // since the message wanted to go out
	Headers     map[string]string // not to be changed
}

// String returns id, channel and count.
func (a Attempt) String() string {
	return fmt.Sprintf("attempt %d of %d of message %s (%s)", a.Attempt, a.MaxAttempts, a.ID, a.Channel)
}

// GoString keeps %#v from printing what is the application's.
func (a Attempt) GoString() string { return a.String() }

// LogValue keeps log/slog from printing what is the application's.
func (a Attempt) LogValue() slog.Value { return slog.StringValue(a.String()) }

// Settled describes a stored result.
type Settled struct {
	ID       string
	Channel  string
	Event    state.Event
	Category string
	Code     string
	Verdict  store.Verdict
	Failed   bool // the result could not be stored; the lease will end and the message be taken again
}

// NopObserver does nothing. Embed it to implement only some of [Observer].
type NopObserver struct{}

// Claimed does nothing.
func (NopObserver) Claimed(Claimed) {}

// Attempt does nothing.
func (NopObserver) Attempt(ctx context.Context, _ Attempt) (context.Context, func(state.Outcome)) {
	return ctx, func(state.Outcome) {}
}

// Settled does nothing.
func (NopObserver) Settled(Settled) {}

// guarded keeps an observer's panics from the worker.
type guarded struct{ Observer }

func (g guarded) Claimed(c Claimed) {
	defer ignorePanic()
	g.Observer.Claimed(c)
}

func (g guarded) Attempt(ctx context.Context, a Attempt) (out context.Context, finish func(state.Outcome)) {
	out, finish = ctx, func(state.Outcome) {}
	defer ignorePanic()
	observed, f := g.Observer.Attempt(ctx, a)
	if observed != nil {
		out = observed
	}
	if f != nil {
		finish = func(o state.Outcome) {
			defer ignorePanic()
			f(o)
		}
	}
	return out, finish
}

func (g guarded) Settled(s Settled) {
	defer ignorePanic()
	g.Observer.Settled(s)
}

// ignorePanic ends a panic of the caller's own hooks: what they watch has happened either way.
func ignorePanic() { _ = recover() }

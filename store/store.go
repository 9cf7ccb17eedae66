package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/recado-dev/recado/state"
)

// Store is what a worker needs. Implementations are safe for concurrent use, by many workers in many processes.
//
// One clock decides due times, leases and expiry: the store's own. No method takes the caller's time; waits and leases
// are durations that the store adds to its now. Times are kept to the microsecond, rounded down.
type Store interface {
	// Claim takes up to p.Limit due rows of one channel, in order of (turn, id), and returns them in that order.
	//
	// A row is due when its turn has come and it is pending, or it is processing and its lease has ended or is missing
	// (equal instants count). Each claimed row MUST in one atomic step become procesando with one attempt more, a lease
	// that ends p.Lease from now, and the claim's token: 128 random bits, new for every claim and never reused. Two
	// claims never hold one row at the same time.
	//
	// A due row that is at its limit, or past its deliver-by time, is closed to fallido by the claim itself (see
	// [state.Closing]), its token cleared, and reported in Claim.Closed; it takes a place of the limit and is not handed
	// out. With p.ReturnExhausted it is handed out instead: leased and fenced like the others but not charged, with
	// Message.Closing set in the answer, not in the row. Such a row is to be settled by fallar alone: there is no attempt
	// to give back.
	//
	// A row that the database refuses to change, or that cannot be read, MUST NOT keep the others from being claimed: it is
	// reported in Claim.Refused.
	//
	// Nothing due is not an error. Invalid params are an [InvalidError], before anything is written.
	Claim(ctx context.Context, p ClaimParams) (Claim, error)

	// Settle writes each settlement if, and only if, its fence holds: the row is procesando under exactly that lease and
	// that token. It returns one verdict per settlement, in their order. A settlement whose fence does not hold changes
	// nothing and is Lost; the others are written all the same. Of several settlements of one row in a group at most one
	// is written.
	//
	// Settle MUST be idempotent: the token stays in a settled row, and a repeat answers Applied while the row is just as
	// that settlement left it. Once it has been claimed again, requeued, cancelled or purged, the answer is Lost. Of two
	// different settlements of one claim only one is ever Applied. One repeat cannot be recognised, and is Lost: that of
	// liberar, after the clock was set back to before the row's NextAttemptAt while it was claimed. The row then looks as
	// aplazar leaves one.
	//
	// If it returns an error no verdict counts, and the caller repeats the whole group. An illegal transition is a
	// [state.TransitionError], before anything is written.
	Settle(ctx context.Context, s []Settlement) ([]Verdict, error)

	// Purge deletes terminal rows whose last change lies strictly before p.Before, in bounded batches, each committed on
	// its own. It returns how many are gone, also beside an error. Invalid params are an [InvalidError].
	Purge(ctx context.Context, p PurgeParams) (int64, error)
}

// Token is the claim's half of the fence: 128 random bits. The zero Token stands for none.
type Token [16]byte

// Mark is a place in the queue of one channel: just behind the row with this turn and id. The zero Mark is its head.
type Mark struct {
	Turn time.Time
	ID   string
}

// ClaimParams says what to claim.
type ClaimParams struct {
	Channel string        // one channel, not empty
	Limit   int           // 1 to MaxClaim rows, closed ones included
	Lease   time.Duration // at least 1 ms
	From    Mark          // only rows behind it; zero: all

	// ReturnExhausted hands out rows that Claim would close, so that the caller can close them together with something
	// of its own.
	ReturnExhausted bool
}

// MaxClaim is the most rows that one claim takes.
const MaxClaim = 10_000

// Validate returns an [InvalidError] that names the offending field, or nil.
func (p ClaimParams) Validate() error {
	switch {
	case p.Channel == "":
		return invalid("Channel", "is empty")
	case p.Limit < 1 || p.Limit > MaxClaim:
		return invalid("Limit", "must be between 1 and 10000")
	case p.Lease < time.Millisecond:
		return invalid("Lease", "must be at least 1 ms")
	}
	return nil
}

// Claim is what a claim took.
type Claim struct {
	Now      time.Time // the store's clock at the claim; it may be zero when nothing was taken
	Messages []Message // in order of (turn, id)
	Closed   []Closed  // rows that it closed without handing them out, in no order
	Refused  []Closed  // due rows that the database would not let it take or close, with its code; they were passed over

	// Mark is where the next claim may begin to spare itself the finished and in-flight rows at the head. It never lies
	// behind a claimed row, nor later than 5 s before Now; rows that turn up below it wait for the next claim from the
	// zero Mark, so callers make one every second or so. It is p.From when nothing was handed out.
	Mark Mark
}

// Closed is a row that a claim closed to fallido without a call, or could not take.
type Closed struct {
	ID   string
	Code string // lease_agotado, intentos_agotados or vencido; or the database's
}

// Fence identifies one claim of one row. Both halves are needed: foreign workers write only the lease, and a lease
// alone repeats within a tick of the clock.
type Fence struct {
	ID          string
	LeasedUntil time.Time
	Token       Token
}

// Settlement is the transition to write behind a fence. Attempts is the row's count as it was claimed: a store needs it
// to tell a repeat of reintentar from one of aplazar.
type Settlement struct {
	Fence
	Attempts int
	state.Transition
}

// String shows the row's id and the transition.
func (s Settlement) String() string { return fmt.Sprintf("settlement of %s: %s", s.ID, s.Transition) }

// GoString keeps %#v from printing the external id.
func (s Settlement) GoString() string { return s.String() }

// LogValue keeps log/slog from printing the external id.
func (s Settlement) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Verdict is the answer to one fenced write.
type Verdict uint8

// The zero Verdict is Lost: nothing was written.
const (
	Lost    Verdict = iota // the fence does not hold (any more), nothing was changed
	Applied                // written now, or before by this very write
)

// String returns "lost" or "applied".
func (v Verdict) String() string {
	if v == Applied {
		return "applied"
	}
	return "lost"
}

// PurgeParams says what to delete.
type PurgeParams struct {
	Before time.Time     // rows last changed strictly before; not zero
	States []state.State // nil: all terminal states; otherwise a non-empty list of terminal ones
	Batch  int           // rows per transaction, 1 to MaxClaim; 0: 1000
}

// Normalize validates p, fills in the defaults and cuts Before to the microsecond. An empty list, a state that is not
// terminal (one refuses all), a zero Before or a Batch out of range is an [InvalidError].
func (p PurgeParams) Normalize() (PurgeParams, error) {
	if p.States == nil {
		p.States = state.TerminalStates()
	}
	if p.Batch == 0 {
		p.Batch = 1000
	}
	switch {
	case p.Before.IsZero():
		return p, invalid("Before", "is not set")
	case len(p.States) == 0:
		return p, invalid("States", "is empty")
	case p.Batch < 1 || p.Batch > MaxClaim:
		return p, invalid("Batch", "must be between 1 and 10000")
	}
	for _, s := range p.States {
		if !s.Terminal() {
			return p, invalid("States", "holds a state that is not terminal")
		}
	}
	p.Before = Microsecond(p.Before)
	return p, nil
}

// Microsecond cuts t down to the precision that every store keeps, in UTC. The zero time stays zero.
func Microsecond(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

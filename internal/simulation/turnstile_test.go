package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// kind is what a call asks for. Calls that arrive at one instant are taken in this order.
type kind int

const (
	send kind = iota
	settle
	claim
	nextDue
	channels
)

var kinds = [...]string{"send", "settle", "claim", "next due", "channels"}

// call is one call that a worker makes of the store or of a transport. It stands at the turnstile until the scheduler has
// decided what becomes of it.
type call struct {
	kind     kind
	w        *worker
	channel  string
	params   store.ClaimParams
	group    []store.Settlement
	message  transports.Message
	deadline time.Time // of its context; zero: none

	at    time.Time // when it arrived
	reply answer
	free  chan struct{} // closed when the call may return

	// The scheduler's own.
	done    bool      // executed, only the reply is outstanding
	hold    time.Time // no reply before then
	attempt *attempt  // of a send
	note    string    // what the trace says with the reply
}

// answer is what a call returns.
type answer struct {
	err      error
	claim    store.Claim
	verdicts []store.Verdict
	wait     time.Duration
	found    bool
	channels []string
	outcome  state.Outcome
	panics   bool
	exits    bool
}

// order sorts calls by who makes them, and not by the chance of who came first within an instant. A lane has one claim,
// one settlement and one look at the next due time at a time, and calls one message no sooner than it has claimed it.
func order(a, b *call) int {
	return cmp.Or(cmp.Compare(a.w.n, b.w.n), cmp.Compare(a.channel, b.channel), cmp.Compare(a.kind, b.kind),
		a.at.Compare(b.at), cmp.Compare(a.message.ID, b.message.ID), cmp.Compare(a.message.Attempt, b.message.Attempt))
}

// turnstile is where all calls of all workers wait.
type turnstile struct {
	mu      sync.Mutex // never held while anything waits
	arrived []*call
}

// errDead is what a crashed worker gets from then on. It is no use to try again, so the worker soon ends.
var errDead = &store.Error{Op: "simulation", Code: "dead", Refused: true, Err: errors.New("this worker has crashed")}

var answerOfTheDead = answer{err: errDead, outcome: state.Outcome{Category: state.CategoryNetwork, Code: "dead"}}

// through takes the call through the turnstile.
func (t *turnstile) through(c *call) answer {
	t.mu.Lock()
	if c.w.dead {
		t.mu.Unlock()
		return answerOfTheDead
	}
	c.at, c.free = time.Now(), make(chan struct{})
	t.arrived = append(t.arrived, c)
	t.mu.Unlock()
	<-c.free
	return c.reply
}

// arrivals returns the calls that have come since it was last asked.
func (t *turnstile) arrivals() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	arrived := t.arrived
	t.arrived = nil
	return arrived
}

// kill has every further call of w fail without waiting.
func (t *turnstile) kill(w *worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.dead = true
}

// port is the store as one worker sees it.
type port struct {
	*turnstile
	w *worker
}

func (p port) call(ctx context.Context, c *call) answer {
	c.w = p.w
	c.deadline, _ = ctx.Deadline()
	return p.through(c)
}

func (p port) Claim(ctx context.Context, params store.ClaimParams) (store.Claim, error) {
	a := p.call(ctx, &call{kind: claim, channel: params.Channel, params: params})
	return a.claim, a.err
}

// Settle is not told the lane that it is called for: the scheduler knows it by the rows.
func (p port) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	a := p.call(ctx, &call{kind: settle, group: group})
	return a.verdicts, a.err
}

func (p port) Purge(context.Context, store.PurgeParams) (int64, error) {
	return 0, errors.ErrUnsupported // no worker purges
}

func (p port) NextDue(ctx context.Context, chs []string) (time.Duration, bool, error) {
	a := p.call(ctx, &call{kind: nextDue, channel: strings.Join(chs, ",")})
	return a.wait, a.found, a.err
}

func (p port) Channels(ctx context.Context) ([]string, error) {
	a := p.call(ctx, &call{kind: channels})
	return a.channels, a.err
}

// line is a transport as one worker sees it.
type line struct{ port }

func (l line) Send(ctx context.Context, m transports.Message) state.Outcome {
	a := l.call(ctx, &call{kind: send, channel: m.Channel, message: m})
	switch {
	case a.panics:
		panic("a transport's own trouble")
	case a.exits:
		runtime.Goexit()
	}
	return a.outcome
}

// String names the call for the trace.
func (c *call) String() string {
	text := fmt.Sprintf("%s %s %s", c.w, cmp.Or(c.channel, "looks up its"), kinds[c.kind])
	switch c.kind {
	case send:
		text += fmt.Sprintf(" %s attempt %d", rowName(c.message.ID), c.message.Attempt)
	case settle:
		for _, st := range c.group {
			text += fmt.Sprintf(" %s:%s", rowName(st.ID), st.Event)
		}
	case claim:
		text += fmt.Sprintf(" %d", c.params.Limit)
		if c.params.From != (store.Mark{}) {
			text += " from mark"
		}
	}
	return text
}

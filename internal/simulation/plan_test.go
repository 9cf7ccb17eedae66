package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
)

// The kinds of fault, and of what else may come in between.
const (
	errorBefore   = "error before execution"
	replyLost     = "reply lost"
	replyLate     = "reply late"
	executedLate  = "executed after the error"
	rowLocked     = "row locked"
	refused       = "write refused"
	crash         = "crash"
	pause         = "pause beyond the lease"
	clockForward  = "clock forward"
	clockBack     = "clock back"
	slowCall      = "call beyond its timeout"
	abandonedCall = "call abandoned"
	panicked      = "transport panic"
	exited        = "transport ends its goroutine"
	ambiguous     = "ambiguous outcome"
	notCalled     = "outcome not called"
	account       = "outcome about the account"
	malformed     = "malformed outcome"
	gracefulStop  = "graceful stop"
	requeued      = "requeue"
	cancelled     = "cancel"
	purged        = "purge"
)

var everyFault = []string{
	errorBefore, replyLost, replyLate, executedLate, rowLocked, refused, crash, pause, clockForward, clockBack, slowCall,
	abandonedCall, panicked, exited, ambiguous, notCalled, account, malformed, gracefulStop, requeued, cancelled, purged,
}

// What the faults have to lead to, or they show little.
const (
	takenOver = "lease taken over"
	stale     = "result of a stale claim"
	repeated  = "settlement repeated"
)

var everyEffect = []string{takenOver, stale, repeated}

const maxRows = 14 // of a schedule

// The channels: two that are served, and one whose rows nobody may touch.
const (
	mail     = "correo"
	chat     = "whatsapp"
	unserved = "sms"
)

// mode is how a worker is used.
type mode int

const (
	running  mode = iota // Run
	passing              // ProcessBatch, now and then
	draining             // Drain, now and then
)

// slot is the place of a worker: when one dies or stops, the next there has the same settings.
type slot struct {
	mode   mode
	lanes  map[string]dispatch.Lane
	poll   time.Duration
	grace  time.Duration
	period time.Duration // between the passes of one that does not run on
	bare   bool          // its store has none of the optional abilities
}

// plan is all that a schedule's seed settles in advance.
type plan struct {
	channels []string
	slots    []slot
	rows     int
	steps    int
	faults   map[string]bool // those that may happen
	often    float64         // share of calls that meet a fault
	honours  map[string]bool // channels whose receiver takes a key only once
}

// dice draws what a schedule needs.
type dice struct{ *rand.Rand }

func (d dice) chance(p float64) bool { return d.Float64() < p }

func (d dice) within(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

func (d dice) number(low, high int) int { return low + d.IntN(high-low+1) }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

func draw(d dice) plan {
	p := plan{
		channels: []string{mail, chat}[:d.number(1, 2)],
		rows:     d.number(2, 9),
		steps:    d.number(40, 260),
		faults:   map[string]bool{},
		often:    pick(d, 0.05, 0.15, 0.4),
		honours:  map[string]bool{mail: d.chance(0.5), chat: d.chance(0.5)},
	}
	// Few kinds of fault at a time reach deeper than all of them at once.
	share := pick(d, 0.2, 0.5, 0.9)
	for _, f := range everyFault {
		p.faults[f] = d.chance(share)
	}
	for n := range d.number(2, 3) {
		s := slot{
			mode: pick(d, running, running, passing, draining), lanes: map[string]dispatch.Lane{},
			poll: d.within(200*time.Millisecond, 4*time.Second), period: d.within(500*time.Millisecond, 6*time.Second),
			bare: d.chance(0.2),
		}
		widest := 1
		for _, channel := range p.channels {
			if n > 0 && d.chance(0.2) { // the first worker serves all
				continue
			}
			lane := dispatch.Lane{
				BatchSize: d.number(1, 6), Concurrency: d.number(1, 3),
				Lease: d.within(dispatch.MinLease, 12*time.Second), Policy: drawPolicy(d),
			}
			lane.Timeout = d.within(dispatch.MinTimeout, lane.Lease/2)
			s.lanes[channel] = lane
			widest = max(widest, lane.Concurrency)
		}
		if d.chance(0.5) {
			s.grace = d.within(time.Millisecond, 4*time.Second)
		}
		p.slots = append(p.slots, s)
	}
	return p
}

func drawPolicy(d dice) *state.Policy {
	p := state.Policy{
		Backoff:       state.Backoff{Base: d.within(time.Second, 4*time.Second), Factor: 2, Jitter: 0.2},
		MaxRetryAfter: d.within(time.Second, 20*time.Second),
		HoldAmbiguous: d.chance(0.15),
	}
	p.Backoff.Max = d.within(p.Backoff.Base, 10*time.Second)
	if d.chance(0.5) {
		p.MaxAge = d.within(10*time.Second, 90*time.Second)
	}
	return &p
}

func (s slot) String() string {
	text := [...]string{"Run", "ProcessBatch", "Drain"}[s.mode]
	text += fmt.Sprintf(" poll %s grace %s period %s", s.poll, s.grace, s.period)
	for _, channel := range []string{mail, chat} {
		if l, ok := s.lanes[channel]; ok {
			text += fmt.Sprintf("; %s batch %d × %d, lease %s, timeout %s, max age %s, hold %t",
				channel, l.BatchSize, l.Concurrency, l.Lease, l.Timeout, l.Policy.MaxAge, l.Policy.HoldAmbiguous)
		}
	}
	return text
}

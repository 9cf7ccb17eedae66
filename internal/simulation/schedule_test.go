package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins

// schedule is one run: some workers, one store, and a scheduler that lets one call at a time go on. All that is random in
// it is drawn from its seed, by the scheduler alone.
type schedule struct {
	dice
	seed  uint64
	plan  plan
	flaw  flaw
	tally *proof.Tally

	gate   turnstile
	box    flawed
	ahead  time.Duration // how far the store's clock is ahead of the bubble's
	parked []*call       // at the turnstile, in their order
	adrift []adrift      // statements that will still be executed, though their callers were told of an error
	calm   bool          // no more faults

	workers []*worker
	alive   []*worker   // by slot; nil: nobody
	next    []time.Time // when the slot's next worker starts

	rows   []*row
	byID   map[string]*row
	tokens map[fenced]*hold
	holds  map[*call][]*hold // by the claim
	keys   map[string]bool   // that the receivers have seen

	trace      []string
	violations []violation
}

// adrift is a statement on its way.
type adrift struct {
	call *call
	at   time.Time
}

// violation is a broken promise.
type violation struct{ promise, text string }

// run plays the schedule of a seed, with at most that many steps before the faults stop.
func run(t *testing.T, seed uint64, steps int, f flaw, tally *proof.Tally) *schedule {
	// Real time, for a worker that goes round in circles while virtual time stands still.
	hangs := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d: the schedule does not end", seed)) })
	defer hangs.Stop()
	var s *schedule
	synctest.Test(t, func(*testing.T) {
		d := dice{rand.New(rand.NewPCG(seed, 0x7265636164))}
		s = &schedule{
			dice: d, seed: seed, plan: draw(d), flaw: f, tally: tally, byID: map[string]*row{}, tokens: map[fenced]*hold{},
			holds: map[*call][]*hold{}, keys: map[string]bool{},
		}
		s.box = flawed{flaw: f, Store: memstore.New(memstore.Config{
			Clock: func() time.Time { return time.Now().Add(s.ahead) },
			Rules: store.Rules{TextTenant: true, Channels: []string{mail, chat, unserved}},
			NewID: func() string { return rowID(len(s.rows) + 1) },
		})}
		s.alive, s.next = make([]*worker, len(s.plan.slots)), make([]time.Time, len(s.plan.slots))
		s.play(min(steps, s.plan.steps))
	})
	return s
}

func (s *schedule) play(steps int) {
	for i, slot := range s.plan.slots {
		s.tell("slot %d: %s", i+1, slot)
	}
	for range s.plan.rows {
		s.enqueue()
	}
	for place := range s.plan.slots {
		s.start(place)
	}
	for range steps {
		if s.hopeless() {
			break
		}
		s.step()
	}
	s.settleDown()
	s.afterwards()
	s.audit()
}

// step makes one thing happen, and a moment pass.
func (s *schedule) step() {
	s.settleDown()
	now := time.Now()
	for i := 0; i < len(s.adrift); i++ {
		if one := s.adrift[i]; now.After(one.at) {
			s.adrift = slices.Delete(s.adrift, i, i+1)
			s.tell("late: %s", one.call)
			s.fault(executedLate)
			s.execute(one.call)
			return
		}
	}
	for place, w := range s.alive {
		switch {
		case w == nil && now.After(s.next[place]):
			s.start(place)
			return
		case w != nil && !w.paused.IsZero() && now.After(w.paused):
			s.tell("%s goes on", w)
			w.paused = time.Time{}
			return
		}
	}
	ready := s.ready()
	old := slices.IndexFunc(ready, func(c *call) bool { return c.kind != send && now.Sub(c.at) > 15*time.Second })
	switch x := s.Float64(); {
	case old >= 0: // a database answers in the end, or the driver does
		s.decide(ready[old])
	case len(ready) > 0 && x < 0.75:
		s.decide(pick(s.dice, ready...))
	case x < 0.93:
		s.pass(s.idle())
		return
	default:
		s.incident()
	}
	s.pass(s.within(1, 500*time.Microsecond))
}

// idle is how long nothing is decided.
func (s *schedule) idle() time.Duration {
	switch x := s.Float64(); {
	case x < 0.5:
		return s.within(time.Millisecond, 50*time.Millisecond)
	case x < 0.8:
		return s.within(50*time.Millisecond, 800*time.Millisecond)
	case x < 0.96:
		return s.within(800*time.Millisecond, 3*time.Second)
	}
	return s.within(3*time.Second, 12*time.Second)
}

// settleDown returns when nothing moves any more, and takes in what has come.
func (s *schedule) settleDown() {
	synctest.Wait()
	arrived := s.gate.arrivals()
	for _, c := range arrived {
		if c.kind == settle {
			c.channel = s.byID[c.group[0].ID].channel
		}
	}
	slices.SortFunc(arrived, func(a, b *call) int { return cmp.Or(a.at.Compare(b.at), order(a, b)) })
	for _, c := range arrived {
		s.tellAt(c.at, "%s", c)
		switch c.kind {
		case send:
			s.called(c)
		case claim:
			s.asked(c)
		}
	}
	s.parked = append(s.parked, arrived...)
	slices.SortFunc(s.parked, order)
	for place, w := range s.alive {
		if w == nil {
			continue
		}
		select {
		case <-w.over:
			s.tell("%s has ended", w)
			w.ended, s.alive[place], s.next[place] = true, nil, time.Now().Add(s.within(0, 5*time.Second))
			s.wantReports(w)
		default:
		}
	}
}

// ready are the calls about which something can be decided.
func (s *schedule) ready() []*call {
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(s.parked), func(c *call) bool {
		return !c.w.paused.IsZero() || now.Before(c.hold)
	})
}

// pass lets virtual time go by. Of the calls of a lane that would run out of time at the very same instant, all but one
// return before: which of them the worker hears of first would be up to the runtime.
func (s *schedule) pass(d time.Duration) {
	s.settleDown()
	until := time.Now().Add(d)
	for _, w := range s.workers {
		if w.paused.IsZero() {
			s.untie(w, until)
		}
	}
	if d = time.Until(until); d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}

// untie has all but one of each lane's calls return that end at one instant, up to until.
func (s *schedule) untie(w *worker, until time.Time) {
	for {
		var tied []*call
		for _, c := range s.parked {
			if c.w != w || c.kind != send || !c.attempt.end.After(time.Now()) || c.attempt.end.After(until) {
				continue
			}
			if len(tied) > 0 && (tied[0].channel != c.channel || !tied[0].attempt.end.Equal(c.attempt.end)) {
				if len(tied) > 1 {
					break
				}
				tied = nil
			}
			tied = append(tied, c)
		}
		if len(tied) < 2 {
			return
		}
		c := pick(s.dice, tied...)
		c.hold = time.Time{}
		if !c.done {
			s.execute(c)
		}
		s.answer(c)
		s.settleDown()
		timer := time.NewTimer(s.within(1, 1000))
		<-timer.C
		s.settleDown()
	}
}

// decide lets one call go on, with a fate.
func (s *schedule) decide(c *call) {
	switch {
	case c.done:
		s.answer(c)
	case c.kind == send:
		if s.may(crash, 0.02) {
			s.crash(c.w)
			return
		}
		s.execute(c)
		if !c.reply.panics && !c.reply.exits {
			s.delay(c)
		}
		if time.Now().Before(c.hold) {
			return
		}
		if s.may(crash, 0.04) { // the provider has it, and nobody knows
			s.crash(c.w)
			return
		}
		s.answer(c)
	default:
		s.decideStatement(c)
	}
}

// delay draws when a call returns.
func (s *schedule) delay(c *call) {
	lane := c.w.lanes[c.channel]
	switch {
	case s.may(slowCall, s.plan.often):
		c.hold = c.attempt.end.Add(s.within(1, lane.Timeout))
	case s.may(abandonedCall, s.plan.often/2):
		c.hold = c.attempt.end.Add(lane.Timeout + s.within(1, 3*lane.Timeout))
	case s.chance(0.6):
		c.hold = time.Now().Add(s.within(time.Millisecond, lane.Timeout*3/4))
	}
}

var (
	errAway   = errors.New("the connection is gone")
	errBroken = func(c *call) error { return &store.Error{Op: kinds[c.kind], Code: "08006", Err: errAway} }
)

func (s *schedule) decideStatement(c *call) {
	writes := c.kind == settle || c.kind == claim
	often := s.plan.often
	switch {
	case s.may(errorBefore, often):
		c.reply, c.note = answer{err: errBroken(c)}, ": not executed"
		s.fault(errorBefore)
	case writes && s.may(crash, often/6):
		if s.chance(0.5) {
			s.execute(c)
			s.tell("%s executed%s", c, c.note)
		}
		s.crash(c.w)
		return
	case writes && s.may(replyLost, often):
		s.execute(c)
		c.reply = answer{err: errBroken(c)}
		c.note += ", reply lost"
		s.fault(replyLost)
	case writes && s.may(executedLate, often):
		later := *c
		s.adrift = append(s.adrift, adrift{&later, time.Now().Add(s.within(time.Millisecond, 8*time.Second))})
		c.reply, c.note = answer{err: errBroken(c)}, ": not yet executed"
	case c.kind == settle && s.may(rowLocked, often):
		c.reply, c.note = answer{err: &store.Error{Op: "settle", Code: "55P03", Locked: true, Err: errAway}}, ": locked"
		s.fault(rowLocked)
	case c.kind == settle && s.may(refused, often/3):
		c.reply, c.note = answer{err: &store.Error{Op: "settle", Code: "23514", Refused: true, Err: errAway}}, ": refused"
		s.fault(refused)
	default:
		s.execute(c)
		if s.may(replyLate, often) {
			c.done, c.hold = true, time.Now().Add(s.within(time.Millisecond, 9*time.Second))
			s.tell("%s executed%s, reply late", c, c.note)
			s.fault(replyLate)
			return
		}
	}
	s.answer(c)
}

// execute does what a call asks for, now.
func (s *schedule) execute(c *call) {
	c.done, c.note = true, ":"
	switch c.kind {
	case send:
		s.provide(c)
	case settle:
		c.reply.verdicts, c.reply.err = s.box.Settle(ctx, c.group)
		if c.reply.err == nil {
			s.settled(c)
		}
	case claim:
		c.reply.claim, c.reply.err = s.box.Claim(ctx, c.params)
		if c.reply.err == nil {
			s.claimed(c)
		}
	case nextDue:
		c.reply.wait, c.reply.found, c.reply.err = s.box.NextDue(ctx, []string{c.channel})
		c.note += fmt.Sprintf(" in %s, %t", c.reply.wait, c.reply.found)
	case channels:
		c.reply.channels, c.reply.err = s.box.Channels(ctx)
		c.note += fmt.Sprint(" ", c.reply.channels)
	}
	if c.reply.err != nil {
		panic(c.reply.err) // nothing fails behind the turnstile
	}
}

// provide is the provider: it takes the message or not, and has something to say.
func (s *schedule) provide(c *call) {
	o, taken := state.Outcome{OK: true, ExternalID: "ext-" + rowName(c.message.ID)}, true
	kind := ""
	failing := func(f string) { kind, taken, o = f, false, state.Outcome{} }
	if !s.calm && s.chance(0.25+s.plan.often) {
		switch x := s.IntN(12); {
		case x == 0:
			failing("")
			o = state.Outcome{Category: state.CategoryRateLimit, Code: "429", RetryAfter: s.within(0, 30*time.Second)}
		case x == 1:
			failing("")
			o = state.Outcome{Category: state.CategoryRejected, Code: "422"}
		case x == 2 && s.chance(0.3):
			failing("")
			o = state.Outcome{Category: state.CategoryIdempotencyConflict, Code: "409"}
		case x == 3:
			failing("")
			o = state.Outcome{Category: "otra", Code: "x"}
		case x == 4 && s.allowed(malformed):
			failing(malformed)
		case x == 5 && s.allowed(notCalled):
			failing(notCalled)
			o = state.Outcome{Category: pick(s.dice, state.CategoryNetwork, state.CategoryNetwork, state.CategoryRateLimit), Code: "dns", NotCalled: true}
		case x == 6 && s.allowed(account):
			failing(account)
			o = state.Outcome{Category: pick(s.dice, state.CategoryCredentials, state.CategoryRateLimit), Code: "401", Account: true}
		case x <= 8 && s.allowed(panicked):
			failing(panicked)
			taken, c.reply.panics, c.attempt.panicked = s.chance(0.5), true, true
		case x == 9 && s.allowed(exited):
			failing(exited)
			taken, c.reply.exits, c.attempt.panicked = s.chance(0.5), true, true
		case x >= 10 && s.allowed(ambiguous):
			failing(ambiguous)
			o, taken = state.Outcome{Category: state.CategoryNetwork, Code: "503", Ambiguous: true}, s.chance(0.5)
		}
	}
	if kind != "" {
		s.fault(kind)
	}
	c.reply.outcome = o
	c.note = fmt.Sprintf(": taken %t, %s %s", taken, state.Classify(o), o.Category)
	if c.attempt.panicked {
		c.note = fmt.Sprintf(": taken %t, panics or ends", taken)
	}
	if taken {
		c.attempt.accepted = true
		c.attempt.row.accepted++
		if key := c.message.IdempotencyKey; !s.keys[key] || !s.plan.honours[c.channel] {
			s.keys[key] = true
			c.attempt.row.arrived++
		}
	}
	s.tell("%s at the provider%s", c, c.note)
}

// answer lets a call return.
func (s *schedule) answer(c *call) {
	if a := c.attempt; c.kind == send {
		now := time.Now()
		a.returned = true
		switch {
		case now.Before(a.end):
			a.heard = &c.reply.outcome
		case now.Before(a.end.Add(c.w.lanes[c.channel].Timeout)):
			s.fault(slowCall)
		default:
			s.fault(abandonedCall)
		}
	}
	s.parked = slices.DeleteFunc(s.parked, func(one *call) bool { return one == c })
	s.told(c)
	s.tell("%s returns%s", c, c.note)
	close(c.free)
}

// incident is what happens besides calls.
func (s *schedule) incident() {
	w := s.alive[s.IntN(len(s.alive))]
	var left []*row
	for _, r := range s.rows {
		if !r.gone && r.channel != unserved {
			left = append(left, r)
		}
	}
	switch x := s.IntN(12); {
	case x == 0 && w != nil && s.allowed(crash):
		s.crash(w)
	case x <= 2 && w != nil && w.stopped.IsZero() && w.paused.IsZero() && s.allowed(pause):
		s.untie(w, time.Now().Add(time.Hour))
		longest := time.Duration(0)
		for _, l := range w.lanes {
			longest = max(longest, l.Lease)
		}
		w.paused = time.Now().Add(longest + s.within(time.Second, 10*time.Second))
		s.tell("%s is paused until %s", w, w.paused.Sub(epoch))
		s.fault(pause)
	case x == 3 && w != nil && w.paused.IsZero() && s.allowed(gracefulStop):
		s.stop(w)
	case x == 4 && s.allowed(clockForward):
		s.moveClock(clockForward, 1)
	case x == 5 && s.allowed(clockBack):
		s.moveClock(clockBack, -1)
	case x == 6 && len(s.rows) < maxRows:
		s.enqueue()
	case x == 7 && len(left) > 0 && s.allowed(requeued):
		s.operate(requeued, pick(s.dice, left...), s.box.Requeue)
	case x == 8 && len(left) > 0 && s.allowed(cancelled):
		s.operate(cancelled, pick(s.dice, left...), s.box.Cancel)
	case x == 9 && s.allowed(purged):
		s.purge()
	case x == 10 && w != nil && w.mode == running:
		s.tell("%s is notified", w)
		w.notify()
	default:
		s.pass(s.idle())
	}
}

// moveClock moves the store's clock.
func (s *schedule) moveClock(kind string, sign time.Duration) {
	d := sign * pick(s.dice, s.within(1, time.Millisecond), s.within(1, 3*time.Second), s.within(time.Second, 20*time.Second))
	s.ahead += d
	s.tell("the store's clock moves by %s", d)
	s.fault(kind)
}

// crash ends a worker's part in the world at once.
func (s *schedule) crash(w *worker) {
	s.tell("%s crashes", w)
	s.fault(crash)
	s.gate.kill(w)
	w.cancel()
	for _, c := range slices.Clone(s.parked) {
		if c.w == w {
			s.parked = slices.DeleteFunc(s.parked, func(one *call) bool { return one == c })
			c.reply = answerOfTheDead
			close(c.free)
		}
	}
	s.settleDown()
}

// stop tells a worker to stop.
func (s *schedule) stop(w *worker) {
	if !w.stopped.IsZero() {
		return
	}
	s.tell("%s is told to stop", w)
	if !s.calm {
		s.fault(gracefulStop)
	}
	w.stopped = time.Now()
	if w.mode == running { // its calls are cut off at the end of the grace
		for _, l := range w.lanes {
			for _, a := range l.attempts {
				if end := w.stopped.Add(w.slot.grace); !a.returned && a.end.After(end) {
					a.end = end
				}
			}
		}
	}
	w.cancel()
	for _, c := range slices.Clone(s.parked) {
		if c.w == w && (c.kind == channels || c.kind == nextDue) {
			c.reply, c.note = answer{err: context.Canceled}, ": canceled"
			s.answer(c)
		}
	}
}

func dataOf(n int) string { return fmt.Sprintf(`{"n":%d}`, n) }

// enqueue commits a message.
func (s *schedule) enqueue() {
	n := len(s.rows) + 1
	m := store.NewMessage{
		TenantID: pick(s.dice, "club", "gym"), Channel: pick(s.dice, s.plan.channels...), Destination: "ana@example.org",
		Template: "alta", Data: json.RawMessage(dataOf(n)), IdempotencyKey: fmt.Sprint("k", n), MaxAttempts: s.number(1, 4),
	}
	if s.chance(0.04) {
		m.Channel = unserved
	}
	if s.chance(0.2) {
		m.ScheduledAt = s.now().Add(s.within(time.Millisecond, 15*time.Second))
	}
	if s.chance(0.1) {
		m.ExpiresAt = s.now().Add(s.within(time.Second, 40*time.Second))
	}
	tx, err := s.box.Begin(ctx)
	if err != nil {
		panic(err)
	}
	result, err := s.box.Enqueue(ctx, tx, m)
	if err != nil {
		panic(err)
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}
	r := &row{n: n, id: result.ID, channel: m.Channel, key: m.TenantID + ":" + m.IdempotencyKey, max: m.MaxAttempts}
	if r.last, err = s.box.Get(ctx, r.id); err != nil {
		panic(err)
	}
	s.rows, s.byID[r.id] = append(s.rows, r), r
	s.tell("%s is enqueued on %s, %d attempts, due in %s", r, r.channel, r.max, r.last.Row().Turn().Sub(s.now()))
}

// operate has an operator do something to a row.
func (s *schedule) operate(kind string, r *row, act func(context.Context, []string) ([]store.Verdict, error)) {
	verdicts, err := act(ctx, []string{r.id})
	if err != nil {
		panic(err)
	}
	changed := s.changes()
	if verdicts[0] == store.Applied {
		delete(changed, r)
		r.holder, r.writer = nil, nil
		if kind == requeued {
			r.requeues++
			r.calls, r.refunds = 0, 0
		}
		s.fault(kind)
	}
	s.tell("%s of %s: %s", kind, r, verdicts[0])
	s.unchanged(changed, kind)
}

func (s *schedule) purge() {
	before := s.now().Add(-s.within(0, 10*time.Second))
	gone, err := s.box.Purge(ctx, store.PurgeParams{Before: before})
	if err != nil {
		panic(err)
	}
	for _, r := range s.rows {
		if !r.gone && r.last.State.Terminal() && r.last.UpdatedAt.Before(store.Microsecond(before)) {
			r.gone, r.writer = true, nil
			gone--
			s.fault(purged)
		}
	}
	if gone != 0 {
		s.violate(nothingLost, "a purge deleted %d rows more than those that had ended", gone)
	}
	s.tell("purge")
	s.unchanged(s.changes(), "a purge")
}

// afterwards has the faults stop, and everything must end: every row, then every worker.
func (s *schedule) afterwards() {
	s.calm = true
	s.tell("no more faults")
	for _, one := range s.adrift {
		s.execute(one.call)
	}
	s.adrift = nil
	for place, w := range s.alive {
		s.next[place] = time.Now()
		if w != nil {
			w.paused = time.Time{}
		}
	}
	const longest = 15 * time.Minute // waits, leases and the steps of the clock come to less
	began := s.now()
	// Polls, pauses after failures, workers that are still stopping; and passes, of which each takes only a batch.
	patience := 30 * time.Second
	if first := s.plan.slots[0]; first.mode == passing {
		patience += time.Duration(len(s.rows)) * (first.period + 2*time.Second)
	}
	for !s.finished() && !s.hopeless() {
		s.settleDown()
		for place, w := range s.alive {
			if w == nil {
				s.start(place)
				s.settleDown()
			}
		}
		for _, r := range s.rows {
			since := r.last.Row().Turn()
			for _, t := range []time.Time{r.last.LeasedUntil, began} {
				if t.After(since) {
					since = t
				}
			}
			late := s.now().Sub(since) > patience || s.now().Sub(began) > longest
			if !r.gone && r.channel != unserved && !r.last.State.Terminal() && late {
				s.violate(nothingStuck, "%s is %s, was due %s ago, and faults stopped %s ago", r, r.last.State, s.now().Sub(since), s.now().Sub(began))
				s.end()
				return
			}
		}
		if len(s.parked) > 0 {
			c := s.parked[s.IntN(len(s.parked))]
			s.finish(c)
			s.pass(s.within(1, 500*time.Microsecond))
			continue
		}
		s.pass(s.within(10*time.Millisecond, time.Second))
	}
	s.end()
}

// finish has a call executed and answered, whatever was planned for it.
func (s *schedule) finish(c *call) {
	if !c.done {
		s.execute(c)
	}
	s.answer(c)
}

// finished reports whether every row has ended that can.
func (s *schedule) finished() bool {
	return !slices.ContainsFunc(s.rows, func(r *row) bool {
		return !r.gone && r.channel != unserved && !r.last.State.Terminal()
	})
}

// hopeless reports whether so much has gone wrong that the rest of the schedule would show nothing more.
func (s *schedule) hopeless() bool { return len(s.violations) > 20 }

// end stops all workers.
func (s *schedule) end() {
	s.settleDown()
	for _, w := range s.alive {
		if w != nil {
			s.stop(w)
		}
	}
	for began := time.Now(); ; {
		s.settleDown()
		alive := slices.DeleteFunc(slices.Clone(s.workers), func(w *worker) bool {
			select {
			case <-w.over:
				return true
			default:
				return false
			}
		})
		if len(alive) == 0 && len(s.parked) == 0 {
			return
		}
		if time.Since(began) > 10*time.Minute {
			s.violate(stopsInTime, "%v do not end", alive)
			return
		}
		if len(s.parked) > 0 {
			s.finish(s.parked[0])
		}
		s.pass(s.within(1, 200*time.Millisecond))
	}
}

// now is the store's clock.
func (s *schedule) now() time.Time { return store.Microsecond(time.Now().Add(s.ahead)) }

// allowed reports whether the plan has this kind of fault.
func (s *schedule) allowed(kind string) bool { return !s.calm && s.plan.faults[kind] }

// may draws whether it happens.
func (s *schedule) may(kind string, p float64) bool { return s.allowed(kind) && s.chance(p) }

func (s *schedule) fault(kind string) {
	if s.tally != nil {
		s.tally.Fault(kind)
	}
}

// tell adds a line to the trace.
func (s *schedule) tell(format string, args ...any) {
	s.tellAt(time.Now(), format, args...)
}

func (s *schedule) tellAt(t time.Time, format string, args ...any) {
	at := t.Sub(epoch)
	s.trace = append(s.trace, fmt.Sprintf("%3d.%09d ", at/time.Second, at%time.Second)+fmt.Sprintf(format, args...))
}

func (s *schedule) violate(promise, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.tell("BROKEN: %s: %s", promise, text)
	s.violations = append(s.violations, violation{promise, text})
}

// broken returns the promises that were broken, sorted.
func (s *schedule) broken() []string {
	set := map[string]bool{}
	for _, v := range s.violations {
		set[v.promise] = true
	}
	return slices.Sorted(maps.Keys(set))
}

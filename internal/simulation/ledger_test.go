package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// What is promised, and checked.
const (
	oneHolder       = "a row has one holder at a time"
	settledOnce     = "a claim is settled once, by its holder"
	repeats         = "a repeat is recognised"
	untouched       = "a row changes only by a claim, its holder's settlement or an operator"
	faithful        = "a settlement says what came of the call, and a row what its settlement says"
	keepsPlace      = "a released row was not called, and keeps its place and its attempt"
	boundedAttempts = "no more attempts than allowed"
	boundedCalls    = "one call for a claim, no more calls than allowed attempts"
	withinLease     = "a call has its timeout and the margin within its lease"
	bounds          = "no more than the batch and the concurrency"
	inOrder         = "messages of a claim start in order"
	sameContent     = "a message is the same at every attempt"
	deliveries      = "deliveries are bounded by what is in doubt"
	onceByKey       = "a receiver that honours the key delivers once"
	nothingLost     = "no row is lost"
	nothingStuck    = "every row ends when faults do"
	reportsAddUp    = "reports add up"
	stopsInTime     = "a worker that is told to stop starts nothing and ends"
	noHammering     = "a database that fails, or has nothing, is given pauses"
	othersRows      = "rows of other channels are left alone"
)

// row is one message, with all that has happened to it.
type row struct {
	n       int
	id      string
	channel string
	key     string // as the provider gets it
	max     int

	last     store.Message // as it was last seen in the store
	gone     bool          // purged
	holder   *hold         // who holds it, as far as the fence goes; nil: nobody
	writer   *hold         // whose settlement wrote it last; nil: somebody else has since
	requeues int
	calls    int // since it was last requeued
	refunds  int // of those, given back
	doubts   int
	accepted int // calls that the receiver took, over all
	arrived  int // of those, what was delivered: a receiver that honours the key drops repeats
	unknown  int // calls of claims that ended unsettled, counted at the end
}

func (r *row) String() string { return fmt.Sprintf("r%d", r.n) }

func rowID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

func rowName(id string) string {
	var n int
	if _, err := fmt.Sscanf(id[24:], "%d", &n); err != nil {
		return "?"
	}
	return fmt.Sprintf("r%d", n)
}

// hold is one claim of one row.
type hold struct {
	*row
	w        *worker
	fence    store.Fence
	attempts int
	sent     time.Time // when the worker sent the claim
	claim    *call
	position int // in the claim's answer

	delivered bool // the worker knows
	attempt   *attempt
	settled   *store.Settlement // what was applied
	verdict   *store.Verdict    // what the worker was told
	told      state.Event       // with the verdict
}

// fenced is what a claim of a row is known by.
type fenced struct {
	*row
	store.Token
}

// attempt is one call of a transport.
type attempt struct {
	*hold
	from, end time.Time // it is not heard after its end
	accepted  bool      // the receiver has taken it
	heard     *state.Outcome
	panicked  bool
	returned  bool
}

// face is what of a row can change.
type face struct {
	state                                     state.State
	attempts, doubts                          int
	scheduled, next, leased, updated, sent    time.Time
	token                                     store.Token
	category, code, externalID, template, key string
}

func faceOf(m *store.Message) face {
	return face{
		m.State, m.Attempts, m.Doubts, m.ScheduledAt, m.NextAttemptAt, m.LeasedUntil, m.UpdatedAt, m.SentAt, m.Token,
		m.LastErrorCategory, m.LastErrorCode, m.ExternalID, m.Template, m.IdempotencyKey,
	}
}

// changes reads the whole store, and returns how the rows that have changed were before.
func (s *schedule) changes() map[*row]store.Message {
	changed := map[*row]store.Message{}
	for _, r := range s.rows {
		if r.gone {
			continue
		}
		m, err := s.box.Get(ctx, r.id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			s.violate(nothingLost, "%s is not there any more", r)
			r.gone, r.holder, r.writer = true, nil, nil
		case err != nil:
			panic(err) // nothing fails behind the turnstile
		case faceOf(&m) != faceOf(&r.last):
			changed[r] = r.last
			r.last = m
		}
	}
	return changed
}

// unchanged complains of changes that nobody should have made.
func (s *schedule) unchanged(changed map[*row]store.Message, by any) {
	for _, r := range s.rows { // in order
		if before, ok := changed[r]; ok {
			s.violate(untouched, "%s was changed from %s to %s by %v", r, before.State, r.last.State, by)
		}
	}
}

// claimed enters a claim that the store has executed.
func (s *schedule) claimed(c *call) {
	now, changed := s.now(), s.changes()
	s.ordered(c, changed)
	lease := c.params.Lease
	for i := range c.reply.claim.Messages {
		m := &c.reply.claim.Messages[i]
		r := s.byID[m.ID]
		before, ok := changed[r]
		if !ok {
			s.violate(settledOnce, "%s hands out %s, but has not changed it", c, r)
			continue
		}
		delete(changed, r)
		switch {
		case before.State == state.Processing && before.LeasedUntil.After(now):
			s.violate(oneHolder, "%s takes %s, which is leased until %s", c, r, before.LeasedUntil.Sub(now))
		case before.State.Terminal() || before.Row().Turn().After(now):
			s.violate(oneHolder, "%s takes %s, which is %s and not due", c, r, before.State)
		}
		if s.tokens[fenced{r, m.Token}] != nil {
			s.violate(oneHolder, "%s takes %s with a token that it had before", c, r)
		}
		switch {
		case r.last.Attempts > r.max:
			s.violate(boundedAttempts, "%s is at attempt %d of %d", r, r.last.Attempts, r.max)
		case r.last.Attempts != before.Attempts+1:
			s.violate(boundedAttempts, "the claim of %s took its attempts from %d to %d", r, before.Attempts, r.last.Attempts)
		}
		if r.channel != c.channel || r.channel == unserved {
			s.violate(othersRows, "%s takes %s of %s", c, r, r.channel)
		}
		h := &hold{row: r, w: c.w, fence: m.Fence(), attempts: m.Attempts, sent: c.at, claim: c, position: i}
		s.tokens[fenced{r, m.Token}] = h
		h.fence.LeasedUntil = store.Microsecond(now.Add(lease))
		if !r.last.LeasedUntil.Equal(h.fence.LeasedUntil) {
			s.violate(oneHolder, "%s is leased until %s, not for %s", r, r.last.LeasedUntil, lease)
		}
		if r.holder != nil {
			s.fault(takenOver)
		}
		r.holder, r.writer = h, nil
		s.holds[c] = append(s.holds[c], h)
		c.w.holds = append(c.w.holds, h)
		c.note += " " + r.String()
	}
	for _, closed := range c.reply.claim.Closed {
		r := s.byID[closed.ID]
		before, ok := changed[r]
		delete(changed, r)
		if !ok || r.last.State != state.Failed || closed.Code == "" || state.Closing(before.Row(), now) != closed.Code {
			s.violate(faithful, "%s closes %s as %s", c, r, closed.Code)
		}
		if before.State == state.Processing && before.LeasedUntil.After(now) {
			s.violate(oneHolder, "%s closes %s, which is leased", c, r)
		}
		r.holder, r.writer = nil, nil
		c.note += fmt.Sprintf(" %s:%s", r, closed.Code)
	}
	s.unchanged(changed, c)
}

// ordered checks that a claim has taken the first due rows behind its mark, and hands them out in their order.
func (s *schedule) ordered(c *call, changed map[*row]store.Message) {
	before := func(r *row) *store.Message {
		if m, ok := changed[r]; ok {
			return &m
		}
		return &r.last
	}
	behind := func(m *store.Message, place store.Mark) bool {
		return cmp.Or(m.Row().Turn().Compare(place.Turn), cmp.Compare(m.ID, place.ID)) > 0
	}
	taken, last := map[*row]bool{}, store.Mark{}
	for i := range c.reply.claim.Messages {
		r := s.byID[c.reply.claim.Messages[i].ID]
		if m := before(r); !behind(m, last) {
			s.violate(inOrder, "%s hands out %s behind a later one", c, r)
		} else {
			last = store.Mark{Turn: m.Row().Turn(), ID: m.ID}
		}
		taken[r] = true
	}
	for _, closed := range c.reply.claim.Closed {
		r := s.byID[closed.ID]
		if m := before(r); behind(m, last) {
			last = store.Mark{Turn: m.Row().Turn(), ID: m.ID}
		}
		taken[r] = true
	}
	if len(taken) > c.params.Limit {
		s.violate(bounds, "%s takes %d rows", c, len(taken))
	}
	for _, r := range s.rows {
		if r.gone || r.channel != c.channel || taken[r] || !r.last.State.Terminal() && r.last.Row().Turn().After(s.now()) {
			continue
		}
		d := state.Decide(r.last.Row(), s.now())
		due := d == state.DecisionSend || d == state.DecisionReclaim || d == state.DecisionDiscard && !r.last.State.Terminal()
		if due && behind(&r.last, c.params.From) && (len(taken) < c.params.Limit || !behind(&r.last, last)) {
			s.violate(inOrder, "%s passes over %s", c, r)
		}
	}
}

// settled enters a group of settlements that the store has executed.
func (s *schedule) settled(c *call) {
	changed := s.changes()
	for i := range c.group {
		st, v := &c.group[i], c.reply.verdicts[i]
		r := s.byID[st.ID]
		h := s.tokens[fenced{r, st.Token}]
		c.note += fmt.Sprintf(" %s:%s", r, v)
		if v == store.Lost {
			s.fault(stale)
		}
		if h == nil {
			s.violate(settledOnce, "%s settles %s under a token that it never had", c, r)
			continue
		}
		before, wrote := changed[r]
		if wrote = wrote && r.last.Token == st.Token; wrote { // else it may be another of the group, for another claim
			delete(changed, r)
		}
		switch {
		case v == store.Applied && wrote:
			if h.settled != nil {
				s.violate(settledOnce, "%s settles %s a second time: %s after %s", c, r, st.Event, h.settled.Event)
			}
			if r.holder != h {
				s.violate(settledOnce, "%s settles %s as %s, but does not hold it", c, r, st.Event)
			}
			h.settled, r.holder, r.writer = st, nil, h
			s.wrote(h, &before)
		case v == store.Applied:
			s.fault(repeated)
			if h.settled == nil || h.settled.Transition != st.Transition || r.writer != h {
				s.violate(settledOnce, "%s says that %s was settled as %s, but it was not", c, r, st.Event)
			}
		case wrote:
			s.violate(settledOnce, "%s says that %s is lost, but has written it", c, r)
			r.holder = nil
		case r.holder == h:
			s.violate(settledOnce, "%s says that %s is lost, but it is held", c, r)
		case st.Event == state.EventRelease && r.last.NextAttemptAt.After(r.last.UpdatedAt):
			// The clock has gone back behind the row's turn, so that a release looks like a deferral: known, and harmless.
		case h.settled != nil && h.settled.Transition == st.Transition && r.writer == h:
			s.violate(repeats, "%s says that %s is lost, but it is as this very settlement left it", c, r)
		}
	}
	s.unchanged(changed, c)
}

// wrote compares a settlement that was applied with what came of the call, and with the row.
func (s *schedule) wrote(h *hold, before *store.Message) {
	r, st, after := h.row, h.settled, &h.last
	if problem := h.unfaithful(h.w.lanes[r.channel].Policy); problem != "" {
		s.violate(faithful, "%s of %s is settled as %s/%s/%s after %s, attempt %d of %d", r, h.w, st.Event, st.Category, st.Code, problem, h.attempts, r.max)
	}
	attempts := before.Attempts
	if st.Event == state.EventRelease || st.Event == state.EventDefer {
		attempts--
	}
	if after.State != st.To || after.Attempts != attempts || !after.LeasedUntil.IsZero() {
		s.violate(faithful, "%s is %s at attempt %d after %s at attempt %d", r, after.State, after.Attempts, st.Event, before.Attempts)
	}
	switch st.Event {
	case state.EventRelease:
		if h.attempt != nil || !after.Row().Turn().Equal(before.Row().Turn()) {
			s.violate(keepsPlace, "%s is released, called %t, its turn from %s to %s", r, h.attempt != nil,
				before.Row().Turn().Sub(epoch), after.Row().Turn().Sub(epoch))
		}
	case state.EventRetry, state.EventDefer:
		if want := store.Microsecond(s.now().Add(st.Wait)); !after.NextAttemptAt.Equal(want) {
			s.violate(faithful, "%s is due again at %s, not %s", r, after.NextAttemptAt.Sub(epoch), want.Sub(epoch))
		}
		if st.Event == state.EventDefer {
			r.refunds++
		}
	}
	if st.Ambiguous {
		r.doubts++
	}
	if after.Doubts != r.doubts {
		s.violate(faithful, "%s has %d doubts, not %d", r, after.Doubts, r.doubts)
	}
}

// unfaithful says what came of the claim's call when the settlement does not follow from it.
func (h *hold) unfaithful(p *state.Policy) string {
	st, a := h.settled, h.attempt
	exhausted := h.attempts >= h.max
	charged := func(doubt bool) bool {
		switch st.Event {
		case state.EventRetry:
			return st.Ambiguous == doubt && !exhausted && st.Wait > 0
		case state.EventFail:
			return st.Ambiguous == doubt && (exhausted || doubt && p.HoldAmbiguous)
		}
		return false
	}
	var o state.Outcome
	if a != nil && a.heard != nil {
		o = *a.heard
	}
	switch {
	case a == nil:
		if st.Event != state.EventRelease {
			return "no call"
		}
	case a.heard == nil:
		if !charged(true) || st.Code != state.CodeTimeout && st.Code != state.CodeAmbiguous {
			return "a call that did not return in time"
		}
	case a.panicked:
		if !charged(true) || st.Code != state.CodePanic && st.Code != state.CodeAmbiguous {
			return "a call that panicked"
		}
	case o.OK:
		if st.Event != state.EventSend || st.ExternalID != o.ExternalID || !a.accepted {
			return "an accepted call"
		}
	case state.Classify(o) == state.ClassPermanent:
		if st.Event != state.EventDiscard || st.Category != o.Category {
			return "a permanent refusal"
		}
	case o.NotCalled && o.Category == state.CategoryNetwork:
		closed := st.Event == state.EventFail && st.Code == state.CodeUnreachable && p.MaxAge > 0
		if !closed && (st.Event != state.EventDefer || st.Wait < 30*time.Second || st.Wait > 5*time.Minute) {
			return "a call that never went out"
		}
	case !charged(o.Ambiguous):
		return "a charged failure"
	case st.Event == state.EventRetry:
		base, most, hint := p.Backoff.Base, p.Backoff.Max, min(o.RetryAfter, p.MaxRetryAfter)
		if o.Category == state.CategoryIdempotencyConflict {
			base, most, hint = max(base, time.Minute), max(most, time.Minute), max(hint, time.Minute)
		}
		low, high := max(hint, base*8/10), max(hint, most*12/10)
		if st.Wait < low-1 || st.Wait > high+1 { // rounded
			return fmt.Sprintf("a failure that has to wait between %s and %s, not %s", low, high, st.Wait)
		}
	}
	return ""
}

// called enters a call that arrives at its transport.
func (s *schedule) called(c *call) {
	now, r, lane := c.at, s.byID[c.message.ID], c.w.lanes[c.channel]
	var h *hold
	for _, one := range c.w.holds {
		if one.row == r && one.delivered && one.attempts == c.message.Attempt && one.attempt == nil && one.verdict == nil {
			h = one
		}
	}
	if h == nil {
		s.violate(boundedCalls, "%s is not for a claim that it holds", c)
		h = &hold{row: r, w: c.w, sent: now, claim: c}
	}
	a := &attempt{hold: h, from: now, end: c.deadline}
	h.attempt, c.attempt = a, a
	lane.attempts = append(lane.attempts, a)
	r.calls++
	if r.calls > r.max+r.refunds {
		s.violate(boundedCalls, "%s is call %d of %d, %d given back", c, r.calls, r.max, r.refunds)
	}
	ends := h.sent.Add(lane.Lease)
	if left := ends.Sub(now); left < lane.Timeout+time.Second {
		s.violate(withinLease, "%s starts with %s left of its lease, timeout %s", c, left, lane.Timeout)
	}
	if c.deadline.IsZero() || c.deadline.After(now.Add(lane.Timeout)) {
		s.violate(withinLease, "%s may take until %s", c, c.deadline.Sub(now))
	}
	if n := lane.taken(now); n > lane.Concurrency {
		s.violate(bounds, "%s is one of %d calls at once, concurrency %d", c, n, lane.Concurrency)
	}
	if !c.w.stopped.IsZero() {
		s.violate(stopsInTime, "%s starts though the worker was told to stop", c)
	}
	for _, other := range s.holds[h.claim] {
		if other.position > h.position && other.attempt != nil && other.attempt.from.Before(now) {
			s.violate(inOrder, "%s starts after %s, which stood behind it", c, other.row)
		}
	}
	m := c.message
	if m.IdempotencyKey != r.key || string(m.Data) != dataOf(r.n) || m.Channel != r.channel {
		s.violate(sameContent, "%s is not the message that was enqueued", c)
	}
}

// asked checks a claim that a worker is about to make.
func (s *schedule) asked(c *call) {
	now, lane := c.at, c.w.lanes[c.channel]
	if lane == nil {
		s.violate(othersRows, "%s claims from a channel that it does not serve", c)
		return
	}
	waiting := c.w.open(c.channel) - lane.calling(now)
	if waiting+c.params.Limit > lane.BatchSize {
		s.violate(bounds, "%s while %d wait, batch %d", c, waiting, lane.BatchSize)
	}
	if !c.w.stopped.IsZero() {
		s.violate(stopsInTime, "%s though the worker was told to stop", c)
	}
	if now.Before(lane.waitUntil) {
		s.violate(noHammering, "%s comes %s too early after %d failures", c, lane.waitUntil.Sub(now), lane.failures)
	}
}

// told enters what the worker learns from a reply.
func (s *schedule) told(c *call) {
	a := &c.reply
	if c.w.dead || c.w.ended {
		return
	}
	switch c.kind {
	case claim:
		lane := c.w.lanes[c.channel]
		if a.err != nil {
			c.w.claims++
			if lane.failures++; c.w.mode == running {
				lane.waitUntil = time.Now().Add(90 * time.Millisecond)
			}
			return
		}
		lane.failures = 0
		if second := time.Now().Truncate(time.Second); len(s.holds[c])+len(a.claim.Closed) > 0 || !second.Equal(lane.second) {
			lane.second, lane.empty = second, 0
		} else if lane.empty++; lane.empty > 50 { // polls, twice each, and a look whenever a row falls due come to less
			s.violate(noHammering, "%s: %d claims in a second, and all found nothing", c, lane.empty)
		}
		for _, h := range s.holds[c] {
			h.delivered = true
			lane.delivered++
		}
		c.w.closed += len(a.claim.Closed)
	case settle:
		if a.err != nil {
			return
		}
		for i := range a.verdicts {
			st := &c.group[i]
			if h := s.tokens[fenced{s.byID[st.ID], st.Token}]; h != nil {
				h.verdict, h.told = &a.verdicts[i], st.Event
				c.w.lanes[c.channel].answered++
			}
		}
	}
}

// audit is the last word on every row.
func (s *schedule) audit() {
	s.unchanged(s.changes(), "nobody")
	for _, h := range s.tokens {
		if h.settled == nil && h.attempt != nil {
			h.row.unknown++
		}
	}
	for _, r := range s.rows {
		switch {
		case r.accepted > 1+r.requeues+r.doubts+r.unknown:
			s.violate(deliveries, "%s was accepted %d times, with %d requeues, %d doubts and %d called claims that ended unsettled",
				r, r.accepted, r.requeues, r.doubts, r.unknown)
		case s.plan.honours[r.channel] && r.arrived > 1:
			s.violate(onceByKey, "%s was delivered %d times", r, r.arrived)
		case r.last.State == state.Sent && r.arrived == 0:
			s.violate(deliveries, "%s counts as sent, but was never delivered", r)
		case !r.gone && r.channel != unserved && !r.last.State.Terminal():
			s.violate(nothingStuck, "%s is still %s", r, r.last.State)
		case r.channel == unserved && (r.last.State != state.Pending || r.last.Attempts > 0):
			s.violate(othersRows, "%s is %s", r, r.last.State)
		}
	}
}

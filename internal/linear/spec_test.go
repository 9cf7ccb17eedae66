package linear

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// call is one call as one row sees it. Where the store's clock stood when it began and when it ended bounds what the store
// took for now.
type call struct {
	op         op
	begin, end time.Time
	settlement store.Settlement // opSettle; its fence alone: opRenew
	by         time.Duration    // how long the lease is, or by how much it grows
}

type op string

const (
	opClaim   op = "claim"
	opSettle  op = "settle"
	opRenew   op = "renew"
	opRequeue op = "requeue"
	opCancel  op = "cancel"
	opGet     op = "get"
)

// answer is what the row answered. Of a claim that handed the row out it is the message and the claim's now; of one that
// closed it, the code.
type answer struct {
	lost    bool // nobody knows whether the call was executed
	verdict store.Verdict
	message store.Message
	now     time.Time
	closed  string
}

// span is a time that is known no better than this: both ends included.
type span struct{ from, to time.Time }

// exactly is in the form in which == compares.
func exactly(t time.Time) span {
	t = t.UTC().Round(0)
	return span{t, t}
}

func (s span) has(t time.Time) bool { return !t.Before(s.from) && !t.After(s.to) }

func (s span) plus(d time.Duration) span { return span{s.from.Add(d), s.to.Add(d)} }

// row is the state of one row, as far as the answers tell. It is comparable. All times are in UTC and without a monotonic
// part, so that == is equality.
type row struct {
	state      state.State
	attempts   int
	doubts     int
	code       string
	externalID string
	turn       span
	lease      span
	token      store.Token
	secret     bool             // the token is that of a claim whose answer was lost
	left       state.Transition // the settlement that left the row as it is; zero: something else did
}

// specification is what one row may answer. known are the tokens of all claims that answered.
func specification(first row, known map[store.Token]bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(s, input, output any) (bool, any) {
			r, c, a := s.(row), input.(call), output.(answer)
			ok := r.step(c, a, known)
			return ok, r
		},
		DescribeOperation: func(input, output any) string {
			c, a := input.(call), output.(answer)
			m := a.message
			return fmt.Sprintf("%s %s %x until %v +%v: lost %v, %v, closed %q, %s %x attempts %d until %v turn %v", c.op,
				c.settlement.Event, c.settlement.Token[:2], c.settlement.LeasedUntil, c.by,
				a.lost, a.verdict, a.closed, m.State, m.Token[:2], m.Attempts, m.LeasedUntil, m.Row().Turn())
		},
	}
}

// step reports whether the row may give this answer, and becomes what it is after that.
//
// A call whose answer was lost is always possible, and does what it can. It ends with the history, so the checker may as
// well put it last, where it did nothing that anybody saw.
func (r *row) step(c call, a answer, known map[store.Token]bool) bool {
	verdict := store.Applied
	switch now := (span{c.begin, c.end}); {
	case c.op == opGet:
		return r.read(a.message, known)
	case c.op == opClaim && a.lost:
		r.maybeClaimed(now, c.by)
		return true
	case c.op == opClaim:
		return now.has(a.now) && r.claimed(a, c.by)
	case c.op == opSettle:
		verdict = r.settle(c.settlement, now)
	case c.op == opRenew:
		verdict = r.renew(c.settlement.Fence, c.by)
	case c.op == opRequeue && (r.state == state.Failed || r.state == state.Discarded):
		r.changed(state.Pending)
		r.attempts, r.token, r.secret, r.turn = 0, store.Token{}, false, now
	case c.op == opCancel && r.state == state.Pending:
		r.changed(state.Discarded)
		r.code, r.token, r.secret = state.CodeCancelled, store.Token{}, false
	default:
		verdict = store.Lost
	}
	return a.lost || a.verdict == verdict
}

func (r *row) changed(to state.State) {
	r.state, r.lease, r.left = to, span{}, state.Transition{}
}

// mayBeDue reports whether a claim at now may have taken the row.
func (r *row) mayBeDue(now time.Time) bool {
	switch r.state {
	case state.Pending:
		return !now.Before(r.turn.from)
	case state.Processing:
		return !now.Before(r.turn.from) && !now.Before(r.lease.from)
	}
	return false
}

// closing is the code under which a claim closes a row that has used up its attempts.
func (r *row) closing() string {
	switch {
	case r.attempts < maxAttempts:
		return ""
	case r.state == state.Processing:
		return state.CodeLeaseExhausted
	}
	return state.CodeAttemptsExhausted
}

func (r *row) close() {
	code := r.closing()
	r.changed(state.Failed)
	r.code, r.token, r.secret = code, store.Token{}, false
}

func (r *row) claimed(a answer, lease time.Duration) bool {
	m := a.message
	if !r.mayBeDue(a.now) || a.closed != r.closing() {
		return false
	}
	if a.closed != "" {
		r.close()
		return true
	}
	if m.State != state.Processing || m.Attempts != r.attempts+1 || m.Doubts != r.doubts || m.LastErrorCode != r.code ||
		!m.LeasedUntil.Equal(a.now.Add(lease)) || !r.turn.has(m.Row().Turn()) || m.Token == r.token {
		return false
	}
	r.changed(state.Processing)
	r.attempts, r.token, r.secret = m.Attempts, m.Token, false
	r.lease, r.turn = exactly(m.LeasedUntil), exactly(m.Row().Turn())
	return true
}

// maybeClaimed takes the row for a claim whose answer was lost, if it can.
func (r *row) maybeClaimed(now span, lease time.Duration) {
	switch {
	case !r.mayBeDue(now.to):
	case r.closing() != "":
		r.close()
	default:
		r.changed(state.Processing)
		r.attempts++
		r.token, r.secret, r.lease = store.Token{}, true, now.plus(lease)
	}
}

// holds reports whether the row is in the hands of whoever has the fence. Nobody has one of a claim whose answer was lost.
func (r *row) holds(f store.Fence) bool {
	return r.state == state.Processing && r.token == f.Token && r.lease == exactly(f.LeasedUntil)
}

func (r *row) settle(s store.Settlement, now span) store.Verdict {
	switch {
	case r.token == s.Token && r.left == s.Transition: // a repeat
		return store.Applied
	case !r.holds(s.Fence):
		return store.Lost
	}
	r.changed(s.To)
	r.left = s.Transition
	if s.Event == state.EventSend {
		r.externalID = s.ExternalID
	}
	if s.Event == state.EventDefer || s.Event == state.EventRelease {
		r.attempts--
	}
	if s.Event == state.EventDefer || s.Event == state.EventRetry {
		r.turn = now.plus(s.Wait)
	}
	if s.Event != state.EventRelease {
		r.code = s.Code
	}
	if s.Ambiguous {
		r.doubts++
	}
	return store.Applied
}

func (r *row) renew(f store.Fence, by time.Duration) store.Verdict {
	renewed := f
	renewed.LeasedUntil = f.LeasedUntil.Add(by)
	switch {
	case r.holds(f):
		r.lease = exactly(renewed.LeasedUntil)
	case !r.holds(renewed): // nor is it a repeat
		return store.Lost
	}
	return store.Applied
}

// read compares all that is known, and learns the rest.
func (r *row) read(m store.Message, known map[store.Token]bool) bool {
	if m.State != r.state || m.Attempts != r.attempts || m.Doubts != r.doubts || m.LastErrorCode != r.code || m.ExternalID != r.externalID {
		return false
	}
	switch {
	case !r.secret:
		if m.Token != r.token {
			return false
		}
	case known[m.Token] || m.Token == store.Token{}:
		return false
	}
	r.token, r.secret = m.Token, false
	if r.state == state.Processing {
		if !r.lease.has(m.LeasedUntil) {
			return false
		}
		r.lease = exactly(m.LeasedUntil)
	} else if !m.LeasedUntil.IsZero() {
		return false
	}
	if !r.state.Terminal() {
		if !r.turn.has(m.Row().Turn()) {
			return false
		}
		r.turn = exactly(m.Row().Turn())
	}
	return true
}

package store

import (
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"github.com/recado-dev/recado/state"
)

// Take is what [Store] says of a claim's rows. It changes each to claimed or closed, and returns the claim to answer with,
// all but Refused; its messages share their data and headers with the rows. due are the first p.Limit due rows behind
// p.From, in order of (turn, id), and token is new. A row that is neither pending nor processing is a
// [state.TransitionError].
func (p ClaimParams) Take(due []*Message, token Token, now time.Time) (Claim, error) {
	c := Claim{Now: now, Mark: p.From}
	for _, m := range due {
		code := state.Closing(m.Row(), now)
		if code != "" && !p.ReturnExhausted {
			if err := m.write(state.CloseTransition(code), now); err != nil {
				return Claim{}, err
			}
			m.Token = Token{} // no worker is to take it for its own doing
			c.Closed = append(c.Closed, Closed{ID: m.ID, Code: code})
			continue
		}
		event := state.EventClaim
		if m.State == state.Processing {
			event = state.EventReclaim
		}
		if err := m.move(event); err != nil {
			return Claim{}, err
		}
		if code == "" { // what will not be called is not charged
			m.Attempts++
		}
		m.LeasedUntil, m.Token, m.UpdatedAt = Microsecond(now.Add(p.Lease)), token, now
		c.Messages = append(c.Messages, *m)
		c.Messages[len(c.Messages)-1].Closing = code
	}
	if len(c.Messages) > 0 {
		c.Mark = MarkOf(&c.Messages[0], now)
	}
	return c, nil
}

// markLag is how far a mark stays behind now: a row's turn is its enqueue's time, and its transaction may commit a little
// later than others.
const markLag = 5 * time.Second

// MarkOf is the mark of a claim made at now whose first message is m: its place in the queue, or 5 s before now if that
// comes first.
func MarkOf(m *Message, now time.Time) Mark {
	turn := m.Row().Turn()
	if latest := now.Add(-markLag); !turn.Before(latest) {
		return Mark{Turn: latest}
	}
	return Mark{Turn: turn, ID: m.ID}
}

// Settle is what [Store] says of a settlement, for the row that s names. written tells the first time from a repeat, which
// is Applied as well. An illegal transition is a [state.TransitionError] and changes nothing. Only m is changed, not what
// is stored.
func (m *Message) Settle(s Settlement, now time.Time) (v Verdict, written bool, err error) {
	if err := s.Validate(); err != nil {
		return Lost, false, err
	}
	switch {
	case m.settledBy(s):
		return Applied, false, nil
	case !m.heldBy(s.Fence):
		return Lost, false, nil
	}
	if err := m.write(s.Transition, now); err != nil {
		return Lost, false, err
	}
	return Applied, true, nil
}

// Renew is what [Renewer] says of a lease, for the row that f names. Only m is changed, not what is stored.
func (m *Message) Renew(f Fence, d time.Duration, now time.Time) Verdict {
	renewed := f
	renewed.LeasedUntil = Microsecond(f.LeasedUntil.Add(d))
	switch {
	case m.heldBy(f):
		m.LeasedUntil, m.UpdatedAt = renewed.LeasedUntil, now
		return Applied
	case m.heldBy(renewed): // a repeat
		return Applied
	}
	return Lost
}

// Requeue is what [Operator] says of starting a closed row afresh. Only m is changed, not what is stored.
func (m *Message) Requeue(now time.Time) Verdict {
	if m.move(state.EventRequeue) != nil {
		return Lost
	}
	m.Attempts, m.ScheduledAt, m.NextAttemptAt = 0, now, now
	m.Token, m.LeasedUntil, m.UpdatedAt = Token{}, time.Time{}, now
	return Applied
}

// Cancel is what [Operator] says of withdrawing a waiting row. Only m is changed, not what is stored.
func (m *Message) Cancel(now time.Time) Verdict {
	if m.move(state.EventCancel) != nil {
		return Lost
	}
	m.LastErrorCategory, m.LastErrorCode = state.CategoryRejected, state.CodeCancelled
	m.Token, m.LeasedUntil, m.UpdatedAt = Token{}, time.Time{}, now
	return Applied
}

// Message is the new row that e asks for.
func (e Encoded) Message(id string, now time.Time) Message {
	if e.ScheduledAt.IsZero() {
		e.ScheduledAt = now
	}
	return Message{
		ID: id, TenantID: e.TenantID, Channel: e.Channel, Destination: e.Destination, Template: e.Template,
		Data: e.DataJSON, IdempotencyKey: e.IdempotencyKey, Headers: maps.Clone(e.Headers),
		State: state.Pending, MaxAttempts: e.MaxAttempts, ScheduledAt: e.ScheduledAt, ExpiresAt: e.ExpiresAt,
		CreatedAt: now, UpdatedAt: now,
	}
}

// heldBy reports whether the row is in the hands of whoever holds f. Without a lease or a token there is no fence.
func (m *Message) heldBy(f Fence) bool {
	return m.State == state.Processing &&
		f.Token != (Token{}) && m.Token == f.Token &&
		!f.LeasedUntil.IsZero() && m.LeasedUntil.Equal(Microsecond(f.LeasedUntil))
}

// move fires event on the row.
func (m *Message) move(event state.Event) error {
	to, err := state.Next(m.State, event)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	m.State = to
	return nil
}

// write puts a transition into the row, all but its token.
func (m *Message) write(t state.Transition, now time.Time) error {
	if err := m.move(t.Event); err != nil {
		return err
	}
	if !t.Charged() {
		m.Attempts--
	}
	if t.Waits() {
		m.NextAttemptAt = Microsecond(now.Add(t.Wait))
	}
	if !t.KeepsError() {
		m.LastErrorCategory, m.LastErrorCode = t.Category, t.Code
	}
	if t.Event == state.EventSend {
		m.ExternalID, m.SentAt = t.ExternalID, now
	}
	if t.Ambiguous {
		m.Doubts++
	}
	m.LeasedUntil, m.UpdatedAt = time.Time{}, now
	return nil
}

// settledBy reports whether the row is as this very settlement left it, so that a repeat can be answered. What counts
// beside the token is whatever tells the settlements of one claim apart.
func (m *Message) settledBy(s Settlement) bool {
	if s.Token == (Token{}) || m.Token != s.Token || m.State != s.To || !m.LeasedUntil.IsZero() {
		return false
	}
	attempts := s.Attempts
	if !s.Charged() {
		attempts--
	}
	sameError := m.LastErrorCategory == s.Category && m.LastErrorCode == s.Code
	switch {
	case s.Event == state.EventSend:
		return m.ExternalID == s.ExternalID
	case s.Waits():
		waited := m.NextAttemptAt.Equal(Microsecond(m.UpdatedAt.Add(s.Wait)))
		return sameError && waited && m.Attempts == attempts
	case s.KeepsError():
		// A claimed row's dates have come; only a deferral of the same claim leaves one that lies ahead, unless the clock
		// was set back. ScheduledAt does not count, as no settlement changes it.
		return m.Attempts == attempts && !m.NextAttemptAt.After(m.UpdatedAt)
	}
	return sameError
}

// NewToken draws the random half of a fence.
func NewToken() (t Token) {
	_, _ = rand.Read(t[:]) // never fails: crypto/rand aborts the program instead
	return t
}

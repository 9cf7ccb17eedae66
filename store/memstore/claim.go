package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// markLag is how far a mark stays behind the store's clock, so that a transaction that is still about to commit rows
// due now is not passed over.
const markLag = 5 * time.Second

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if err := p.Validate(); err != nil {
		return store.Claim{}, err
	}
	if err := s.acquire(ctx, "claim", unblocked); err != nil {
		return store.Claim{}, err
	}
	defer s.mu.Unlock()
	now, token := s.now(), newToken()
	c := store.Claim{Now: now, Mark: p.From}
	for _, m := range s.due(p, now) {
		code := state.Closing(m.Row(), now)
		if code != "" && !p.ReturnExhausted {
			if err := write(m, state.CloseTransition(code), now); err != nil {
				return store.Claim{}, err
			}
			m.Token = store.Token{}
			c.Closed = append(c.Closed, store.Closed{ID: m.ID, Code: code})
			continue
		}
		event := state.EventClaim
		if m.State == state.Processing {
			event = state.EventReclaim
		}
		if err := move(m, event); err != nil {
			return store.Claim{}, err
		}
		if code == "" {
			m.Attempts++
		}
		m.LeasedUntil, m.Token, m.UpdatedAt = store.Microsecond(now.Add(p.Lease)), token, now
		handed := clone(m)
		handed.Closing = code
		c.Messages = append(c.Messages, handed)
	}
	if len(c.Messages) > 0 {
		c.Mark = place(&c.Messages[0])
		if lag := (store.Mark{Turn: now.Add(-markLag)}); compare(lag, c.Mark) < 0 {
			c.Mark = lag
		}
	}
	return c, nil
}

// due returns the rows that a claim takes or closes, in order of (turn, id). It holds [state.Decide] to the two
// exceptions documented there: nothing is taken before its turn.
func (s *Store) due(p store.ClaimParams, now time.Time) []*store.Message {
	var due []*store.Message
	for _, m := range s.rows {
		row := m.Row()
		if m.Channel != p.Channel || !s.isDue(m.ID, row, now) || p.From != (store.Mark{}) && compare(place(m), p.From) <= 0 {
			continue
		}
		due = append(due, m)
	}
	slices.SortFunc(due, func(a, b *store.Message) int { return compare(place(a), place(b)) })
	return due[:min(p.Limit, len(due))]
}

// isDue reports whether a claim would take or close the row. One that an open transaction is settling is passed over.
func (s *Store) isDue(id string, r state.Row, now time.Time) bool {
	if r.State.Terminal() || r.Turn().After(now) || s.lockedRows[id] != nil {
		return false
	}
	switch state.Decide(r, now) {
	case state.DecisionSend, state.DecisionReclaim, state.DecisionDiscard:
		return true
	}
	return false
}

func place(m *store.Message) store.Mark { return store.Mark{Turn: m.Row().Turn(), ID: m.ID} }

func compare(a, b store.Mark) int {
	return cmp.Or(a.Turn.Compare(b.Turn), cmp.Compare(a.ID, b.ID))
}

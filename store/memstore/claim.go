package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if err := p.Validate(); err != nil {
		return store.Claim{}, err
	}
	if err := s.acquire(ctx, "claim", unblocked); err != nil {
		return store.Claim{}, err
	}
	defer s.mu.Unlock()
	now := s.now()
	c, err := p.Take(s.due(p, now), store.NewToken(), now)
	for i := range c.Messages {
		c.Messages[i] = clone(&c.Messages[i])
	}
	return c, err
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

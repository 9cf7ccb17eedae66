package memstore

import (
	"context"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	ids := make([]string, len(group))
	for i := range group {
		if err := group[i].Validate(); err != nil {
			return nil, err
		}
		ids[i] = group[i].ID
	}
	if err := s.acquire(ctx, "settle", s.rowsUnlocked(ids...)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now, verdicts := s.now(), make([]store.Verdict, len(group))
	for i, st := range group {
		switch m := s.rows[st.ID]; {
		case fenced(m, st.Fence):
			if err := write(m, st.Transition, now); err != nil {
				return nil, err
			}
			verdicts[i] = store.Applied
		case settledBy(m, st):
			verdicts[i] = store.Applied
		}
	}
	return verdicts, nil
}

// SettleTx implements [store.TxSettler]. Others who want the row wait until fn has returned; claims pass it over.
func (s *Store) SettleTx(
	ctx context.Context, st store.Settlement, fn func(context.Context, store.Tx) error,
) (store.Verdict, error) {
	if err := st.Validate(); err != nil {
		return store.Lost, err
	}
	tx, verdict, err := s.beginSettle(ctx, st)
	if tx == nil {
		return verdict, err
	}
	defer tx.end(false) // when fn fails or panics; nothing after a commit
	if err := fn(ctx, tx); err != nil {
		return store.Lost, err
	}
	if err := tx.Commit(); err != nil {
		return store.Lost, err
	}
	return store.Applied, nil
}

// beginSettle opens a transaction that has locked and settled the row, or returns a nil one and the verdict.
func (s *Store) beginSettle(ctx context.Context, st store.Settlement) (*Tx, store.Verdict, error) {
	if err := s.acquire(ctx, "settle", s.rowsUnlocked(st.ID)); err != nil {
		return nil, store.Lost, err
	}
	defer s.mu.Unlock()
	m := s.rows[st.ID]
	switch {
	case settledBy(m, st):
		return nil, store.Applied, nil
	case !fenced(m, st.Fence):
		return nil, store.Lost, nil
	}
	settled := clone(m)
	if err := write(&settled, st.Transition, s.now()); err != nil {
		return nil, store.Lost, err
	}
	tx := s.begin(ctx)
	tx.rows = append(tx.rows, &settled)
	s.lockedRows[st.ID] = tx
	return tx, store.Lost, nil
}

// Renew implements [store.Renewer]. d must be more than 0.
func (s *Store) Renew(ctx context.Context, fences []store.Fence, d time.Duration) ([]store.Verdict, error) {
	if d <= 0 {
		return nil, &store.InvalidError{Field: "d", Reason: "must be more than 0"}
	}
	ids := make([]string, len(fences))
	for i, f := range fences {
		ids[i] = f.ID
	}
	if err := s.acquire(ctx, "renew", s.rowsUnlocked(ids...)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now, verdicts := s.now(), make([]store.Verdict, len(fences))
	for i, f := range fences {
		renewed := f
		renewed.LeasedUntil = store.Microsecond(f.LeasedUntil.Add(d))
		switch m := s.rows[f.ID]; {
		case fenced(m, f):
			m.LeasedUntil, m.UpdatedAt = renewed.LeasedUntil, now
			verdicts[i] = store.Applied
		case fenced(m, renewed): // a repeat
			verdicts[i] = store.Applied
		}
	}
	return verdicts, nil
}

// fenced reports whether the row is in the hands of whoever holds f. Without a lease or a token there is no fence.
func fenced(m *store.Message, f store.Fence) bool {
	return m != nil && m.State == state.Processing &&
		f.Token != (store.Token{}) && m.Token == f.Token &&
		!f.LeasedUntil.IsZero() && m.LeasedUntil.Equal(store.Microsecond(f.LeasedUntil))
}

// write puts a transition into a row, all but its token.
func write(m *store.Message, t state.Transition, now time.Time) error {
	if err := move(m, t.Event); err != nil {
		return err
	}
	if !t.Charged() {
		m.Attempts--
	}
	if t.Waits() {
		m.NextAttemptAt = store.Microsecond(now.Add(t.Wait))
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
func settledBy(m *store.Message, st store.Settlement) bool {
	if m == nil || st.Token == (store.Token{}) || m.Token != st.Token || m.State != st.To || !m.LeasedUntil.IsZero() {
		return false
	}
	attempts := st.Attempts
	if !st.Charged() {
		attempts--
	}
	sameError := m.LastErrorCategory == st.Category && m.LastErrorCode == st.Code
	switch {
	case st.Event == state.EventSend:
		return m.ExternalID == st.ExternalID
	case st.Waits():
		waited := m.NextAttemptAt.Equal(store.Microsecond(m.UpdatedAt.Add(st.Wait)))
		return sameError && waited && m.Attempts == attempts
	case st.KeepsError():
		// A claimed row's dates have come; only a deferral of the same claim leaves one that lies ahead.
		return m.Attempts == attempts && !m.NextAttemptAt.After(m.UpdatedAt)
	}
	return sameError
}

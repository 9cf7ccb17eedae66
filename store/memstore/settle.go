package memstore

import (
	"context"
	"time"

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
		if m := s.rows[st.ID]; m != nil {
			var err error
			if verdicts[i], _, err = m.Settle(st, now); err != nil {
				return nil, err
			}
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
	if m == nil {
		return nil, store.Lost, nil
	}
	settled := clone(m)
	verdict, written, err := settled.Settle(st, s.now())
	if !written {
		return nil, verdict, err
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
		if m := s.rows[f.ID]; m != nil {
			verdicts[i] = m.Renew(f, d, now)
		}
	}
	return verdicts, nil
}

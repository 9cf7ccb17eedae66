package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/recado-dev/recado/store"
)

// Settle writes a group of settlements: see [store.Store]. It is one transaction, whose rows are taken in the order of
// their ids; what the fence refused is then looked at once more, to tell a repeat from a loss.
func (s *Store) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	for _, one := range group {
		if err := one.Validate(); err != nil {
			return nil, err
		}
	}
	if len(group) == 0 {
		return nil, nil
	}
	now := s.now()
	return s.fenced(ctx, "settle", group, func(tx *sql.Tx, part []store.Settlement) ([]bool, error) {
		written, err := s.dialect.settle(ctx, tx, s.sql, now, part)
		if err != nil {
			return nil, err
		}
		return s.orRepeated(ctx, tx, part, written)
	})
}

// orRepeated answers true as well where a settlement that was not written now had been written before.
func (s *Store) orRepeated(ctx context.Context, tx *sql.Tx, group []store.Settlement, written []bool) ([]bool, error) {
	var open []store.Settlement
	var at []int
	for i, ok := range written {
		if !ok {
			open, at = append(open, group[i]), append(at, i)
		}
	}
	if len(open) == 0 {
		return written, nil
	}
	asLeft, err := s.dialect.repeated(ctx, tx, s.sql, open)
	if err != nil {
		return nil, err
	}
	for i, ok := range asLeft {
		written[at[i]] = ok
	}
	return written, nil
}

// fenced runs write over the group in the order of ids, each claim's row once (of several settlements of one row only
// the first can be written), and gives the verdicts in the group's own order.
func (s *Store) fenced(ctx context.Context, op string, group []store.Settlement, write func(*sql.Tx, []store.Settlement) ([]bool, error)) ([]store.Verdict, error) {
	order := make([]int, len(group))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(group[a].ID, group[b].ID) })
	sorted := make([]store.Settlement, 0, len(group))
	verdicts := make([]store.Verdict, len(group))
	places := make([]int, 0, len(group))
	for _, i := range order {
		if s.possible(group[i].Fence) {
			sorted, places = append(sorted, group[i]), append(places, i)
		}
	}
	err := s.inTx(ctx, op, func(tx *sql.Tx) error {
		clear(verdicts)
		for start := 0; start < len(sorted); {
			end := start + 1
			for end < len(sorted) && end-start < chunkSize && sorted[end].ID != sorted[end-1].ID {
				end++
			}
			written, err := write(tx, sorted[start:end])
			if err != nil {
				return err
			}
			for i, ok := range written {
				if ok {
					verdicts[places[start+i]] = store.Applied
				}
			}
			start = end
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// SettleTx settles a row together with fn's work, in one transaction: see [store.TxSettler]. The transaction given to fn
// is a *sql.Tx; on PostgreSQL the server ends it when it idles for more than 30 s, so that a frozen process cannot hold the
// row for ever.
func (s *Store) SettleTx(ctx context.Context, one store.Settlement, fn func(context.Context, store.Tx) error) (store.Verdict, error) {
	if err := one.Validate(); err != nil {
		return store.Lost, err
	}
	if !s.possible(one.Fence) {
		return store.Lost, nil
	}
	var tx *sql.Tx
	var written []bool
	group := []store.Settlement{one}
	err := s.retry(ctx, "settle", func() (err error) {
		if tx, err = s.db.BeginTx(ctx, s.dialect.txOptions()); err != nil {
			return err
		}
		if written, err = s.dialect.settle(ctx, tx, s.sql, s.now(), group); err != nil {
			_ = tx.Rollback() // it is lost either way, and err says why
		}
		return err
	})
	if err != nil {
		return store.Lost, err
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing; before one, another error says why
	if !written[0] {
		asLeft, err := s.dialect.repeated(ctx, tx, s.sql, group)
		if err != nil || !asLeft[0] {
			return store.Lost, s.fail("settle", err)
		}
		return store.Applied, nil
	}
	if s.sql.afterSettle.text != "" {
		if err := s.sql.afterSettle.exec(ctx, tx); err != nil {
			return store.Lost, s.fail("settle", err)
		}
	}
	if err := fn(ctx, tx); err != nil {
		return store.Lost, err
	}
	if err := tx.Commit(); err != nil {
		return store.Lost, s.fail("settle", err)
	}
	return store.Applied, nil
}

// Renew prolongs leases: see [store.Renewer].
func (s *Store) Renew(ctx context.Context, fences []store.Fence, d time.Duration) ([]store.Verdict, error) {
	if d = d.Truncate(time.Microsecond); d <= 0 {
		return nil, &store.InvalidError{Field: "d", Reason: "must be at least 1 µs"}
	}
	if len(fences) == 0 {
		return nil, nil
	}
	group := make([]store.Settlement, len(fences))
	for i, f := range fences {
		group[i].Fence = f
	}
	now := s.now()
	return s.fenced(ctx, "renew", group, func(tx *sql.Tx, part []store.Settlement) ([]bool, error) {
		fences := make([]store.Fence, len(part))
		for i := range part {
			fences[i] = part[i].Fence
		}
		return s.dialect.renew(ctx, tx, s.sql, now, fences, d)
	})
}

// possible reports whether some claim may have given the fence; the database would choke on others.
func (s *Store) possible(f store.Fence) bool {
	_, ok := s.dialect.id(f.ID)
	return ok && f.Token != (store.Token{}) && !f.LeasedUntil.IsZero()
}

// write is what a settlement does to the numbers of a row.
type write struct{ refund, attempts, wait, doubt int64 }

func writeOf(s store.Settlement) write {
	w := write{attempts: int64(s.Attempts), wait: -1}
	if !s.Charged() {
		w.refund, w.attempts = 1, w.attempts-1
	}
	if s.Waits() {
		w.wait = max(0, s.Wait.Microseconds())
	}
	if s.Ambiguous {
		w.doubt = 1
	}
	return w
}

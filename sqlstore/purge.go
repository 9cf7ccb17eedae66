package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/recado-dev/recado/store"
)

// Purge deletes old terminal rows: see [store.Store]. Each batch is a transaction of its own and walks an index, so it
// may run beside workers at any time. With the rows their idempotency keys become free again.
func (s *Store) Purge(ctx context.Context, p store.PurgeParams) (int64, error) {
	p, err := p.Normalize()
	if err != nil {
		return 0, err
	}
	states := make([]string, len(p.States))
	for i, st := range p.States {
		states[i] = string(st)
	}
	var (
		total int64
		from  time.Time // batches go on where the last one ended, past rows in other states
	)
	for {
		var n int
		var last time.Time
		err := s.inTx(ctx, "purge", func(tx *sql.Tx) error {
			ended, err := s.dialect.purge(ctx, tx, s.sql, s.dialect.time(p.Before), s.dialect.time(from), s.dialect.list(states), p.Batch)
			n, last = len(ended), from
			for _, t := range ended {
				if t.After(last) {
					last = t
				}
			}
			return err
		})
		if err != nil {
			return total, err
		}
		total += int64(n)
		if n < p.Batch {
			return total, nil
		}
		from = last
	}
}

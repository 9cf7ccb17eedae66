package memstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/recado-dev/recado/store"
)

// Tx is a transaction of a [Store]: what is enqueued in it appears when it commits. As with database/sql, it is rolled
// back when the context it began with ends.
type Tx struct {
	store.NoSQL
	store *Store
	ctx   context.Context
	ended chan struct{}

	// Behind the store's mutex.
	done bool
	stop func() bool            // forgets the context
	rows []*store.Message       // written, not yet committed
	keys map[key]*store.Message // those of them that are new
}

var _ store.Tx = (*Tx)(nil)

// Begin implements [store.Enqueuer].
func (s *Store) Begin(ctx context.Context) (store.Tx, error) {
	if err := s.acquire(ctx, "begin", unblocked); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.begin(ctx), nil
}

func (s *Store) begin(ctx context.Context) *Tx {
	t := &Tx{store: s, ctx: ctx, ended: make(chan struct{}), keys: map[key]*store.Message{}}
	t.stop = context.AfterFunc(ctx, func() { t.end(false) })
	return t
}

// Enqueue implements [store.Enqueuer]. A finished transaction gives an error that matches sql.ErrTxDone.
func (s *Store) Enqueue(ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
	e, err := s.rules.Encode(m)
	if err != nil {
		return store.EnqueueResult{}, err
	}
	t, ok := tx.(*Tx)
	if !ok || t == nil || t.store != s {
		return store.EnqueueResult{}, store.ErrTxRequired
	}
	k := key{e.TenantID, e.IdempotencyKey}
	writer := func() *Tx {
		if w := s.writtenKeys[k]; w != t && !t.done {
			return w
		}
		return nil
	}
	if err := s.acquire(ctx, "enqueue", writer); err != nil {
		return store.EnqueueResult{}, err
	}
	defer s.mu.Unlock()
	if t.done {
		return store.EnqueueResult{}, fmt.Errorf("outbox: enqueue: %w", sql.ErrTxDone)
	}
	row := t.keys[k]
	if row == nil {
		row = s.rows[s.ids[k]]
	}
	if row != nil {
		same := e.SameContent(row.Channel, row.Destination, row.Template, row.Data)
		return store.EnqueueResult{ID: row.ID, Differs: !same}, nil
	}
	written := e.Message(s.newID(), s.now())
	row = &written
	t.rows, t.keys[k] = append(t.rows, row), row
	s.writtenKeys[k] = t
	return store.EnqueueResult{ID: row.ID, Inserted: true}, nil
}

// Commit makes the written messages appear. It returns sql.ErrTxDone when the transaction has ended before, and the
// context's error when that ended first.
func (t *Tx) Commit() error {
	if err := t.ctx.Err(); err != nil {
		if t.end(false) != nil {
			return sql.ErrTxDone
		}
		return err
	}
	return t.end(true)
}

// Rollback forgets the written messages. It returns sql.ErrTxDone when the transaction has ended before.
func (t *Tx) Rollback() error { return t.end(false) }

func (t *Tx) end(commit bool) error {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.done {
		return sql.ErrTxDone
	}
	t.done = true
	t.stop()
	for _, m := range t.rows {
		if commit {
			s.insert(m)
		}
		delete(s.lockedRows, m.ID)
		delete(s.writtenKeys, key{m.TenantID, m.IdempotencyKey})
	}
	close(t.ended)
	return nil
}

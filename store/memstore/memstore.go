// Package memstore is an outbox in memory: the reference model of the contract in package store.
//
// It promises what every [store.Store] does, and passes storetest, but it outlives nothing: use it in tests and to read
// how a row moves. Every step is taken by packages state and store; here is only what a table would be asked to
// remember. All operations are atomic behind one mutex that is never held while anything waits, so it works in a
// testing/synctest bubble.
//
// Like a database, it makes a second writer of a key, or of a row being settled, wait for the transaction that came
// first. Unlike one, it finds no deadlocks: two transactions that wait for each other do so until a context ends.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/store"
)

// Config is how a [Store] differs from the usual. The zero Config is valid.
type Config struct {
	store.Rules                  // what Enqueue accepts
	Clock       func() time.Time // the store's one clock; nil: time.Now
	NewID       func() string    // ids of new rows, unique UUIDs in lower case; nil: UUIDv7
}

// Store keeps messages in memory. Make one with [New]; it is safe for concurrent use.
type Store struct {
	rules store.Rules
	clock func() time.Time
	newID func() string

	mu   sync.Mutex
	rows map[string]*store.Message // what is committed, by id
	ids  map[key]string            // the same, by key

	// What open transactions have written, and others have to wait for.
	writtenKeys map[key]*Tx
	lockedRows  map[string]*Tx
}

type key struct{ tenant, key string }

var _ interface {
	store.Store
	store.Enqueuer
	store.TxSettler
	store.Renewer
	store.DueTimer
	store.ChannelLister
	store.Operator
} = (*Store)(nil)

// New returns an empty store.
func New(c Config) *Store {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	return &Store{
		rules: c.Rules, clock: c.Clock, newID: c.NewID,
		rows: map[string]*store.Message{}, ids: map[key]string{},
		writtenKeys: map[key]*Tx{}, lockedRows: map[string]*Tx{},
	}
}

// Put writes a whole row as it is, in place of the one with its id, past all rules of the lifecycle and of [store.Rules]:
// a foreign writer, or a test's fixture. Times are cut to the microsecond. A tenant and key that another row has is
// refused, with a [store.Error].
func (s *Store) Put(ctx context.Context, m store.Message) error {
	k := key{m.TenantID, m.IdempotencyKey}
	writer := func() *Tx { return cmp.Or(s.lockedRows[m.ID], s.writtenKeys[k]) }
	if err := s.acquire(ctx, "put", writer); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if id, taken := s.ids[k]; taken && id != m.ID {
		return &store.Error{Op: "put", Code: "duplicate key", Refused: true, Err: errors.New("duplicate key")}
	}
	m = clone(&m)
	m.Closing = ""
	for _, t := range []*time.Time{
		&m.ScheduledAt, &m.NextAttemptAt, &m.LeasedUntil, &m.ExpiresAt, &m.SentAt, &m.CreatedAt, &m.UpdatedAt,
	} {
		*t = store.Microsecond(*t)
	}
	s.remove(m.ID)
	s.insert(&m)
	return nil
}

// Purge implements [store.Store].
func (s *Store) Purge(ctx context.Context, p store.PurgeParams) (int64, error) {
	p, err := p.Normalize()
	if err != nil {
		return 0, err
	}
	for gone := int64(0); ; {
		if err := s.acquire(ctx, "purge", unblocked); err != nil {
			return gone, err
		}
		batch := 0
		for id, m := range s.rows {
			if batch == p.Batch {
				break
			}
			if slices.Contains(p.States, m.State) && m.UpdatedAt.Before(p.Before) {
				s.remove(id)
				batch++
			}
		}
		s.mu.Unlock()
		if gone += int64(batch); batch < p.Batch {
			return gone, nil
		}
	}
}

func (s *Store) insert(m *store.Message) {
	s.rows[m.ID] = m
	s.ids[key{m.TenantID, m.IdempotencyKey}] = m.ID
}

func (s *Store) remove(id string) {
	if m, found := s.rows[id]; found {
		delete(s.ids, key{m.TenantID, m.IdempotencyKey})
		delete(s.rows, id)
	}
}

func (s *Store) now() time.Time { return store.Microsecond(s.clock()) }

// acquire returns with the mutex held, at a moment when blocker names no open transaction to wait for.
func (s *Store) acquire(ctx context.Context, op string, blocker func() *Tx) error {
	for {
		if err := ctx.Err(); err != nil {
			return &store.Error{Op: op, Err: err}
		}
		s.mu.Lock()
		tx := blocker()
		if tx == nil {
			return nil
		}
		s.mu.Unlock()
		select {
		case <-tx.ended:
		case <-ctx.Done():
		}
	}
}

func unblocked() *Tx { return nil }

// rowsUnlocked is a blocker: the transaction that holds one of the rows.
func (s *Store) rowsUnlocked(ids ...string) func() *Tx {
	return func() *Tx {
		for _, id := range ids {
			if tx := s.lockedRows[id]; tx != nil {
				return tx
			}
		}
		return nil
	}
}

func clone(m *store.Message) store.Message {
	c := *m
	c.Data = slices.Clone(m.Data)
	c.Headers = maps.Clone(m.Headers)
	return c
}

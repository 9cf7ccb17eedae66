// Package boltstore is an outbox in a bbolt file: a Recado store over something that is not SQL. The application writes
// its own buckets and its messages in one transaction, and a dispatch.Worker delivers them from the same file.
//
// It keeps the contract of package store within what bbolt is: one process has the file, and one transaction writes at a
// time. So no row needs a lock, and whatever happens inside update happens at one moment. What bbolt does not know is
// contexts: a call waits for the transaction that is writing, however long that takes.
package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Store is the outbox in a bbolt file. It is safe for concurrent use.
type Store struct {
	db    *bbolt.DB
	rules store.Rules
	clock func() time.Time
}

// New returns the store in db, which stays the caller's to close, and makes its buckets where they are missing. The rules
// are what Enqueue accepts.
func New(db *bbolt.DB, rules store.Rules) (*Store, error) {
	s := &Store{db, rules, time.Now}
	return s, s.update(context.Background(), func(tx Tx) (err error) {
		for _, name := range [][]byte{rows, places, keys} {
			_, e := tx.CreateBucketIfNotExists(name)
			err = errors.Join(err, e)
		}
		return err
	})
}

// now is asked for inside the transaction, so that times follow the order of commits.
func (s *Store) now() time.Time { return store.Microsecond(s.clock()) }

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (c store.Claim, err error) {
	if err := p.Validate(); err != nil {
		return store.Claim{}, err
	}
	err = s.update(ctx, func(tx Tx) (err error) {
		now := s.now()
		due, refused := tx.due(p, now)
		if c, err = p.Take(due, store.NewToken(), now); err != nil {
			return err
		}
		c.Refused = refused
		for _, m := range due {
			err = errors.Join(err, tx.put(m))
		}
		return err
	})
	if err != nil {
		return store.Claim{}, err
	}
	return c, nil
}

// due walks the queue from the mark to now. Rows in other hands are passed over, and so are those that cannot be read.
func (tx Tx) due(p store.ClaimParams, now time.Time) (due []*store.Message, refused []store.Closed) {
	mark, future := place(p.Channel, p.From.Turn, p.From.ID), place(p.Channel, now.Add(time.Microsecond), "")
	for m, err := range tx.walk(mark, future) {
		switch {
		case err != nil:
			refused = append(refused, store.Closed{ID: m.ID, Code: store.ErrorCode(err)})
		case state.Decide(m.Row(), now) != state.DecisionWait:
			due = append(due, m)
		}
		if len(due) == p.Limit {
			break
		}
	}
	return due, refused
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	verdicts := make([]store.Verdict, len(group))
	return verdicts, s.update(ctx, func(tx Tx) (err error) {
		for i, st := range group {
			if verdicts[i], _, err = tx.settle(st, s.now()); err != nil {
				return err // and nothing of the group is kept
			}
		}
		return nil
	})
}

// SettleTx implements [store.TxSettler].
func (s *Store) SettleTx(
	ctx context.Context, st store.Settlement, fn func(context.Context, store.Tx) error,
) (v store.Verdict, err error) {
	err = s.update(ctx, func(tx Tx) (err error) {
		var written bool
		if v, written, err = tx.settle(st, s.now()); !written || err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return store.Lost, err
	}
	return v, nil
}

func (tx Tx) settle(st store.Settlement, now time.Time) (v store.Verdict, written bool, err error) {
	m, err := tx.get(st.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Lost, false, err
	}
	if v, written, err = m.Settle(st, now); written { // nobody holds a row that is not there
		err = tx.put(m)
	}
	return v, written, err
}

// Purge implements [store.Store].
func (s *Store) Purge(ctx context.Context, p store.PurgeParams) (gone int64, err error) {
	if p, err = p.Normalize(); err != nil {
		return 0, err
	}
	for n := p.Batch; n == p.Batch; gone += int64(n) {
		n = 0
		err := s.update(ctx, func(tx Tx) error {
			for m, err := range tx.walk(nil, place("", p.Before, "")) {
				if err == nil && slices.Contains(p.States, m.State) {
					err = tx.remove(m)
					n++
				}
				if err != nil || n == p.Batch {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// NextDue implements [store.DueTimer]. A row that cannot be read is left for Claim to report.
func (s *Store) NextDue(_ context.Context, channels []string) (wait time.Duration, found bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		now := s.now()
		for _, channel := range channels {
			future, end := place(channel, now.Add(time.Microsecond), ""), append([]byte(channel), 1)
			for m, err := range (Tx{Tx: tx}).walk(future, end) {
				if in := m.Row().Turn().Sub(now); err == nil && (!found || in < wait) {
					wait, found = in, true
				}
				break
			}
		}
		return nil
	})
	return wait, found, err
}

// Tx is a transaction of bbolt's, with the application's own buckets. Any writing one of the store's database can be
// wrapped, that of db.Update for example.
type Tx struct {
	*bbolt.Tx
	store.NoSQL
}

// Begin implements [store.Enqueuer]. Whoever calls anything but Enqueue before the transaction has ended waits for himself.
func (s *Store) Begin(ctx context.Context) (store.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := s.db.Begin(true)
	return Tx{Tx: tx}, err
}

// Enqueue implements [store.Enqueuer].
func (s *Store) Enqueue(ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
	e, err := s.rules.Encode(m)
	t, ok := tx.(Tx)
	switch {
	case err != nil:
		return store.EnqueueResult{}, err
	case !ok || t.Tx == nil || t.DB() != s.db: // one that has ended has no database
		return store.EnqueueResult{}, store.ErrTxRequired
	case ctx.Err() != nil:
		return store.EnqueueResult{}, ctx.Err()
	}
	row := e.Message(uuid.Must(uuid.NewV7()).String(), s.now())
	if id := t.Bucket(keys).Get(keyOf(&row)); id != nil {
		old, err := t.get(string(id))
		same := e.SameContent(old.Channel, old.Destination, old.Template, old.Data)
		return store.EnqueueResult{ID: old.ID, Differs: !same}, err
	}
	return store.EnqueueResult{ID: row.ID, Inserted: true}, t.put(&row)
}

// update runs fn in the one transaction that may write, and commits it unless fn fails or ctx has ended.
func (s *Store) update(ctx context.Context, fn func(Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := fn(Tx{Tx: tx}); err != nil {
			return err
		}
		return ctx.Err()
	})
}

// The buckets. Rows stand in the order of their places, and a queue is a range of them.
var (
	rows   = []byte("recado_rows")   // place: the row as JSON
	places = []byte("recado_places") // id: the place
	keys   = []byte("recado_keys")   // tenant and idempotency key: the id
)

// place sorts by channel, time and id. The flipped sign lets times before 1970 come first.
func place(channel string, at time.Time, id string) []byte {
	key := binary.BigEndian.AppendUint64(append([]byte(channel), 0), uint64(at.UnixMicro())^1<<63)
	return append(key, id...)
}

// placeOf is where a row stands: in its channel by its turn, or once it has ended under no channel by its last change.
func placeOf(m *store.Message) []byte {
	if m.State.Terminal() {
		return place("", m.UpdatedAt, m.ID)
	}
	return place(m.Channel, m.Row().Turn(), m.ID)
}

func keyOf(m *store.Message) []byte { return []byte(m.TenantID + "\x00" + m.IdempotencyKey) }

// walk goes through the rows behind one place and before another. It seeks each anew, so they may be written meanwhile.
func (tx Tx) walk(behind, before []byte) iter.Seq2[*store.Message, error] {
	return func(yield func(*store.Message, error) bool) {
		for cursor := tx.Bucket(rows).Cursor(); ; {
			at, text := cursor.Seek(append(behind, 0))
			if at == nil || bytes.Compare(at, before) >= 0 || !yield(decode(at, text)) {
				return
			}
			behind = bytes.Clone(at)
		}
	}
}

// get returns a row by id, or an empty one and [store.ErrNotFound].
func (tx Tx) get(id string) (*store.Message, error) {
	at := tx.Bucket(places).Get([]byte(id))
	if at == nil {
		return new(store.Message), store.ErrNotFound
	}
	return decode(at, tx.Bucket(rows).Get(at))
}

// decode returns the row, or one that has only its id. The error of encoding/json may quote the content, store.Error does not.
func decode(at, text []byte) (*store.Message, error) {
	m := new(store.Message)
	if err := json.Unmarshal(text, m); err != nil {
		_, tail, _ := bytes.Cut(at, []byte{0})
		return &store.Message{ID: string(tail[8:])}, &store.Error{Op: "read", Code: "unreadable", Refused: true, Err: err}
	}
	return m, nil
}

// put writes a row, in place of the one with its id.
func (tx Tx) put(m *store.Message) error {
	id, at := []byte(m.ID), placeOf(m)
	text, err := json.Marshal(m)
	return errors.Join(err,
		tx.Bucket(rows).Delete(tx.Bucket(places).Get(id)),
		tx.Bucket(rows).Put(at, text),
		tx.Bucket(places).Put(id, at),
		tx.Bucket(keys).Put(keyOf(m), id))
}

// remove deletes a row.
func (tx Tx) remove(m *store.Message) error {
	return errors.Join(
		tx.Bucket(rows).Delete(placeOf(m)),
		tx.Bucket(places).Delete([]byte(m.ID)),
		tx.Bucket(keys).Delete(keyOf(m)))
}

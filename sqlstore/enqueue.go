package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/store"
)

// Rounds in which a key can be in use when we insert and gone when we look, because a purge came between.
const maxRounds = 3

// newRow is a valid message with the id that it will have if its key is new.
type newRow struct {
	id string
	store.Encoded
}

// args are the parameters of one row, in the order of the insert statement, without the time.
func (r newRow) args(d Dialect) []any {
	return []any{
		r.id, r.TenantID, r.Channel, r.Destination, r.Template, string(r.DataJSON), r.IdempotencyKey, r.MaxAttempts,
		d.time(r.ScheduledAt), d.time(r.ExpiresAt), null(string(r.HeaderJSON)),
	}
}

func (s *Store) newRow(m store.NewMessage) (newRow, error) {
	e, err := s.rules.Encode(m)
	if err != nil {
		return newRow{}, err
	}
	id, err := uuid.Parse(s.newID())
	if err != nil {
		return newRow{}, &store.InvalidError{Field: "Config.NewID", Reason: "gave something that is not a UUID"}
	}
	return newRow{id: id.String(), Encoded: e}, nil
}

// Enqueue writes m in the caller's transaction: a new message costs exactly one statement, a key in use one more. See
// [store.Enqueuer] for what it promises.
//
// A refused message ([store.InvalidError]) and a missing transaction ([store.ErrTxRequired]) are noticed before any SQL,
// so tx can go on. A failing statement ([store.Error], which unwraps to the driver's error) is the caller's to roll back:
// it is never repeated here. Two open transactions with the same key wait for each other as on any unique index; those
// that enqueue several keys should do so in one order, as [Store.EnqueueAll] does.
func (s *Store) Enqueue(ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
	row, err := s.newRow(m)
	if err != nil {
		return store.EnqueueResult{}, err
	}
	if isNil(tx) {
		return store.EnqueueResult{}, store.ErrTxRequired
	}
	args := append([]any{s.now()}, row.args(s.dialect)...)
	for range maxRounds {
		made, err := s.dialect.insert(ctx, tx, s.sql.insert, s.prepared(ctx, tx), args)
		if err != nil {
			return store.EnqueueResult{}, s.fail("enqueue", err)
		}
		for id := range made.ids {
			return store.EnqueueResult{ID: id, Inserted: true}, nil
		}
		found, err := s.find(ctx, tx, row)
		if err != nil || found.ID != "" {
			return found, err
		}
		if made.conflict != nil {
			return store.EnqueueResult{}, s.fail("enqueue", made.conflict)
		}
	}
	return store.EnqueueResult{}, errVanishing
}

// insertion is what an insert came to: the ids of the new rows, without those whose key is in use. An engine that can only
// tell that some unique value of them is in use gives the error it gave, in case it was no key.
type insertion struct {
	ids      map[string]bool
	conflict error
}

// errVanishing is for a key that was in use at every insert and free at every look.
var errVanishing error = &store.Error{Op: "enqueue: the key's row was purged again and again"}

// prepared is the prepared insert as a statement of tx, or nil.
func (s *Store) prepared(ctx context.Context, tx store.Tx) *sql.Stmt {
	stmt := s.insert.Load()
	if stmt == nil {
		return nil
	}
	if tx, ok := tx.(interface {
		StmtContext(context.Context, *sql.Stmt) *sql.Stmt
	}); ok {
		return tx.StmtContext(ctx, stmt)
	}
	return nil
}

// find looks up the row that holds row's key. A result without an id means that there is none.
func (s *Store) find(ctx context.Context, tx store.Tx, row newRow) (store.EnqueueResult, error) {
	var result store.EnqueueResult
	rows, err := s.sql.find.query(ctx, tx, row.TenantID, row.IdempotencyKey)
	if err == nil {
		err = each(rows, func(scan func(...any) error) error {
			// NULL cannot happen in the table; it is how a mock says that there is nothing to compare.
			var channel, destination, template, data sql.NullString
			err := scan(&result.ID, &channel, &destination, &template, &data)
			result.Differs = data.Valid && !row.SameContent(channel.String, destination.String, template.String, []byte(data.String))
			return err
		})
	}
	return result, s.fail("enqueue", err)
}

// EnqueueAll writes many messages in the caller's transaction, in a few statements per thousand and in the order of
// their keys, so that two such calls cannot deadlock. Results come in the order of ms; of two messages with one key the
// first is the new one. All messages are validated before any SQL: a refusal names the index of the message in its text.
func (s *Store) EnqueueAll(ctx context.Context, tx store.Tx, ms []store.NewMessage) ([]store.EnqueueResult, error) {
	type pending struct {
		newRow
		index int
	}
	all := make([]pending, len(ms))
	for i, m := range ms {
		row, err := s.newRow(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		all[i] = pending{row, i}
	}
	if isNil(tx) {
		return nil, store.ErrTxRequired
	}
	slices.SortStableFunc(all, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})

	results := make([]store.EnqueueResult, len(ms))
	now := s.now()
	for chunk := range slices.Chunk(all, chunkSize) {
		type key struct{ tenant, key string }
		unsettled := make(map[key][]pending, len(chunk))
		for _, p := range chunk {
			k := key{p.TenantID, p.IdempotencyKey}
			unsettled[k] = append(unsettled[k], p)
		}
		for idle := 0; len(unsettled) > 0; {
			var rows []newRow // the first of each key, in order
			for _, p := range chunk {
				if same := unsettled[key{p.TenantID, p.IdempotencyKey}]; len(same) > 0 && same[0].index == p.index {
					rows = append(rows, p.newRow)
				}
			}
			made, err := s.dialect.insertMany(ctx, tx, s.sql, now, rows)
			if err != nil {
				return nil, s.fail("enqueue", err)
			}
			for k, same := range unsettled {
				if !made.ids[same[0].id] {
					continue
				}
				first := same[0]
				results[first.index] = store.EnqueueResult{ID: first.id, Inserted: true}
				for _, p := range same[1:] {
					same := p.SameContent(first.Channel, first.Destination, first.Template, first.DataJSON)
					results[p.index] = store.EnqueueResult{ID: first.id, Differs: !same}
				}
				delete(unsettled, k)
			}
			if len(unsettled) == 0 {
				break
			}
			rows = slices.DeleteFunc(rows, func(r newRow) bool { return made.ids[r.id] })
			found, err := s.dialect.findMany(ctx, tx, s.sql, rows)
			if err != nil {
				return nil, s.fail("enqueue", err)
			}
			left := len(unsettled)
			err = each(found, func(scan func(...any) error) error {
				var id, tenant, idem, channel, destination, template, data string
				if err := scan(&id, &tenant, &idem, &channel, &destination, &template, &data); err != nil {
					return err
				}
				k := key{tenant, idem}
				for _, p := range unsettled[k] {
					results[p.index] = store.EnqueueResult{ID: id, Differs: !p.SameContent(channel, destination, template, []byte(data))}
				}
				delete(unsettled, k)
				return nil
			})
			if err != nil {
				return nil, s.fail("enqueue", err)
			}
			if len(unsettled) < left || len(made.ids) > 0 {
				continue
			}
			if idle++; made.conflict != nil || idle == maxRounds {
				return nil, s.fail("enqueue", cmp.Or(made.conflict, errVanishing))
			}
		}
	}
	return results, nil
}

// chunkSize is how many rows go into one statement, so that none grows without bound.
const chunkSize = 1000

// Prepare prepares the enqueue statement on the pool, outside any transaction. From then on Enqueue uses it in
// transactions of the same *sql.DB (and only of that one): one round trip instead of two with lib/pq. It does not suit
// a pooler in transaction mode. Close releases it.
func (s *Store) Prepare(ctx context.Context) error {
	stmt, err := s.db.PrepareContext(ctx, s.sql.insert.text)
	if err != nil {
		return s.fail("prepare", err)
	}
	if old := s.insert.Swap(stmt); old != nil {
		return s.fail("prepare", old.Close())
	}
	return nil
}

// Close releases what [Store.Prepare] prepared. It does not close the *sql.DB. A store that was never prepared needs no
// Close.
func (s *Store) Close() error {
	if stmt := s.insert.Swap(nil); stmt != nil {
		return s.fail("close", stmt.Close())
	}
	return nil
}

// isNil sees through an interface that holds a nil pointer.
func isNil(tx store.Tx) bool {
	if tx == nil {
		return true
	}
	v := reflect.ValueOf(tx)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

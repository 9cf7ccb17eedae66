package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// isolations are engines whose transactions, the application's too, begin at another level than usual, besides those of
// variants.
var isolations = []engine{
	{"mariadb/read_uncommitted", MySQL, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "mysql", dbtest.MariaDB(tb)+"?tx_isolation=%27READ-UNCOMMITTED%27")
	}},
	{"mariadb/read_committed", MySQL, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "mysql", dbtest.MariaDB(tb)+"?tx_isolation=%27READ-COMMITTED%27")
	}},
	{"mariadb/snapshot", MySQL, true, func(tb testing.TB) *sql.DB { // the default of newer servers
		return openDB(tb, "mysql", dbtest.MariaDB(tb)+"?innodb_snapshot_isolation=1")
	}},
}

// waiting counts the transactions that wait for a lock in db's database: on MariaDB, whose own list of them is refreshed
// only where nobody asks for it, those whose statement takes longer than it would.
func waiting(ctx context.Context, e engine, db *sql.DB) (n int, err error) {
	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	if e.dialect == MySQL {
		query = `SELECT count(*) FROM information_schema.processlist
			WHERE db = database() AND command <> 'Sleep' AND id <> connection_id() AND time_ms > 50`
	}
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// until waits for something in a database, which has no event for it.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, ctx.Err())
		}
	}
}

// Many transactions with one key, of which the first is rolled back while all others wait for it: at every isolation
// level one of them becomes the new one, none gets an empty or another id, and no error but the engine's request to run
// the transaction again is handed up.
func TestTheFirstOfManyRollsBack(t *testing.T) {
	const others = 19
	for _, e := range slices.Concat(engines, variants, isolations) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			first, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gone, err := box.Enqueue(t.Context(), first, message("k"))
			if err != nil {
				t.Fatal(err)
			}
			results := make([]store.EnqueueResult, others)
			attempt := func(i int) (err error) {
				tx, err := box.Begin(t.Context())
				if err != nil {
					return err
				}
				if i%2 == 0 {
					results[i], err = box.Enqueue(t.Context(), tx, message("k"))
				} else {
					var all []store.EnqueueResult
					if all, err = box.EnqueueAll(t.Context(), tx, []store.NewMessage{message("k")}); err == nil {
						results[i] = all[0]
					}
				}
				if err == nil {
					return tx.Commit()
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				return err
			}
			var wg sync.WaitGroup
			for i := range others {
				wg.Go(func() {
					for {
						err := attempt(i)
						if err == nil {
							return
						}
						if code := box.errorCode(err); !repeatable(code) {
							t.Errorf("transaction %d: %v (%s)", i, err, code)
							return
						}
					}
				})
			}
			if e.dialect != SQLite { // where they wait to begin
				until(t, "the others wait", func() bool {
					n, err := waiting(t.Context(), e, db)
					if err != nil {
						t.Fatal(err)
					}
					return n == others
				})
			}
			if err := first.Rollback(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			inserted := 0
			for _, r := range results {
				if r.ID == "" || r.ID == gone.ID || r.ID != results[0].ID || r.Differs {
					t.Errorf("%+v, and elsewhere %+v", r, results[0])
				}
				if r.Inserted {
					inserted++
				}
			}
			if n := count(t, box); inserted != 1 || n != 1 {
				t.Errorf("%d were new, and %d rows are there", inserted, n)
			}
		})
	}
}

// A transaction that looked before another one enqueued its key: it gets that row's id, or the engine's request to run it
// again.
func TestTheKeyOfALaterTransaction(t *testing.T) {
	for _, e := range slices.Concat(engines, variants, isolations) {
		if e.dialect == SQLite {
			continue // one writer at a time
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			for name, enqueueIn := range map[string]func(store.Tx) (store.EnqueueResult, error){
				"Enqueue": func(tx store.Tx) (store.EnqueueResult, error) {
					return box.Enqueue(t.Context(), tx, message("k"))
				},
				"EnqueueAll": func(tx store.Tx) (store.EnqueueResult, error) {
					all, err := box.EnqueueAll(t.Context(), tx, []store.NewMessage{message("j"), message("k")})
					if err != nil {
						return store.EnqueueResult{}, err
					}
					return all[1], nil
				},
			} {
				exec(t, db, "DELETE FROM outbox")
				exec(t, db, "CREATE TABLE IF NOT EXISTS pedidos (id integer)")
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				// Not the outbox itself, where a serializable transaction would lock what it reads.
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO pedidos SELECT count(*) FROM pedidos"); err != nil {
					t.Fatal(err)
				}
				if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM pedidos").Scan(new(int)); err != nil {
					t.Fatal(err)
				}
				id := enqueue(t, box, "k")[0]
				r, err := enqueueIn(tx)
				if err == nil {
					err = tx.Commit()
				}
				switch {
				case err != nil && !repeatable(box.errorCode(err)):
					t.Errorf("%s: %v (%s)", name, err, box.errorCode(err))
				case err == nil && r != store.EnqueueResult{ID: id}:
					t.Errorf("%s: %+v, want the row %s", name, r, id)
				}
				_ = tx.Rollback()
				if n := count(t, box); n > 2 {
					t.Errorf("%s: %d rows", name, n)
				}
			}
		})
	}
}

// A message's transaction may have begun before another's and end after it: it is found all the same, from the head and
// from the mark that the other one's claim left. Nothing follows a growing number.
func TestAMessageThatIsCommittedLate(t *testing.T) {
	for _, e := range slices.Concat(engines, variants) {
		if e.dialect == SQLite {
			continue // one writer at a time
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			box := newBox(t, e, e.open(t), Config{})
			for _, fromMark := range []bool{false, true} {
				slow, err := box.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				late, err := box.Enqueue(t.Context(), slow, message(fmt.Sprint("late ", fromMark)))
				if err != nil {
					t.Fatal(err)
				}
				early := enqueue(t, box, fmt.Sprint("early ", fromMark))[0]
				p := store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute}
				c, err := box.Claim(t.Context(), p)
				if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != early {
					t.Fatalf("the first claim took %v, %v", c.Messages, err)
				}
				if err := slow.Commit(); err != nil {
					t.Fatal(err)
				}
				if fromMark {
					p.From = c.Mark
				}
				if c, err = box.Claim(t.Context(), p); err != nil || len(c.Messages) != 1 || c.Messages[0].ID != late.ID {
					t.Fatalf("the second claim took %v, %v", c.Messages, err)
				}
			}
		})
	}
}

// In the transaction of a business fact a repeat and a refused message are no errors of the database: all the rest is
// kept. A statement that fails is reported by the enqueue itself, and nothing of ours goes on in its transaction.
func TestTheCallersTransaction(t *testing.T) {
	for _, e := range slices.Concat(engines, variants) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			nowhere, err := New(db, e.dialect, Config{Table: "nowhere"})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, db, "CREATE TABLE pedidos (id integer PRIMARY KEY)")
			begin := func() *sql.Tx {
				t.Helper()
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				return tx
			}
			order := func(tx *sql.Tx, id int) error {
				_, err := tx.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO pedidos VALUES (%d)", id))
				return err
			}
			tx := begin()
			first := order(tx, 1)
			r, err := box.Enqueue(t.Context(), tx, message("k"))
			again, againErr := box.Enqueue(t.Context(), tx, message("k"))
			many, manyErr := box.EnqueueAll(t.Context(), tx, []store.NewMessage{message("k"), message("j")})
			_, refused := box.Enqueue(t.Context(), tx, message(""))
			_, refusedAll := box.EnqueueAll(t.Context(), tx, []store.NewMessage{message("i"), message("")})
			if first != nil || err != nil || againErr != nil || manyErr != nil || !store.Refused(refused) || !store.Refused(refusedAll) ||
				again.ID != r.ID || many[0].ID != r.ID || !many[1].Inserted {
				t.Fatal(first, err, againErr, manyErr, refused, refusedAll)
			}
			if err := order(tx, 2); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			var orders int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pedidos").Scan(&orders); err != nil || orders != 2 || count(t, box) != 2 {
				t.Errorf("%d orders and %d messages, %v", orders, count(t, box), err)
			}

			tx = begin()
			if err := order(tx, 3); err != nil {
				t.Fatal(err)
			}
			counted := &sizedTx{Tx: tx}
			if _, err := nowhere.Enqueue(t.Context(), counted, message("l")); store.ErrorCode(err) == "" {
				t.Errorf("the enqueue that failed says %v", err)
			}
			if counted.statements != 1 {
				t.Errorf("it went on to %d statements", counted.statements)
			}
			err = order(tx, 4)
			if e.dialect == Postgres && err == nil {
				t.Error("the transaction is not broken")
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		})
	}
}

package sqlstore

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// Where nobody knows how a table is stored, the option is taken and changes nothing; elsewhere the table has it, or
// Check says how to give it.
func TestHighVolume(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite} {
		usual, err := Schema(d, Config{})
		if err != nil {
			t.Fatal(err)
		}
		high, err := Schema(d, Config{HighVolume: true})
		if err != nil {
			t.Fatal(err)
		}
		if (usual == high) == (d == Postgres) {
			t.Errorf("the schema of %s with the option:\n%s", d, high)
		}
	}

	db := openDB(t, "postgres", dbtest.Postgres(t))
	newBox(t, engines[0], db, Config{Table: "usual"})
	for table, want := range map[string]int{"high": 0, "usual": 1} {
		box := newBox(t, engines[0], db, Config{Table: table, HighVolume: true})
		alter := func() (found []string) {
			t.Helper()
			advice, err := box.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range advice {
				if _, statement, ok := strings.Cut(a, "ALTER TABLE"); ok {
					found = append(found, "ALTER TABLE"+statement)
				}
			}
			return found
		}
		statements := alter()
		if len(statements) != want {
			t.Errorf("for table %s the advice is %q", table, statements)
		}
		exec(t, db, statements...)
		if again := alter(); len(again) > 0 {
			t.Errorf("after its own advice Check still says %q", again)
		}
		exec(t, db, "ALTER TABLE "+table+" RESET (fillfactor)")
		if again := alter(); len(again) != 1 || !strings.HasSuffix(again[0], `SET (fillfactor=45)`) {
			t.Errorf("without its fillfactor the advice is %q", again)
		}
	}
}

// With the option a claim is a heap-only update: it changes no index. Without it hardly one is, since the pages are full.
func TestHeapOnlyClaims(t *testing.T) {
	for high, rows := range map[bool]int{true: 20_000, false: 5_000} {
		t.Run(fmt.Sprint(high), func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "postgres", dbtest.Postgres(t))
			box := newBox(t, engines[0], db, Config{HighVolume: high})
			exec(t, db, "ALTER TABLE outbox SET (autovacuum_enabled = off)") // it would come when it likes
			for first := 0; first < rows; first += 1000 {
				messages := make([]store.NewMessage, 1000)
				for i := range messages {
					messages[i] = message(fmt.Sprint("k-", first+i))
				}
				enqueueAll(t, box, messages)
			}
			var size int
			if err := db.QueryRowContext(t.Context(), "SELECT pg_relation_size('outbox')").Scan(&size); err != nil {
				t.Fatal(err)
			}
			var updates, heapOnly, claimed int
			// What the transaction's statistics hold may include transactions before it.
			count := func(tx *sql.Tx, sign int) error {
				var all, hot int
				err := tx.QueryRowContext(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'outbox'").Scan(&all, &hot)
				updates, heapOnly = updates+sign*all, heapOnly+sign*hot
				return err
			}
			p := claimParams()
			p.Limit = 500
			for claimed < rows {
				var group []store.Settlement
				err := box.inTx(t.Context(), "claim", func(tx *sql.Tx) error {
					group = nil
					if err := count(tx, -1); err != nil {
						return err
					}
					ms, err := Postgres.claim(t.Context(), tx, box.sql, box.now(), p, store.NewToken())
					if err != nil {
						return err
					}
					for _, m := range ms {
						group = append(group, sent(m))
					}
					return count(tx, +1)
				})
				if err != nil || len(group) == 0 {
					t.Fatalf("claimed %d rows of %d, then %v", claimed, rows, err)
				}
				claimed += len(group)
				if _, err := box.Settle(t.Context(), group); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d of %d claims were heap-only; an enqueued row took %d bytes of the heap", heapOnly, updates, size/rows)
			if updates != rows || high && heapOnly < rows*99/100 || !high && heapOnly > rows/2 {
				t.Errorf("%d of %d updates were heap-only, for %d claims", heapOnly, updates, rows)
			}
		})
	}
}

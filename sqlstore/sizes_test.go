package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// One claim takes ten thousand messages, and one call settles them.
func TestALargeClaim(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		// How much a statement takes is the dialect's affair: one driver will do, the quicker one.
		if slow := e.dialect == SQLite && bulkSQLite != "sqlite"; e.secondDriver != slow {
			return
		}
		box := newBox(t, e, db, Config{})
		messages := make([]store.NewMessage, store.MaxClaim)
		for i := range messages {
			messages[i] = message(fmt.Sprint("k-", i))
		}
		enqueueAll(t, box, messages)
		ids, err := drain(t.Context(), box, store.MaxClaim)
		if err != nil || len(ids) != store.MaxClaim {
			t.Errorf("drained %d, %v", len(ids), err)
		}
	})
}

// sizedTx counts statements, and measures what goes into those that write.
type sizedTx struct {
	store.Tx
	largest, statements int
}

func (tx *sizedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	tx.statements++
	return tx.Tx.QueryContext(ctx, query, args...)
}

func (tx *sizedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx.statements++
	size := len(query)
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			size += len(text)
		}
	}
	tx.largest = max(tx.largest, size)
	return tx.Tx.ExecContext(ctx, query, args...)
}

// A client that sends no more than 4 MiB at once: as many messages as one likes go out in statements that fit, whatever
// is large in them; one that cannot fit is an error, and the next finds a connection that works.
func TestLargeMessagesOfMySQL(t *testing.T) {
	for name, settings := range map[string]string{
		"prepared":    mysqlSettings("maxAllowedPacket", "4194304"),
		"in the text": mysqlSettings("maxAllowedPacket", "4194304", "interpolateParams", "true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "mysql", dbtest.MariaDB(t)+settings)
			box := newBox(t, engine{dialect: MySQL}, db, Config{MaxPayload: maxMaxPayload, TextTenant: true})
			for kind, fill := range map[string]func(m *store.NewMessage){
				"payload": func(m *store.NewMessage) { m.Data = strings.Repeat("x", 200<<10) },
				"escapes": func(m *store.NewMessage) { // each character is six in a JSON text, and more in a JSON text of JSON texts
					m.Data = json.RawMessage(`"` + strings.Repeat("<\u2028\\\"", 20<<10) + `"`)
				},
				"headers": func(m *store.NewMessage) { m.Headers = map[string]string{"a": strings.Repeat("<", 600)} },
				"texts": func(m *store.NewMessage) {
					m.Destination, m.Template = strings.Repeat("\U0001F4E8", store.MaxDestinationLength/4), strings.Repeat("<", store.MaxTemplateLength)
				},
			} {
				n := 1000
				if kind == "payload" || kind == "escapes" {
					n = 30
				}
				messages := make([]store.NewMessage, n)
				for i := range messages {
					messages[i] = message(fmt.Sprintf("%s-%d", kind, i))
					fill(&messages[i])
				}
				tx, err := box.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				sized := &sizedTx{Tx: tx}
				results, err := box.EnqueueAll(t.Context(), sized, messages)
				if err != nil {
					t.Fatal(kind, err)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(kind, err)
				}
				if sized.largest > 2*maxStatement {
					t.Errorf("%s: a statement has %d bytes", kind, sized.largest)
				}
				got, err := box.Get(t.Context(), results[n-1].ID)
				if err != nil {
					t.Fatal(kind, err)
				}
				want, err := box.rules.Encode(messages[n-1])
				if err != nil {
					t.Fatal(err)
				}
				if string(got.Data) != string(want.DataJSON) || got.Headers["a"] != want.Headers["a"] || got.Destination != want.Destination || got.Template != want.Template {
					t.Errorf("%s: the last message came back as another", kind)
				}
			}

			big := message("big")
			for _, size := range []int{5 << 20, maxMaxPayload - 2} { // over the client's limit, and over the server's
				big.Data = strings.Repeat("x", size)
				for what, enqueue := range map[string]func(tx store.Tx) error{
					"Enqueue": func(tx store.Tx) error { _, err := box.Enqueue(t.Context(), tx, big); return err },
					"EnqueueAll": func(tx store.Tx) error {
						_, err := box.EnqueueAll(t.Context(), tx, []store.NewMessage{big})
						return err
					},
				} {
					tx, err := box.Begin(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					err = enqueue(tx)
					if err == nil {
						err = tx.Commit()
					} else {
						_ = tx.Rollback() // of a connection that may be gone
					}
					got, getErr := box.GetByKey(t.Context(), tenant, "big")
					if err == nil && (getErr != nil || len(got.Data) != size+2) {
						t.Errorf("%s of %d bytes: %v", what, size, getErr)
					}
					if err != nil && getErr == nil {
						t.Errorf("%s of %d bytes is stored beside the error %v", what, size, err)
					}
					if over := size > 8<<20 && what == "EnqueueAll"; over != (err != nil) || over && !strings.Contains(err.Error(), "max_allowed_packet") {
						t.Errorf("%s of %d bytes: %v", what, size, err)
					}
					exec(t, db, "DELETE FROM outbox WHERE clave_idempotencia = 'big'")
				}
			}
			enqueue(t, box, "next")
			big.Data, big.IdempotencyKey = strings.Repeat("x", maxMaxPayload-1), "over our own limit"
			tooMuch(t, box, big, "")
		})
	}
}

// Two handles on one file, each with its pool, as two processes have them: nobody is told that the database is busy.
func TestTwoHandlesOnOneFile(t *testing.T) {
	for _, e := range engines {
		if e.dialect != SQLite {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			first := e.open(t)
			var seq int
			var name, file string
			if err := first.QueryRowContext(t.Context(), "PRAGMA database_list").Scan(&seq, &name, &file); err != nil {
				t.Fatal(err)
			}
			driver, options := "sqlite", "?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=synchronous(off)"
			if strings.HasSuffix(e.name, "mattn") {
				driver, options = "sqlite3", "?_txlock=immediate&_busy_timeout=30000&_synchronous=OFF"
			}
			second := openDB(t, driver, "file:"+filepath.ToSlash(file)+options)
			boxes := []*Store{newBox(t, e, first, Config{}), newBox(t, e, second, Config{})}
			var mu sync.Mutex
			seen := map[string]int{}
			var writers, workers sync.WaitGroup
			committed := make(chan struct{}, 100)
			for i := range 4 {
				writers.Go(func() {
					for j := range 25 {
						enqueue(t, boxes[i%2], fmt.Sprintf("k-%d-%d", i, j))
						committed <- struct{}{}
					}
				})
				workers.Go(func() {
					for range committed {
						ids, err := drain(t.Context(), boxes[i%2], 5)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						for _, id := range ids {
							seen[id]++
						}
						mu.Unlock()
					}
				})
			}
			writers.Wait()
			close(committed)
			workers.Wait()
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s was handed out %d times", id, n)
				}
			}
			if len(seen) != 100 {
				t.Errorf("%d rows were handed out", len(seen))
			}
		})
	}
}

// An in-memory database is another one on each connection: with one connection everything works, with more Check says so.
func TestInMemory(t *testing.T) {
	for driver, dsn := range map[string]string{
		"sqlite":  "file::memory:?_txlock=immediate&_pragma=busy_timeout(1000)",
		"sqlite3": "file::memory:?_txlock=immediate&_busy_timeout=1000",
	} {
		if !slices.Contains(sql.Drivers(), driver) {
			continue
		}
		t.Run(driver, func(t *testing.T) {
			db := openDB(t, driver, dsn)
			box := newBox(t, engine{dialect: SQLite}, db, Config{})
			if _, err := box.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "in-memory") {
				t.Errorf("Check says %v", err)
			}
			db = openDB(t, driver, dsn)
			db.SetMaxOpenConns(1)
			box = newBox(t, engine{dialect: SQLite}, db, Config{})
			if _, err := box.Check(t.Context()); err != nil {
				t.Errorf("Check says %v", err)
			}
			life(t, box)
		})
	}
}

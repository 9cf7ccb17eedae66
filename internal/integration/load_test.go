//go:build unix

package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// Workers, enqueuers and a purger on one table for half a minute. Those who enqueue new keys meet no deadlock and no lock
// wait. Those who repeat keys while the rows that hold them are purged may: the engine's error is handed up to them, as
// only they can run their transaction again. Every message is handed to the transport once, and nothing stays behind.
func TestEverybodyAtOnce(t *testing.T) {
	const workers, enqueuers, repeaters = 8, 8, 2
	duration := 30 * time.Second
	if testing.Short() {
		duration = 3 * time.Second
	}
	onServers(t, func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store) {
		db.SetMaxOpenConns(60)
		if _, err := db.ExecContext(ctx, "CREATE TABLE pedidos (id varchar(40) PRIMARY KEY)"); err != nil {
			t.Fatal(err)
		}
		var (
			mu       sync.Mutex
			inserted = map[string]bool{}
			calls    = map[string]int{}

			repeats, conflicts atomic.Int64
		)
		counting := transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
			mu.Lock()
			defer mu.Unlock()
			calls[m.ID]++
			return state.Outcome{OK: true, ExternalID: "x-" + m.ID}
		})
		pool := make([]*dispatch.Worker, workers)
		var failures atomic.Int64
		for i := range pool {
			w, err := dispatch.New(box, dispatch.Config{
				BatchSize: 20, Transports: dispatch.Transports{"correo": counting},
				OnReport: func(r dispatch.Report) { failures.Add(int64(r.Errors + r.ClaimErrors + r.Lost)) },
			})
			if err != nil {
				t.Fatal(err)
			}
			pool[i] = w
		}
		enqueue := func(key, order string) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing
			if _, err := tx.ExecContext(ctx, "INSERT INTO pedidos (id) VALUES ('"+order+"')"); err != nil {
				return err
			}
			r, err := box.Enqueue(ctx, tx, store.NewMessage{
				TenantID: "club", Channel: "correo", Destination: "ana", Template: "aviso", IdempotencyKey: key,
			})
			if err != nil {
				return err
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			if r.Inserted {
				mu.Lock()
				inserted[r.ID] = true
				mu.Unlock()
				pool[rand.IntN(workers)].Notify()
			}
			return nil
		}

		writing, stopWriting := context.WithTimeout(ctx, duration)
		defer stopWriting()
		working, stopWorking := context.WithCancel(ctx)
		defer stopWorking()
		var writers, others sync.WaitGroup
		for e := range enqueuers {
			writers.Go(func() {
				for i := 0; writing.Err() == nil; i++ {
					order := fmt.Sprintf("%d-%d", e, i)
					if err := enqueue("k-"+order, order); err != nil {
						t.Errorf("an enqueuer of new keys got %v (%v)", err, errors.Unwrap(err))
						return
					}
				}
			})
		}
		for e := range repeaters {
			writers.Go(func() {
				for i := 0; writing.Err() == nil; i++ {
					repeats.Add(1)
					err := enqueue(fmt.Sprint("again-", rand.IntN(20)), fmt.Sprintf("r%d-%d", e, i))
					switch code := store.ErrorCode(err); {
					case err == nil:
					case code == "1213", code == "1205", code == "40P01":
						conflicts.Add(1)
					default:
						t.Errorf("a repeated key got %v (%v)", err, errors.Unwrap(err))
						return
					}
				}
			})
		}
		for _, w := range pool {
			others.Go(func() {
				if err := w.Run(working); err != nil {
					t.Error(err)
				}
			})
		}
		others.Go(func() {
			purges := time.NewTicker(20 * time.Millisecond)
			defer purges.Stop()
			for working.Err() == nil {
				if _, err := box.Purge(ctx, store.PurgeParams{Before: time.Now(), Batch: 200}); err != nil {
					t.Errorf("the purger got %v (%v)", err, errors.Unwrap(err))
				}
				<-purges.C
			}
		})
		writers.Wait()
		stopWorking()
		others.Wait()
		if r := pool[0].Drain(ctx); r.Err() != nil || r.Lost != 0 {
			t.Errorf("what was left: %v", r)
		}

		var live int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE turno IS NOT NULL").Scan(&live); err != nil {
			t.Fatal(err)
		}
		if live != 0 {
			t.Errorf("%d messages are stuck", live)
		}
		for id, n := range calls {
			if n != 1 || !inserted[id] {
				t.Errorf("message %s was sent %d times (enqueued: %v)", id, n, inserted[id])
			}
		}
		if len(calls) != len(inserted) {
			t.Errorf("%d messages were sent of %d", len(calls), len(inserted))
		}
		if n := failures.Load(); n != 0 {
			t.Errorf("%d claims or settlements failed or were lost", n)
		}
		t.Logf("%d messages; of %d repeated keys %d were handed a deadlock or lock wait (%.2f %%)",
			len(inserted), repeats.Load(), conflicts.Load(), 100*float64(conflicts.Load())/float64(repeats.Load()))
	})
}

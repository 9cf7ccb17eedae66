//go:build unix

package crash

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
)

// ordersTable is the clients' own: one line for each try to enqueue the message of a key, written in the same transaction.
const ordersTable = `CREATE TABLE pedidos (clave varchar(64), vez integer, mensaje varchar(36), nuevo integer,
	PRIMARY KEY (clave, vez))`

// order is one try.
type order struct {
	key  string
	time int
}

// place enqueues a message together with its line. Where the error is not nil, both or neither exist.
func place(ctx context.Context, db *sql.DB, box *sqlstore.Store, o order, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing; before one, another error says why
	enqueued, err := box.Enqueue(ctx, tx, newMessage(o.key, n))
	if err != nil {
		return err
	}
	fresh := 0
	if enqueued.Inserted {
		fresh = 1
	}
	// Nothing of this comes from outside, and each engine numbers its parameters in its own way.
	_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO pedidos (clave, vez, mensaje, nuevo) VALUES ('%s', %d, '%s', %d)",
		o.key, o.time, enqueued.ID, fresh))
	if err != nil {
		return err
	}
	return tx.Commit()
}

// acknowledged are the tries whose COMMIT was confirmed.
type acknowledged struct {
	mu    sync.Mutex
	tries []order
}

func (a *acknowledged) add(o order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries = append(a.tries, o)
}

// verifyOrders checks that a message exists if, and only if, a transaction that enqueued it was committed, that exactly
// one of these made it and all of them were told its id; and that nothing is missing that was acknowledged.
func verifyOrders(t *testing.T, tally *proof.Tally, db *sql.DB, acked []order) {
	t.Helper()
	messages, err := readRows(db)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]string, len(messages))
	for _, m := range messages {
		if ids[m.key] != "" {
			tally.Violation(t, "key %s has two messages", m.key)
		}
		ids[m.key] = m.id
	}
	rows, err := db.Query("SELECT clave, vez, mensaje, nuevo FROM pedidos")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	committed, made := map[order]bool{}, map[string]int{}
	for rows.Next() {
		var o order
		var id string
		var fresh int
		if err := rows.Scan(&o.key, &o.time, &id, &fresh); err != nil {
			t.Fatal(err)
		}
		committed[o] = true
		made[o.key] += fresh
		if ids[o.key] != id {
			tally.Violation(t, "order %v was committed with message %s, which is not there: %q is", o, id, ids[o.key])
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for key := range ids {
		if made[key] != 1 {
			tally.Violation(t, "the message of key %s was made by %d transactions", key, made[key])
		}
	}
	for _, o := range acked {
		if !committed[o] {
			tally.Violation(t, "order %v was acknowledged and is gone", o)
		}
	}
}

// traffic is clients that enqueue and workers that deliver, all in the test's process.
type traffic struct {
	book  *ledger
	acked acknowledged

	clients, workers         sync.WaitGroup
	stopClients, stopWorkers context.CancelFunc
}

// startTraffic starts it, with the clients on one handle and the workers on another.
func startTraffic(t *testing.T, seed uint64, driver string, forClients, forWorkers *sql.DB) *traffic {
	t.Helper()
	tr := &traffic{book: newLedger()}
	var enqueuing, working context.Context
	enqueuing, tr.stopClients = context.WithCancel(t.Context())
	working, tr.stopWorkers = context.WithCancel(t.Context())
	t.Cleanup(tr.stop)
	for range 3 {
		box, err := newBox(forWorkers, driver, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorker(box, tr.book.receive(seed), tr.book.lose)
		if err != nil {
			t.Fatal(err)
		}
		tr.workers.Go(func() {
			if err := w.Run(working); err != nil {
				t.Error(err)
			}
		})
	}
	box, err := newBox(forClients, driver, 0)
	if err != nil {
		t.Fatal(err)
	}
	for c := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(1+c)))
		tr.clients.Go(func() {
			for n := 0; enqueuing.Err() == nil; n++ {
				tr.enqueue(enqueuing, forClients, box, random, fmt.Sprintf("c%d-%d", c, n), n)
			}
		})
	}
	return tr
}

// enqueue tries to place an order until it is acknowledged. Where the answer is an error the client gives up one time in
// four, and will never know.
func (tr *traffic) enqueue(ctx context.Context, db *sql.DB, box *sqlstore.Store, random *rand.Rand, key string, n int) {
	for o := (order{key, 1}); ; o.time++ {
		bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := place(bounded, db, box, o, n)
		cancel()
		pause := time.After(pace/2 + time.Duration(random.Int64N(int64(pace))))
		if err == nil {
			tr.acked.add(o)
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return
		}
		if err == nil || random.IntN(4) == 0 {
			return
		}
	}
}

// pace is the mean time between two orders of a client.
const pace = 10 * time.Millisecond

// stop ends it. It may be called again.
func (tr *traffic) stop() {
	tr.stopClients()
	tr.clients.Wait()
	tr.stopWorkers()
	tr.workers.Wait()
}

// settle stops the clients, waits until the workers have brought all messages to their end, and checks everything.
func (tr *traffic) settle(t *testing.T, tally *proof.Tally, db *sql.DB) {
	t.Helper()
	tr.stopClients()
	tr.clients.Wait()
	awaitEnd(t, db)
	tr.stop()
	verify(t, tally, db, tr.book)
	verifyOrders(t, tally, db, tr.acked.tries)
}

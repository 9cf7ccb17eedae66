//go:build unix

package crash

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
)

// Worker processes are killed, frozen until others work on what was theirs, and stopped, all in the middle of their calls,
// and others take their place, while the receiver refuses, fails, hangs up and hangs. Every message ends; none is settled twice, called twice for
// one attempt, or accepted more often than was doubted and taken over; and a receiver that honours keys sees each once.
func TestWorkersKilledAndFrozen(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, driver string
		database     func(testing.TB) string
	}{
		{"postgres", "postgres", dbtest.Postgres},
		{"mariadb", "mysql", dbtest.MariaDB},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			killWorkers(t, s.driver, s.database(t))
		})
	}
}

func killWorkers(t *testing.T, driver, dsn string) {
	seed := proof.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	faults := proof.Size(4, 120)
	portion := proof.Size(40, 167) // messages before each fault
	kinds := []string{"sigkill", "sigstop"}
	wanted := append(kinds, "takeover")
	if proof.Full() {
		kinds = append(kinds, "sigkill", "sigkill", "sigkill", "stop")
		wanted = append(wanted, "stop", "lost result")
	}
	tally := proof.New(t, "worker processes on "+driver, wanted...)

	db := open(t, driver, dsn)
	box := prepare(t, db, driver)
	book := newLedger()
	workers := newFleet(t, child{Driver: driver, DSN: dsn, Receiver: book.listen(t, seed)}, proof.Size(2, 6))
	for i := range faults {
		called := book.watch(1 + random.IntN(portion/2))
		enqueue(t, db, box, i*portion, portion)
		name := ""
		select {
		case name = <-called:
		case <-time.After(settleIn):
			t.Fatalf("nobody works:\n%s", workers.errs.String())
		}
		if random.IntN(3) == 0 {
			name = "" // not the one that is calling, but the one that has lived longest
		}
		kind := kinds[i%len(kinds)]
		victim, err := workers.take(name), error(nil)
		switch kind {
		case "sigkill":
			err = victim.kill()
		case "sigstop":
			err = workers.freeze(victim, func() { book.theft(victim.name, 2*lease) })
		case "stop":
			err = victim.stop()
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		tally.Fault(kind)
		workers.start()
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	awaitEnd(t, db)
	for _, id := range workers.end() {
		book.lose(id)
	}
	verify(t, tally, db, book)
}

// enqueue commits n messages, beginning with the given number.
func enqueue(t *testing.T, db *sql.DB, box *sqlstore.Store, first, n int) {
	t.Helper()
	messages := make([]store.NewMessage, n)
	for i := range messages {
		messages[i] = newMessage(fmt.Sprintf("k-%d", first+i), first+i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.EnqueueAll(ctx, tx, messages); err != nil {
		t.Fatal(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

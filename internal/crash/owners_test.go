//go:build unix

package crash

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// sqliteDSNs are the drivers of this build, with what Check asks for.
var sqliteDSNs = map[string]string{
	"sqlite": "?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)",
}

// runOwner is a process that owns the file together with others: it enqueues, and delivers what is there. It writes what
// happened to its standard output, line by line, since what is written there outlives it.
func runOwner(ctx context.Context, c child) error {
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		return err
	}
	box, err := newBox(db, c.Driver, c.Ahead)
	if err != nil {
		return err
	}
	w, err := newWorker(box, func(ctx context.Context, m transports.Message) state.Outcome {
		a := answerTo(c.Seed, m.IdempotencyKey, m.Attempt)
		fmt.Printf("call %s %d %s %v %s\n", m.ID, m.Attempt, m.IdempotencyKey, a.accepted(), m.Data)
		return a.outcome(m.ID, m.Attempt)
	}, func(id string) { fmt.Printf("lost %s\n", id) })
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	enqueuing, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for n := 0; enqueuing.Err() == nil; n++ {
			o := order{fmt.Sprintf("%s-%d", c.Name, n), 1}
			if err := place(enqueuing, db, box, o, n); err != nil && enqueuing.Err() == nil {
				failed <- err
				return
			}
			fmt.Printf("order %s\n", o.key)
			w.Notify()
		}
	}()
	err = w.Run(enqueuing)
	select {
	case failure := <-failed:
		err = errors.Join(err, failure)
	default:
	}
	return errors.Join(err, db.Close())
}

// listenTo reads what such a process says into the books, and tells when it has said n lines.
func listenTo(t *testing.T, said io.Reader, book *ledger, acked *acknowledged, n int) (busy, ended <-chan struct{}) {
	enough, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		lines := bufio.NewScanner(said)
		for ; lines.Scan(); n-- {
			if n == 0 {
				close(enough)
			}
			switch kind, rest, _ := strings.Cut(lines.Text(), " "); kind {
			case "order":
				acked.add(order{rest, 1})
			case "lost":
				book.lose(rest)
			case "call":
				f := strings.SplitN(rest, " ", 5)
				attempt, err := strconv.Atoi(f[1])
				if err != nil {
					t.Error(err)
				}
				book.add(f[0], call{key: f[2], attempt: attempt, accepted: f[3] == "true", body: sha256.Sum256([]byte(f[4]))})
			default:
				t.Errorf("a process says %q", lines.Text())
			}
		}
		if n > 0 {
			close(enough)
		}
	}()
	return enough, over
}

// The processes that own a SQLite file are killed while they write it, again and again, and the file is copied meanwhile.
// It is never broken, nothing that was acknowledged is missing, nothing is there by half, and in the end every message ends.
func TestOwnersOfAFileKilled(t *testing.T) {
	t.Parallel()
	for driver := range sqliteDSNs {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			seed := proof.Seed(t)
			random := rand.New(rand.NewPCG(seed, 0))
			wanted := []string{"sigkill", "copy"}
			if proof.Full() { // a few kills need not hit a claim
				wanted = append(wanted, "takeover")
			}
			tally := proof.New(t, "SQLite with "+driver, wanted...)
			for range proof.Size(1, 8) { // files, since each round looks at all that is in one
				killOwners(t, tally, driver, seed, random)
			}
		})
	}
}

func killOwners(t *testing.T, tally *proof.Tally, driver string, seed uint64, random *rand.Rand) {
	file := filepath.Join(t.TempDir(), "recado.db")
	dsn := "file:" + file + sqliteDSNs[driver]
	db := open(t, driver, dsn)
	prepare(t, db, driver)
	book, acked := newLedger(), &acknowledged{}
	rounds := proof.Size(2, 6)
	for round := range rounds {
		var said locked
		var owners []*process
		var busy, ended []<-chan struct{}
		t.Cleanup(func() {
			for _, p := range owners {
				_ = p.kill() // it has been, unless the test failed
			}
		})
		for i := range 2 {
			end, begin, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			p, err := spawn(child{
				Name: fmt.Sprintf("o%d-%d", round, i), Driver: driver, DSN: dsn, Seed: seed,
				Ahead: 2 * round, // what the killed ones held is free
			}, begin, &said)
			if err = errors.Join(err, begin.Close()); err != nil {
				t.Fatal(err)
			}
			owners = append(owners, p)
			b, e := listenTo(t, end, book, acked, 5+random.IntN(proof.Size(40, 150)))
			busy, ended = append(busy, b), append(ended, e)
			t.Cleanup(func() { _ = end.Close() })
		}
		<-busy[0]
		if round%3 == 1 {
			checkCopy(t, tally, db, driver, file)
		}
		<-busy[1]
		<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
		for i, p := range owners {
			if err := p.kill(); err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			tally.Fault("sigkill")
			<-ended[i]
		}
		owners = nil
		checkFile(t, tally, driver, dsn)
	}
	box, err := newBox(db, driver, 2*rounds)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorker(box, book.receive(seed), book.lose)
	if err != nil {
		t.Fatal(err)
	}
	for live := 1; live > 0; {
		if r := w.Drain(t.Context()); r.Err() != nil {
			t.Fatal(r)
		}
		if err := db.QueryRow("SELECT count(*) FROM outbox WHERE terminado IS NULL").Scan(&live); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, tally, db, book)
	verifyOrders(t, tally, db, acked.tries)
}

// checkFile opens a file and checks what must hold of it at any moment.
func checkFile(t *testing.T, tally *proof.Tally, driver, dsn string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		tally.Violation(t, "the file is broken: %s, %v", verdict, err)
	}
	verifyHistories(t, tally, db)
	verifyOrders(t, tally, db, nil)
}

// checkCopy copies the file and its log while others write them, and checks the copy. A reader's transaction keeps the log
// from being begun anew between the two, as whoever copies a file in use must have; another process does the copying,
// since one that closes the file loses its locks on it.
func checkCopy(t *testing.T, tally *proof.Tally, db *sql.DB, driver, file string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to its pool
	to := filepath.Join(t.TempDir(), "copy.db")
	var rows int
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	if err == nil {
		err = conn.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox").Scan(&rows)
	}
	for _, part := range []string{"", "-wal"} {
		if err == nil {
			err = exec.CommandContext(t.Context(), "cp", file+part, to+part).Run()
		}
	}
	if err == nil {
		_, err = conn.ExecContext(t.Context(), "COMMIT")
	}
	if err != nil {
		t.Fatal(err)
	}
	tally.Fault("copy")
	checkFile(t, tally, driver, "file:"+to+sqliteDSNs[driver])
}

//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// workerEnv makes the test binary run as a worker on the DSN in it.
const workerEnv = "RECADO_INTEGRATION_WORKER"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(workerEnv); dsn != "" {
		if err := runWorker(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if target := os.Getenv(migrateEnv); target != "" {
		if err := runMigrate(target); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	pauseRows    = 2000
	pauseLease   = dispatch.MinLease
	pauseTimeout = time.Second
)

// tally sums what a worker settled.
type tally struct {
	dispatch.Report
	mu       sync.Mutex
	terminal map[string]int // settlements applied to a terminal state, by message
}

func (t *tally) config(box *sqlstore.Store) (*dispatch.Worker, error) {
	t.terminal = map[string]int{}
	return dispatch.New(box, dispatch.Config{
		Transports: dispatch.Transports{"correo": transports.Func(func(ctx context.Context, _ transports.Message) state.Outcome {
			select { // as a provider would take a little while
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
			return state.Outcome{OK: true}
		})},
		BatchSize: 200, Concurrency: 10, Lease: pauseLease, Timeout: pauseTimeout, PollInterval: 100 * time.Millisecond,
		Observer: observer{t: t},
		OnReport: func(r dispatch.Report) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.Claimed += r.Claimed
			t.Sent += r.Sent
			t.Lost += r.Lost
			t.Errors += r.Errors
			t.ClaimErrors += r.ClaimErrors
		},
	})
}

type observer struct {
	dispatch.NopObserver
	t *tally
}

func (o observer) Settled(s dispatch.Settled) {
	to, err := state.Next(state.Processing, s.Event)
	if err == nil && to.Terminal() && s.Verdict == store.Applied && !s.Failed {
		o.t.mu.Lock()
		defer o.t.mu.Unlock()
		o.t.terminal[s.ID]++
	}
}

// runWorker is the child: it works until SIGTERM, then prints what it settled.
func runWorker(dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		return err
	}
	var t tally
	w, err := t.config(box)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"sent": t.Sent, "lost": t.Lost, "errors": t.Errors + t.ClaimErrors, "terminal": t.terminal})
}

// stuck counts the rows that no worker will ever touch again though they have not ended: neither waiting for their turn,
// nor claimable, nor under a lease that ends within a lease's time. Operators find the same query in the README.
var stuck = fmt.Sprintf(`
SELECT count(*) FROM outbox
WHERE terminado IS NULL
	AND (turno IS NULL OR estado = '%s' AND bloqueado_hasta > now() + $1 * interval '1 second')`, state.Processing)

// A worker process is stopped in the middle of a batch for longer than its lease, another takes its messages over, and
// the first one wakes up: every message is settled once, the sleeper's late results are lost, nothing is stuck.
func TestPausedWorker(t *testing.T) {
	dsn := dbtest.Postgres(t)
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]store.NewMessage, pauseRows)
	for i := range messages {
		messages[i] = store.NewMessage{
			TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
			Template: "aviso", IdempotencyKey: fmt.Sprint("aviso-", i),
		}
	}
	if _, err := box.EnqueueAll(ctx, tx, messages); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	// The first worker, stopped as soon as it holds messages and has sent some.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sleeper := exec.CommandContext(ctx, exe)
	sleeper.Env = append(os.Environ(), workerEnv+"="+dsn)
	var stderr bytes.Buffer
	sleeper.Stderr = &stderr
	out, err := sleeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		t.Fatalf("the worker says %q, %v: %s", line, err, &stderr)
	}
	counts := func() (states map[state.State]int) {
		states = map[state.State]int{}
		rows, err := db.QueryContext(ctx, "SELECT estado, count(*) FROM outbox GROUP BY estado")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s state.State
			var n int
			if err := rows.Scan(&s, &n); err != nil {
				t.Fatal(err)
			}
			states[s] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return states
	}
	until(ctx, t, "the first worker is at work", func() bool {
		c := counts()
		return c[state.Sent] > 0 && c[state.Processing] >= 100
	})
	if err := sleeper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The second worker, in this process, takes over what the first one holds once its lease has ended.
	var second tally
	w, err := second.config(box)
	if err != nil {
		t.Fatal(err)
	}
	workCtx, stopWork := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(workCtx) }()
	until(ctx, t, "everything is sent", func() bool { return counts()[state.Sent] == pauseRows })

	if err := sleeper.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var first struct {
		Sent, Lost, Errors int
		Terminal           map[string]int
	}
	if err := json.NewDecoder(lines).Decode(&first); err != nil {
		t.Fatalf("the first worker's tally: %v: %s", err, &stderr)
	}
	if err := sleeper.Wait(); err != nil {
		t.Fatalf("the first worker: %v: %s", err, &stderr)
	}
	stopWork()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if got := counts(); len(got) != 1 || got[state.Sent] != pauseRows {
		t.Errorf("the rows stand at %v", got)
	}
	var n int
	if err := db.QueryRowContext(ctx, stuck, pauseLease.Seconds()).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows are stuck, %v", n, err)
	}
	settled := map[string]int{}
	for _, one := range []map[string]int{first.Terminal, second.terminal} {
		for id, times := range one {
			settled[id] += times
		}
	}
	if len(settled) != pauseRows {
		t.Errorf("%d messages were settled, want %d", len(settled), pauseRows)
	}
	for id, times := range settled {
		if times != 1 {
			t.Errorf("message %s was settled %d times", id, times)
		}
	}
	if first.Lost == 0 {
		t.Error("the first worker lost nothing, though others have settled what it held")
	}
	if first.Errors != 0 || second.Errors+second.ClaimErrors != 0 || second.Lost != 0 {
		t.Errorf("errors: %d and %d, lost by the second worker: %d", first.Errors, second.Errors+second.ClaimErrors, second.Lost)
	}
	t.Logf("sent by the first worker %d, by the second %d; held through the pause and lost %d", first.Sent, second.Sent, first.Lost)
}

// until waits for something in the database, which has no event for it.
func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(errors.Join(fmt.Errorf("waiting until %s", what), ctx.Err()))
		}
	}
}

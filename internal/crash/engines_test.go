//go:build unix

package crash

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

const (
	tenant  = "club"
	channel = "correo"
	lease   = dispatch.MinLease
	timeout = dispatch.MinTimeout

	// settleIn bounds every wait for something that has to happen: that a fault finds its moment, or that all messages end
	// once nothing is broken any more. It is for a machine that does much else.
	settleIn = 5 * time.Minute
)

func dialectOf(driver string) sqlstore.Dialect {
	switch driver {
	case "mysql":
		return sqlstore.MySQL
	case "sqlite", "sqlite3":
		return sqlstore.SQLite
	}
	return sqlstore.Postgres
}

// newBox is the store of a handle, with its clock so many leases ahead where the clock is the application's.
func newBox(db *sql.DB, driver string, ahead int) (*sqlstore.Store, error) {
	cfg := sqlstore.Config{TextTenant: true, DefaultTenant: tenant}
	if dialectOf(driver) == sqlstore.SQLite {
		cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead) * lease) }
	}
	return sqlstore.New(db, dialectOf(driver), cfg)
}

// losses is an observer that is told which messages' results were lost.
type losses struct {
	dispatch.NopObserver
	lost func(id string)
}

func (l losses) Settled(s dispatch.Settled) {
	if s.Verdict == store.Lost && !s.Failed {
		l.lost(s.ID)
	}
}

// newWorker is a worker as all these tests have them: it retries soon.
func newWorker(box *sqlstore.Store, send transports.Func, lost func(id string)) (*dispatch.Worker, error) {
	policy := state.DefaultPolicy()
	policy.Backoff = state.Backoff{Base: 50 * time.Millisecond, Factor: 2, Max: time.Second, Jitter: 0.2}
	return dispatch.New(box, dispatch.Config{
		Transports: dispatch.Transports{channel: send}, BatchSize: 20, Concurrency: 8,
		Lease: lease, Timeout: timeout, PollInterval: 50 * time.Millisecond, Policy: &policy, Observer: losses{lost: lost},
	})
}

// newMessage is the message of a key. One in ten may be tried only twice.
func newMessage(key string, n int) store.NewMessage {
	m := store.NewMessage{
		Channel: channel, Destination: "ana@club.example", Template: "aviso", IdempotencyKey: key, MaxAttempts: 30,
		Data: map[string]any{"pedido": key, "lineas": map[string]int{"a": n, "b": n + 1, "c": n + 2}},
	}
	if n%10 == 9 {
		m.MaxAttempts = 2
	}
	return m
}

// handles is how many connections a test's process keeps open.
var handles = proof.Size(8, 20)

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(handles)
	db.SetMaxIdleConns(handles) // else most of what happens is that connections are made
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// prepare makes the tables: the outbox, its history, and the clients' own.
func prepare(t *testing.T, db *sql.DB, driver string) *sqlstore.Store {
	t.Helper()
	box, err := newBox(db, driver, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range append(historyOf(driver), ordersTable) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
	return box
}

// awaitEnd waits until every message has ended. There is no event for it in a database.
func awaitEnd(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleIn)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for live := -1; live != 0; {
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE terminado IS NULL").Scan(&live); err != nil {
			t.Fatal(fmt.Errorf("%d messages are stuck: %w", live, err))
		}
		<-tick.C
	}
}

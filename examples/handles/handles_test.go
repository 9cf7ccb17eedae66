// Package handles enqueues in the transactions of the libraries that people use over database/sql. Each file is one of
// them: first the code to copy, then its test. README.md is the summary.
package handles

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
)

// order is the business fact: a row of the table pedidos.
type order struct {
	ID    string `db:"id"`
	Email string `db:"correo"`
}

// welcome is the message that goes with it: one for each customer, however many orders follow.
func welcome(o order) store.NewMessage {
	return store.NewMessage{
		TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: o.Email,
		Template: "bienvenida", Data: map[string]string{"correo": o.Email}, IdempotencyKey: "bienvenida-" + o.Email,
	}
}

// place is what each handle implements: the order's row, its message, and whatever else has to happen before the
// commit, in one transaction. An error of rest undoes the row and the message.
type place func(ctx context.Context, o order, rest func() error) error

// Both ways that rest can go.
var (
	accepted   = func() error { return nil }
	refused    = func() error { return errRefused }
	errRefused = errors.New("the payment was refused")
)

// engine is a database to try a handle on. Its name is the one that sqlx and ent have for it.
type engine struct {
	name    string
	dialect sqlstore.Dialect
	open    func(*testing.T) *sql.DB
}

var (
	postgres = engine{"postgres", sqlstore.Postgres, func(t *testing.T) *sql.DB {
		return open(t, "postgres", dbtest.Postgres(t))
	}}
	mariadb = engine{"mysql", sqlstore.MySQL, func(t *testing.T) *sql.DB {
		return open(t, "mysql", dbtest.MariaDB(t))
	}}
	sqlite = engine{"sqlite3", sqlstore.SQLite, func(t *testing.T) *sql.DB {
		return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "club.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	}}
)

var engines = []engine{postgres, mariadb, sqlite}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newBox returns the outbox of an empty database, and makes the table pedidos beside it.
func newBox(t *testing.T, db *sql.DB, d sqlstore.Dialect) *sqlstore.Store {
	t.Helper()
	box, err := sqlstore.New(db, d, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE pedidos (id varchar(36) PRIMARY KEY, correo varchar(254) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return box
}

// on runs a test on each of some engines.
func on(t *testing.T, engines []engine, test func(*testing.T, engine, *sql.DB, *sqlstore.Store)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t)
			test(t, e, db, newBox(t, db, e.dialect))
		})
	}
}

// try holds a handle to what Enqueue promises: both statements go through it, and a rollback leaves neither the order
// nor the message. Then again with the insert prepared, which a handle may or may not know how to use.
func try(t *testing.T, db *sql.DB, box *sqlstore.Store, place place) {
	t.Helper()
	orders, messages := 0, 0
	round := func(id, email string) {
		t.Helper()
		if err := place(t.Context(), order{id + "1", email}, accepted); err != nil {
			t.Fatal(err)
		}
		// The second order of a customer finds the key in use.
		if err := place(t.Context(), order{id + "2", email}, accepted); err != nil {
			t.Fatal(err)
		}
		orders, messages = orders+2, messages+1
		if err := place(t.Context(), order{id + "3", "not-" + email}, refused); !errors.Is(err, errRefused) {
			t.Fatalf("got %v, want the error that undid the order", err)
		}
		expect(t, db, orders, messages)
	}
	round("A", "ana@club.example")
	if err := box.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	round("B", "benito@club.example")
}

// expect compares what was committed.
func expect(t *testing.T, db *sql.DB, orders, messages int) {
	t.Helper()
	var gotOrders, gotMessages int
	err := db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM pedidos), (SELECT count(*) FROM outbox)").Scan(&gotOrders, &gotMessages)
	if err != nil {
		t.Fatal(err)
	}
	if gotOrders != orders || gotMessages != messages {
		t.Errorf("%d orders and %d messages were committed, want %d and %d", gotOrders, gotMessages, orders, messages)
	}
}

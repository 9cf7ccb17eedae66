package handles

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/recado-dev/recado/sqlstore"
)

// connTx is the transaction on a *sql.Conn that was begun by hand, for a BEGIN that database/sql does not send, such as
// SQLite's BEGIN IMMEDIATE. On MySQL it must be a BEGIN, too: autocommit = 0 would stay with the connection. Like a *sql.Tx it ends once, so that Rollback can be deferred. It must: Close alone gives the
// connection back to the pool with the transaction still open.
type connTx struct {
	*sql.Conn
	done bool
}

// Commit takes COMMIT at its word. After a failed statement PostgreSQL rolls back instead and reports no error, so none
// may be passed over before.
func (tx *connTx) Commit() error   { return tx.end("COMMIT") }
func (tx *connTx) Rollback() error { return tx.end("ROLLBACK") }

// end has no context that could be over already. A connection that cannot end its transaction is discarded.
func (tx *connTx) end(statement string) error {
	if tx.done {
		return sql.ErrTxDone
	}
	tx.done = true
	_, err := tx.ExecContext(context.Background(), statement)
	if err != nil {
		_ = tx.Raw(func(any) error { return driver.ErrBadConn }) // returns just that
	}
	return err
}

func placeOnConn(db *sql.DB, begin, insert string, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, begin); err != nil {
			return err
		}
		tx := &connTx{Conn: conn}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, insert, o.ID, o.Email); err != nil {
			return err
		}
		if _, err := box.Enqueue(ctx, tx, welcome(o)); err != nil {
			return err
		}
		if err := rest(); err != nil {
			return err
		}
		return tx.Commit()
	}
}

func TestConn(t *testing.T) {
	begin := map[string]string{postgres.name: "BEGIN", mariadb.name: "START TRANSACTION WITH CONSISTENT SNAPSHOT", sqlite.name: "BEGIN IMMEDIATE"}
	on(t, engines, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		insert := "INSERT INTO pedidos (id, correo) VALUES (?, ?)"
		if e.name == postgres.name {
			insert = "INSERT INTO pedidos (id, correo) VALUES ($1, $2)"
		}
		try(t, db, box, placeOnConn(db, begin[e.name], insert, box))
	})
}

// A connection whose transaction could not be ended is gone, and not in the pool for the next one.
func TestConnIsDiscarded(t *testing.T) {
	conn, err := sqlite.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := (&connTx{Conn: conn}).Rollback(); err == nil { // nothing was begun
		t.Error("a rollback of nothing succeeded")
	}
	if err := conn.PingContext(t.Context()); !errors.Is(err, sql.ErrConnDone) {
		t.Errorf("got %v, want a connection that is no longer there", err)
	}
}

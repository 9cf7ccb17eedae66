package handles

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/recado-dev/recado/sqlstore"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:pedidos"`

	ID    string `bun:"id,pk"`
	Email string `bun:"correo"`
}

// Pass tx.Tx, the *sql.Tx inside. A bun.Tx compiles too, but formats every statement in its own way: see
// TestBunTxItself.
func placeWithBun(db *bun.DB, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&bunOrder{ID: o.ID, Email: o.Email}).Exec(ctx); err != nil {
				return err
			}
			if _, err := box.Enqueue(ctx, tx.Tx, welcome(o)); err != nil {
				return err
			}
			return rest()
		})
	}
}

var bunDialects = map[string]func() schema.Dialect{
	postgres.name: func() schema.Dialect { return pgdialect.New() },
	mariadb.name:  func() schema.Dialect { return mysqldialect.New() },
	sqlite.name:   func() schema.Dialect { return sqlitedialect.New() },
}

func TestBun(t *testing.T) {
	on(t, engines, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		try(t, db, box, placeWithBun(bun.NewDB(db, bunDialects[e.name]()), box))
	})
}

// A bun.Tx fills in '?' by itself and then sends the statement without its arguments, which ours needs: enqueueing fails,
// and the transaction with it. After box.Prepare it is worse: a new message goes the way of the prepared statement, past
// bun's formatting, and only a key in use fails.
//
// MySQL marks parameters with '?' as well: see TestBunTxItselfOnMySQL.
func TestBunTxItself(t *testing.T) {
	symptoms := map[string]string{postgres.name: "there is no parameter $", sqlite.name: "missing argument"}
	on(t, []engine{postgres, sqlite}, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		bunDB := bun.NewDB(db, bunDialects[e.name]())
		enqueue := func() error {
			return bunDB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := box.Enqueue(ctx, tx, welcome(order{"A1", "ana@club.example"}))
				return err
			})
		}
		wantRefusal := func(messages int) {
			t.Helper()
			if got := fmt.Sprint(errors.Unwrap(enqueue())); !strings.Contains(got, symptoms[e.name]) {
				t.Errorf("got %s, want: %s", got, symptoms[e.name])
			}
			expect(t, db, 0, messages)
		}
		wantRefusal(0)
		if err := box.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		wantRefusal(1)
	})
}

// On MySQL a bun.Tx writes the values into the statement, which works until sql_mode has NO_BACKSLASH_ESCAPES:
// then backslashes are doubled.
func TestBunTxItselfOnMySQL(t *testing.T) {
	on(t, []engine{mariadb}, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		enqueue := func(mode string, o order) error {
			return bun.NewDB(db, bunDialects[e.name]()).RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.Tx.ExecContext(ctx, "SET SESSION sql_mode = ?", mode); err != nil {
					return err
				}
				m := welcome(o)
				m.Data = `a "quote", which JSON writes with a backslash`
				_, err := box.Enqueue(ctx, tx, m)
				return err
			})
		}
		if err := enqueue("", order{"A1", "ana@club.example"}); err != nil {
			t.Fatal(err)
		}
		if err := enqueue("NO_BACKSLASH_ESCAPES", order{"B1", "benito@club.example"}); err == nil {
			t.Error("a message with doubled backslashes went through")
		}
		expect(t, db, 0, 1)
	})
}

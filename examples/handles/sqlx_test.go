package handles

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/recado-dev/recado/sqlstore"
)

// A *sqlx.Tx embeds its *sql.Tx and leaves ExecContext and QueryContext alone: it is passed as it is.
func placeWithSqlx(db *sqlx.DB, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.NamedExecContext(ctx, "INSERT INTO pedidos (id, correo) VALUES (:id, :correo)", o); err != nil {
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

func TestSqlx(t *testing.T) {
	on(t, engines, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		try(t, db, box, placeWithSqlx(sqlx.NewDb(db, e.name), box))
	})
}

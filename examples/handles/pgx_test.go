package handles

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
)

// stdlib.OpenDBFromPool makes a *sql.DB of the pool that the rest of the application uses.
func placeWithPgx(db *sql.DB, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO pedidos (id, correo) VALUES ($1, $2)", o.ID, o.Email); err != nil {
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

// Code written for pgx itself can go on: a pgx.Tx is none of database/sql's, but the connection that a *sql.Tx is on is
// a *pgx.Conn, and whatever runs on it is in the transaction.
func placeWithNativePgx(db *sql.DB, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		err = conn.Raw(func(driverConn any) error {
			native := driverConn.(*stdlib.Conn).Conn()
			_, err := native.Exec(ctx, "INSERT INTO pedidos (id, correo) VALUES ($1, $2)", o.ID, o.Email)
			return err
		})
		if err != nil {
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

func openPgx(t *testing.T, mode pgx.QueryExecMode) *sql.DB {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dbtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Enqueue works in every mode, so the choice is the pooler's. Behind one in transaction mode a statement that was
// prepared in one transaction may be missing in the next: QueryExecModeExec does without (in a DSN,
// default_query_exec_mode=exec), and box.Prepare is not called.
func TestPgx(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, // pgx's default
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			db := openPgx(t, mode)
			box := newBox(t, db, sqlstore.Postgres)
			try(t, db, box, placeWithPgx(db, box))
		})
	}
}

func TestNativePgx(t *testing.T) {
	db := openPgx(t, pgx.QueryExecModeCacheStatement)
	box := newBox(t, db, sqlstore.Postgres)
	try(t, db, box, placeWithNativePgx(db, box))
}

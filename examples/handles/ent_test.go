package handles

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
)

// A client generated with --feature sql/execquery has an *ent.Tx that is passed as it is: the feature gives it the
// ExecContext and QueryContext of this type, which ent's driver begins transactions with.
var _ store.Tx = (*entsql.Tx)(nil)

// Any other client is put on top of a *sql.Tx: ent.NewClient(ent.Driver(entDriver{entsql.NewDriver(...)})), as below.
//
// entDriver makes the transactions that ent begins by itself, such as for an update, a part of the one around it.
type entDriver struct{ dialect.Driver }

func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func placeWithEnt(db *sql.DB, dialectName string, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		drv := entDriver{entsql.NewDriver(dialectName, entsql.Conn{ExecQuerier: tx})} // for ent.NewClient(ent.Driver(drv))
		if err := createAndUpdate(ctx, drv, o); err != nil {
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

// createAndUpdate is what generated builders come to: Create().SetID(o.ID).SetCorreo("") and
// UpdateOneID(o.ID).SetCorreo(o.Email). The code of a client would be three thousand lines here.
func createAndUpdate(ctx context.Context, drv dialect.Driver, o order) error {
	id := sqlgraph.NewFieldSpec("id", field.TypeString)
	create := sqlgraph.NewCreateSpec("pedidos", id)
	create.ID.Value = o.ID
	create.SetField("correo", field.TypeString, "")
	if err := sqlgraph.CreateNode(ctx, drv, create); err != nil {
		return err
	}
	id.Value = o.ID
	update := sqlgraph.NewUpdateSpec("pedidos", []string{"id", "correo"}, id)
	update.SetField("correo", field.TypeString, o.Email)
	update.ScanValues = func([]string) ([]any, error) { return []any{new(string), new(string)}, nil }
	update.Assign = func([]string, []any) error { return nil }
	return sqlgraph.UpdateNode(ctx, drv, update)
}

func TestEnt(t *testing.T) {
	on(t, engines, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		try(t, db, box, placeWithEnt(db, e.name, box))
	})
}

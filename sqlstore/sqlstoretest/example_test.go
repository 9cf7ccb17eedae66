package sqlstoretest_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/sqlstore/sqlstoretest"
	"github.com/recado-dev/recado/store"
)

// pedidos is a service of the application.
type pedidos struct {
	db  *sql.DB
	box *sqlstore.Store
}

func (p *pedidos) Crear(ctx context.Context, id, club, email string) (string, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO pedidos (id) VALUES ($1)", id); err != nil {
		return "", err
	}
	aviso, err := p.box.Enqueue(ctx, tx, store.NewMessage{
		TenantID: club, Channel: "correo", Destination: email, Template: "confirmacion_pedido",
		Data: map[string]any{"pedido": id}, IdempotencyKey: "confirmacion-pedido-" + id,
	})
	if err != nil {
		return "", err
	}
	return aviso.ID, tx.Commit()
}

func ExampleExpectEnqueue() {
	db, mock, err := sqlmock.New()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		panic(err)
	}

	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Inserted("0190a5a0-0000-7000-8000-000000000007"))
	mock.ExpectCommit()

	service := &pedidos{db, box}
	id, err := service.Crear(context.Background(), "A-17", "7e000000-0000-4000-8000-000000000001", "ana@club.example")
	fmt.Println(id, err)
	fmt.Println(mock.ExpectationsWereMet())
	// Output:
	// 0190a5a0-0000-7000-8000-000000000007 <nil>
	// <nil>
}

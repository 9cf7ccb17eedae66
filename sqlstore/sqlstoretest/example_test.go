package sqlstoretest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/sqlstore/sqlstoretest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
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

// The database fails in the middle, and the service has to roll back: the order must not stay without its message.
func ExampleFailing() {
	db, mock, err := sqlmock.New()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	box, err := sqlstore.New(db, sqlstore.MySQL, sqlstore.Config{})
	if err != nil {
		panic(err)
	}

	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Failing(errors.New("gone away")))
	mock.ExpectRollback()

	service := &pedidos{db, box}
	_, err = service.Crear(context.Background(), "A-17", "7e000000-0000-4000-8000-000000000001", "ana@club.example")
	fmt.Println(err)
	fmt.Println(mock.ExpectationsWereMet())
	// Output:
	// outbox: enqueue: failed without a code (errors.Unwrap has the driver's error)
	// <nil>
}

// A worker's pass over one message: a transport of the application's is called with what the mock says is in the row.
func ExampleExpectClaim() {
	db, mock, err := sqlmock.New()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		panic(err)
	}
	worker, err := dispatch.New(box, dispatch.Config{Transports: dispatch.Transports{
		"correo": transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
			fmt.Println("sending", m.Template, "attempt", m.Attempt)
			return state.Outcome{OK: true, ExternalID: "msg_1"}
		}),
	}})
	if err != nil {
		panic(err)
	}

	const id = "0190a5a0-0000-7000-8000-000000000007"
	sqlstoretest.ExpectChannels(mock, box, "correo")
	sqlstoretest.ExpectClaim(mock, box, store.Message{
		ID: id, TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
		Template: "aviso", IdempotencyKey: "aviso-1", Attempts: 2,
	})
	sqlstoretest.ExpectSettle(mock, box, map[string]store.Verdict{id: store.Applied})

	report := worker.ProcessBatch(context.Background())
	fmt.Println(report.Sent, report.Err())
	fmt.Println(mock.ExpectationsWereMet())
	// Output:
	// sending aviso attempt 2
	// 1 <nil>
	// <nil>
}

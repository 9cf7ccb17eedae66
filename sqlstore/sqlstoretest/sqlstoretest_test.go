package sqlstoretest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/sqlstore/sqlstoretest"
	"github.com/recado-dev/recado/store"
)

func TestExpectEnqueue(t *testing.T) {
	const id = "0190a5a0-0000-7000-8000-000000000007"
	boom := errors.New("boom")
	message := store.NewMessage{
		TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
		Template: "aviso", IdempotencyKey: "aviso-1",
	}
	for _, dialect := range []sqlstore.Dialect{sqlstore.Postgres, sqlstore.SQLite} {
		for name, tc := range map[string]struct {
			result sqlstoretest.Result
			want   store.EnqueueResult
			err    error
		}{
			"new":       {sqlstoretest.Inserted(id), store.EnqueueResult{ID: id, Inserted: true}, nil},
			"repeated":  {sqlstoretest.Repeated(id), store.EnqueueResult{ID: id}, nil},
			"differing": {sqlstoretest.Differing(id), store.EnqueueResult{ID: id, Differs: true}, nil},
			"failing":   {sqlstoretest.Failing(boom), store.EnqueueResult{}, boom},
		} {
			t.Run(dialect.String()+"/"+name, func(t *testing.T) {
				db, mock, err := sqlmock.New()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				box, err := sqlstore.New(db, dialect, sqlstore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				mock.ExpectBegin()
				sqlstoretest.ExpectEnqueue(mock, box, tc.result)
				mock.ExpectRollback()
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				got, err := box.Enqueue(context.Background(), tx, message)
				if got != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("Enqueue is %+v, %v, want %+v, %v", got, err, tc.want, tc.err)
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				if err := mock.ExpectationsWereMet(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// An expectation that nothing meets must fail the test that set it.
func TestExpectEnqueueUnmet(t *testing.T) {
	db, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Inserted("x"))
	if mock.ExpectationsWereMet() == nil {
		t.Error("an expected enqueue that never came was not noticed")
	}
}

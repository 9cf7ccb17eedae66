package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/lib/pq"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// What the store does when a database misbehaves. What it does with one that works is for the conformance kit.

const secret = "canario-7f3a"

// errLost is a failure of the connection: nobody said whether the statement took effect.
var errLost = errors.New("read tcp: connection reset by peer near " + secret)

// deadlock is a refusal that asks for a repetition, with a text as a server might send it.
var deadlock = &pq.Error{Code: "40P01", Message: "deadlock detected " + secret, Detail: secret}

func mockStore(t *testing.T) (*Store, sqlmock.Sqlmock) {
	t.Helper()
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		db.Close()
	})
	box, err := New(db, Postgres, Config{TextTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	return box, mock
}

func claimParams() store.ClaimParams {
	return store.ClaimParams{Channel: "correo", Limit: 2, Lease: time.Minute}
}

func mockRows(closing bool, states ...state.State) *sqlmock.Rows {
	names := append([]string{"id", "organizacion_id"}, columns[1:len(columns)-2]...)
	if closing {
		names = append(names, "cierre")
	}
	rows := sqlmock.NewRows(names)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, s := range states {
		values := []driver.Value{
			fmt.Sprintf("01900000-0000-7000-8000-%012x", i), "club", "correo", "ana", "aviso", "{}", "k", string(s), 1, 5,
			at, nil, at.Add(time.Minute), "01900000-0000-4000-8000-000000000001", nil, nil, nil, 0, nil, nil, at, at, nil,
		}
		if closing {
			values = append(values, "")
		}
		rows.AddRow(values...)
	}
	return rows
}

func anyArgs(n int) []driver.Value {
	args := make([]driver.Value, n)
	for i := range args {
		args[i] = sqlmock.AnyArg()
	}
	return args
}

// checkError fails unless err is a store.Error with this code that hides the driver's text and still unwraps to cause.
func checkError(t *testing.T, err, cause error, code string) {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("the error is %v, want one with code %q", err, code)
	}
	if !errors.Is(err, cause) {
		t.Errorf("the error does not unwrap to the driver's")
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %s %q", err, err, err, err)} {
		if strings.Contains(text, secret) {
			t.Errorf("the error repeats the driver's text: %s", text)
		}
	}
}

func TestClaimFaults(t *testing.T) {
	t.Run("begin fails", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin().WillReturnError(errLost)
		_, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, errLost, "")
	})
	t.Run("statement fails and is not repeated", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnError(errLost)
		mock.ExpectRollback()
		_, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, errLost, "")
	})
	t.Run("deadlock is repeated as a whole", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnError(deadlock)
		mock.ExpectRollback()
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnRows(mockRows(true, state.Processing, state.Failed))
		mock.ExpectCommit()
		c, err := box.Claim(t.Context(), claimParams())
		if err != nil || len(c.Messages) != 1 || len(c.Closed) != 1 {
			t.Fatalf("the claim is %+v, %v", c, err)
		}
	})
	t.Run("deadlock without end", func(t *testing.T) {
		box, mock := mockStore(t)
		for range maxTries {
			mock.ExpectBegin()
			mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
			mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnError(deadlock)
			mock.ExpectRollback()
		}
		_, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, deadlock, "40P01")
	})
	t.Run("error in the middle of the rows", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).
			WillReturnRows(mockRows(true, state.Processing, state.Processing).RowError(1, errLost))
		mock.ExpectRollback()
		c, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, errLost, "")
		if len(c.Messages) != 0 {
			t.Error("a claim that failed handed out rows")
		}
	})
	t.Run("reply of the commit lost: read back by the token", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnRows(mockRows(true, state.Processing, state.Processing))
		mock.ExpectCommit().WillReturnError(errLost)
		mock.ExpectQuery(box.sql.readBack.text).WithArgs("correo", sqlmock.AnyArg(), 2).WillReturnRows(mockRows(false, state.Processing))
		c, err := box.Claim(t.Context(), claimParams())
		if err != nil || len(c.Messages) != 1 {
			t.Fatalf("the claim is %+v, %v, want what is in the database", c, err)
		}
	})
	t.Run("reply of the commit lost and no way to look", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnRows(mockRows(true, state.Processing))
		mock.ExpectCommit().WillReturnError(errLost)
		mock.ExpectQuery(box.sql.readBack.text).WithArgs("correo", sqlmock.AnyArg(), 2).WillReturnError(errLost)
		_, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, errLost, "")
	})
	t.Run("commit refused by the server", func(t *testing.T) {
		box, mock := mockStore(t)
		refusal := &pq.Error{Code: "23514", Message: secret}
		for range 2 { // the batch, then its first row
			mock.ExpectBegin()
			mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
			mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillReturnRows(mockRows(true, state.Processing))
			mock.ExpectCommit().WillReturnError(refusal)
		}
		mock.ExpectQuery(box.sql.peek.text).WithArgs(anyArgs(4)...).WillReturnRows(sqlmock.NewRows([]string{"turno", "id"})) // no row is to blame
		_, err := box.Claim(t.Context(), claimParams())
		checkError(t, err, refusal, "23514")
		if !store.Refused(err) {
			t.Error("a violated constraint is worth repeating")
		}
	})
	t.Run("refused as a batch, and lost halfway", func(t *testing.T) {
		for _, looking := range []bool{false, true} {
			box, mock := mockStore(t)
			refusal := &pq.Error{Code: "23514", Message: secret}
			attempt := func() *sqlmock.ExpectedQuery {
				mock.ExpectBegin()
				mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
				return mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...)
			}
			attempt().WillReturnError(refusal)
			mock.ExpectRollback()
			attempt().WillReturnRows(mockRows(true, state.Processing))
			mock.ExpectCommit()
			if looking {
				attempt().WillReturnError(refusal)
				mock.ExpectRollback()
				mock.ExpectQuery(box.sql.peek.text).WithArgs(anyArgs(4)...).WillReturnError(errLost)
			} else {
				attempt().WillReturnError(errLost)
				mock.ExpectRollback()
			}
			c, err := box.Claim(t.Context(), claimParams())
			if err != nil || len(c.Messages) != 1 {
				t.Errorf("the claim is %+v, %v, want the row that it took", c, err)
			}
		}
	})
	t.Run("context cut", func(t *testing.T) {
		box, mock := mockStore(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.beforeClaim.text).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectQuery(box.sql.claim.text).WithArgs(anyArgs(8)...).WillDelayFor(time.Minute).WillReturnRows(mockRows(true))
		// database/sql rolls back in its own time, which the mock may or may not live to see.
		if _, err := box.Claim(ctx, claimParams()); err == nil {
			t.Error("a claim whose context was cut succeeded")
		}
	})
}

func TestSettleFaults(t *testing.T) {
	settlement := func(n int) store.Settlement {
		return store.Settlement{
			Fence: store.Fence{
				ID: fmt.Sprintf("01900000-0000-7000-8000-%012x", n), LeasedUntil: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Token: store.Token{1},
			},
			Attempts: 1, Transition: state.Transition{Event: state.EventSend, To: state.Sent},
		}
	}
	ids := func(n ...int) *sqlmock.Rows {
		rows := sqlmock.NewRows([]string{"id"})
		for _, i := range n {
			rows.AddRow(settlement(i).ID)
		}
		return rows
	}
	t.Run("fewer rows than settlements", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.settle.text).WithArgs(anyArgs(12)...).WillReturnRows(ids(2, 0)) // in no order
		mock.ExpectQuery(box.sql.repeated.text).WithArgs(anyArgs(9)...).WillReturnRows(ids(3))
		mock.ExpectCommit()
		got, err := box.Settle(t.Context(), []store.Settlement{settlement(3), settlement(2), settlement(1), settlement(0)})
		want := []store.Verdict{store.Applied, store.Applied, store.Lost, store.Applied}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the verdicts are %v, %v, want %v", got, err, want)
		}
	})
	t.Run("a row nobody asked for", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.settle.text).WithArgs(anyArgs(12)...).WillReturnRows(ids(7, 8, 9))
		mock.ExpectQuery(box.sql.repeated.text).WithArgs(anyArgs(9)...).WillReturnRows(ids(8))
		mock.ExpectCommit()
		got, err := box.Settle(t.Context(), []store.Settlement{settlement(0)})
		if err != nil || len(got) != 1 || got[0] != store.Lost {
			t.Errorf("the verdicts are %v, %v", got, err)
		}
	})
	t.Run("reply of the commit lost", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.settle.text).WithArgs(anyArgs(12)...).WillReturnRows(ids(0))
		mock.ExpectCommit().WillReturnError(errLost)
		got, err := box.Settle(t.Context(), []store.Settlement{settlement(0)})
		checkError(t, err, errLost, "")
		if got != nil {
			t.Error("there are verdicts beside an error")
		}
	})
	t.Run("the answer for the rest fails", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.settle.text).WithArgs(anyArgs(12)...).WillReturnRows(ids())
		mock.ExpectQuery(box.sql.repeated.text).WithArgs(anyArgs(9)...).WillReturnError(errLost)
		mock.ExpectRollback()
		_, err := box.Settle(t.Context(), []store.Settlement{settlement(0)})
		checkError(t, err, errLost, "")
	})
	t.Run("SettleTx: commit fails after the work", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.settle.text).WithArgs(anyArgs(12)...).WillReturnRows(ids(0))
		mock.ExpectExec(box.sql.afterSettle.text).WillReturnResult(sqlmock.NewResult(0, 0))
		mock.ExpectCommit().WillReturnError(errLost)
		verdict, err := box.SettleTx(t.Context(), settlement(0), func(context.Context, store.Tx) error { return nil })
		checkError(t, err, errLost, "")
		if verdict != store.Lost {
			t.Error("a settlement that failed is applied")
		}
	})
}

func TestPurgeFaults(t *testing.T) {
	box, mock := mockStore(t)
	ended := sqlmock.NewRows([]string{"terminado"})
	for range 3 {
		ended.AddRow(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	}
	mock.ExpectBegin()
	mock.ExpectExec(box.sql.beforePurge.text).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectQuery(box.sql.purge.text).WithArgs(anyArgs(4)...).WillReturnRows(ended)
	mock.ExpectCommit()
	mock.ExpectBegin()
	mock.ExpectExec(box.sql.beforePurge.text).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectQuery(box.sql.purge.text).WithArgs(anyArgs(4)...).WillReturnError(errLost)
	mock.ExpectRollback()
	n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now(), Batch: 3})
	checkError(t, err, errLost, "")
	if n != 3 {
		t.Errorf("%d rows are reported as gone, want the 3 of the batch that was committed", n)
	}
}

func TestEnqueueFaults(t *testing.T) {
	message := store.NewMessage{TenantID: "club", Channel: "correo", Destination: secret, Template: "aviso", IdempotencyKey: "k"}
	t.Run("insert fails and is not repeated", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.insert.text).WithArgs(anyArgs(12)...).WillReturnError(deadlock)
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = box.Enqueue(t.Context(), tx, message)
		checkError(t, err, deadlock, "40P01")
		mock.ExpectRollback()
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
	t.Run("purged between insert and look-up", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin()
		none := func() *sqlmock.Rows { return sqlmock.NewRows([]string{"id"}) }
		mock.ExpectQuery(box.sql.insert.text).WithArgs(anyArgs(12)...).WillReturnRows(none())
		mock.ExpectQuery(box.sql.find.text).WithArgs(anyArgs(2)...).WillReturnRows(none())
		mock.ExpectQuery(box.sql.insert.text).WithArgs(anyArgs(12)...).WillReturnRows(none().AddRow("x"))
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := box.Enqueue(t.Context(), tx, message)
		if err != nil || got != (store.EnqueueResult{ID: "x", Inserted: true}) {
			t.Errorf("the enqueue is %+v, %v", got, err)
		}
		mock.ExpectRollback()
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
	t.Run("begin fails", func(t *testing.T) {
		box, mock := mockStore(t)
		mock.ExpectBegin().WillReturnError(errLost)
		_, err := box.Begin(t.Context())
		checkError(t, err, errLost, "")
	})
}

func TestLookupFaults(t *testing.T) {
	for name, look := range map[string]func(*Store) error{
		"get":      func(s *Store) error { _, err := s.Get(t.Context(), "01900000-0000-7000-8000-000000000000"); return err },
		"key":      func(s *Store) error { _, err := s.GetByKey(t.Context(), "club", "k"); return err },
		"next due": func(s *Store) error { _, _, err := s.NextDue(t.Context(), []string{"correo"}); return err },
		"channels": func(s *Store) error { _, err := s.Channels(t.Context()); return err },
		"stats":    func(s *Store) error { _, err := s.Stats(t.Context(), store.StatsParams{}); return err },
		"check":    func(s *Store) error { _, err := s.Check(t.Context()); return err },
		"prepare":  func(s *Store) error { return s.Prepare(t.Context()) },
		"requeue": func(s *Store) error {
			_, err := s.Requeue(t.Context(), []string{"01900000-0000-7000-8000-000000000000"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			box, _ := mockStore(t) // expects nothing, so everything fails
			err := look(box)
			if e := (*store.Error)(nil); !errors.As(err, &e) {
				t.Errorf("the error is %v, want a store.Error", err)
			}
		})
	}
}

// withoutNull is an argument that is a JSON table without a null: see the MySQL dialect's templates.
type withoutNull struct{}

func (withoutNull) Match(v driver.Value) bool {
	table, ok := v.(string)
	return ok && strings.HasPrefix(table, "[") && !strings.Contains(table, "null")
}

func TestMySQLTablesHoldNoNull(t *testing.T) {
	box, mock := mockStore(t)
	box, err := New(box.db, MySQL, Config{TextTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("insert", func(t *testing.T) {
		mock.ExpectBegin()
		mock.ExpectExec(box.sql.insertMany.text).WithArgs(append(anyArgs(3), withoutNull{})...).WillReturnError(errLost)
		mock.ExpectRollback()
		tx, err := box.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.EnqueueAll(t.Context(), tx, []store.NewMessage{message("a")}); !errors.Is(err, errLost) {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
	t.Run("claim", func(t *testing.T) {
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		row := box.Script().Row(store.Message{ID: "a", TenantID: "club", MaxAttempts: 5, Attempts: 1, State: state.Processing, CreatedAt: at, UpdatedAt: at})
		mock.ExpectBegin()
		mock.ExpectQuery(box.sql.lockClaim.text).WithArgs(anyArgs(8)...).
			WillReturnRows(sqlmock.NewRows(make([]string, len(row))).AddRow(row...))
		mock.ExpectExec(box.sql.claim.text).WithArgs(append([]driver.Value{withoutNull{}}, anyArgs(3)...)...).WillReturnError(errLost)
		mock.ExpectRollback()
		if _, err := box.Claim(t.Context(), claimParams()); !errors.Is(err, errLost) {
			t.Error(err)
		}
	})
}

package sqlstoretest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/sqlstore/sqlstoretest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var dialects = []sqlstore.Dialect{sqlstore.Postgres, sqlstore.MySQL, sqlstore.SQLite}

const id, other = "0190a5a0-0000-7000-8000-000000000007", "0190a5a0-0000-7000-8000-000000000008"

// newBox is a store on a mock, all of whose expectations have to be met in the end.
func newBox(t *testing.T, dialect sqlstore.Dialect) (*sql.DB, sqlmock.Sqlmock, *sqlstore.Store) {
	t.Helper()
	db, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		db.Close()
	})
	box, err := sqlstore.New(db, dialect, sqlstore.Config{NewID: func() string { return id }})
	if err != nil {
		t.Fatal(err)
	}
	return db, mock, box
}

func TestExpectEnqueue(t *testing.T) {
	boom := errors.New("boom")
	message := store.NewMessage{
		TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
		Template: "aviso", IdempotencyKey: "aviso-1",
	}
	for _, dialect := range dialects {
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
				db, mock, box := newBox(t, dialect)
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
			})
		}
	}
}

func TestExpectClaim(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			_, mock, box := newBox(t, dialect)
			sqlstoretest.ExpectClaim(mock, box,
				store.Message{ID: id, TenantID: "club", Channel: "correo", Destination: "ana@club.example", Template: "aviso", IdempotencyKey: "k"},
				store.Message{
					ID: other, TenantID: "club", Channel: "correo", Attempts: 3, MaxAttempts: 4, UpdatedAt: at, ScheduledAt: at.Add(-time.Hour),
					Data: json.RawMessage(`{"n": 1}`), Headers: map[string]string{"a": "b"}, ExpiresAt: at.Add(time.Hour),
				},
			)
			sqlstoretest.ExpectClaim(mock, box)
			c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 5, Lease: 10 * time.Minute})
			if err != nil || len(c.Messages) != 2 {
				t.Fatalf("the claim is %+v, %v", c, err)
			}
			m := c.Messages[0]
			if m.ID != other || m.Attempts != 3 || m.MaxAttempts != 4 || string(m.Data) != `{"n": 1}` || m.Headers["a"] != "b" || !m.ScheduledAt.Equal(at.Add(-time.Hour)) || !m.ExpiresAt.Equal(at.Add(time.Hour)) {
				t.Errorf("the earlier row is %+v", m)
			}
			m = c.Messages[1]
			if m.ID != id || m.State != state.Processing || m.Attempts != 1 || m.Token == (store.Token{}) || m.LeasedUntil.IsZero() || m.Destination != "ana@club.example" {
				t.Errorf("the row that says nothing else is %+v", m)
			}
			c, err = box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 5, Lease: 10 * time.Minute})
			if err != nil || len(c.Messages) != 0 {
				t.Errorf("a claim that finds nothing is %+v, %v", c, err)
			}
		})
	}
}

func settlement(id string) store.Settlement {
	return store.Settlement{
		Fence:    store.Fence{ID: id, LeasedUntil: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Token: store.Token{1}},
		Attempts: 1, Transition: state.Transition{Event: state.EventSend, To: state.Sent},
	}
}

func TestExpectSettle(t *testing.T) {
	for _, dialect := range dialects {
		for _, want := range [][]store.Verdict{
			{store.Applied, store.Applied}, {store.Lost, store.Applied}, {store.Applied, store.Lost}, {store.Lost, store.Lost},
		} {
			t.Run(fmt.Sprint(dialect, want), func(t *testing.T) {
				_, mock, box := newBox(t, dialect)
				sqlstoretest.ExpectSettle(mock, box, map[string]store.Verdict{id: want[0], other: want[1]})
				got, err := box.Settle(t.Context(), []store.Settlement{settlement(id), settlement(other)})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("the verdicts are %v, %v", got, err)
				}
			})
		}
	}
}

func TestExpectSettleTx(t *testing.T) {
	broken := errors.New("broken")
	for _, dialect := range dialects {
		for _, want := range []struct {
			verdict store.Verdict
			err     error
		}{{store.Applied, nil}, {store.Lost, broken}, {store.Lost, nil}} {
			t.Run(fmt.Sprint(dialect, want), func(t *testing.T) {
				_, mock, box := newBox(t, dialect)
				expected := want.verdict
				if want.err != nil { // of the work, which comes after
					expected = store.Applied
				}
				sqlstoretest.ExpectSettleTx(mock, box, id, expected)
				if expected == store.Applied {
					mock.ExpectExec("UPDATE pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
				}
				if want.verdict == store.Applied {
					mock.ExpectCommit()
				} else {
					mock.ExpectRollback()
				}
				got, err := box.SettleTx(t.Context(), settlement(id), func(ctx context.Context, tx store.Tx) error {
					if _, err := tx.ExecContext(ctx, "UPDATE pedidos SET avisado = true"); err != nil {
						return err
					}
					return want.err
				})
				if got != want.verdict || !errors.Is(err, want.err) {
					t.Errorf("the verdict is %v, %v", got, err)
				}
			})
		}
	}
}

func TestExpectChannels(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			_, mock, box := newBox(t, dialect)
			sqlstoretest.ExpectChannels(mock, box, "correo", "whatsapp")
			got, err := box.Channels(t.Context())
			if err != nil || !slices.Equal(got, []string{"correo", "whatsapp"}) {
				t.Errorf("the channels are %v, %v", got, err)
			}
		})
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

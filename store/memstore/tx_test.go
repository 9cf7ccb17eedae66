package memstore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
)

const tenant = "7e000000-0000-4000-8000-000000000001"

func message(key string) store.NewMessage {
	return store.NewMessage{
		TenantID: tenant, Channel: "correo", Destination: "ana@club.example", Template: "aviso", IdempotencyKey: key,
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // a broken scene, not a finding
	}
	return v
}

// enqueue writes a message in a transaction of its own.
func enqueue(ctx context.Context, s *memstore.Store, key string) store.EnqueueResult {
	tx := must(s.Begin(ctx))
	res := must(s.Enqueue(ctx, tx, message(key)))
	must(0, tx.Commit())
	return res
}

func claim(ctx context.Context, s *memstore.Store) []store.Message {
	return must(s.Claim(ctx, store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})).Messages
}

func settlement(m store.Message, event state.Event) store.Settlement {
	to := must(state.Next(state.Processing, event))
	return store.Settlement{
		Fence: m.Fence(), Attempts: m.Attempts, Transition: state.Transition{Event: event, To: to},
	}
}

func TestSameKeyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(store.Tx) error
		want bool // is the second one's message new
	}{
		"commit":   {store.Tx.Commit, false},
		"rollback": {store.Tx.Rollback, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{})
				first, second := must(s.Begin(t.Context())), must(s.Begin(t.Context()))
				a := must(s.Enqueue(t.Context(), first, message("k")))
				var b store.EnqueueResult
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					b, err = s.Enqueue(t.Context(), second, message("k"))
				}()
				synctest.Wait()
				select {
				case <-done:
					t.Fatal("the second did not wait")
				default:
				}
				// Other keys and other work are not held up.
				must(s.Enqueue(t.Context(), second, message("other")))
				must(0, c.end(first))
				<-done
				if err != nil || b.Inserted != c.want || (b.ID == a.ID) == c.want {
					t.Errorf("got %+v, %v after %+v", b, err, a)
				}
				must(0, second.Commit())
				if got := must(s.GetByKey(t.Context(), tenant, "k")); got.ID != b.ID {
					t.Errorf("the key has row %s, want %s", got.ID, b.ID)
				}
			})
		})
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		first, second := must(s.Begin(t.Context())), must(s.Begin(t.Context()))
		must(s.Enqueue(t.Context(), first, message("k")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Enqueue(ctx, second, message("k"))
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "outbox: enqueue: deadline exceeded" {
			t.Errorf("got %v", err)
		}
		must(0, first.Rollback())
		if res := must(s.Enqueue(t.Context(), second, message("k"))); !res.Inserted {
			t.Error("the key is not free")
		}
		must(0, second.Rollback())
	})
}

func TestTransactionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		tx := must(s.Begin(ctx))
		must(s.Enqueue(t.Context(), tx, message("k")))
		cancel()
		if err := tx.Commit(); !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Commit: %v", err)
		}
		synctest.Wait()
		if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Rollback: %v", err)
		}
		if res := enqueue(t.Context(), s, "k"); !res.Inserted {
			t.Error("the key is not free")
		}
	})
}

func TestInvisibleUntilCommit(t *testing.T) {
	s := memstore.New(memstore.Config{})
	tx := must(s.Begin(t.Context()))
	res := must(s.Enqueue(t.Context(), tx, message("k")))
	if _, err := s.Get(t.Context(), res.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if got := claim(t.Context(), s); len(got) != 0 {
		t.Errorf("claimed %v", got)
	}
	must(0, tx.Commit())
	if got := claim(t.Context(), s); len(got) != 1 || got[0].ID != res.ID {
		t.Errorf("claimed %v", got)
	}
}

func TestFinishedTransaction(t *testing.T) {
	s := memstore.New(memstore.Config{})
	for name, end := range map[string]func(store.Tx) error{"commit": store.Tx.Commit, "rollback": store.Tx.Rollback} {
		tx := must(s.Begin(t.Context()))
		must(0, end(tx))
		_, err := s.Enqueue(t.Context(), tx, message(name))
		for _, err := range []error{err, tx.Commit(), tx.Rollback()} {
			if !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: got %v, want sql.ErrTxDone", name, err)
			}
		}
	}
}

type foreignTx struct{ store.Tx }

func TestForeignTransaction(t *testing.T) {
	s, other := memstore.New(memstore.Config{}), memstore.New(memstore.Config{})
	tx := must(other.Begin(t.Context()))
	for _, tx := range []store.Tx{tx, foreignTx{tx}, (*memstore.Tx)(nil)} {
		if _, err := s.Enqueue(t.Context(), tx, message("k")); !errors.Is(err, store.ErrTxRequired) {
			t.Errorf("%T: got %v, want ErrTxRequired", tx, err)
		}
	}
}

func TestNoSQL(t *testing.T) {
	tx := must(memstore.New(memstore.Config{}).Begin(t.Context()))
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ExecContext: %v", err)
	}
	rows, err := tx.QueryContext(t.Context(), "SELECT 1")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("QueryContext: %v", err)
		_ = rows.Close()
	}
}

// While the work of a settlement runs its row belongs to it: claims pass over, other writers wait.
func TestSettleTxHoldsItsRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := memstore.New(memstore.Config{Clock: func() time.Time { return now }})
		enqueue(t.Context(), s, "k")
		m := claim(t.Context(), s)[0]
		now = now.Add(time.Hour) // its lease is over
		var verdicts, cancelled []store.Verdict
		var err error
		verdict := must(s.SettleTx(t.Context(), settlement(m, state.EventRelease), func(ctx context.Context, _ store.Tx) error {
			if got := claim(ctx, s); len(got) != 0 {
				t.Errorf("claimed %v", got)
			}
			go func() { verdicts, err = s.Settle(ctx, []store.Settlement{settlement(m, state.EventSend)}) }()
			go func() { cancelled = must(s.Cancel(ctx, []string{m.ID})) }()
			synctest.Wait()
			if verdicts != nil || err != nil || cancelled != nil {
				t.Errorf("somebody did not wait: %v, %v, %v", verdicts, err, cancelled)
			}
			return nil
		}))
		synctest.Wait()
		if verdict != store.Applied || err != nil || len(verdicts) != 1 || verdicts[0] != store.Lost {
			t.Errorf("verdicts %v and %v, %v", verdict, verdicts, err)
		}
		if len(cancelled) != 1 || cancelled[0] != store.Applied {
			t.Errorf("cancelled: %v", cancelled)
		}
	})
}

func TestSettleTxPanics(t *testing.T) {
	s := memstore.New(memstore.Config{})
	enqueue(t.Context(), s, "k")
	m := claim(t.Context(), s)[0]
	func() {
		defer func() {
			if got := recover(); got != "broken" {
				t.Errorf("recovered %v", got)
			}
		}()
		_, _ = s.SettleTx(t.Context(), settlement(m, state.EventSend), func(ctx context.Context, tx store.Tx) error {
			must(s.Enqueue(ctx, tx, message("child")))
			panic("broken")
		})
	}()
	if _, err := s.GetByKey(t.Context(), tenant, "child"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the work was kept: %v", err)
	}
	if res := enqueue(t.Context(), s, "child"); !res.Inserted {
		t.Error("the key is not free")
	}
	if got := must(s.Settle(t.Context(), []store.Settlement{settlement(m, state.EventSend)})); got[0] != store.Applied {
		t.Errorf("settled afterwards: %v", got)
	}
}

// What goes in or comes out is the caller's own to change.
func TestCopies(t *testing.T) {
	s := memstore.New(memstore.Config{})
	data, headers := json.RawMessage(`{"a":1}`), map[string]string{"a": "1"}
	m := message("k")
	m.Data, m.Headers = data, headers
	tx := must(s.Begin(t.Context()))
	id := must(s.Enqueue(t.Context(), tx, m)).ID
	must(0, tx.Commit())
	row := must(s.Get(t.Context(), id))
	must(0, s.Put(t.Context(), row))
	for _, got := range []store.Message{
		{Data: data, Headers: headers}, row, claim(t.Context(), s)[0], must(s.GetByKey(t.Context(), tenant, "k")),
	} {
		got.Data[1], got.Headers["a"] = 'X', "2"
		if kept := must(s.Get(t.Context(), id)); string(kept.Data) != `{"a":1}` || kept.Headers["a"] != "1" {
			t.Fatalf("the row has changed: %s, %v", kept.Data, kept.Headers)
		}
	}
}

func TestPut(t *testing.T) {
	s := memstore.New(memstore.Config{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("", 3600))
	row := store.Message{ID: "1", TenantID: "a:b", Channel: "otro", IdempotencyKey: "ñ", State: "???", ScheduledAt: at, UpdatedAt: at}
	must(0, s.Put(t.Context(), row))
	if got := must(s.GetByKey(t.Context(), "a:b", "ñ")); !got.ScheduledAt.Equal(at.Truncate(time.Microsecond)) || got.State != "???" {
		t.Errorf("the row came back as %v, scheduled at %v", got, got.ScheduledAt)
	}
	other := row
	other.ID = "2"
	err := s.Put(t.Context(), other)
	if !store.Refused(err) || store.ErrorCode(err) == "" {
		t.Errorf("a second row with the key: %v", err)
	}
	row.IdempotencyKey = "n"
	must(0, s.Put(t.Context(), row))
	must(0, s.Put(t.Context(), other)) // the key is free
	if got, err := s.GetByKey(t.Context(), "a:b", "ñ"); err != nil || got.ID != "2" {
		t.Errorf("the key has row %q, %v", got.ID, err)
	}
	// Nobody knows such a state: the row waits, and is in nobody's way.
	if got := claim(t.Context(), s); len(got) != 0 {
		t.Errorf("claimed %v", got)
	}
	if got := must(s.Channels(t.Context())); len(got) != 0 {
		t.Errorf("channels %v", got)
	}
}

func TestDefaultsFollowTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		enqueue(t.Context(), s, "k")
		m := claim(t.Context(), s)[0]
		if want := time.Now().Add(time.Minute); !m.LeasedUntil.Equal(want) {
			t.Errorf("leased until %v, want %v", m.LeasedUntil, want)
		}
		<-time.After(time.Minute - time.Microsecond)
		if got := claim(t.Context(), s); len(got) != 0 {
			t.Error("claimed before its lease ended")
		}
		<-time.After(time.Microsecond)
		if got := claim(t.Context(), s); len(got) != 1 || got[0].Token == m.Token {
			t.Errorf("claimed %v", got)
		}
	})
}

func TestConfigIDs(t *testing.T) {
	s := memstore.New(memstore.Config{
		Rules: store.Rules{TextTenant: true, DefaultTenant: "club", Channels: []string{"sms"}},
		NewID: func() string { return "1" },
	})
	tx := must(s.Begin(t.Context()))
	m := message("k")
	m.TenantID, m.Channel = "", "sms"
	if res := must(s.Enqueue(t.Context(), tx, m)); res.ID != "1" {
		t.Errorf("the id is %q", res.ID)
	}
	must(0, tx.Commit())
	if got := must(s.Get(t.Context(), "1")); got.TenantID != "club" || got.Channel != "sms" {
		t.Errorf("the row has tenant %q and channel %q", got.TenantID, got.Channel)
	}
}

func TestRenewRefusesNoTime(t *testing.T) {
	s := memstore.New(memstore.Config{})
	for _, d := range []time.Duration{0, -time.Second} {
		if _, err := s.Renew(t.Context(), nil, d); !errors.Is(err, store.ErrInvalidOptions) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
)

var errGone = errors.New("the connection is gone")

// scene is a store with one claimed row.
func scene(t *testing.T) (*memstore.Store, store.Settlement) {
	t.Helper()
	s := memstore.New(memstore.Config{})
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), tx, store.NewMessage{
		TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
		Template: "aviso", IdempotencyKey: "1",
	}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 1, Lease: time.Hour})
	if err != nil || len(c.Messages) != 1 {
		t.Fatal(err, c.Messages)
	}
	m := c.Messages[0]
	return s, store.Settlement{
		Fence: m.Fence(), Attempts: m.Attempts, Transition: state.Transition{Event: state.EventSend, To: state.Sent},
	}
}

func TestFaultyBeforeAndAfter(t *testing.T) {
	for _, c := range []struct {
		name   string
		faulty *storetest.Faulty
		want   state.State // after the broken call
	}{
		{"before", &storetest.Faulty{Before: storetest.Nth(storetest.OpSettle, 1, errGone)}, state.Processing},
		{"after", &storetest.Faulty{After: storetest.Nth(storetest.OpSettle, 1, errGone)}, state.Sent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, settlement := scene(t)
			f := c.faulty
			f.Complete = s
			group := []store.Settlement{settlement}
			if verdicts, err := f.Settle(t.Context(), group); !errors.Is(err, errGone) || verdicts != nil {
				t.Errorf("the broken call gave %v, %v", verdicts, err)
			}
			if m, err := s.Get(t.Context(), settlement.ID); err != nil || m.State != c.want {
				t.Errorf("after the broken call the row is %s (%v), want %s", m.State, err, c.want)
			}
			if verdicts, err := f.Settle(t.Context(), group); err != nil || len(verdicts) != 1 || verdicts[0] != store.Applied {
				t.Errorf("the repeat gave %v, %v", verdicts, err)
			}
			if n := f.Calls(storetest.OpSettle); n != 2 {
				t.Errorf("%d calls were counted", n)
			}
		})
	}
}

func TestFaultyBreaksEachMethod(t *testing.T) {
	for op, call := range map[storetest.Op]func(context.Context, *storetest.Faulty, store.Settlement) error{
		storetest.OpClaim: func(ctx context.Context, f *storetest.Faulty, _ store.Settlement) error {
			_, err := f.Claim(ctx, store.ClaimParams{Channel: "correo", Limit: 1, Lease: time.Hour})
			return err
		},
		storetest.OpSettle: func(ctx context.Context, f *storetest.Faulty, s store.Settlement) error {
			_, err := f.Settle(ctx, []store.Settlement{s})
			return err
		},
		storetest.OpSettleTx: func(ctx context.Context, f *storetest.Faulty, s store.Settlement) error {
			_, err := f.SettleTx(ctx, s, func(context.Context, store.Tx) error { return nil })
			return err
		},
		storetest.OpRenew: func(ctx context.Context, f *storetest.Faulty, s store.Settlement) error {
			_, err := f.Renew(ctx, []store.Fence{s.Fence}, time.Hour)
			return err
		},
		storetest.OpPurge: func(ctx context.Context, f *storetest.Faulty, _ store.Settlement) error {
			_, err := f.Purge(ctx, store.PurgeParams{Before: time.Now()})
			return err
		},
		storetest.OpNextDue: func(ctx context.Context, f *storetest.Faulty, _ store.Settlement) error {
			_, _, err := f.NextDue(ctx, []string{"correo"})
			return err
		},
		storetest.OpChannels: func(ctx context.Context, f *storetest.Faulty, _ store.Settlement) error {
			_, err := f.Channels(ctx)
			return err
		},
	} {
		for _, f := range []*storetest.Faulty{
			{Before: storetest.Nth(op, 2, errGone)},
			{After: storetest.Nth(op, 2, errGone)},
		} {
			s, settlement := scene(t)
			f.Complete = s
			for n, want := range []error{nil, errGone, nil} {
				if err := call(t.Context(), f, settlement); !errors.Is(err, want) {
					t.Errorf("%s, call %d: %v, want %v", op, n+1, err, want)
				}
			}
			if n := f.Calls(op); n != 3 {
				t.Errorf("%s: %d calls were counted", op, n)
			}
		}
	}
}

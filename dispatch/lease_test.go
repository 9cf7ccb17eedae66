package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// A call starts when exactly the timeout and a second are left, and not a tick later.
func TestMargin(t *testing.T) {
	const lease, timeout = 10 * time.Second, 4 * time.Second
	tests := []struct {
		name  string
		first time.Duration // how long the only slot is taken
		want  dispatch.Report
	}{
		{"a tick to spare", lease - timeout - time.Second - 1, dispatch.Report{Claimed: 2, Retried: 1, Sent: 1}},
		{"exactly enough", lease - timeout - time.Second, dispatch.Report{Claimed: 2, Retried: 1, Sent: 1}},
		{"a tick too late", lease - timeout - time.Second + 1, dispatch.Report{Claimed: 2, Retried: 1, Released: 1}},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(2)
			var starts []time.Duration
			w := newWorker(t, b, dispatch.Config{
				Lease: lease, Timeout: timeout, Concurrency: 1,
				Transports: serve(transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
					starts = append(starts, now())
					if m.ID == id(1) { // it does not mind its context, and keeps the slot past its timeout
						wait(context.Background(), test.first)
					}
					return accepted
				})),
			})
			wantReport(t, w.ProcessBatch(t.Context()), test.want)
			if test.want.Sent == 1 && starts[1] != test.first {
				t.Errorf("the second call began at %s, want %s", starts[1], test.first)
			}
		})
	}
}

// Three sends of 1.9 s, one at a time, do not fit a lease of 5 s with timeouts of 2 s.
func TestTheTailOfABatchIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 1900 * time.Millisecond}
		b.enqueue(3)
		w := newWorker(t, b, dispatch.Config{BatchSize: 3, Concurrency: 1, Lease: 5 * time.Second, Timeout: 2 * time.Second, Transports: serve(l)})
		before := b.row(3)
		r := w.ProcessBatch(t.Context())
		if len(r.Warnings) != 1 {
			t.Errorf("warnings %v, want one for the lease", r.Warnings)
		}
		r.Warnings = []dispatch.Warning{}
		wantReport(t, r, dispatch.Report{Claimed: 3, Sent: 2, Released: 1})
		after := b.row(3)
		if after.State != state.Pending || after.Attempts != 0 || !after.LeasedUntil.IsZero() ||
			after.ScheduledAt != before.ScheduledAt || after.NextAttemptAt != before.NextAttemptAt {
			t.Errorf("released: %+v\nbefore:   %+v", after.Row(), before.Row())
		}
		if got := now(); got != 3800*time.Millisecond {
			t.Errorf("it took %s, want 3.8s: the release is not waited for", got)
		}
		r = w.ProcessBatch(t.Context())
		r.Warnings = []dispatch.Warning{}
		wantReport(t, r, dispatch.Report{Claimed: 1, Sent: 1})
		if got := l.sent(); !slices.Equal(got, ids(3)) {
			t.Errorf("sent %v", got)
		}
	})
}

// What waits behind a slow call is released as soon as it cannot start any more, not when the slot falls free.
func TestReleaseDoesNotWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 5 * time.Second}
		b.enqueue(2)
		w := newWorker(t, b, dispatch.Config{Concurrency: 1, Lease: 10 * time.Second, Timeout: 5 * time.Second, Transports: serve(l)})
		done := make(chan dispatch.Report)
		go func() { done <- w.ProcessBatch(context.Background()) }()
		pass(4 * time.Second)
		if got := b.row(2).State; got != state.Processing {
			t.Errorf("with exactly the margin left the row is %s", got)
		}
		pass(time.Microsecond)
		if got := b.row(2).State; got != state.Pending {
			t.Errorf("past the margin the row is %s", got)
		}
		if r := <-done; r.Released != 1 {
			t.Errorf("report %v, want one released", r)
		}
	})
}

// Releases neither starve rows nor disturb their order, run after run.
func TestReleasedRowsKeepTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 1900 * time.Millisecond}
		w := newWorker(t, b, dispatch.Config{BatchSize: 4, Concurrency: 1, Lease: 5 * time.Second, Timeout: 2 * time.Second, Transports: serve(l)})
		var sum dispatch.Report
		for range 8 {
			b.enqueue(3)
			sum = add(sum, w.ProcessBatch(t.Context()))
		}
		if sum.Sent != 16 || sum.Released != 15 { // the first run has but three rows
			t.Errorf("report %v, want 16 sent and 15 released", sum)
		}
		if got := l.sent(); !slices.Equal(got, ids(16)) {
			t.Errorf("sent in the order %v", got)
		}
		for _, c := range l.log() {
			if c.Attempt != 1 {
				t.Errorf("%s was attempt %d", c.Message, c.Attempt)
			}
		}
	})
}

// Two workers share a table: what the first cannot start the second sends, and nobody sends twice.
func TestASecondWorkerTakesWhatIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, first, second := newBox(t), &ledger{takes: 1900 * time.Millisecond}, &ledger{}
		b.enqueue(4)
		cfg := dispatch.Config{BatchSize: 4, Concurrency: 1, Lease: 5 * time.Second, Timeout: 2 * time.Second}
		cfg.Transports = serve(first)
		one := newWorker(t, b, cfg)
		cfg.Transports = serve(second)
		two := newWorker(t, b, cfg)

		if r := one.ProcessBatch(t.Context()); r.Sent != 2 || r.Released != 2 || len(r.Warnings) != 1 {
			t.Errorf("first: %v, want 2 sent, 2 released and a warning", r)
		}
		if r := two.ProcessBatch(t.Context()); r.Sent != 2 || r.Claimed != 2 {
			t.Errorf("second: %v, want 2 sent", r)
		}
		if got := append(first.sent(), second.sent()...); !slices.Equal(got, ids(4)) {
			t.Errorf("sent %v", got)
		}
	})
}

func TestConcurrentWorkersNeverSendTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 700 * time.Millisecond}
		b.enqueue(300)
		reports := make(chan dispatch.Report)
		for range 4 {
			w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
			go func() { reports <- w.Drain(context.Background()) }()
		}
		var sum dispatch.Report
		for range 4 {
			sum = add(sum, <-reports)
		}
		sum.Warnings = []dispatch.Warning{}
		wantReport(t, sum, dispatch.Report{Claimed: 300, Sent: 300})
		sent := l.sent()
		slices.Sort(sent)
		if !slices.Equal(sent, ids(300)) {
			t.Errorf("%d calls for 300 messages, or not one for each", len(sent))
		}
		if l.most <= 5 || l.most > 20 {
			t.Errorf("%d calls at once, want the slots of more than one worker and no more than all four have", l.most)
		}
	})
}

// A lease is measured from before its claim was sent: what the claim took is gone.
func TestASlowClaimUsesUpTheLease(t *testing.T) {
	const lease, timeout = 10 * time.Second, 3 * time.Second
	for _, test := range []struct {
		slow time.Duration // the store answers so much after it has claimed
		want dispatch.Report
	}{
		{6 * time.Second, dispatch.Report{Claimed: 1, Sent: 1}},
		{6*time.Second + 1, dispatch.Report{Claimed: 1, Released: 1}},
	} {
		bubble(t, test.slow.String(), func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1)
			faulty := &storetest.Faulty{Complete: b, After: func(ctx context.Context, c storetest.Call) error {
				if c.Op == storetest.OpClaim {
					wait(ctx, test.slow)
				}
				return ctx.Err()
			}}
			w := newWorker(t, faulty, dispatch.Config{Lease: lease, Timeout: timeout, Transports: serve(answer(accepted))})
			wantReport(t, w.ProcessBatch(t.Context()), test.want)
		})
	}
}

// A zombie's answer changes nothing once another worker has the row, whichever of the two answers first.
func TestZombie(t *testing.T) {
	tests := []struct {
		name   string
		second time.Duration // the new holder's call
		late   state.Outcome // the zombie's answer
	}{
		{"before the new holder, accepted", 20 * time.Second, state.Outcome{OK: true, ExternalID: "zombie"}},
		{"after the new holder, accepted", time.Second, state.Outcome{OK: true, ExternalID: "zombie"}},
		{"before the new holder, refused", 20 * time.Second, state.Outcome{Category: state.CategoryRejected}},
		{"after the new holder, refused", time.Second, state.Outcome{Category: state.CategoryRejected}},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1)
			old := &ledger{takes: 10 * time.Second, answer: func(transports.Message) state.Outcome { return test.late }}
			fresh := &ledger{takes: test.second, answer: func(transports.Message) state.Outcome {
				return state.Outcome{OK: true, ExternalID: "fresh"}
			}}
			zombie := make(chan dispatch.Report)
			w := newWorker(t, b, dispatch.Config{Transports: serve(old)})
			go func() { zombie <- w.ProcessBatch(context.Background()) }()
			pass(time.Second)

			b.ahead.Store(int64(dispatch.DefaultLease - time.Second - time.Microsecond)) // ahead, so that a call outlives its lease
			other := newWorker(t, b, dispatch.Config{Transports: serve(fresh)})
			wantReport(t, other.ProcessBatch(t.Context()), dispatch.Report{})
			b.ahead.Add(int64(time.Microsecond)) // the very end of the lease
			holder := make(chan dispatch.Report)
			go func() { holder <- other.ProcessBatch(context.Background()) }()
			synctest.Wait()
			if m := b.row(1); m.State != state.Processing || m.Attempts != 2 {
				t.Errorf("%s, attempts %d: want it taken over", m, m.Attempts)
			}
			for range 2 {
				select {
				case r := <-zombie:
					wantReport(t, r, dispatch.Report{Claimed: 1, Lost: 1})
				case r := <-holder:
					wantReport(t, r, dispatch.Report{Claimed: 1, Sent: 1})
				}
			}
			if m := b.row(1); m.State != state.Sent || m.ExternalID != "fresh" || m.Attempts != 2 {
				t.Errorf("%s by %q, attempts %d", m, m.ExternalID, m.Attempts)
			}
		})
	}
}

// Rows that change hands or vanish between claim and release are passed over; the others are released all the same.
func TestReleaseIsFencedRowByRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(6)
		ctx, cancel := context.WithCancel(t.Context())
		l := &ledger{answer: func(transports.Message) state.Outcome {
			for n := 2; n <= 3; n++ {
				b.put(n, func(m *store.Message) { m.State, m.ExternalID, m.LeasedUntil = state.Sent, "theirs", time.Time{} })
			}
			b.put(4, func(m *store.Message) { m.LeasedUntil = m.LeasedUntil.Add(time.Microsecond) })
			cancel()
			return accepted
		}}
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), Concurrency: 1})
		wantReport(t, w.ProcessBatch(ctx), dispatch.Report{Claimed: 6, Sent: 1, Lost: 3, Released: 2})
		for n, want := range []state.State{state.Sent, state.Sent, state.Sent, state.Processing, state.Pending, state.Pending} {
			m := b.row(n + 1)
			if m.State != want || want == state.Pending && m.Attempts != 0 || n > 0 && want == state.Sent && m.ExternalID != "theirs" {
				t.Errorf("row %d: %s, attempts %d, %q; want %s", n+1, m, m.Attempts, m.ExternalID, want)
			}
		}
	})
}

// The clock of the store may jump: leases end by it, and no timer of the worker is thrown off.
func TestTheStoresClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{8 * time.Hour, -time.Hour} {
		bubble(t, fmt.Sprint(jump), func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1)
			l := &ledger{takes: 3 * time.Second}
			faulty := &storetest.Faulty{Complete: b}
			r := run(t, faulty, dispatch.Config{Transports: serve(l)})
			pass(time.Second)
			b.ahead.Store(int64(jump))
			pass(time.Minute)
			if claims := faulty.Calls(storetest.OpClaim); claims < 30 || claims > 200 {
				t.Errorf("%d claims in a minute, want about one a second", claims)
			}
			b.enqueue(1)
			r.Notify()
			pass(10 * time.Second)
			sum := r.end()
			// The first row was taken over by its own worker where its lease seemed to have ended.
			if sum.Sent != 2 || sum.Lost > 1 || sum.Errors > 0 {
				t.Errorf("report %v, want both sent", sum)
			}
			b.wantCount(all(2, state.Sent))
		})
	}
}

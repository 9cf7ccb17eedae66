package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// witness writes down all that an observer is told.
type witness struct {
	mu       sync.Mutex
	claims   []dispatch.Claimed
	attempts []dispatch.Attempt
	outcomes map[string][]state.Outcome // by id
	settled  []dispatch.Settled
}

type spanKey struct{}

func (w *witness) Claimed(c dispatch.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, c)
}

func (w *witness) Attempt(ctx context.Context, a dispatch.Attempt) (context.Context, func(state.Outcome)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = append(w.attempts, a)
	return context.WithValue(ctx, spanKey{}, a.ID), func(o state.Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.outcomes == nil {
			w.outcomes = map[string][]state.Outcome{}
		}
		w.outcomes[a.ID] = append(w.outcomes[a.ID], o)
	}
}

func (w *witness) Settled(s dispatch.Settled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = append(w.settled, s)
}

// report is what the events add up to.
func (w *witness) report() dispatch.Report {
	var r dispatch.Report
	counter := map[state.Event]*int{
		state.EventSend: &r.Sent, state.EventRetry: &r.Retried, state.EventFail: &r.Failed, state.EventDiscard: &r.Discarded,
		state.EventRelease: &r.Released, state.EventDefer: &r.Deferred,
	}
	for _, s := range w.settled {
		r.Claimed++
		switch {
		case s.Failed:
			r.Errors++
		case s.Verdict == store.Lost:
			r.Lost++
		default:
			*counter[s.Event]++
		}
	}
	for _, c := range w.claims {
		if c.Failed {
			r.ClaimErrors++
		}
	}
	return r
}

// A thousand rows with texts of their own and all kinds of ends, three results that cannot be stored: the events add up
// to the report, and their labels stay a handful.
func TestEventsAddUpToTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := newBox(t), &witness{}
		b.enqueue(1000, func(m *store.NewMessage) {
			m.Destination = fmt.Sprintf("%s-%d@example.org", canary, b.ids)
			m.Template = fmt.Sprint("t", b.ids)
			m.MaxAttempts = 1 + b.ids%2
		})
		b.put(11, func(m *store.Message) { m.Attempts = m.MaxAttempts })
		b.put(12, func(m *store.Message) { m.Data = nil })
		l := transports.Func(func(ctx context.Context, m transports.Message) state.Outcome {
			n := 0
			if _, err := fmt.Sscanf(m.IdempotencyKey, "club:k%d", &n); err != nil {
				t.Error(err)
			}
			wait(ctx, time.Duration(n%7)*time.Second)
			switch n % 9 {
			case 0, 1:
				return state.Outcome{OK: true, ExternalID: fmt.Sprint("ext-", n)}
			case 2:
				return state.Outcome{Category: state.CategoryNetwork, Code: "http_500", Ambiguous: true}
			case 3:
				return state.Outcome{Category: state.CategoryNumber, Code: "131026"}
			case 4:
				return state.Outcome{Category: state.CategoryNetwork, Code: "dns", NotCalled: true}
			case 5:
				panic(canary)
			case 6: // another worker takes the row from under it
				b.put(n, func(m *store.Message) { m.LeasedUntil = m.LeasedUntil.Add(time.Hour) })
				return accepted
			case 7:
				wait(ctx, time.Hour) // to the timeout
			}
			return state.Outcome{Category: "no such user " + m.Destination, Code: m.Destination}
		})
		s := &writes{Faulty: &storetest.Faulty{Complete: b}, refuse: func(s store.Settlement) bool {
			return slices.Contains([]string{id(9), id(18), id(27)}, s.ID)
		}}
		worker := newWorker(t, s, dispatch.Config{
			BatchSize: 1000, Concurrency: 100, Lease: time.Hour, Timeout: 10 * time.Second, Transports: serve(l), Observer: w,
		})
		got := worker.ProcessBatch(t.Context())
		got.Warnings = []dispatch.Warning{}
		for _, n := range []int{got.Sent, got.Retried, got.Failed, got.Discarded, got.Lost, got.Deferred} {
			if n == 0 {
				t.Errorf("report %v: one kind of end is missing", got)
			}
		}
		if got.Errors != 3 || got.Claimed != 1000 {
			t.Errorf("report %v, want 1000 claimed and 3 errors", got)
		}
		want := w.report()
		want.LastError = got.LastError
		wantReport(t, got, want)

		labels := map[string]bool{}
		for _, e := range w.settled {
			labels[fmt.Sprint(e.Channel, e.Event, e.Category, e.Verdict, e.Failed)] = true
		}
		for _, outcomes := range w.outcomes {
			for _, o := range outcomes {
				labels["outcome "+o.Category] = true
			}
		}
		if len(labels) > 20 {
			t.Errorf("%d different labels: %v", len(labels), labels)
		}
		for _, a := range w.attempts {
			if len(w.outcomes[a.ID]) != 1 {
				t.Errorf("attempt %s ended %d times", a.ID, len(w.outcomes[a.ID]))
			}
		}
		if calls := got.Claimed - 2; len(w.attempts) != calls {
			t.Errorf("%d attempts were observed, want %d", len(w.attempts), calls)
		}
		wantNoCanary(t, w.claims, w.attempts, w.outcomes, w.settled, got)
	})
}

func TestWhatAnObserverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := newBox(t), &witness{}
		b.enqueue(2, func(m *store.NewMessage) { m.Headers = map[string]string{"flujo": "7"} })
		b.put(2, func(m *store.Message) { m.Attempts = m.MaxAttempts })
		pass(time.Minute)
		span := any(nil)
		faulty := &storetest.Faulty{Complete: b, Before: slowClaim(2 * time.Second)}
		worker := newWorker(t, faulty, dispatch.Config{Observer: w, Transports: serve(transports.Func(
			func(ctx context.Context, m transports.Message) state.Outcome {
				span = ctx.Value(spanKey{})
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Minute {
					t.Error("the context of the observer has lost its deadline")
				}
				return state.Outcome{Category: state.CategoryNetwork, Code: "refused", NotCalled: true}
			}))})
		worker.ProcessBatch(t.Context())
		if span != id(1) {
			t.Errorf("the transport's context carries %v", span)
		}
		wantEqual(t, w.claims, []dispatch.Claimed{{Channel: mail, Messages: 1, Closed: 1, Took: 2 * time.Second}})
		wantEqual(t, w.attempts, []dispatch.Attempt{{
			ID: id(1), TenantID: "club", Channel: mail, Template: "alta", Attempt: 1, MaxAttempts: 5,
			Waited: time.Minute + 4*time.Second, Headers: map[string]string{"flujo": "7"},
		}})
		wantEqual(t, w.outcomes, map[string][]state.Outcome{id(1): {
			{Category: state.CategoryNetwork, Code: state.CodeUnreachable + ":refused", NotCalled: true},
		}})
		wantEqual(t, w.settled, []dispatch.Settled{
			{ID: id(2), Channel: mail, Event: state.EventFail, Category: state.CategoryNetwork, Code: state.CodeAttemptsExhausted, Verdict: store.Applied},
			{ID: id(1), Channel: mail, Event: state.EventDefer, Category: state.CategoryNetwork, Code: state.CodeUnreachable + ":refused", Verdict: store.Applied},
		})
	})
}

func slowClaim(d time.Duration) storetest.Hook {
	return func(ctx context.Context, c storetest.Call) error {
		if c.Op == storetest.OpClaim {
			wait(ctx, d)
		}
		return ctx.Err()
	}
}

func wantEqual[T any](t *testing.T, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

func TestAFailedClaimIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{}
		faulty := &storetest.Faulty{Complete: newBox(t), Before: failing(storetest.OpClaim, errAway, always)}
		newWorker(t, faulty, dispatch.Config{Observer: w, Transports: serve(answer(accepted))}).ProcessBatch(t.Context())
		wantEqual(t, w.claims, []dispatch.Claimed{{Channel: mail, Failed: true, ErrCode: "08006"}})
		wantNoCanary(t, w.claims)
	})
}

// clumsy is an observer that panics wherever it can.
type clumsy struct{ late bool }

func (clumsy) Claimed(dispatch.Claimed) { panic(canary) }
func (c clumsy) Attempt(ctx context.Context, _ dispatch.Attempt) (context.Context, func(state.Outcome)) {
	if !c.late {
		panic(canary)
	}
	return ctx, func(state.Outcome) { panic(canary) }
}
func (clumsy) Settled(dispatch.Settled) { panic(canary) }

// lazy is an observer that gives nothing back.
type lazy struct{ dispatch.NopObserver }

//nolint:staticcheck // a nil context is the point
func (lazy) Attempt(context.Context, dispatch.Attempt) (context.Context, func(state.Outcome)) {
	return nil, nil
}

func TestAnObserverCannotDoHarm(t *testing.T) {
	for name, o := range map[string]dispatch.Observer{
		"panics": clumsy{}, "panics at the end of a call": clumsy{late: true}, "gives nil": lazy{}, "does nothing": dispatch.NopObserver{}, "nil": nil,
	} {
		bubble(t, name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(10)
			w := newWorker(t, b, dispatch.Config{Observer: o, Transports: serve(&ledger{takes: time.Second})})
			wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 10, Sent: 10})
		})
	}
}

// A call that outlives its timeout ends, for an observer, at the timeout; what it says later is no second end.
func TestATimeoutIsObservedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := newBox(t), &witness{}
		b.enqueue(1)
		worker := newWorker(t, b, dispatch.Config{Observer: w, Timeout: 2 * time.Second, Transports: serve(&ledger{takes: 3 * time.Second, stuck: true})})
		worker.ProcessBatch(t.Context())
		wantEqual(t, w.outcomes, map[string][]state.Outcome{id(1): {{Category: state.CategoryNetwork, Code: state.CodeTimeout, Ambiguous: true}}})
	})
}

package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

func policy(change func(*state.Policy)) *state.Policy {
	p := state.DefaultPolicy()
	change(&p)
	return &p
}

// laneOptions are what both a Config and a Lane have; field is "" where they are accepted.
var laneOptions = []struct {
	name  string
	lane  dispatch.Lane
	field string
}{
	{"all defaults", dispatch.Lane{}, ""},
	{"batch of one", dispatch.Lane{BatchSize: 1}, ""},
	{"largest batch", dispatch.Lane{BatchSize: 10_000}, ""},
	{"negative batch", dispatch.Lane{BatchSize: -1}, "BatchSize"},
	{"batch too large", dispatch.Lane{BatchSize: 10_001}, "BatchSize"},
	{"negative lease", dispatch.Lane{Lease: -time.Second}, "Lease"},
	{"one tick under the least lease", dispatch.Lane{Lease: 5*time.Second - 1}, "Lease"},
	{"lease of 1 s", dispatch.Lane{Lease: time.Second}, "Lease"},
	{"least lease", dispatch.Lane{Lease: 5 * time.Second}, ""},
	{"longest lease", dispatch.Lane{Lease: 24 * time.Hour}, ""},
	{"one tick over the longest lease", dispatch.Lane{Lease: 24*time.Hour + 1}, "Lease"},
	{"lease of 90 s", dispatch.Lane{Lease: 90 * time.Second}, ""},
	{"negative timeout", dispatch.Lane{Timeout: -1}, "Timeout"},
	{"timeout of 1 ms", dispatch.Lane{Timeout: time.Millisecond}, "Timeout"},
	{"one tick under the least timeout", dispatch.Lane{Timeout: time.Second - 1}, "Timeout"},
	{"least timeout", dispatch.Lane{Timeout: time.Second}, ""},
	{"timeout of exactly half the lease", dispatch.Lane{Lease: 5 * time.Second, Timeout: 2500 * time.Millisecond}, ""},
	{"timeout of half the lease and a tick", dispatch.Lane{Lease: 5 * time.Second, Timeout: 2500*time.Millisecond + 1}, "Timeout"},
	{"timeout just within the lease", dispatch.Lane{Lease: 60 * time.Second, Timeout: 59980 * time.Millisecond}, "Timeout"},
	{"one slot", dispatch.Lane{Concurrency: 1}, ""},
	{"negative concurrency", dispatch.Lane{Concurrency: -1}, "Concurrency"},
	{"batch before lease", dispatch.Lane{BatchSize: -1, Lease: 1}, "BatchSize"},
	{"lease before timeout", dispatch.Lane{Lease: 1, Timeout: 1}, "Lease"},
	{"timeout before concurrency", dispatch.Lane{Timeout: 1, Concurrency: -1}, "Timeout"},
	{"negative MaxAge", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.MaxAge = -1 })}, "Policy.MaxAge"},
	{"negative MaxRetryAfter", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.MaxRetryAfter = -1 })}, "Policy.MaxRetryAfter"},
	{"backoff without base", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.Backoff.Base = 0 })}, "Policy.Backoff.Base"},
	{"shrinking backoff", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.Backoff.Factor = 0.5 })}, "Policy.Backoff.Factor"},
	{"backoff over its cap", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.Backoff.Max = 1 })}, "Policy.Backoff.Max"},
	{"jitter over 1", dispatch.Lane{Policy: policy(func(p *state.Policy) { p.Backoff.Jitter = 1.1 })}, "Policy.Backoff.Jitter"},
}

func TestOptionsOfWorker(t *testing.T) {
	for _, test := range laneOptions {
		t.Run(test.name, func(t *testing.T) {
			_, err := dispatch.New(memstore.New(memstore.Config{}), dispatch.Config{
				BatchSize: test.lane.BatchSize, Concurrency: test.lane.Concurrency, Lease: test.lane.Lease, Timeout: test.lane.Timeout,
				Policy: test.lane.Policy,
			})
			wantInvalid(t, err, test.field)
		})
	}
}

func TestOptionsOfLane(t *testing.T) {
	for _, test := range laneOptions {
		field := test.field
		if field != "" {
			field = `Transports["correo"].` + field
		}
		lane := test.lane
		lane.Transport = answer(accepted)
		for name, transport := range map[string]transports.Transport{"value": lane, "pointer": &lane} {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				_, err := dispatch.New(memstore.New(memstore.Config{}), dispatch.Config{Transports: serve(transport)})
				wantInvalid(t, err, field)
			})
		}
	}
}

func TestOptionsOfWorkerAlone(t *testing.T) {
	type typed struct{ transports.Transport }
	box := memstore.New(memstore.Config{})
	tests := []struct {
		name  string
		store store.Store
		cfg   dispatch.Config
		field string
	}{
		{"no transports", box, dispatch.Config{}, ""},
		{"empty transports", box, dispatch.Config{Transports: dispatch.Transports{}}, ""},
		{"nil transport", box, dispatch.Config{Transports: serve(nil)}, `Transports["correo"]`},
		{"nil function", box, dispatch.Config{Transports: serve(transports.Func(nil))}, `Transports["correo"]`},
		{"typed nil", box, dispatch.Config{Transports: serve((*typed)(nil))}, `Transports["correo"]`},
		{"nil lane", box, dispatch.Config{Transports: serve((*dispatch.Lane)(nil))}, `Transports["correo"]`},
		{"lane without transport", box, dispatch.Config{Transports: serve(dispatch.Lane{})}, `Transports["correo"].Transport`},
		{"lane with nil function", box, dispatch.Config{Transports: serve(dispatch.Lane{Transport: transports.Func(nil)})}, `Transports["correo"].Transport`},
		{"nameless channel", box, dispatch.Config{Transports: dispatch.Transports{"": answer(accepted)}}, `Transports[""]`},
		{"options before transports", box, dispatch.Config{Transports: serve(nil), Concurrency: -1}, "Concurrency"},
		{"timeout of the worker over a lane's lease", box, dispatch.Config{
			Timeout: time.Minute, Transports: serve(dispatch.Lane{Transport: answer(accepted), Lease: 10 * time.Second}),
		}, `Transports["correo"].Timeout`},
		{"poll too often", box, dispatch.Config{PollInterval: 10*time.Millisecond - 1}, "PollInterval"},
		{"negative poll", box, dispatch.Config{PollInterval: -time.Second}, "PollInterval"},
		{"least poll", box, dispatch.Config{PollInterval: 10 * time.Millisecond}, ""},
		{"negative grace", box, dispatch.Config{Grace: -1}, "Grace"},
		{"no store", nil, dispatch.Config{}, "store"},
		{"options before the store", nil, dispatch.Config{Lease: 1}, "Lease"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := dispatch.New(test.store, test.cfg)
			wantInvalid(t, err, test.field)
		})
	}
}

// wantInvalid wants an error that names the field, or none where that is "".
func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("error %q, want none", err)
		}
		return
	}
	var invalid *state.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, state.ErrInvalidOptions) {
		t.Fatalf("error %v, want an InvalidError for %s", err, field)
	}
	if invalid.Field != field || invalid.Reason == "" {
		t.Errorf("error %q, want one for %s", err, field)
	}
}

func TestTimeoutDefaultFitsTheLease(t *testing.T) {
	tests := []struct {
		lease, timeout, want time.Duration
	}{
		{0, 0, time.Minute},
		{5 * time.Second, 0, 2500 * time.Millisecond},
		{90 * time.Second, 0, 45 * time.Second},
		{10 * time.Minute, 0, time.Minute},
		{time.Hour, 0, time.Minute},
		{10 * time.Minute, 7 * time.Second, 7 * time.Second},
	}
	for _, test := range tests {
		check := func(t *testing.T, cfg func(*ledger) dispatch.Config) {
			b, l := newBox(t), &ledger{}
			b.enqueue(1)
			wantReport(t, newWorker(t, b, cfg(l)).ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
			if got := l.log()[0].in; got != test.want {
				t.Errorf("lease %s, timeout %s: the call has %s, want %s", test.lease, test.timeout, got, test.want)
			}
		}
		bubble(t, "worker/"+test.lease.String(), func(t *testing.T) {
			check(t, func(l *ledger) dispatch.Config {
				return dispatch.Config{Lease: test.lease, Timeout: test.timeout, Transports: serve(l)}
			})
		})
		bubble(t, "lane/"+test.lease.String(), func(t *testing.T) {
			check(t, func(l *ledger) dispatch.Config {
				return dispatch.Config{Transports: serve(dispatch.Lane{Transport: l, Lease: test.lease, Timeout: test.timeout})}
			})
		})
	}
}

func TestShortLeaseWarning(t *testing.T) {
	lane := func(batch, concurrency int, lease, timeout time.Duration) dispatch.Lane {
		return dispatch.Lane{Transport: answer(accepted), BatchSize: batch, Concurrency: concurrency, Lease: lease, Timeout: timeout}
	}
	tests := []struct {
		name string
		lane dispatch.Lane
		text []string // what a warning says; nil: none
	}{
		{"all defaults", lane(0, 0, 0, 0), nil},
		{"roomy", lane(20, 5, time.Hour, time.Minute), nil},
		{"worst case fits exactly", lane(20, 5, 241*time.Second, time.Minute), nil},
		{"short by a tick", lane(20, 5, 241*time.Second-1, time.Minute), []string{"4m1s", "1m0s", "4 rounds", "5 calls"}},
		{"the margin counts", lane(20, 5, 240*time.Second, time.Minute), []string{"4m0s", "4m1s", "1s"}},
		{"one slot", lane(20, 1, 0, 0), []string{"10m0s", "20m1s", "20 rounds"}},
		{"a last round that is not full", lane(21, 5, 5*time.Minute, time.Minute), []string{"5m1s", "5 rounds"}},
		{"derived timeout", lane(20, 5, 90*time.Second, 0), []string{"45s", "3m1s"}},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			w := newWorker(t, newBox(t), dispatch.Config{Transports: serve(test.lane), Logger: zap.New(core)})
			for _, r := range []dispatch.Report{w.ProcessBatch(t.Context()), w.Drain(t.Context())} {
				if test.text == nil {
					if r.Warnings == nil || len(r.Warnings) > 0 {
						t.Errorf("warnings %v, want an empty list", r.Warnings)
					}
					continue
				}
				if len(r.Warnings) != 1 || r.Warnings[0].Code != dispatch.WarningShortLease || r.Warnings[0].Channel != mail {
					t.Fatalf("warnings %+v, want one %s", r.Warnings, dispatch.WarningShortLease)
				}
				for _, part := range append(test.text, mail) {
					if !strings.Contains(r.Warnings[0].Text, part) {
						t.Errorf("warning %q does not say %s", r.Warnings[0], part)
					}
				}
			}
			if logs.Len() > 0 {
				t.Errorf("a pass logged %v", logs.All())
			}
		})
	}
}

func TestWarningsDoNotNeedAClaimThatWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := &storetest.Faulty{Complete: newBox(t), Before: failing(storetest.OpClaim, errAway, always)}
		w := newWorker(t, faulty, dispatch.Config{Concurrency: 1, Transports: serve(answer(accepted))})
		r := w.ProcessBatch(t.Context())
		if len(r.Warnings) != 1 || r.ClaimErrors != 1 {
			t.Errorf("%v with warnings %v, want one warning beside the claim error", r, r.Warnings)
		}
	})
}

func TestConfigIsNotSharedWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		cfg := dispatch.Config{
			Transports: serve(answer(state.Outcome{Category: state.CategoryNetwork})),
			Policy:     policy(func(p *state.Policy) { p.Backoff.Jitter = 0 }),
		}
		w := newWorker(t, b, cfg)
		cfg.Policy.Backoff.Base = -1
		delete(cfg.Transports, mail)
		wantReport(t, w.ProcessBatch(context.Background()), dispatch.Report{Claimed: 1, Retried: 1})
		if got := b.row(1).NextAttemptAt.Sub(epoch); got != 30*time.Second {
			t.Errorf("retried after %s, want 30s", got)
		}
	})
}

// A nil store is noticed at once, also inside an interface.
func TestNilStore(t *testing.T) {
	for _, s := range []store.Store{nil, (*memstore.Store)(nil)} {
		var invalid *state.InvalidError
		if _, err := dispatch.New(s, dispatch.Config{}); !errors.As(err, &invalid) || invalid.Field != "store" {
			t.Errorf("%T: %v", s, err)
		}
	}
}

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// The channels of these tests.
const (
	mail = "correo"
	chat = "whatsapp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time. It fails when f leaves a goroutine behind.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// box is an outbox in memory whose rows have ids in the order in which they were put in.
type box struct {
	*testing.T
	*memstore.Store
	ids   int
	ahead atomic.Int64 // how far the store's clock is ahead of the bubble's, in nanoseconds
}

func newBox(t *testing.T) *box {
	b := &box{T: t}
	b.Store = memstore.New(memstore.Config{
		Clock: func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
		Rules: store.Rules{TextTenant: true, Channels: []string{mail, chat, "sms"}},
		NewID: func() string {
			b.ids++
			return id(b.ids)
		},
	})
	return b
}

// id is the n-th row's, from 1.
func id(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// ids are the first n rows'.
func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = id(i + 1)
	}
	return all
}

// enqueue commits n messages for the mail channel, after change has seen to them.
func (b *box) enqueue(n int, change ...func(*store.NewMessage)) {
	b.Helper()
	tx, err := b.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		m := store.NewMessage{
			TenantID: "club", Channel: mail, Destination: "ana@example.org", Template: "alta", IdempotencyKey: fmt.Sprint("k", b.ids+1),
		}
		for _, f := range change {
			f(&m)
		}
		if _, err := b.Enqueue(b.Context(), tx, m); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

func onChannel(channel string) func(*store.NewMessage) {
	return func(m *store.NewMessage) { m.Channel = channel }
}

func attempts(n int) func(*store.NewMessage) {
	return func(m *store.NewMessage) { m.MaxAttempts = n }
}

// row returns the n-th row, from 1.
func (b *box) row(n int) store.Message {
	b.Helper()
	m, err := b.Get(context.Background(), id(n))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// put changes the n-th row behind the worker's back.
func (b *box) put(n int, change func(*store.Message)) {
	b.Helper()
	m := b.row(n)
	change(&m)
	if err := b.Put(context.Background(), m); err != nil {
		b.Fatal(err)
	}
}

// count says how many rows are in each state.
func (b *box) count() map[state.State]int {
	counts := map[state.State]int{}
	for n := range b.ids {
		counts[b.row(n+1).State]++
	}
	return counts
}

func (b *box) wantCount(want map[state.State]int) {
	b.Helper()
	if got := b.count(); !reflect.DeepEqual(got, want) {
		b.Errorf("rows by state: %v, want %v", got, want)
	}
}

// all is n rows in one state.
func all(n int, s state.State) map[state.State]int { return map[state.State]int{s: n} }

func newWorker(t *testing.T, s store.Store, cfg dispatch.Config) *dispatch.Worker {
	t.Helper()
	w, err := dispatch.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// serve are the transports of a worker with one lane.
func serve(t transports.Transport) dispatch.Transports { return dispatch.Transports{mail: t} }

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	wait(context.Background(), d)
	synctest.Wait()
}

var accepted = state.Outcome{OK: true, ExternalID: "ext"}

// answer is a transport that answers at once, in the same way each time.
func answer(o state.Outcome) transports.Func {
	return func(context.Context, transports.Message) state.Outcome { return o }
}

// ledger is a transport that accepts everything after a while, and remembers what it was given.
type ledger struct {
	takes  time.Duration
	stuck  bool                                   // it ignores its context
	answer func(transports.Message) state.Outcome // nil: accepted

	mu       sync.Mutex
	calls    []call
	inFlight int
	most     int // calls at once
}

type call struct {
	transports.Message
	at time.Duration // since the bubble's beginning
	in time.Duration // what the context left
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins

func (l *ledger) Send(ctx context.Context, m transports.Message) state.Outcome {
	deadline, _ := ctx.Deadline()
	l.mu.Lock()
	l.calls = append(l.calls, call{Message: m, at: time.Since(epoch), in: time.Until(deadline)})
	l.inFlight++
	l.most = max(l.most, l.inFlight)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inFlight--
	}()
	if l.stuck {
		ctx = context.Background()
	}
	wait(ctx, l.takes)
	switch {
	case ctx.Err() != nil:
		return state.Outcome{Category: state.CategoryNetwork, Code: "ctx", Ambiguous: true}
	case l.answer != nil:
		return l.answer(m)
	}
	return accepted
}

// log returns the calls so far.
func (l *ledger) log() []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// sent returns the ids of the calls so far.
func (l *ledger) sent() []string {
	var sent []string
	for _, c := range l.log() {
		sent = append(sent, c.ID)
	}
	return sent
}

// now is how far the bubble's time has come.
func now() time.Duration { return time.Since(epoch) }

// wantReport compares counts and last error; that a report adds up is checked in passing.
func wantReport(t *testing.T, got, want dispatch.Report) {
	t.Helper()
	wantConserved(t, got)
	if got.Warnings == nil {
		t.Error("Warnings is nil")
	}
	got.Warnings, want.Warnings = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("report\n got %v\nwant %v", got, want)
	}
}

func wantConserved(t *testing.T, r dispatch.Report) {
	t.Helper()
	if sum := r.Sent + r.Retried + r.Failed + r.Discarded + r.Lost + r.Released + r.Deferred + r.Errors; sum != r.Claimed {
		t.Errorf("%d claimed, but %d accounted for: %v", r.Claimed, sum, r)
	}
}

// Failures of a database. The driver's text holds what must not get out.
var (
	errAway    = &store.Error{Op: "test", Code: "08006", Err: errors.New("dial tcp: " + canary)}
	errRefused = &store.Error{Op: "test", Code: "23514", Refused: true, Err: errors.New("row contains " + canary)}
)

const canary = "canary-7f3a"

// failing breaks a method while on says so.
func failing(op storetest.Op, err error, on func(c storetest.Call) bool) storetest.Hook {
	return func(_ context.Context, c storetest.Call) error {
		if c.Op == op && on(c) {
			return err
		}
		return nil
	}
}

func always(storetest.Call) bool { return true }

// running is a worker in its Run.
type running struct {
	*dispatch.Worker
	t       *testing.T
	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	reports []dispatch.Report
}

// run starts Run and collects its reports. The test stops it with end, or its cleanup does.
func run(t *testing.T, s store.Store, cfg dispatch.Config) *running {
	t.Helper()
	r := &running{t: t, stopped: make(chan struct{})}
	cfg.OnReport = func(one dispatch.Report) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, one)
	}
	r.Worker = newWorker(t, s, cfg)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.stopped)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
	return r
}

// told returns the reports so far.
func (r *running) told() []dispatch.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reports)
}

// end stops the worker, waits for it and returns the sum of its reports.
func (r *running) end() dispatch.Report {
	r.t.Helper()
	r.stop()
	<-r.stopped
	var sum dispatch.Report
	for _, one := range r.told() {
		wantConserved(r.t, one)
		if one.Warnings == nil {
			r.t.Error("a report without a list of warnings")
		}
		sum = add(sum, one)
	}
	sum.Warnings = []dispatch.Warning{}
	return sum
}

// add adds reports field by field.
func add(a, b dispatch.Report) dispatch.Report {
	va, vb := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b)
	for i := range va.NumField() {
		if va.Field(i).CanInt() {
			va.Field(i).SetInt(va.Field(i).Int() + vb.Field(i).Int())
		}
	}
	if b.LastError != "" {
		a.LastError = b.LastError
	}
	return a
}

package faultdriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	. "github.com/recado-dev/recado/internal/faultdriver"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

const (
	club  = "club"
	mail  = "correo"
	phone = "whatsapp"
)

// world is one run of the scenario: an application, a worker and an operator on one database, over a pool whose
// connections fail as the run's plan says.
type world struct {
	t     *testing.T
	tally *proof.Tally
	site  *site
	plan  plan

	db   *sql.DB
	box  *sqlstore.Store
	logs *observer.ObservedLogs
	log  *zap.Logger

	mu     sync.Mutex
	now    time.Time
	fuse   *fuse
	before int  // operations of earlier runs
	over   bool // no more faults

	orders   []*order
	calls    map[string][]state.Outcome // by id, in order
	reports  []dispatch.Report
	direct   store.Token // of the claim that the scenario settled without a worker
	requeues int
	purged   int64
}

// fuse is a context whose deadline passes when somebody stalls, not at a time.
type fuse struct {
	context.Context
	blown chan struct{}
}

func newFuse() *fuse { return &fuse{context.Background(), make(chan struct{})} }

func (f *fuse) Done() <-chan struct{} { return f.blown }

func (f *fuse) Err() error {
	select {
	case <-f.blown:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// run plays the scenario under a plan of faults, then without faults until all is done, and checks what came of it.
func (s *site) run(t *testing.T, tally *proof.Tally, p plan) {
	core, logs := observer.New(zap.DebugLevel)
	w := &world{
		t: t, tally: tally, site: s, plan: p, db: s.pool, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), fuse: newFuse(),
		logs: logs, log: zap.New(core), calls: map[string][]state.Outcome{},
	}
	var err error
	w.box, err = sqlstore.New(w.db, s.engine.dialect, sqlstore.Config{TextTenant: true, Clock: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	if p.cold {
		s.pool.SetMaxIdleConns(-1)
		s.pool.SetMaxIdleConns(1)
	}
	w.before = s.operations
	if s.pool.Stats().OpenConnections > 0 {
		w.before-- // a run that begins with a connection has its first operation behind it
	}
	s.world = w
	standstill := time.AfterFunc(2*time.Minute, w.standsStill)
	defer standstill.Stop()
	w.scenario()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.untilIdle()
	s.settleDown(t)
	w.checkAtomic()
	w.recover()
	w.untilIdle()
	w.checkAll()
	s.clear(t)
}

func (w *world) violation(format string, args ...any) {
	w.t.Helper()
	w.tally.Violation(w.t, "%s: %s: "+format, append([]any{w.site.engine.name, w.plan.text}, args...)...)
}

// operation is asked for every operation of the pool.
func (s *site) operation(op Op) Fault {
	w := s.world
	if !op.InTx && op.Kind == Exec || op.Kind == Query && !op.InTx && !strings.HasPrefix(op.Text, "SELECT") {
		w.violation("written outside a transaction: %s", op.Text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.operations = op.N
	if w.over {
		return Fault{}
	}
	op.N -= w.before
	f := w.plan.inject(op)
	if f.Stall { // whoever waits for it has a deadline
		close(w.fuse.blown)
		w.fuse = newFuse()
	}
	return f
}

// standsStill ends all contexts for good: somebody waits for a connection that was leaked.
func (w *world) standsStill() {
	w.violation("everything stands still: %+v", w.site.connector.Left())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	close(w.fuse.blown)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) passes(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// ctx is a context that ends when an operation stalls.
func (w *world) ctx() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fuse
}

// hurried is the store under contexts that end when an operation stalls, for a worker whose own deadline is far.
type hurried struct {
	*sqlstore.Store
	w *world
}

func (h hurried) Claim(_ context.Context, p store.ClaimParams) (store.Claim, error) {
	return h.Store.Claim(h.w.ctx(), p)
}

func (h hurried) Settle(_ context.Context, s []store.Settlement) ([]store.Verdict, error) {
	return h.Store.Settle(h.w.ctx(), s)
}

func (h hurried) Channels(context.Context) ([]string, error) { return h.Store.Channels(h.w.ctx()) }

// told takes an error of the library, which may be printed anywhere.
func (w *world) told(err error) error {
	w.t.Helper()
	if err == nil {
		return nil
	}
	if text := fmt.Sprintf("%v %+v %s %q", err, err, err, err); strings.Contains(text, canary) {
		w.violation("an error shows: %s", text)
	}
	return err
}

// scenario is all that an application does with an outbox. Whoever meets an error does what a program would: it rolls
// back, repeats what may be repeated, or goes on.
func (w *world) scenario() {
	_ = w.told(w.box.Prepare(w.ctx()))
	w.order(&order{id: "one", keys: []string{"ambiguous", "refused"}})
	w.order(&order{id: "undone", keys: []string{"undone"}, undo: true})
	w.order(&order{id: "again", keys: []string{"ambiguous"}})

	worker := w.worker(1, mail)
	for range 2 {
		w.pass(worker.ProcessBatch)
	}
	w.passes(time.Hour)
	w.pass(worker.ProcessBatch)

	w.order(&order{id: "two", channel: phone, keys: []string{"with work"}})
	w.byHand()
	w.order(&order{id: "three", channel: phone, keys: []string{"cancelled"}})
	w.operate()
	_, err := w.box.Stats(w.ctx(), store.StatsParams{})
	_ = w.told(err)
	_, _, err = w.box.NextDue(w.ctx(), []string{mail, phone})
	_ = w.told(err)
	w.passes(time.Hour)
	for range 2 {
		n, err := w.box.Purge(w.ctx(), store.PurgeParams{Before: w.clock().Add(-time.Minute), States: []state.State{state.Sent}})
		if w.purged += n; w.told(err) == nil {
			break
		}
	}
	_ = w.told(w.box.Close())
}

// outcomes are what the provider says, call by call; when they run out it accepts.
var outcomes = map[string][]state.Outcome{
	"refused":   {{Category: state.CategoryRejected, Code: "no"}},
	"ambiguous": {{Category: state.CategoryNetwork, Code: "reset", Ambiguous: true}},
}

func (w *world) send(_ context.Context, m transports.Message) state.Outcome {
	key := strings.TrimPrefix(m.IdempotencyKey, club+":"+canary+" ")
	w.mu.Lock()
	defer w.mu.Unlock()
	o := state.Outcome{OK: true, ExternalID: "x-" + m.ID}
	if n := len(w.calls[m.ID]); n < len(outcomes[key]) {
		o = outcomes[key][n]
	}
	w.calls[m.ID] = append(w.calls[m.ID], o)
	return o
}

func (w *world) worker(batch int, channels ...string) *dispatch.Worker {
	ts := dispatch.Transports{}
	for _, c := range channels {
		ts[c] = transports.Func(w.send)
	}
	worker, err := dispatch.New(hurried{w.box, w}, dispatch.Config{Transports: ts, BatchSize: batch, Concurrency: batch, Lease: time.Minute, Logger: w.log})
	if err != nil {
		w.t.Fatal(err)
	}
	return worker
}

// pass is a pass of a worker, whose report must add up.
func (w *world) pass(process func(context.Context) dispatch.Report) dispatch.Report {
	r := process(context.Background())
	w.reports = append(w.reports, r)
	if sum := r.Sent + r.Retried + r.Failed + r.Discarded + r.Lost + r.Released + r.Deferred + r.Errors; r.Claimed != sum {
		w.violation("of %d claimed messages the report explains %d: %v", r.Claimed, sum, r)
	}
	if r.Lost > 0 {
		w.violation("a claim that nobody else could have taken is lost: %v", r)
	}
	raw, err := r.MarshalJSON()
	if text := fmt.Sprintf("%v %+v %#v %s %v", r, r, r, raw, r.Err()); err != nil || strings.Contains(text, canary) {
		w.violation("a report shows: %s", text)
	}
	return r
}

// order is a business fact with its messages, in one transaction.
type order struct {
	id      string
	channel string // "": mail
	keys    []string
	undo    bool // the application changes its mind

	uncertain bool // COMMIT was sent, and failed
	committed bool
	results   []store.EnqueueResult
}

func (w *world) message(channel, key string) store.NewMessage {
	if channel == "" {
		channel = mail
	}
	return store.NewMessage{
		TenantID: club, Channel: channel, Destination: canary + "@example.org", Template: "aviso",
		Data: map[string]string{"nombre": canary}, IdempotencyKey: canary + " " + key,
	}
}

func (w *world) order(o *order) {
	w.orders = append(w.orders, o)
	w.place(o)
}

func (w *world) place(o *order) {
	w.passes(time.Millisecond)
	ctx := w.ctx()
	tx, err := w.box.Begin(ctx)
	if w.told(err) != nil {
		return
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO pedidos (id) VALUES ('"+o.id+"')"); err != nil {
		return
	}
	o.results = nil
	if len(o.keys) == 1 {
		r, err := w.box.Enqueue(ctx, tx, w.message(o.channel, o.keys[0]))
		if w.told(err) != nil {
			return
		}
		o.results = []store.EnqueueResult{r}
	} else {
		var all []store.NewMessage
		for _, key := range o.keys {
			all = append(all, w.message(o.channel, key))
		}
		if o.results, err = w.box.EnqueueAll(ctx, tx, all); w.told(err) != nil {
			return
		}
	}
	if o.undo {
		return
	}
	err = tx.Commit()
	o.committed, o.uncertain = err == nil, err != nil
}

// byHand takes a message from the store itself, renews its lease and settles it together with an effect and a further
// message.
func (w *world) byHand() {
	claim, err := w.box.Claim(w.ctx(), store.ClaimParams{Channel: phone, Limit: 1, Lease: time.Minute})
	if w.told(err) != nil || len(claim.Messages) == 0 {
		return
	}
	m := claim.Messages[0]
	fence, renewed := m.Fence(), false
	w.direct = fence.Token
	w.twice(func() error {
		verdicts, err := w.box.Renew(w.ctx(), []store.Fence{fence}, time.Minute)
		if err == nil && verdicts[0] != store.Applied {
			w.violation("a lease that nobody else had is lost")
		}
		renewed = err == nil
		return err
	})
	if renewed {
		fence.LeasedUntil = fence.LeasedUntil.Add(time.Minute)
	}
	w.twice(func() error {
		verdict, err := w.box.SettleTx(w.ctx(), store.Settlement{Fence: fence, Attempts: m.Attempts, Transition: state.Transition{
			Event: state.EventSend, To: state.Sent, ExternalID: "x-" + m.ID,
		}}, w.work)
		if err == nil && verdict != store.Applied && renewed {
			w.violation("a settlement that nobody else could have made is lost")
		}
		return err
	})
}

// errWork is a failure of the work itself.
var errWork = errors.New("the work failed")

// work is what is done together with a settlement.
func (w *world) work(ctx context.Context, tx store.Tx) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO efectos (id) VALUES ('with work')"); err != nil {
		return errWork
	}
	_, err := w.box.Enqueue(ctx, tx, w.message(mail, "next"))
	return w.told(err)
}

func (w *world) operate() {
	if m, err := w.box.GetByKey(w.ctx(), club, canary+" cancelled"); w.told(err) == nil {
		w.twice(func() error {
			_, err := w.box.Cancel(w.ctx(), []string{m.ID})
			return err
		})
	}
	if m, err := w.box.GetByKey(w.ctx(), club, canary+" refused"); w.told(err) == nil {
		w.twice(func() error {
			w.requeues++
			_, err := w.box.Requeue(w.ctx(), []string{m.ID})
			return err
		})
	}
}

func (w *world) twice(act func() error) {
	for range 2 {
		if w.told(act()) == nil {
			return
		}
	}
}

// recover is what happens when the faults are over: the application tries its orders again, the operator acts, and a
// worker goes on until nothing is left.
func (w *world) recover() {
	for _, o := range w.orders {
		if o.undo || slices.Contains(w.site.texts(w.t, "SELECT id FROM pedidos"), o.id) {
			continue
		}
		if w.place(o); !o.committed {
			w.violation("order %s fails without a fault", o.id)
		}
	}
	worker := w.worker(5, mail, phone)
	for range 2 { // what was refused just now is to be requeued too
		w.operate()
		for round := 0; round < 5 && w.site.live(w.t) > 0; round++ {
			if r := w.pass(worker.Drain); r.Err() != nil {
				w.violation("a drain without faults: %v", r)
			}
			w.passes(2 * time.Hour)
		}
	}
	w.passes(time.Hour)
	if n, err := w.box.Purge(w.ctx(), store.PurgeParams{Before: w.clock(), States: []state.State{state.Discarded}}); w.told(err) != nil {
		w.violation("a purge without faults: %v", err)
	} else {
		w.purged += n
	}
}

// untilIdle waits until the pool has its connection back: after a deadline database/sql rolls back in its own time. What
// never comes back is a leak. Statements do not count until the pool is closed: database/sql lets a prepared one live on
// when a transaction that used it ended with a broken connection.
func (w *world) untilIdle() {
	deadline := time.After(10 * time.Second)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		left, inUse := w.site.connector.Left(), w.db.Stats().InUse
		if inUse == 0 && left.Conns <= 1 && left.Txs+left.Rows == 0 {
			return
		}
		select {
		case <-look.C:
		case <-deadline:
			w.violation("%d connections are in use for good, and open are %+v", inUse, left)
			return
		}
	}
}

// logLine is an entry as it would be written.
func logLine(e observer.LoggedEntry) string {
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"})
	line, err := enc.EncodeEntry(e.Entry, e.Context)
	if err != nil {
		return err.Error()
	}
	return line.String()
}

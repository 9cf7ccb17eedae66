package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// ErrRunning is returned by Run while another Run of the same worker goes on.
var ErrRunning = errors.New("outbox: the worker is running already")

// Worker delivers the messages of one store. It is safe for concurrent use; any number of workers, in any number of
// processes, may share a store.
type Worker struct {
	store    store.Store
	lanes    []*lane
	cfg      Config
	log      *zap.Logger
	observer Observer
	running  atomic.Bool

	mu       sync.Mutex // guards what follows; held only for memory operations
	looked   time.Time  // when the unserved channels were last looked up
	unserved []string
	unnamed  int // further ones
	lookErr  error
}

// New returns a worker. It starts nothing. Senseless options are a [state.InvalidError] that names the field.
func New(s store.Store, cfg Config) (*Worker, error) {
	lanes, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	if isNil(s) {
		return nil, invalid("store", "is nil")
	}
	w := &Worker{store: s, lanes: lanes, cfg: cfg, log: cfg.Logger, observer: NopObserver{}}
	if w.log == nil {
		w.log = zap.NewNop()
	}
	if cfg.Observer != nil {
		w.observer = guarded{cfg.Observer}
	}
	if w.cfg.Rand == nil {
		w.cfg.Rand = rand.Float64
	}
	if w.cfg.PollInterval == 0 {
		w.cfg.PollInterval = DefaultPollInterval
	}
	if w.cfg.Grace == 0 {
		for _, l := range lanes {
			w.cfg.Grace = max(w.cfg.Grace, l.Timeout)
		}
		w.cfg.Grace += 5 * time.Second
	}
	return w, nil
}

// ProcessBatch makes one pass: every lane at once claims up to its BatchSize due messages, in order of their turn, and
// ProcessBatch returns when all of them are settled. It waits for a call that outlives its Timeout at most as long again.
//
// It never fails for what messages, transports or the database do: see [Report.Err]. While the database takes no results
// it goes on trying to store them, for up to two leases, or until Config.Grace after ctx has ended. When ctx ends, nothing is started
// any more, uncalled messages are released, and calls in flight keep their whole timeout.
func (w *Worker) ProcessBatch(ctx context.Context) Report {
	return w.pass(ctx, once)
}

// Drain is ProcessBatch again and again until nothing is due or ctx ends, each lane at its own pace: for a cron. A lane
// whose claim fails, or that cannot store three groups of results in a row, makes no further claim.
func (w *Worker) Drain(ctx context.Context) Report {
	return w.pass(ctx, drain)
}

func (w *Worker) pass(ctx context.Context, m mode) Report {
	w.lookForUnserved(ctx)
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		sum Report
	)
	for _, l := range append(slices.Clone(w.lanes), w.discardLanes()...) {
		wg.Go(func() {
			r := w.newPass(ctx, l, m).run()
			mu.Lock()
			defer mu.Unlock()
			sum.add(r)
		})
	}
	wg.Wait()
	sum.Warnings = w.warnings()
	return sum
}

// Run delivers until ctx ends, then returns nil: claims as slots fall free, and wakes on Notify, at the next due time or
// at the poll interval. A database that is away is retried with growing pauses.
//
// When ctx ends it claims nothing more, releases what has not started, and waits for the calls in flight for at most
// Config.Grace. A second Run while one goes on returns [ErrRunning]; afterwards Run may be called again.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer w.running.Store(false)

	reports := newReporter(w)
	var lanes, helpers sync.WaitGroup
	for _, l := range w.lanes {
		lanes.Go(func() {
			p := w.newPass(ctx, l, forever)
			p.publish = reports.add
			reports.add(p.run())
		})
	}
	lanes.Go(func() { w.watchUnserved(ctx, reports) })
	helpers.Go(reports.run)
	w.log.Info("outbox worker started", zap.Int("lanes", len(w.lanes)))
	lanes.Wait()
	reports.close()
	helpers.Wait()
	w.log.Info("outbox worker stopped")
	return nil
}

// Notify tells a running worker that messages may be due: call it after a commit that enqueued some. It never blocks,
// costs nothing, and may be called at any time, also when nothing is due.
func (w *Worker) Notify() {
	for _, l := range w.lanes {
		select {
		case l.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// How often the channels with live messages are looked up, to find those that nobody here serves.
const lookEvery = time.Minute

// lookForUnserved looks up, at most once a minute, which channels have messages but no lane here.
func (w *Worker) lookForUnserved(ctx context.Context) {
	lister, ok := w.store.(store.ChannelLister)
	if !ok || ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	due := w.looked.IsZero() || time.Since(w.looked) >= lookEvery
	w.mu.Unlock()
	if !due {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	channels, err := lister.Channels(bounded)
	if errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil { // a worker that stops knows nothing new
		return
	}
	channels = slices.DeleteFunc(channels, func(c string) bool {
		return slices.ContainsFunc(w.lanes, func(l *lane) bool { return l.channel == c })
	})
	// A foreign writer's channel may be any text, and there may be any number of them.
	known := len(channels)
	channels = slices.DeleteFunc(channels, func(c string) bool { return !store.ValidChannel(c) })
	channels = channels[:min(len(channels), maxUnserved)]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked, w.unserved, w.unnamed, w.lookErr = time.Now(), channels, known-len(channels), err
}

// The unserved channels that are named in warnings, or discarded, at a time.
const maxUnserved = 20

// discardLanes are for the unserved channels, where those are to be discarded.
func (w *Worker) discardLanes() (lanes []*lane) {
	if !w.cfg.DiscardUnserved {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, channel := range w.unserved {
		policy := state.DefaultPolicy()
		lanes = append(lanes, newLane(channel, Lane{
			Transport: transports.Func(func(context.Context, transports.Message) state.Outcome {
				return state.Outcome{Category: state.CategoryCredentials, Code: state.CodeNoTransport}
			}),
			BatchSize: 500, Concurrency: 50, Lease: DefaultLease, Timeout: DefaultTimeout, Policy: &policy,
		}))
	}
	return lanes
}

// watchUnserved is Run's part in it.
func (w *Worker) watchUnserved(ctx context.Context, reports *reporter) {
	logged := ""
	for {
		w.lookForUnserved(ctx)
		for _, l := range w.discardLanes() {
			reports.add(w.newPass(ctx, l, drain).run())
		}
		warnings := w.warnings()
		if all := fmt.Sprint(warnings); all != logged {
			for _, warning := range warnings {
				w.log.Warn(warning.Text, zap.String("code", warning.Code))
			}
			logged = all
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// warnings follow from the options and from what was last looked up.
func (w *Worker) warnings() []Warning {
	all := []Warning{}
	for _, l := range w.lanes {
		if warning, ok := l.warning(); ok {
			all = append(all, warning)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lookErr != nil {
		all = append(all, Warning{Code: WarningChannelsFail, Text: "the channels with waiting messages could not be looked up: code " + store.ErrorCode(w.lookErr)})
	}
	for _, channel := range w.unserved {
		action := "they are left alone"
		if w.cfg.DiscardUnserved {
			action = "they are discarded"
		}
		all = append(all, Warning{Code: WarningUnserved, Channel: channel, Text: fmt.Sprintf(
			"channel %q has messages but no transport in this worker: %s", channel, action)})
	}
	if w.unnamed > 0 {
		all = append(all, Warning{Code: WarningUnserved, Text: fmt.Sprintf(
			"%d more channels have messages but no transport in this worker: they are left alone for now", w.unnamed)})
	}
	return all
}

// reporter hands the lanes' reports to OnReport, one at a time, and never holds up a lane.
type reporter struct {
	w       *Worker
	mu      sync.Mutex
	pending Report
	signal  chan struct{} // of capacity 1
	done    chan struct{}
}

func newReporter(w *Worker) *reporter {
	return &reporter{w: w, signal: make(chan struct{}, 1), done: make(chan struct{})}
}

func (r *reporter) add(one Report) {
	if one.empty() {
		return
	}
	r.mu.Lock()
	r.pending.add(one)
	r.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

func (r *reporter) close() { close(r.done) }

func (r *reporter) run() {
	for {
		select {
		case <-r.signal:
			r.emit()
		case <-r.done:
			r.emit()
			return
		}
	}
}

func (r *reporter) emit() {
	r.mu.Lock()
	report := r.pending
	r.pending = Report{}
	r.mu.Unlock()
	if report.empty() {
		return
	}
	report.Warnings = r.w.warnings()
	r.w.log.Debug("outbox pass", zap.Object("report", report))
	if r.w.cfg.OnReport != nil {
		defer ignorePanic()
		r.w.cfg.OnReport(report)
	}
}

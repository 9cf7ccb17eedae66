package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// worker is one life of a worker.
type worker struct {
	slot
	n      int // which worker of the schedule, from 1
	place  int // its slot
	cancel context.CancelFunc
	notify func()
	over   chan struct{} // closed when it has ended
	dead   bool          // behind the turnstile's mutex: it has crashed

	// What it says of itself, from goroutines of its own.
	mu      sync.Mutex
	reports []dispatch.Report
	failed  map[string]int // results that it gave up storing, by channel
	endedAt time.Time

	// The scheduler's own.
	paused  time.Time // until then none of its calls goes on; zero: it is not paused
	stopped time.Time // when it was told to stop; zero: it was not
	ended   bool      // seen
	lanes   map[string]*tracked
	claims  int // claims that failed, as it was told
	closed  int // rows that its claims closed, as it was told
	holds   []*hold
}

// tracked is what the ledger knows of one lane of a worker.
type tracked struct {
	dispatch.Lane
	delivered int // rows that it was handed
	answered  int // settlements that it got a verdict for
	attempts  []*attempt
	waitUntil time.Time // after a failed claim: no other before then
	failures  int       // of claims, in a row
	second    time.Time // in which claims
	empty     int       // so many, in a row, found nothing
}

func (w *worker) String() string { return fmt.Sprintf("w%d.%d", w.place+1, w.n) }

// randomness is a source that depends on nothing but the seed, the time, and how often it was asked at that instant: it does
// not matter how many were drawn before, and by which of a worker's lanes.
func randomness(seed uint64) func() float64 {
	var mu sync.Mutex
	var last time.Time
	var n uint64
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); !now.Equal(last) {
			last, n = now, 0
		}
		n++
		return rand.New(rand.NewPCG(seed+n, uint64(last.UnixNano()))).Float64()
	}
}

// start begins the life of a worker.
func (s *schedule) start(place int) {
	w := &worker{
		slot: s.plan.slots[place], place: place, n: len(s.workers) + 1, over: make(chan struct{}),
		failed: map[string]int{}, lanes: map[string]*tracked{},
	}
	source := randomness(s.seed + uint64(w.n)<<32)
	p := port{&s.gate, w}
	serve := dispatch.Transports{}
	for channel, lane := range w.slot.lanes {
		policy := *lane.Policy
		policy.Backoff.Rand = source
		lane.Transport, lane.Policy = line{p}, &policy
		w.lanes[channel] = &tracked{Lane: lane}
		if s.flaw.lane != nil {
			s.flaw.lane(&lane)
		}
		serve[channel] = lane
	}
	var box store.Store = p
	if w.bare {
		box = struct{ store.Store }{p}
	}
	d, err := dispatch.New(box, dispatch.Config{
		Transports: serve, PollInterval: w.poll, Grace: w.slot.grace, Rand: source, Observer: watcher{w: w}, OnReport: w.report,
	})
	if err != nil {
		panic(err) // the plan is senseless
	}
	if w.slot.grace == 0 { // its default
		for _, lane := range w.lanes {
			w.slot.grace = max(w.slot.grace, lane.Timeout)
		}
		w.slot.grace += 5 * time.Second
	}
	life, cancel := context.WithCancel(ctx)
	w.cancel, w.notify = cancel, d.Notify
	s.workers = append(s.workers, w)
	s.alive[place] = w
	s.tell("%s starts", w)
	go w.live(life, d)
}

// live is the program around a worker: a service, or a cron.
func (w *worker) live(ctx context.Context, d *dispatch.Worker) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endedAt = time.Now()
		close(w.over)
	}()
	switch w.mode {
	case running:
		if err := d.Run(ctx); err != nil {
			panic(err) // nobody else runs it
		}
		return
	case passing, draining:
		for ctx.Err() == nil {
			if w.mode == passing {
				w.report(d.ProcessBatch(ctx))
			} else {
				w.report(d.Drain(ctx))
			}
			select {
			case <-ctx.Done():
			case <-time.After(w.period):
			}
		}
	}
}

func (w *worker) report(r dispatch.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, r)
}

// watcher notes which results a worker could not store.
type watcher struct {
	dispatch.NopObserver
	w *worker
}

func (o watcher) Settled(e dispatch.Settled) {
	if e.Failed {
		o.w.mu.Lock()
		defer o.w.mu.Unlock()
		o.w.failed[e.Channel]++
	}
}

// open is how many messages the lane holds: it was handed them and has not heard, nor given up, what became of them.
func (w *worker) open(channel string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[channel]
	return l.delivered - l.answered - w.failed[channel]
}

// calling is how many calls of the lane have neither returned nor run out of time.
func (l *tracked) calling(now time.Time) int {
	n := 0
	for _, a := range l.attempts {
		if !a.returned && now.Before(a.end) {
			n++
		}
	}
	return n
}

// taken is how many slots are taken: a call that outlives its timeout keeps its slot for the timeout again.
func (l *tracked) taken(now time.Time) int {
	n := 0
	for _, a := range l.attempts {
		if !a.returned && now.Before(a.end.Add(l.Timeout)) {
			n++
		}
	}
	return n
}

// wantReports compares what a worker that has ended says of itself with what it was told, and the time it took to stop.
func (s *schedule) wantReports(w *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var got, want dispatch.Report
	for _, r := range w.reports {
		if sum := r.Sent + r.Retried + r.Failed + r.Discarded + r.Lost + r.Released + r.Deferred + r.Errors; sum != r.Claimed {
			s.violate(reportsAddUp, "%s: %d claimed, but %d accounted for: %v", w, r.Claimed, sum, r)
		}
		got.Claimed += r.Claimed
		got.Sent += r.Sent
		got.Retried += r.Retried
		got.Failed += r.Failed
		got.Discarded += r.Discarded
		got.Lost += r.Lost
		got.Released += r.Released
		got.Deferred += r.Deferred
		got.Errors += r.Errors
		got.ClaimErrors += r.ClaimErrors
	}
	if w.dead { // what it says does not matter any more, but it must add up
		return
	}
	want.Claimed, want.Failed, want.ClaimErrors = w.closed, w.closed, w.claims
	for _, h := range w.holds {
		if !h.delivered {
			continue
		}
		want.Claimed++
		switch {
		case h.verdict == nil:
			want.Errors++
		case *h.verdict == store.Lost:
			want.Lost++
		default:
			switch h.told {
			case state.EventSend:
				want.Sent++
			case state.EventRetry:
				want.Retried++
			case state.EventFail:
				want.Failed++
			case state.EventDiscard:
				want.Discarded++
			case state.EventRelease:
				want.Released++
			case state.EventDefer:
				want.Deferred++
			}
		}
	}
	took := w.endedAt.Sub(w.stopped)
	if took >= w.slot.grace+20*time.Second {
		// It gave up on a store that minds no deadline. Where that was in the middle of a group that is written in pieces, it does
		// not say what it was told of the first.
		for _, n := range [][2]*int{
			{&got.Sent, &want.Sent},
			{&got.Retried, &want.Retried},
			{&got.Failed, &want.Failed},
			{&got.Discarded, &want.Discarded},
			{&got.Lost, &want.Lost},
			{&got.Released, &want.Released},
			{&got.Deferred, &want.Deferred},
		} {
			if unsaid := *n[1] - *n[0]; unsaid > 0 {
				*n[1] -= unsaid
				want.Errors += unsaid
			}
		}
	}
	if got.String() != want.String() {
		s.violate(reportsAddUp, "%s reports %v, but was told %v", w, got, want)
	}
	most := w.slot.grace + 20*time.Second // once more to store what there is, each time with the database's own timeout
	if w.mode != running {
		for _, l := range w.lanes {
			most = max(most, w.slot.grace+20*time.Second+2*l.Timeout)
		}
	}
	if took > most {
		s.violate(stopsInTime, "%s took %s to stop, more than %s", w, took, most)
	}
}

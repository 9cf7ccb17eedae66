package dispatch

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// mode is how long a pass goes on.
type mode int

const (
	once    mode = iota // one claim
	drain               // until nothing is due
	forever             // until the context ends
)

const (
	dbTimeout  = 10 * time.Second // of one claim or settlement
	sweepEvery = time.Second      // claims start from the head of the queue at least so often
	flushEvery = time.Second      // reports of a busy lane

	maxUnstored = 3 // groups in a row of which nothing could be stored, until a drain gives up

	firstPause = 100 * time.Millisecond // after a failed claim or settlement; it doubles
	maxPause   = 5 * time.Second
)

// job is a claimed message on its way through a pass.
type job struct {
	store.Message
	age        time.Duration // at claimedAt
	claimedAt  time.Time     // when the claim was sent: the lease is measured from before it began
	startBy    time.Time     // the last moment at which a call has its whole timeout and the margin
	settleBy   time.Time     // when to stop trying to store the result
	transition state.Transition
	verdict    store.Verdict
	err        error
	again      bool // its row is held by somebody else
	waits      int  // how often it was
}

// pass is one lane at work. Everything in it belongs to the goroutine of run; others send it functions to run there.
type pass struct {
	*lane
	w    *Worker
	mode mode

	ctx   context.Context // the caller's: when it ends nothing is claimed or started any more
	grace context.Context // ends Config.Grace later
	calls context.Context // of the calls
	end   context.CancelFunc
	gone  chan struct{} // closed when run has returned
	todo  chan func()

	idle      int    // free slots
	waiting   []*job // claimed but not started, in order
	finished  []*job // to be settled
	open      int    // claimed and not settled: waiting, being called, finished or being written
	unsettled int    // finished or being written
	claiming  bool
	writing   bool

	mark      store.Mark
	swept     time.Time // when a claim last started from the head
	nextClaim time.Time
	woken     bool // since the last claim was sent
	failures  int  // in a row, of claims and of results that could not be stored
	unstored  bool // nothing of the last group of results could be stored
	refusing  bool // the last claim met rows that the database refuses to have claimed
	asking    bool // for the next due time

	refusedAccount bool // the last outcome was about the account
	dry            bool // the last claim found less than it asked for
	lastClaim      bool // no further claim will be made

	report  Report
	flushed time.Time
	publish func(Report) // nil: all goes into run's own report
}

func (w *Worker) newPass(ctx context.Context, l *lane, m mode) *pass {
	p := &pass{
		lane: l, w: w, mode: m, ctx: ctx, idle: l.Concurrency,
		gone: make(chan struct{}), todo: make(chan func()),
	}
	p.calls = context.WithoutCancel(ctx)
	p.grace, p.end = context.WithCancel(p.calls)
	if m == forever {
		p.calls = p.grace
	}
	return p
}

// run works until there is nothing left to do, and returns what it has not published.
func (p *pass) run() Report {
	defer close(p.gone)
	defer p.end()
	p.flushed = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopping, wake := p.ctx.Done(), (<-chan struct{})(nil)
	if p.mode == forever {
		wake = p.wake
	}
	var graceOver, giveUp <-chan time.Time
	for {
		p.start()
		p.claim()
		p.write()
		p.flush()
		if p.done() {
			return p.report
		}
		timer.Reset(p.untilNext())
		select {
		case f := <-p.todo:
			f()
		case <-timer.C:
		case <-wake:
			p.woken = true
		case <-stopping:
			stopping = nil
			graceOver = time.After(p.w.cfg.Grace)
		case <-graceOver:
			p.end()
			wait := 2 * dbTimeout
			if p.mode != forever { // their calls are not cut off
				wait += 2 * p.Timeout
			}
			giveUp = time.After(wait)
		case <-giveUp:
			// A driver that obeys no deadline is all that can be left.
			p.report.Claimed += p.open
			p.report.Errors += p.open
			return p.report
		}
	}
}

// do has f run by the pass's own goroutine, if that still runs.
func (p *pass) do(f func()) {
	select {
	case p.todo <- f:
	case <-p.gone:
	}
}

// done reports whether the pass is over. Slots of calls that outlived their timeout are waited for, since they count
// against the concurrency of the next pass, but not past the grace.
func (p *pass) done() bool {
	ending := p.lastClaim || p.ctx.Err() != nil
	return ending && !p.claiming && p.open == 0 && (p.idle == p.Concurrency || p.grace.Err() != nil)
}

// untilNext is the time until something is due that no event announces.
func (p *pass) untilNext() time.Duration {
	next := time.Now().Add(time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(p.waiting) > 0 {
		sooner(p.waiting[0].startBy.Add(1)) // a start at startBy itself is still in time
	}
	if p.mode == forever && p.wantsClaim() {
		sooner(p.nextClaim)
	}
	if p.publish != nil && !p.report.empty() {
		sooner(p.flushed.Add(flushEvery))
	}
	return max(0, time.Until(next))
}

// flush publishes the report of a lane that streams: when it falls idle, and every second while it is busy. Messages are
// counted when they are settled, so each report adds up.
func (p *pass) flush() {
	if p.publish == nil || p.report.empty() || (p.open > 0 && time.Since(p.flushed) < flushEvery) {
		return
	}
	p.publish(p.report)
	p.report, p.flushed = Report{}, time.Now()
}

// start starts waiting messages in order, as far as slots are free, and releases those that cannot start any more.
func (p *pass) start() {
	now := time.Now()
	for len(p.waiting) > 0 {
		j := p.waiting[0]
		switch {
		case p.ctx.Err() != nil || now.After(j.startBy):
			j.transition = state.ReleaseTransition()
			p.finish(j)
		case p.idle > 0:
			p.idle--
			go p.call(j)
		default:
			return
		}
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
	}
}

// room is how many messages may be claimed: unsettled results count, so that a store which cannot settle stops claims.
func (p *pass) room() int {
	return p.BatchSize - len(p.waiting) - p.unsettled
}

// wantsClaim reports whether there is room for a claim: for a good part of a batch, or for anything when nothing waits.
func (p *pass) wantsClaim() bool {
	room := p.room()
	switch {
	case p.claiming || p.lastClaim || p.ctx.Err() != nil:
		return false
	case p.mode == drain && p.dry && p.open > 0: // look again when these are settled: some may have been released
		return false
	case len(p.waiting) > 0:
		return room >= (p.BatchSize+1)/2
	}
	return room > 0
}

// early reports whether a lane that streams has to wait for its next claim.
func (p *pass) early() bool {
	woken := p.woken && p.failures == 0 // no wake-up shortens the pauses of a database that is away
	return p.mode == forever && !woken && time.Now().Before(p.nextClaim)
}

// claim claims where there is room and it is time to.
func (p *pass) claim() {
	if !p.wantsClaim() || p.early() {
		return
	}
	params := store.ClaimParams{Channel: p.channel, Limit: p.room(), Lease: p.Lease, From: p.mark}
	if p.unstored { // one to try with: what is sent now may not be recorded, and be sent again
		params.Limit = 1
	}
	sent := time.Now()
	if p.dry && p.mode == drain || sent.Sub(p.swept) >= sweepEvery {
		params.From, p.swept = store.Mark{}, sent
	}
	p.claiming, p.woken = true, false
	p.lastClaim = p.mode == once
	go func() {
		// A claim that was sent is waited for, so that what it took is released and not left to its lease.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), dbTimeout)
		defer cancel()
		c, err := p.w.store.Claim(ctx, params)
		p.do(func() { p.claimed(params, sent, c, err) })
	}()
}

// claimed takes in the answer to a claim.
func (p *pass) claimed(params store.ClaimParams, sent time.Time, c store.Claim, err error) {
	p.claiming = false
	now := time.Now()
	p.w.observer.Claimed(Claimed{
		Channel: p.channel, Messages: len(c.Messages), Closed: len(c.Closed), Took: now.Sub(sent),
		Failed: err != nil, ErrCode: store.ErrorCode(err),
	})
	if err != nil {
		if p.failed(1); p.failures == 1 {
			p.w.log.Warn("outbox claim failed", zap.String("canal", p.channel), zap.String("code", store.ErrorCode(err)))
		}
		p.report.ClaimErrors++
		p.report.LastError = store.ErrorCode(err)
		return
	}
	if p.failures > 0 && !p.unstored {
		p.w.log.Info("outbox claims work again", zap.String("canal", p.channel))
		p.failures = 0
	}
	if n := len(c.Refused); n > 0 {
		p.report.ClaimErrors++
		p.report.LastError = c.Refused[n-1].Code
		if !p.refusing {
			p.w.log.Error("outbox rows cannot be claimed: the database refuses them", zap.String("canal", p.channel),
				zap.Int("rows", n), zap.String("id", c.Refused[0].ID), zap.String("code", c.Refused[0].Code))
		}
	}
	p.refusing = len(c.Refused) > 0
	for _, closed := range c.Closed {
		p.report.count(state.EventFail, store.Applied)
		p.w.observer.Settled(Settled{
			ID: closed.ID, Channel: p.channel, Event: state.EventFail, Category: state.CategoryNetwork, Code: closed.Code, Verdict: store.Applied,
		})
	}
	for _, m := range c.Messages {
		p.open++
		p.waiting = append(p.waiting, &job{
			Message: m, age: m.Row().Age(c.Now), claimedAt: sent,
			startBy: sent.Add(p.Lease - p.Timeout - LeaseMargin), settleBy: sent.Add(2 * p.Lease),
		})
	}
	p.mark = c.Mark
	found := len(c.Messages) + len(c.Closed)
	fromHead := params.From == store.Mark{}
	p.dry = found < params.Limit
	switch {
	case found == 0 && fromHead && p.mode == drain && p.open == 0:
		p.lastClaim = true
	case p.unstored:
		p.nextClaim = now.Add(p.w.jitter(pause(p.failures)))
	case found == 0 && !fromHead: // there may be some below the mark
		p.swept, p.dry = time.Time{}, false
		p.nextClaim = now
	case p.dry && p.mode == forever:
		wait := p.w.jitter(p.w.cfg.PollInterval)
		if !fromHead {
			wait = min(wait, sweepEvery)
		}
		p.nextClaim = now.Add(wait)
		p.askNextDue()
	default:
		p.nextClaim = now
	}
}

// failed has the next claim wait, the longer the more often in a row something failed. A pass that does not stream claims
// no more after that many failures.
func (p *pass) failed(most int) {
	p.failures++
	p.nextClaim = time.Now().Add(p.w.jitter(pause(p.failures)))
	if p.mode != forever && p.failures >= most {
		p.lastClaim = true
	}
}

// askNextDue shortens the wait for the next poll to the next due time, where the store knows it.
func (p *pass) askNextDue() {
	due, ok := p.w.store.(store.DueTimer)
	if !ok || p.asking {
		return
	}
	p.asking = true
	asked := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(p.ctx, dbTimeout)
		defer cancel()
		wait, ok, err := due.NextDue(ctx, []string{p.channel})
		p.do(func() {
			p.asking = false
			if err == nil && ok { // else the poll finds what there is; a database that is away shows in the claims
				p.claimBy(asked.Add(wait))
			}
		})
	}()
}

// claimBy brings the next claim forward, but not into the pauses of a database that is away.
func (p *pass) claimBy(t time.Time) {
	if p.failures == 0 && t.Before(p.nextClaim) {
		p.nextClaim = t
	}
}

// pause is the wait after the nth failure in a row.
func pause(n int) time.Duration {
	d := firstPause
	for ; n > 1 && d < maxPause; n-- {
		d *= 2
	}
	return min(d, maxPause)
}

// jitter spreads waits by a tenth either way, so that workers started together drift apart.
func (w *Worker) jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(w.cfg.Rand()*float64(d/5))
}

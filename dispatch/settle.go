package dispatch

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/recado-dev/recado/store"
)

// maxGroup is the most results that one write settles.
const maxGroup = 1000

// finish queues a message whose transition is known.
func (p *pass) finish(j *job) {
	p.unsettled++
	p.finished = append(p.finished, j)
}

// write commits results in groups, without a timer: the first is written at once, and those that arrive meanwhile are
// the next group.
func (p *pass) write() {
	if p.writing || len(p.finished) == 0 {
		return
	}
	n := min(len(p.finished), maxGroup)
	group := p.finished[:n:n]
	p.finished = p.finished[n:]
	p.writing = true
	go func() {
		p.settle(group)
		p.do(func() {
			p.writing = false
			p.settled(group)
		})
	}()
}

// settle stores a group's results, and goes on trying while it can make sense: for a lease after the lease (the fence
// decides), or to the end of the grace. A result that the database refuses, or whose row another transaction holds, does
// not hold up the others of its group.
func (p *pass) settle(group []*job) {
	settlements := make([]store.Settlement, len(group))
	settleBy := time.Time{}
	for i, j := range group {
		settlements[i] = store.Settlement{Fence: j.Fence(), Attempts: j.Attempts, Transition: j.transition}
		if j.settleBy.After(settleBy) {
			settleBy = j.settleBy
		}
	}
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), dbTimeout)
		verdicts, err := p.w.store.Settle(ctx, settlements)
		cancel()
		if err == nil && len(verdicts) != len(group) {
			err = errVerdicts
		}
		if err == nil {
			for i, j := range group {
				j.verdict = verdicts[i]
			}
			return
		}
		p.w.log.Warn("outbox settlement failed", zap.String("canal", p.channel), zap.Int("messages", len(group)),
			zap.Int("try", try), zap.String("code", store.ErrorCode(err)))
		final, locked := store.Refused(err), store.Locked(err)
		if (final || locked) && len(group) > 1 {
			p.settle(group[:len(group)/2])
			p.settle(group[len(group)/2:])
			return
		}
		wait := p.w.jitter(pause(try + group[0].waits))
		// A process that slept past its time finds its connections broken at the first try.
		late := (try > 1 || locked) && time.Now().Add(wait).After(settleBy)
		if locked && !late && p.grace.Err() == nil {
			group[0].again = true // later: the others need not wait for whoever holds this row
			return
		}
		if final || late || p.grace.Err() != nil {
			for _, j := range group {
				j.err = err
			}
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.grace.Done(): // once more, and that was it
			timer.Stop()
		}
	}
}

var errVerdicts = errors.New("the store gave a wrong number of verdicts")

// settled counts a group that was written, or could not be. A lane that cannot store any result pauses its claims, since
// all that it sends would be sent again.
func (p *pass) settled(group []*job) {
	stored, failed := 0, 0
	for _, j := range group {
		if j.again {
			p.setAside(j)
			continue
		}
		p.open--
		p.unsettled--
		if j.err != nil {
			failed++
			p.report.Claimed++
			p.report.Errors++
			p.report.LastError = store.ErrorCode(j.err)
		} else {
			stored++
			p.report.count(j.transition.Event, j.verdict)
			if j.transition.Waits() {
				p.claimBy(time.Now().Add(j.transition.Wait))
			}
		}
		p.w.observer.Settled(Settled{
			ID: j.ID, Channel: p.channel, Event: j.transition.Event, Category: j.transition.Category, Code: j.transition.Code,
			Verdict: j.verdict, Failed: j.err != nil,
		})
	}
	if stored > 0 {
		p.unstored = false
	} else if failed > 0 {
		p.unstored = true
		p.failed(maxUnstored)
	}
}

// setAside has a message whose row somebody else holds settled later.
func (p *pass) setAside(j *job) {
	j.again = false
	j.waits++
	time.AfterFunc(p.w.jitter(pause(j.waits)), func() {
		p.do(func() { p.finished = append(p.finished, j) })
	})
}

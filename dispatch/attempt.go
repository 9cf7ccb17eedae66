package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// timedOut is the outcome of a call that did not return in time: the provider may have taken the message.
var timedOut = state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout, Ambiguous: true}

// call makes one attempt, in a goroutine and a slot of its own. At the deadline the message is settled at once; the slot
// stays taken until the call returns, or for the Timeout again. What a call says after its deadline is not heard.
func (p *pass) call(j *job) {
	if o, ok := presentable(&j.Message); !ok {
		p.do(func() {
			p.idle++
			p.resolve(j, o)
		})
		return
	}
	ctx, cancel := context.WithTimeout(p.calls, p.Timeout)
	defer cancel()
	observed, observe := p.w.observer.Attempt(ctx, Attempt{
		ID: j.ID, TenantID: j.TenantID, Channel: j.Channel, Template: j.Template, Attempt: j.Attempts,
		MaxAttempts: j.MaxAttempts, Waited: j.age + time.Since(j.claimedAt), Headers: j.Headers,
	})
	returned := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		p.do(func() { observe(p.resolve(j, timedOut)) })
		timer := time.NewTimer(p.Timeout)
		defer timer.Stop()
		select {
		case <-returned:
			p.do(func() { p.idle++ })
		case <-timer.C:
			p.do(func() {
				p.idle++
				p.report.Abandoned++
			})
			p.w.log.Error("outbox call abandoned: the transport ignores its context", zap.String("canal", p.channel), zap.String("id", j.ID))
		}
	})
	// What is not overwritten was a panic, or the end of the goroutine: who knows how far the call had come.
	o := state.Outcome{Category: state.CategoryNetwork, Code: state.CodePanic, Ambiguous: true}
	defer func() {
		if r := recover(); r != nil {
			// The panic's value may hold anything; its type may not.
			p.w.log.Error("outbox transport panicked", zap.String("canal", p.channel), zap.String("id", j.ID),
				zap.String("type", fmt.Sprintf("%T", r)), zap.ByteString("stack", debug.Stack()))
		}
		close(returned)
		// The context ends a moment before what was to run after it is set off, and a call that minds it returns between the two.
		if ctx.Err() == nil && inTime() {
			p.do(func() {
				p.idle++
				observe(p.resolve(j, o))
			})
		}
	}()
	o = p.Send(observed, transports.Message{
		ID: j.ID, TenantID: j.TenantID, Channel: j.Channel, Destination: j.Destination, Template: j.Template, Data: j.Data,
		IdempotencyKey: j.ProviderKey(), CreatedAt: j.CreatedAt, Headers: j.Headers, Attempt: j.Attempts, MaxAttempts: j.MaxAttempts,
	})
}

// presentable says whether a row can be handed to a transport. Enqueue lets no other kind in; foreign writers might.
func presentable(m *store.Message) (state.Outcome, bool) {
	switch {
	case !store.TravellingKey(m.ProviderKey()):
		return state.Outcome{Category: state.CategoryRejected, Code: state.CodeBadKey}, false
	case !json.Valid(m.Data):
		return state.Outcome{Category: state.CategoryTemplate, Code: state.CodeBadData}, false
	}
	return state.Outcome{}, true
}

// complain logs, once per change, that a provider refuses the account and not a message: every message ends the same way.
func (p *pass) complain(o state.Outcome) {
	if o.Account == p.refusedAccount {
		return
	}
	if p.refusedAccount = o.Account; o.Account {
		p.w.log.Error("outbox provider refuses the account or its credentials", zap.String("canal", p.channel),
			zap.String("clase", string(state.Classify(o))))
	}
}

// resolve decides what an outcome means for the message. It returns the outcome with the words that are stored: what else
// a transport may have put there goes no further.
func (p *pass) resolve(j *job, o state.Outcome) state.Outcome {
	p.complain(o)
	t, err := state.Resolve(j.Row(), j.age+time.Since(j.claimedAt), o, *p.Policy)
	o.ExternalID, o.Category, o.Code = t.ExternalID, t.Category, t.Code
	if err != nil { // options are validated and the row is in procesando, so only a store of its own mind leads here
		p.w.log.Error("outbox outcome without a transition", zap.String("canal", p.channel), zap.String("id", j.ID), zap.Error(err))
		j.err = err
		p.unsettled++
		p.settled([]*job{j})
		return o
	}
	j.transition = t
	p.finish(j)
	return o
}

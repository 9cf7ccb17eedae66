package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/recado-dev/recado/store"
)

// Complete is a store with every ability, as memstore and sqlstore are.
type Complete interface {
	store.Store
	store.Enqueuer
	store.TxSettler
	store.Renewer
	store.DueTimer
	store.ChannelLister
	store.Operator
}

// Op names a method that a worker calls.
type Op string

// The methods that [Faulty] counts and can break.
const (
	OpClaim    Op = "claim"
	OpSettle   Op = "settle"
	OpSettleTx Op = "settle tx"
	OpRenew    Op = "renew"
	OpPurge    Op = "purge"
	OpNextDue  Op = "next due"
	OpChannels Op = "channels"
)

// Call is one call of a method.
type Call struct {
	Op Op
	N  int // which call of this method it is, from 1
}

// Hook decides what becomes of a call: nil lets it go on. It may block, to make a slow store or to hold a call back
// until the test says so; then it should mind ctx.
type Hook func(ctx context.Context, c Call) error

// Nth is a hook that breaks only the n-th call of one method, counted from 1.
func Nth(op Op, n int, err error) Hook {
	return func(_ context.Context, c Call) error {
		if c == (Call{op, n}) {
			return err
		}
		return nil
	}
}

// Faulty is a store that fails when a test says so: before a call reaches the store that it wraps, or after, when the
// store has done its work and only the answer is lost. It breaks the methods that have an [Op]; Begin, Enqueue and the
// operator's acts go straight through, to set the scene and to look at it.
//
// The hooks are set before the first call and may be called by many goroutines at once.
type Faulty struct {
	Complete
	Before Hook // nil: nothing fails before
	After  Hook // nil: no answer is lost; not called when the store itself failed

	mu    sync.Mutex
	calls map[Op]int
}

var _ Complete = (*Faulty)(nil)

// Calls returns how often a method has been called, failed calls included.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *Faulty) next(op Op) Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[Op]int{}
	}
	f.calls[op]++
	return Call{op, f.calls[op]}
}

// between runs a call between its hooks.
func between[T any](ctx context.Context, f *Faulty, op Op, do func() (T, error)) (T, error) {
	var none T
	c := f.next(op)
	if f.Before != nil {
		if err := f.Before(ctx, c); err != nil {
			return none, err
		}
	}
	answer, err := do()
	if err != nil || f.After == nil {
		return answer, err
	}
	if err := f.After(ctx, c); err != nil {
		return none, err
	}
	return answer, nil
}

// Claim is the wrapped store's, between the hooks.
func (f *Faulty) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	return between(ctx, f, OpClaim, func() (store.Claim, error) { return f.Complete.Claim(ctx, p) })
}

// Settle is the wrapped store's, between the hooks.
func (f *Faulty) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	return between(ctx, f, OpSettle, func() ([]store.Verdict, error) { return f.Complete.Settle(ctx, s) })
}

// SettleTx is the wrapped store's, between the hooks; fn is inside.
func (f *Faulty) SettleTx(
	ctx context.Context, s store.Settlement, fn func(context.Context, store.Tx) error,
) (store.Verdict, error) {
	return between(ctx, f, OpSettleTx, func() (store.Verdict, error) { return f.Complete.SettleTx(ctx, s, fn) })
}

// Renew is the wrapped store's, between the hooks.
func (f *Faulty) Renew(ctx context.Context, fences []store.Fence, d time.Duration) ([]store.Verdict, error) {
	return between(ctx, f, OpRenew, func() ([]store.Verdict, error) { return f.Complete.Renew(ctx, fences, d) })
}

// Purge is the wrapped store's, between the hooks.
func (f *Faulty) Purge(ctx context.Context, p store.PurgeParams) (int64, error) {
	return between(ctx, f, OpPurge, func() (int64, error) { return f.Complete.Purge(ctx, p) })
}

// NextDue is the wrapped store's, between the hooks.
func (f *Faulty) NextDue(ctx context.Context, channels []string) (time.Duration, bool, error) {
	var found bool
	d, err := between(ctx, f, OpNextDue, func() (d time.Duration, err error) {
		d, found, err = f.Complete.NextDue(ctx, channels)
		return d, err
	})
	return d, found && err == nil, err
}

// Channels is the wrapped store's, between the hooks.
func (f *Faulty) Channels(ctx context.Context) ([]string, error) {
	return between(ctx, f, OpChannels, func() ([]string, error) { return f.Complete.Channels(ctx) })
}

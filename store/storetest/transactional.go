package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var transactionalCases = []testCase{
	{"settlement and work are kept together", txBoth},
	{"what each event writes", txWrites},
	{"work that fails leaves nothing", txFails},
	{"a lost fence runs nothing", txLost},
	{"a repeat runs nothing", txRepeat},
	{"illegal transitions run nothing", txIllegal},
	{"ended context", txCancelled},
}

// next is a message that the work of a settlement enqueues.
func (k *kit) next() store.NewMessage {
	return store.NewMessage{
		TenantID: k.tenant(1), Channel: otherChannel, Destination: "+5491122334455", Template: "siguiente",
		IdempotencyKey: "siguiente",
	}
}

// notRun is work that must not be done.
func notRun(k *kit) func(context.Context, store.Tx) error {
	return func(context.Context, store.Tx) error {
		k.Error("the work was done")
		return nil
	}
}

func txBoth(k *kit) {
	settler, enqueuer := ability[store.TxSettler](k), ability[store.Enqueuer](k)
	m := k.take()
	k.tick(time.Second)
	type mine struct{}
	ctx := context.WithValue(k.Context(), mine{}, true)
	var res store.EnqueueResult
	verdict, err := settler.SettleTx(ctx, with(m, send), func(ctx context.Context, tx store.Tx) (err error) {
		if ctx.Value(mine{}) == nil {
			k.Error("the work has another context")
		}
		res, err = enqueuer.Enqueue(ctx, tx, k.next())
		return err
	})
	k.ok(err)
	if verdict != store.Applied || !res.Inserted {
		k.Errorf("verdict %v, enqueued %+v", verdict, res)
	}
	k.stored(settled(m, send, k.now))
	if got := k.get(res.ID); got.State != state.Pending || got.Template != k.next().Template {
		k.Errorf("the enqueued row is %s", plainText(got))
	}
}

func txWrites(k *kit) {
	settler := ability[store.TxSettler](k)
	for _, s := range settlements(t0) {
		m := k.take()
		verdict, err := settler.SettleTx(k.Context(), with(m, s.transition), func(context.Context, store.Tx) error { return nil })
		k.ok(err)
		k.verdicts([]store.Verdict{verdict}, store.Applied)
		k.stored(settled(m, s.transition, k.now))
		k.remove(m)
	}
}

func txFails(k *kit) {
	settler, enqueuer := ability[store.TxSettler](k), ability[store.Enqueuer](k)
	m, broken := k.take(), errors.New("the work is broken")
	var res store.EnqueueResult
	verdict, err := settler.SettleTx(k.Context(), with(m, send), func(ctx context.Context, tx store.Tx) (err error) {
		if res, err = enqueuer.Enqueue(ctx, tx, k.next()); err != nil {
			return err
		}
		return broken
	})
	if verdict != store.Lost || !errors.Is(err, broken) {
		k.Errorf("verdict %v, %v; want the work's error", verdict, err)
	}
	k.stored(m)
	k.gone(res.ID)
	k.applied(with(m, retry)) // the fence is still good
}

func txLost(k *kit) {
	settler := ability[store.TxSettler](k)
	first := k.take()
	k.tick(lease)
	second := k.retake(first.ID)
	forged := with(second, send)
	forged.LeasedUntil = first.LeasedUntil
	for _, s := range []store.Settlement{with(first, send), forged, {Fence: store.Fence{ID: rowID(999)}, Transition: send}} {
		verdict, err := settler.SettleTx(k.Context(), s, notRun(k))
		k.ok(err)
		k.verdicts([]store.Verdict{verdict}, store.Lost)
	}
	k.stored(second)
}

func txRepeat(k *kit) {
	settler := ability[store.TxSettler](k)
	for _, s := range settlements(t0) {
		m := k.take()
		k.applied(with(m, s.transition)) // alone or with work, it is the same settlement
		want := k.get(m.ID)
		k.tick(time.Second)
		verdict, err := settler.SettleTx(k.Context(), with(m, s.transition), notRun(k))
		k.ok(err)
		k.verdicts([]store.Verdict{verdict}, store.Applied)
		k.stored(want)
		k.remove(m)
	}
	m := k.take()
	for range 2 {
		verdict, err := settler.SettleTx(k.Context(), with(m, send), func(context.Context, store.Tx) error { return nil })
		k.ok(err)
		k.verdicts([]store.Verdict{verdict}, store.Applied)
	}
	k.applied(with(m, send))
}

func txIllegal(k *kit) {
	settler := ability[store.TxSettler](k)
	m := k.take()
	_, err := settler.SettleTx(k.Context(), with(m, state.Transition{Event: state.EventClaim, To: state.Processing}), notRun(k))
	if illegal := (*state.TransitionError)(nil); !errors.As(err, &illegal) {
		k.Errorf("got %v, want a TransitionError", err)
	}
	k.stored(m)
}

func txCancelled(k *kit) {
	settler := ability[store.TxSettler](k)
	m := k.take()
	if _, err := settler.SettleTx(cancelled(k), with(m, send), notRun(k)); err == nil {
		k.Error("settling under an ended context gave no error")
	}
	// It may end while the work runs, too.
	ctx, cancel := context.WithCancel(k.Context())
	_, err := settler.SettleTx(ctx, with(m, send), func(context.Context, store.Tx) error {
		cancel()
		return nil
	})
	if err == nil {
		k.Error("settling under a context that ended in between gave no error")
	}
	k.stored(m)
	k.applied(with(m, send))
}

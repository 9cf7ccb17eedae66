package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
)

const (
	goroutines  = 6
	calls       = 150 // of all goroutines in one history
	rows        = 6
	maxAttempts = 4
	patience    = time.Minute // with the checker, which takes milliseconds for a history of this size
)

const tenant = "club"

// key is that of a channel's i-th row.
func key(channel string, i int) string { return fmt.Sprintf("%s-%d", channel, i) }

// clock is a store's one clock. Only the goroutines move it, each before every call, and only forwards.
type clock struct{ microseconds atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.microseconds.Store(time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time { return time.UnixMicro(c.microseconds.Load()).UTC() }

// The faults.
const (
	lostRequest = "lost request"
	lostReply   = "lost reply"
)

var errLost = errors.New("the connection broke")

type fateKey struct{}

// losing loses the calls whose context says so, before the store has done its work or after.
func losing(s storetest.Complete, tally *proof.Tally) storetest.Complete {
	hook := func(kind string) storetest.Hook {
		return func(ctx context.Context, _ storetest.Call) error {
			if ctx.Value(fateKey{}) != kind {
				return nil
			}
			tally.Fault(kind)
			return errLost
		}
	}
	return &storetest.Faulty{Complete: s, Before: hook(lostRequest), After: hook(lostReply)}
}

// history is what the goroutines saw of the rows of one channel.
type history struct {
	store   storetest.Complete
	channel string
	clock   *clock
	order   atomic.Int64 // of begins and ends
	ids     []string
	first   map[string]row

	mu     sync.Mutex
	seen   map[string][]porcupine.Operation // by row
	tokens map[store.Token]bool             // of all claims that answered
	handed []store.Message                  // what they handed out, under every fence that it had
}

// moment is when a call begins or ends.
type moment struct {
	order int64
	clock time.Time
}

func (h *history) moment() moment { return moment{h.order.Add(1), h.clock.now()} }

// record has goroutines work on new rows of a channel that has no others.
func record(t *testing.T, s storetest.Complete, channel string, c *clock, seed uint64, goroutines int) *history {
	t.Helper()
	h := &history{
		store: s, channel: channel, clock: c,
		first: map[string]row{}, seen: map[string][]porcupine.Operation{}, tokens: map[store.Token]bool{},
	}
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing
	for i := range rows {
		res, err := s.Enqueue(t.Context(), tx, store.NewMessage{
			TenantID: tenant, Channel: channel, Destination: "ana", Template: "aviso", MaxAttempts: maxAttempts,
			IdempotencyKey: key(channel, i),
		})
		if err != nil {
			t.Fatal(err)
		}
		h.ids = append(h.ids, res.ID)
		h.first[res.ID] = row{state: state.Pending, turn: exactly(c.now())}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			client := client{history: h, id: i, rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range calls / goroutines {
				if err := client.act(t.Context()); err != nil {
					t.Errorf("goroutine %d: %v (%v)", i, err, errors.Unwrap(err))
					return
				}
			}
		})
	}
	wg.Wait()
	last := client{history: h, id: goroutines}
	for _, id := range h.ids {
		if err := last.get(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	return h
}

// client is one of the goroutines.
type client struct {
	*history
	id      int
	rand    *rand.Rand
	settled []store.Settlement // to repeat
}

// saw adds an operation on one row to the history.
func (c *client) saw(id string, begin, end moment, did call, a answer) {
	did.begin, did.end = begin.clock, end.clock
	o := porcupine.Operation{ClientId: c.id, Input: did, Call: begin.order, Output: a, Return: end.order}
	if a.lost { // it may come to pass at any time from now on
		o.Return = math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[id] = append(c.seen[id], o)
}

func (c *client) act(ctx context.Context) error {
	c.clock.microseconds.Add(c.rand.Int64N(10_000))
	switch c.rand.IntN(20) {
	case 0:
		ctx = context.WithValue(ctx, fateKey{}, lostRequest)
	case 1:
		ctx = context.WithValue(ctx, fateKey{}, lostReply)
	}
	switch n := c.rand.IntN(100); {
	case n < 30:
		return c.claim(ctx)
	case n < 70:
		return c.settle(ctx)
	case n < 80:
		return c.renew(ctx)
	case n < 90:
		return c.get(ctx, c.ids[c.rand.IntN(rows)])
	case n < 95:
		return c.operate(ctx, opRequeue, c.store.Requeue)
	}
	return c.operate(ctx, opCancel, c.store.Cancel)
}

func (c *client) duration(least, most time.Duration) time.Duration {
	return (least + time.Duration(c.rand.Int64N(int64(most-least)))).Truncate(time.Microsecond)
}

func (c *client) claim(ctx context.Context) error {
	p := store.ClaimParams{Channel: c.channel, Limit: 1 + c.rand.IntN(3), Lease: c.duration(10*time.Millisecond, 150*time.Millisecond)}
	did, begin := call{op: opClaim, by: p.Lease}, c.moment()
	got, err := c.store.Claim(ctx, p)
	end := c.moment()
	if errors.Is(err, errLost) {
		for _, id := range c.ids { // any of them
			c.saw(id, begin, end, did, answer{lost: true})
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, closed := range got.Closed {
		c.saw(closed.ID, begin, end, did, answer{now: got.Now, closed: closed.Code})
	}
	for _, m := range got.Messages {
		c.saw(m.ID, begin, end, did, answer{now: got.Now, message: m})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed = append(c.handed, got.Messages...)
	if len(got.Messages) > 0 {
		token := got.Messages[0].Token
		if c.tokens[token] {
			return errors.New("two claims have one token")
		}
		c.tokens[token] = true
	}
	return nil
}

// someHanded is a row under a fence of lately, anybody's.
func (c *client) someHanded() (m store.Message, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.handed)
	if n == 0 {
		return m, false
	}
	return c.handed[n-1-c.rand.IntN(min(n, 10))], true
}

func (c *client) settlement() (s store.Settlement, found bool) {
	if n := len(c.settled); n > 0 && c.rand.IntN(5) == 0 {
		return c.settled[n-1-c.rand.IntN(min(n, 4))], true
	}
	m, found := c.someHanded()
	if !found {
		return s, false
	}
	code := []string{"http_500", "http_503"}[c.rand.IntN(2)]
	t := []state.Transition{
		state.ReleaseTransition(),
		{Event: state.EventSend, To: state.Sent, ExternalID: "x-" + code},
		{Event: state.EventRetry, To: state.Pending, Wait: c.duration(time.Millisecond, 50*time.Millisecond), Category: state.CategoryNetwork, Code: code, Ambiguous: true},
		{Event: state.EventDefer, To: state.Pending, Wait: c.duration(time.Millisecond, 50*time.Millisecond), Category: state.CategoryNetwork, Code: code},
		{Event: state.EventFail, To: state.Failed, Category: state.CategoryNetwork, Code: code},
		{Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryRejected, Code: code},
	}[c.rand.IntN(6)]
	s = store.Settlement{Fence: m.Fence(), Attempts: m.Attempts, Transition: t}
	c.settled = append(c.settled, s)
	return s, true
}

func (c *client) settle(ctx context.Context) error {
	var group []store.Settlement
	for range 1 + c.rand.IntN(3) {
		s, found := c.settlement()
		// Which of two on one row would be first is not for a history to say.
		if found && !slices.ContainsFunc(group, func(other store.Settlement) bool { return other.ID == s.ID }) {
			group = append(group, s)
		}
	}
	begin := c.moment()
	verdicts, err := c.store.Settle(ctx, group)
	end := c.moment()
	if err != nil && !errors.Is(err, errLost) {
		return err
	}
	for i, s := range group {
		a := answer{lost: err != nil}
		if !a.lost {
			a.verdict = verdicts[i]
		}
		c.saw(s.ID, begin, end, call{op: opSettle, settlement: s}, a)
	}
	return nil
}

func (c *client) renew(ctx context.Context) error {
	m, found := c.someHanded()
	if !found {
		return nil
	}
	by, begin := c.duration(10*time.Millisecond, 50*time.Millisecond), c.moment()
	verdicts, err := c.store.Renew(ctx, []store.Fence{m.Fence()}, by)
	end := c.moment()
	if err != nil && !errors.Is(err, errLost) {
		return err
	}
	a := answer{lost: err != nil}
	if !a.lost {
		a.verdict = verdicts[0]
	}
	c.saw(m.ID, begin, end, call{op: opRenew, settlement: store.Settlement{Fence: m.Fence()}, by: by}, a)
	if a.verdict == store.Applied {
		m.LeasedUntil = m.LeasedUntil.Add(by)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handed = append(c.handed, m)
	}
	return nil
}

func (c *client) get(ctx context.Context, id string) error {
	begin := c.moment()
	m, err := c.store.Get(ctx, id)
	if err == nil {
		c.saw(id, begin, c.moment(), call{op: opGet}, answer{message: m})
	}
	return err
}

func (c *client) operate(ctx context.Context, what op, act func(context.Context, []string) ([]store.Verdict, error)) error {
	id, begin := c.ids[c.rand.IntN(rows)], c.moment()
	verdicts, err := act(ctx, []string{id})
	if err == nil {
		c.saw(id, begin, c.moment(), call{op: what}, answer{verdict: verdicts[0]})
	}
	return err
}

// impossible describes a row whose operations fit into no order, or returns "".
func (h *history) impossible() string {
	for _, id := range h.ids {
		model := specification(h.first[id], h.tokens)
		result, info := porcupine.CheckOperationsVerbose(model, h.seen[id], patience)
		if result == porcupine.Ok {
			continue
		}
		longest := 0
		for _, order := range info.PartialLinearizations()[0] {
			longest = max(longest, len(order))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "row %s: %s; of these operations at most %d fit into one order", id, result, longest)
		slices.SortFunc(h.seen[id], func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range h.seen[id] {
			fmt.Fprintf(&b, "\n%d to %d, goroutine %d: %s", o.Call, o.Return, o.ClientId, model.DescribeOperation(o.Input, o.Output))
		}
		return b.String()
	}
	return ""
}

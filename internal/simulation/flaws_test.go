package simulation

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/transports"
)

// flaw is a deliberate mistake. The zero flaw is none.
type flaw struct {
	name    string
	promise string // that it breaks, perhaps among others
	claim   func(*memstore.Store, store.ClaimParams) (store.Claim, error)
	settle  func(*memstore.Store, []store.Settlement) ([]store.Verdict, error)
	purge   func(*memstore.Store, store.PurgeParams) (int64, error)
	lane    func(*dispatch.Lane) // what the worker is told, unlike the ledger
}

// flawed is a store with a flaw.
type flawed struct {
	*memstore.Store
	flaw
}

func (f flawed) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if f.claim == nil {
		return f.Store.Claim(ctx, p)
	}
	return f.claim(f.Store, p)
}

func (f flawed) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	if f.settle == nil {
		return f.Store.Settle(ctx, group)
	}
	return f.settle(f.Store, slices.Clone(group))
}

func (f flawed) Purge(ctx context.Context, p store.PurgeParams) (int64, error) {
	if f.purge == nil {
		return f.Store.Purge(ctx, p)
	}
	return f.purge(f.Store, p)
}

var ctx = context.Background()

// edit changes a row behind everybody's back, if it is there.
func edit(s *memstore.Store, id string, change func(*store.Message)) {
	m, err := s.Get(ctx, id)
	if err != nil {
		return
	}
	change(&m)
	if err := s.Put(ctx, m); err != nil {
		panic(err)
	}
}

// beforeClaims changes every row before each claim.
func beforeClaims(change func(*store.Message)) func(*memstore.Store, store.ClaimParams) (store.Claim, error) {
	return func(s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
		for n := range maxRows {
			edit(s, rowID(n+1), change)
		}
		return s.Claim(ctx, p)
	}
}

// claimsOf changes what a claim has taken, in its answer and in the store.
func claimsOf(change func(*store.Message)) func(*memstore.Store, store.ClaimParams) (store.Claim, error) {
	return func(s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
		c, err := s.Claim(ctx, p)
		for i := range c.Messages {
			change(&c.Messages[i])
			edit(s, c.Messages[i].ID, change)
		}
		return c, err
	}
}

// twice is a transport that repeats what it sends.
type twice struct{ transports.Transport }

func (t twice) Send(ctx context.Context, m transports.Message) state.Outcome {
	t.Transport.Send(ctx, m)
	return t.Transport.Send(ctx, m)
}

var flaws = []flaw{
	{name: "no fence", promise: settledOnce, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		for i := range group {
			if m, err := s.Get(ctx, group[i].ID); err == nil {
				group[i].Fence = m.Fence()
			}
		}
		return s.Settle(ctx, group)
	}},
	{name: "a settlement is applied again", promise: settledOnce, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		for _, st := range group {
			edit(s, st.ID, func(m *store.Message) {
				if m.Token == st.Token {
					m.State, m.LeasedUntil = state.Processing, st.LeasedUntil
				}
			})
		}
		return s.Settle(ctx, group)
	}},
	{name: "a settlement whose reply was lost counts as lost", promise: repeats, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		var done []int
		for i, st := range group {
			if m, err := s.Get(ctx, st.ID); err == nil && m.State != state.Processing {
				done = append(done, i)
			}
		}
		verdicts, err := s.Settle(ctx, group)
		for _, i := range done {
			verdicts[i] = store.Lost
		}
		return verdicts, err
	}},
	{name: "the verdicts come in the wrong order", promise: settledOnce, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		verdicts, err := s.Settle(ctx, group)
		slices.Reverse(verdicts)
		return verdicts, err
	}},
	{name: "doubts are forgotten", promise: faithful, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		verdicts, err := s.Settle(ctx, group)
		for _, st := range group {
			edit(s, st.ID, func(m *store.Message) { m.Doubts = 0 })
		}
		return verdicts, err
	}},
	{name: "a released row goes to the end of the queue", promise: keepsPlace, settle: func(s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		verdicts, err := s.Settle(ctx, group)
		for i, st := range group {
			if st.Event == state.EventRelease && verdicts[i] == store.Applied {
				edit(s, st.ID, func(m *store.Message) { m.NextAttemptAt = m.UpdatedAt })
			}
		}
		return verdicts, err
	}},
	{name: "a lease is no protection", promise: oneHolder, claim: beforeClaims(func(m *store.Message) { m.LeasedUntil = time.Time{} })},
	{name: "a token is used again", promise: oneHolder, claim: claimsOf(func(m *store.Message) { m.Token = store.Token{1} })},
	{name: "an attempt is not charged", promise: boundedAttempts, claim: claimsOf(func(m *store.Message) { m.Attempts-- })},
	{name: "closed rows are taken again", promise: untouched, claim: beforeClaims(func(m *store.Message) {
		if m.State == state.Failed {
			m.State = state.Pending
		}
	})},
	{name: "rows of dead workers are left alone", promise: nothingStuck, claim: beforeClaims(func(m *store.Message) {
		if m.State == state.Processing {
			m.LeasedUntil = m.LeasedUntil.Add(time.Hour)
		}
	})},
	{name: "a retry has another key", promise: onceByKey, claim: func(s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
		c, err := s.Claim(ctx, p)
		for i := range c.Messages {
			if c.Messages[i].Attempts > 1 {
				c.Messages[i].IdempotencyKey += "-again"
			}
		}
		return c, err
	}},
	{name: "a claim is handed out in another order", promise: inOrder, claim: func(s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
		c, err := s.Claim(ctx, p)
		slices.Reverse(c.Messages)
		return c, err
	}},
	{name: "a claim takes too many", promise: bounds, claim: func(s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
		p.Limit++
		return s.Claim(ctx, p)
	}},
	{name: "a purge takes what waits", promise: nothingLost, purge: func(s *memstore.Store, p store.PurgeParams) (int64, error) {
		for n := range maxRows {
			edit(s, rowID(n+1), func(m *store.Message) {
				if m.State == state.Pending {
					m.State = state.Failed
				}
			})
		}
		return s.Purge(ctx, p)
	}},
	{name: "calls start with too little of the lease left", promise: withinLease, lane: func(l *dispatch.Lane) { l.Lease *= 2 }},
	{name: "calls take longer than they may", promise: withinLease, lane: func(l *dispatch.Lane) { l.Timeout = l.Lease / 2 }},
	{name: "too many calls at once", promise: bounds, lane: func(l *dispatch.Lane) { l.Concurrency++ }},
	{name: "too many messages at once", promise: bounds, lane: func(l *dispatch.Lane) { l.BatchSize++ }},
	{name: "a transport repeats its calls", promise: deliveries, lane: func(l *dispatch.Lane) { l.Transport = twice{l.Transport} }},
}

// The simulation finds mistakes: each of these breaks the promise that it should, within a few schedules.
func TestFlawsAreFound(t *testing.T) {
	const most = 400 // schedules to find one
	seed := proof.Seed(t)
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			seed := seed
			for n := range most {
				s := run(t, seed, math.MaxInt, f, nil)
				if slices.Contains(s.broken(), f.promise) {
					t.Logf("found by schedule %d, seed %d", n+1, seed)
					return
				}
				seed = following(seed)
			}
			t.Errorf("not found by %d schedules: %s", most, f.promise)
		})
	}
}

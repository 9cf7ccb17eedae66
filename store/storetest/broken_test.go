package storetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defect is a store with one fault. The kit has to find it.
type defect struct {
	*memstore.Store
	early    time.Duration // how far its clock runs ahead
	claim    func(*memstore.Store, context.Context, store.ClaimParams) (store.Claim, error)
	settle   func(*memstore.Store, context.Context, []store.Settlement) ([]store.Verdict, error)
	settleTx func(*memstore.Store, context.Context, store.Settlement, work) (store.Verdict, error)
	enqueue  func(*memstore.Store, context.Context, store.Tx, store.NewMessage) (store.EnqueueResult, error)
	purge    func(*memstore.Store, context.Context, store.PurgeParams) (int64, error)
	renew    func(*memstore.Store, context.Context, []store.Fence, time.Duration) ([]store.Verdict, error)
	requeue  func(*memstore.Store, context.Context, []string) ([]store.Verdict, error)
}

func (d *defect) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if d.claim != nil {
		return d.claim(d.Store, ctx, p)
	}
	return d.Store.Claim(ctx, p)
}

func (d *defect) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	if d.settle != nil {
		return d.settle(d.Store, ctx, s)
	}
	return d.Store.Settle(ctx, s)
}

func (d *defect) SettleTx(
	ctx context.Context, s store.Settlement, fn func(context.Context, store.Tx) error,
) (store.Verdict, error) {
	if d.settleTx != nil {
		return d.settleTx(d.Store, ctx, s, fn)
	}
	return d.Store.SettleTx(ctx, s, fn)
}

func (d *defect) Enqueue(ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
	if d.enqueue != nil {
		return d.enqueue(d.Store, ctx, tx, m)
	}
	return d.Store.Enqueue(ctx, tx, m)
}

func (d *defect) Purge(ctx context.Context, p store.PurgeParams) (int64, error) {
	if d.purge != nil {
		return d.purge(d.Store, ctx, p)
	}
	return d.Store.Purge(ctx, p)
}

func (d *defect) Renew(ctx context.Context, fences []store.Fence, by time.Duration) ([]store.Verdict, error) {
	if d.renew != nil {
		return d.renew(d.Store, ctx, fences, by)
	}
	return d.Store.Renew(ctx, fences, by)
}

func (d *defect) Requeue(ctx context.Context, ids []string) ([]store.Verdict, error) {
	if d.requeue != nil {
		return d.requeue(d.Store, ctx, ids)
	}
	return d.Store.Requeue(ctx, ids)
}

type work = func(context.Context, store.Tx) error

// reclaimed edits what a claim handed out, in the store too.
func reclaimed(edit func(*store.Message)) *defect {
	return &defect{claim: func(s *memstore.Store, ctx context.Context, p store.ClaimParams) (store.Claim, error) {
		c, err := s.Claim(ctx, p)
		for i := range c.Messages {
			edit(&c.Messages[i])
			err = errors.Join(err, s.Put(ctx, c.Messages[i]))
		}
		return c, err
	}}
}

// answered edits a claim's answer alone.
func answered(edit func(store.ClaimParams, *store.Claim)) *defect {
	return &defect{claim: func(s *memstore.Store, ctx context.Context, p store.ClaimParams) (store.Claim, error) {
		c, err := s.Claim(ctx, p)
		edit(p, &c)
		return c, err
	}}
}

// asked edits what is claimed.
func asked(edit func(*store.ClaimParams)) *defect {
	return &defect{claim: func(s *memstore.Store, ctx context.Context, p store.ClaimParams) (store.Claim, error) {
		if p.Validate() == nil {
			edit(&p)
		}
		return s.Claim(ctx, p)
	}}
}

// forged edits the settlements, knowing the rows.
func forged(edit func(*store.Settlement, store.Message)) *defect {
	return &defect{settle: func(s *memstore.Store, ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
		group = slices.Clone(group)
		for i := range group {
			if m, err := s.Get(ctx, group[i].ID); err == nil {
				edit(&group[i], m)
			}
		}
		return s.Settle(ctx, group)
	}}
}

// rewritten edits the rows that were settled just now.
func rewritten(edit func(*store.Message, store.Settlement)) *defect {
	return &defect{settle: func(s *memstore.Store, ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
		before := map[string]state.State{}
		for _, st := range group {
			m, _ := s.Get(ctx, st.ID)
			before[st.ID] = m.State
		}
		verdicts, err := s.Settle(ctx, group)
		for i, st := range group {
			if err != nil || verdicts[i] != store.Applied || before[st.ID] != state.Processing {
				continue
			}
			m, getErr := s.Get(ctx, st.ID)
			edit(&m, st)
			err = errors.Join(err, getErr, s.Put(ctx, m))
		}
		return verdicts, err
	}}
}

// defects are the faults, and a case of the kit that must notice.
var defects = map[string]struct {
	noticed string
	make    func() *defect
}{
	"claims forget the order": {"Claim/due_rows_in_order", func() *defect {
		return answered(func(_ store.ClaimParams, c *store.Claim) { slices.Reverse(c.Messages) })
	}},
	"claims take one more": {"Claim/limit", func() *defect { return asked(func(p *store.ClaimParams) { p.Limit++ }) }},
	"claims ignore the mark": {"Claim/from", func() *defect {
		return asked(func(p *store.ClaimParams) { p.From = store.Mark{} })
	}},
	"the mark runs ahead": {"Claim/mark", func() *defect {
		return answered(func(_ store.ClaimParams, c *store.Claim) {
			if n := len(c.Messages); n > 0 {
				m := c.Messages[n-1]
				c.Mark = store.Mark{Turn: m.Row().Turn(), ID: m.ID}
			}
		})
	}},
	"claims do not charge": {"Claim/what_a_claimed_row_has", func() *defect {
		return reclaimed(func(m *store.Message) { m.Attempts-- })
	}},
	"one token for all claims": {"Claim/tokens_are_new", func() *defect {
		return reclaimed(func(m *store.Message) { m.Token = store.Token{1} })
	}},
	"leases keep nanoseconds": {"Claim/what_a_claimed_row_has", func() *defect {
		return answered(func(_ store.ClaimParams, c *store.Claim) {
			for i := range c.Messages {
				c.Messages[i].LeasedUntil = c.Messages[i].LeasedUntil.Add(932)
			}
		})
	}},
	"used up rows are charged": {"Claim/returns_what_is_used_up", func() *defect {
		return reclaimed(func(m *store.Message) {
			if m.Closing != "" {
				m.Attempts++
			}
		})
	}},
	"the token is not looked at": {"Settle/token_and_lease_are_both_needed", func() *defect {
		return forged(func(s *store.Settlement, m store.Message) { s.Token = m.Token })
	}},
	"the lease is not looked at": {"Settle/token_and_lease_are_both_needed", func() *defect {
		return forged(func(s *store.Settlement, m store.Message) { s.LeasedUntil = m.LeasedUntil })
	}},
	"a foreign lease is not looked at": {"Settle/a_foreign_worker_writes_only_the_lease", func() *defect {
		return forged(func(s *store.Settlement, m store.Message) { s.LeasedUntil = m.LeasedUntil })
	}},
	"the fence wears out with the lease": {"Settle/lease_ended,_nobody_came", func() *defect {
		return &defect{settle: func(s *memstore.Store, ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
			c, err := s.Claim(ctx, store.ClaimParams{Channel: "nobody's", Limit: 1, Lease: time.Hour}) // to know the time
			group = slices.Clone(group)
			for i := range group {
				if !c.Now.Before(group[i].LeasedUntil) {
					group[i].Token = store.Token{}
				}
			}
			verdicts, settleErr := s.Settle(ctx, group)
			return verdicts, errors.Join(err, settleErr)
		}}
	}},
	"repeats are lost": {"Settle/a_repeat_is_recognised", func() *defect {
		return forged(func(s *store.Settlement, m store.Message) {
			if m.State != state.Processing {
				s.Token = store.Token{}
			}
		})
	}},
	"repeats are known by their token alone": {"Settle/another_settlement_of_the_same_claim_is_lost", func() *defect {
		return &defect{settle: func(s *memstore.Store, ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
			verdicts, err := s.Settle(ctx, group)
			for i := range verdicts {
				if m, getErr := s.Get(ctx, group[i].ID); getErr == nil && m.Token == group[i].Token && m.State == group[i].To {
					verdicts[i] = store.Applied
				}
			}
			return verdicts, err
		}}
	}},
	"a release counts as a deferral": {"Settle/released_rows_keep_their_place", func() *defect {
		return rewritten(func(m *store.Message, s store.Settlement) {
			if s.Event == state.EventRelease {
				m.NextAttemptAt = m.UpdatedAt
			}
		})
	}},
	"a retry gives its attempt back": {"Settle/what_each_event_writes", func() *defect {
		return rewritten(func(m *store.Message, s store.Settlement) {
			if s.Event == state.EventRetry {
				m.Attempts--
			}
		})
	}},
	"success keeps the old error": {"Settle/what_each_event_writes", func() *defect {
		return rewritten(func(m *store.Message, s store.Settlement) {
			if s.Event == state.EventSend {
				m.LastErrorCode = "http_429"
			}
		})
	}},
	"doubts are not counted": {"Settle/what_each_event_writes", func() *defect {
		return rewritten(func(m *store.Message, s store.Settlement) {
			if s.Ambiguous {
				m.Doubts--
			}
		})
	}},
	"the token goes with the settlement": {"Settle/a_repeat_is_recognised", func() *defect {
		return rewritten(func(m *store.Message, _ store.Settlement) { m.Token = store.Token{} })
	}},
	"work runs on a repeat": {"SettleTx/a_repeat_runs_nothing", func() *defect {
		return &defect{settleTx: func(s *memstore.Store, ctx context.Context, st store.Settlement, fn work) (store.Verdict, error) {
			verdict, err := s.SettleTx(ctx, st, func(context.Context, store.Tx) error { return nil })
			if verdict == store.Applied {
				err = fn(ctx, nil)
			}
			return verdict, err
		}}
	}},
	"a settlement outlives its work": {"SettleTx/work_that_fails_leaves_nothing", func() *defect {
		return &defect{settleTx: func(s *memstore.Store, ctx context.Context, st store.Settlement, fn work) (store.Verdict, error) {
			var failed error
			verdict, err := s.SettleTx(ctx, st, func(ctx context.Context, tx store.Tx) error {
				failed = fn(ctx, tx)
				return nil
			})
			if failed != nil {
				return store.Lost, failed
			}
			return verdict, err
		}}
	}},
	"keys ignore case": {"Text/keys_are_compared_byte_for_byte", func() *defect {
		return &defect{enqueue: func(s *memstore.Store, ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
			m.IdempotencyKey = strings.ToLower(m.IdempotencyKey)
			return s.Enqueue(ctx, tx, m)
		}}
	}},
	"differing content goes unnoticed": {"Enqueue/content_that_differs", func() *defect {
		return &defect{enqueue: func(s *memstore.Store, ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
			res, err := s.Enqueue(ctx, tx, m)
			res.Differs = false
			return res, err
		}}
	}},
	"the transaction is judged first": {"Enqueue/a_transaction_is_required", func() *defect {
		return &defect{enqueue: func(s *memstore.Store, ctx context.Context, tx store.Tx, m store.NewMessage) (store.EnqueueResult, error) {
			if tx == nil {
				return store.EnqueueResult{}, store.ErrTxRequired
			}
			return s.Enqueue(ctx, tx, m)
		}}
	}},
	"purges include the instant": {"Purge/strictly_before", func() *defect {
		return &defect{purge: func(s *memstore.Store, ctx context.Context, p store.PurgeParams) (int64, error) {
			if !p.Before.IsZero() {
				p.Before = p.Before.Add(time.Microsecond)
			}
			return s.Purge(ctx, p)
		}}
	}},
	"renewing by two": {"Renew/a_repeat_is_recognised", func() *defect {
		return &defect{renew: func(s *memstore.Store, ctx context.Context, fences []store.Fence, d time.Duration) ([]store.Verdict, error) {
			fences = slices.Clone(fences)
			for i := range fences { // whatever lease the row has
				if m, err := s.Get(ctx, fences[i].ID); err == nil {
					fences[i].LeasedUntil = m.LeasedUntil
				}
			}
			return s.Renew(ctx, fences, d)
		}}
	}},
	"requeueing keeps the token": {"Settle/a_repeat_after_a_requeue_is_lost", func() *defect {
		return &defect{requeue: func(s *memstore.Store, ctx context.Context, ids []string) ([]store.Verdict, error) {
			var before []store.Message
			for _, id := range ids {
				m, _ := s.Get(ctx, id)
				before = append(before, m)
			}
			verdicts, err := s.Requeue(ctx, ids)
			for i, id := range ids {
				if m, getErr := s.Get(ctx, id); getErr == nil {
					m.Token, m.Attempts = before[i].Token, before[i].Attempts-1
					err = errors.Join(err, s.Put(ctx, m))
				}
			}
			return verdicts, err
		}}
	}},
	"claims come a microsecond early": {"Claim/boundaries_of_the_turn", func() *defect {
		return &defect{early: time.Microsecond}
	}},
}

const defectVariable = "STORETEST_DEFECT"

const random = "Model/random_sequences"

// unseen are defects in what the random sequences do not do: they hand in no message without a transaction.
var unseen = []string{"the transaction is judged first"}

// TestKitFindsDefects runs the kit, in a process of its own, against stores that are broken in one way each: the case
// that guards the broken promise must fail, and so must the random sequences.
func TestKitFindsDefects(t *testing.T) {
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wanted := []string{d.noticed}
			if !slices.Contains(unseen, name) {
				wanted = append(wanted, random)
			}
			var groups, cases []string
			for _, w := range wanted {
				group, name, _ := strings.Cut(w, "/")
				groups, cases = append(groups, group), append(cases, name)
			}
			run := "^TestDefect$/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(cases, "|") + ")$"
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", run, "-test.v", "-test.timeout", "1m",
				"-rapid.checks", "1000", "-rapid.nofailfile", "-rapid.shrinktime", "0")
			cmd.Env = append(os.Environ(), defectVariable+"="+name)
			out, err := cmd.CombinedOutput()
			for _, w := range wanted {
				if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDefect/"+w) {
					t.Errorf("%s did not notice (%v):\n%s", w, err, out)
				}
			}
		})
	}
}

// TestDefect is what TestKitFindsDefects starts; by itself it runs the kit against the sound store.
func TestDefect(t *testing.T) {
	name := os.Getenv(defectVariable)
	storetest.Run(t, func(*testing.T) storetest.Fixture {
		var now time.Time
		d := &defect{}
		if broken, found := defects[name]; found {
			d = broken.make()
		}
		d.Store = memstore.New(memstore.Config{Clock: func() time.Time { return now.Add(d.early) }})
		return storetest.Fixture{Store: d, Put: d.Put, Get: d.Get, SetClock: func(at time.Time) { now = at }}
	})
}

package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// writes is a store whose settlements a test can look into.
type writes struct {
	*storetest.Faulty
	takes  time.Duration
	refuse func(store.Settlement) bool // nil: none; a group with such a row is refused whole, as a statement is
	answer func([]store.Verdict) []store.Verdict

	mu     sync.Mutex
	groups []int
	at     []time.Duration // when each was tried
}

func (w *writes) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	w.mu.Lock()
	w.groups, w.at = append(w.groups, len(s)), append(w.at, now())
	w.mu.Unlock()
	wait(ctx, w.takes)
	if w.refuse != nil && slices.ContainsFunc(s, w.refuse) {
		return nil, errRefused
	}
	verdicts, err := w.Faulty.Settle(ctx, s)
	if w.answer != nil && err == nil {
		verdicts = w.answer(verdicts)
	}
	return verdicts, err
}

func slowSettle(d time.Duration) storetest.Hook {
	return func(ctx context.Context, c storetest.Call) error {
		if c.Op == storetest.OpSettle {
			wait(ctx, d)
		}
		return ctx.Err()
	}
}

// The first result is written at once; those that arrive meanwhile are the next group.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(50)
		s := &writes{Faulty: &storetest.Faulty{Complete: b, Before: slowSettle(203 * time.Millisecond)}}
		w := newWorker(t, s, dispatch.Config{
			BatchSize: 50, Concurrency: 50,
			Transports: serve(transports.Func(func(ctx context.Context, m transports.Message) state.Outcome {
				n := 0
				if _, err := fmt.Sscanf(m.IdempotencyKey, "club:k%d", &n); err != nil {
					t.Error(err)
				}
				wait(ctx, time.Duration(n)*10*time.Millisecond)
				return accepted
			})),
		})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 50, Sent: 50})
		if want := []int{1, 20, 20, 9}; !slices.Equal(s.groups, want) {
			t.Errorf("groups of %v, want %v", s.groups, want)
		}
		if s.at[0] != 10*time.Millisecond {
			t.Errorf("the first write was at %s, want that of the first answer", s.at[0])
		}
	})
}

func TestGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(2500)
		s := &writes{Faulty: &storetest.Faulty{Complete: b, Before: slowSettle(time.Second)}}
		w := newWorker(t, s, dispatch.Config{BatchSize: 2500, Concurrency: 2500, Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 2500, Sent: 2500})
		if want := []int{1, 1000, 1000, 499}; !slices.Equal(s.groups, want) {
			t.Errorf("groups of %v, want %v", s.groups, want)
		}
	})
}

// While the store is away a result is tried again, ever less often, and the message is not sent again.
func TestSettleIsRepeatedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		b.enqueue(1)
		s := &writes{Faulty: &storetest.Faulty{Complete: b, Before: failing(storetest.OpSettle, errAway, func(c storetest.Call) bool { return c.N <= 9 })}}
		w := newWorker(t, s, dispatch.Config{Transports: serve(l)})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
		if len(s.at) != 10 || len(l.log()) != 1 {
			t.Fatalf("%d tries to settle and %d calls, want 10 and 1", len(s.at), len(l.log()))
		}
		wantPauses(t, s.at)
		if at := b.row(1).UpdatedAt.Sub(epoch); at != s.at[9].Truncate(time.Microsecond) {
			t.Errorf("settled at %s", at)
		}
	})
}

// wantPauses wants tries 100, 200, 400 ms … 5 s apart, a tenth more or less.
func wantPauses(t *testing.T, at []time.Duration) {
	t.Helper()
	want := 100 * time.Millisecond
	for i := 1; i < len(at); i++ {
		if got := at[i] - at[i-1]; got < want*9/10 || got > want*11/10+time.Millisecond {
			t.Errorf("pause %d is %s, want about %s", i, got, want)
		}
		want = min(2*want, 5*time.Second)
	}
}

// A result that the database refuses does not hold up the others of its group. Its message is taken again, under the
// same key, when its lease has ended.
func TestARefusedResultStandsAlone(t *testing.T) {
	for _, bad := range [][]string{{id(1)}, {id(7)}, {id(20)}, {id(3), id(4), id(19)}} {
		bubble(t, fmt.Sprint(bad), func(t *testing.T) {
			b, l := newBox(t), &ledger{takes: time.Second}
			b.enqueue(20)
			refusing := true
			s := &writes{Faulty: &storetest.Faulty{Complete: b}, takes: time.Millisecond, refuse: func(s store.Settlement) bool {
				return refusing && slices.Contains(bad, s.ID)
			}}
			w := newWorker(t, s, dispatch.Config{Concurrency: 20, Transports: serve(l)})
			r := w.ProcessBatch(t.Context())
			wantReport(t, r, dispatch.Report{Claimed: 20, Sent: 20 - len(bad), Errors: len(bad), LastError: "23514"})
			if r.Err() == nil {
				t.Error("Err is nil, but a result was not stored")
			}
			b.wantCount(map[state.State]int{state.Sent: 20 - len(bad), state.Processing: len(bad)})
			if slices.Max(s.groups) < 10 {
				t.Errorf("groups of %v: this shows nothing about large ones", s.groups)
			}
			if now() > 1100*time.Millisecond {
				t.Errorf("the pass took %s: a refusal is not to be repeated", now())
			}
			refusing = false
			pass(dispatch.DefaultLease)
			wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: len(bad), Sent: len(bad)})
			keys := map[string]string{}
			for _, c := range l.log() {
				if was, again := keys[c.ID]; again && (was != c.IdempotencyKey || c.Attempt != 2) {
					t.Errorf("%s was sent again under %q as attempt %d, first under %q", c.Message, c.IdempotencyKey, c.Attempt, was)
				}
				keys[c.ID] = c.IdempotencyKey
			}
			if calls := len(l.log()); calls != 20+len(bad) {
				t.Errorf("%d calls, want %d", calls, 20+len(bad))
			}
		})
	}
}

// A write whose answer is lost is repeated, and counted once: by what it did, not as lost.
func TestALostReplyIsNoLostRow(t *testing.T) {
	outcomes := []struct {
		outcome state.Outcome
		want    dispatch.Report
	}{
		{accepted, dispatch.Report{Claimed: 1, Sent: 1}},
		{state.Outcome{Category: state.CategoryNetwork}, dispatch.Report{Claimed: 1, Retried: 1}},
		{state.Outcome{Category: state.CategoryNumber}, dispatch.Report{Claimed: 1, Discarded: 1}},
		{state.Outcome{Category: state.CategoryNetwork, NotCalled: true}, dispatch.Report{Claimed: 1, Deferred: 1}},
	}
	for _, test := range outcomes {
		bubble(t, test.want.String(), func(t *testing.T) {
			b, l := newBox(t), &ledger{answer: func(transports.Message) state.Outcome { return test.outcome }}
			b.enqueue(1)
			s := &writes{Faulty: &storetest.Faulty{Complete: b, After: storetest.Nth(storetest.OpSettle, 1, errAway)}}
			w := newWorker(t, s, dispatch.Config{Transports: serve(l)})
			wantReport(t, w.ProcessBatch(t.Context()), test.want)
			if len(s.at) != 2 || len(l.log()) != 1 {
				t.Errorf("%d writes and %d calls, want 2 and 1", len(s.at), len(l.log()))
			}
		})
	}
	bubble(t, "of a release", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(2)
		ctx, cancel := context.WithCancel(t.Context())
		faulty := &storetest.Faulty{Complete: b, After: storetest.Nth(storetest.OpSettle, 1, errAway)}
		w := newWorker(t, faulty, dispatch.Config{Concurrency: 1, Transports: serve(transports.Func(
			func(context.Context, transports.Message) state.Outcome {
				cancel()
				return accepted
			}))})
		wantReport(t, w.ProcessBatch(ctx), dispatch.Report{Claimed: 2, Sent: 1, Released: 1})
		if m := b.row(2); m.State != state.Pending || m.Attempts != 0 {
			t.Errorf("%s, attempts %d", m, m.Attempts)
		}
	})
}

// A lost claim reply leaves rows to their lease; they are delivered afterwards.
func TestALostClaimReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		b.enqueue(3)
		faulty := &storetest.Faulty{Complete: b, After: storetest.Nth(storetest.OpClaim, 1, errAway)}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(l)})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{ClaimErrors: 1, LastError: "08006"})
		pass(dispatch.DefaultLease)
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 3, Sent: 3})
		if len(l.log()) != 3 {
			t.Errorf("%d calls, want 3", len(l.log()))
		}
	})
}

// Past the lease the fence decides; past another lease the worker gives up.
func TestAStoreAwayPastTheLease(t *testing.T) {
	const lease = time.Minute
	tests := []struct {
		name  string
		away  time.Duration
		taken bool // by another worker, once the lease has ended
		want  dispatch.Report
	}{
		{"nobody took the row", lease + 20*time.Second, false, dispatch.Report{Claimed: 1, Sent: 1}},
		{"another worker did", lease + 20*time.Second, true, dispatch.Report{Claimed: 1, Lost: 1}},
		{"for good", time.Hour, false, dispatch.Report{Claimed: 1, Errors: 1, LastError: "08006"}},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1)
			faulty := &storetest.Faulty{Complete: b, Before: failing(storetest.OpSettle, errAway, func(storetest.Call) bool { return now() < test.away })}
			w := newWorker(t, faulty, dispatch.Config{Lease: lease, Transports: serve(answer(accepted))})
			done := make(chan dispatch.Report)
			go func() { done <- w.ProcessBatch(context.Background()) }()
			pass(lease)
			if test.taken {
				if _, err := b.Claim(t.Context(), store.ClaimParams{Channel: mail, Limit: 1, Lease: lease}); err != nil {
					t.Fatal(err)
				}
			}
			wantReport(t, <-done, test.want)
			if latest := 2 * lease; now() > max(test.away+6*time.Second, 0) || now() > latest {
				t.Errorf("the pass ended at %s, want one lease after the lease at the latest", now())
			}
		})
	}
}

// A process that slept past its time finds its connection broken: one try more tells what has become of its rows.
func TestASettlementAfterALongSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = dispatch.MinLease
		b := newBox(t)
		b.enqueue(1)
		faulty := &storetest.Faulty{Complete: b, Before: func(ctx context.Context, c storetest.Call) error {
			if c.Op != storetest.OpSettle || c.N > 1 {
				return nil
			}
			ctx = context.WithoutCancel(ctx)
			wait(ctx, time.Hour)
			if _, err := b.Claim(ctx, store.ClaimParams{Channel: mail, Limit: 1, Lease: time.Hour}); err != nil {
				return err
			}
			return errAway
		}}
		w := newWorker(t, faulty, dispatch.Config{Lease: lease, Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(context.Background()), dispatch.Report{Claimed: 1, Lost: 1})
	})
}

// A write that hangs is cut off and tried again.
func TestAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		faulty := &storetest.Faulty{Complete: b, Before: func(ctx context.Context, c storetest.Call) error {
			if c == (storetest.Call{Op: storetest.OpSettle, N: 1}) {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
		if now() > 11*time.Second {
			t.Errorf("it took %s, want 10s and a pause", now())
		}
	})
}

// Claims stop while results cannot be stored: no more is sent than may be sent twice.
func TestUnsettledResultsStopClaims(t *testing.T) {
	const batch, concurrency = 20, 5
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 10 * time.Millisecond}
		b.enqueue(500)
		faulty := &storetest.Faulty{Complete: b, Before: failing(storetest.OpSettle, errAway, func(storetest.Call) bool { return now() < 5*time.Minute })}
		r := run(t, faulty, dispatch.Config{BatchSize: batch, Concurrency: concurrency, PollInterval: 100 * time.Millisecond, Transports: serve(l)})
		pass(5*time.Minute - time.Second)
		if calls := len(l.log()); calls < batch || calls > batch+concurrency {
			t.Errorf("%d calls without a stored result, want up to a batch and what was in flight", calls)
		}
		if settles := faulty.Calls(storetest.OpSettle); settles > 80 {
			t.Errorf("%d tries in 5 min", settles)
		}
		pass(time.Minute)
		sum := r.end()
		wantReport(t, sum, dispatch.Report{Claimed: 500, Sent: 500})
		sent := l.sent()
		slices.Sort(sent)
		if !slices.Equal(sent, ids(500)) {
			t.Errorf("%d calls for 500 messages", len(sent))
		}
	})
}

// A drain whose last result could not be stored ends when it finds no more. It does not ask again and again until that
// message's lease has ended.
func TestADrainEndsAfterAResultThatWasNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		faulty := &storetest.Faulty{Complete: b, Before: func(_ context.Context, c storetest.Call) error {
			if c.N > 10 {
				cancel()
			}
			if c.Op == storetest.OpSettle {
				return errRefused
			}
			return nil
		}}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted))})
		wantReport(t, w.Drain(ctx), dispatch.Report{Claimed: 1, Errors: 1, LastError: "23514"})
		if claims := faulty.Calls(storetest.OpClaim); claims > 3 {
			t.Errorf("%d claims for one message", claims)
		}
	})
}

// A database that refuses every result (a column is missing, say) does not have the whole outbox sent in vain.
func TestRefusedResultsSlowClaimsDown(t *testing.T) {
	refusing := func(until time.Duration) func(storetest.Call) bool {
		return func(storetest.Call) bool { return now() < until }
	}
	bubble(t, "Run", func(t *testing.T) {
		const until = 5 * time.Minute
		b, l := newBox(t), &ledger{}
		b.enqueue(500)
		faulty := &storetest.Faulty{Complete: b, Before: failing(storetest.OpSettle, errRefused, refusing(until))}
		r := run(t, faulty, dispatch.Config{Transports: serve(l)})
		pass(time.Second)
		r.Notify()
		pass(until - 2*time.Second)
		if calls := len(l.log()); calls > 20+5+75 {
			t.Errorf("%d calls in vain in 5 min, want a batch and then one in 5 s", calls)
		}
		pass(20 * time.Minute)
		b.wantCount(all(500, state.Sent))
		sum := r.end()
		if sum.Sent != 500 || sum.Errors != len(l.log())-500 || sum.LastError != "23514" {
			t.Errorf("report %v after %d calls", sum, len(l.log()))
		}
	})
	bubble(t, "Drain", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		b.enqueue(500)
		faulty := &storetest.Faulty{Complete: b, Before: failing(storetest.OpSettle, errRefused, refusing(time.Minute))}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(l)})
		r := w.Drain(t.Context())
		wantConserved(t, r)
		if r.Errors != r.Claimed || r.Claimed > 40 || r.Err() == nil {
			t.Errorf("report %v, want it to stop early", r)
		}
		pass(dispatch.DefaultLease)
		r = w.Drain(t.Context())
		wantReport(t, r, dispatch.Report{Claimed: 500, Sent: 500})
	})
	bubble(t, "but one bad row does not", func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 100 * time.Millisecond}
		b.enqueue(500)
		s := &writes{Faulty: &storetest.Faulty{Complete: b}, refuse: func(s store.Settlement) bool { return s.ID == id(1) }}
		r := run(t, s, dispatch.Config{Transports: serve(l)})
		pass(11 * time.Second) // 500 calls of 100 ms, 5 at once, take 10 s
		if sum := r.end(); sum.Sent != 499 || sum.Errors != 1 {
			t.Errorf("report %v, want all but one sent", sum)
		}
	})
}

// Stores of one's own may break the contract; nothing hangs, and nothing is counted as done that may not be.
func TestAStoreThatBreaksTheContract(t *testing.T) {
	for name, answer := range map[string]func([]store.Verdict) []store.Verdict{
		"too few verdicts":  func(v []store.Verdict) []store.Verdict { return v[1:] },
		"too many verdicts": func(v []store.Verdict) []store.Verdict { return append(v, store.Applied) },
		"none":              func([]store.Verdict) []store.Verdict { return nil },
	} {
		bubble(t, name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(3)
			s := &writes{Faulty: &storetest.Faulty{Complete: b}, answer: answer}
			w := newWorker(t, s, dispatch.Config{Lease: 5 * time.Second, Transports: serve(&ledger{takes: time.Second})})
			r := w.ProcessBatch(t.Context())
			r.Warnings = []dispatch.Warning{}
			wantReport(t, r, dispatch.Report{Claimed: 3, Errors: 3})
		})
	}
	bubble(t, "rows that are not in work", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(3)
		w := newWorker(t, idle{b}, dispatch.Config{Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 3, Errors: 3})
	})
}

// idle is a store that hands out rows as if it had not claimed them.
type idle struct{ *box }

func (s idle) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	c, err := s.box.Claim(ctx, p)
	for i := range c.Messages {
		c.Messages[i].State = state.Pending
	}
	return c, err
}

// Whatever fails, and however often: every report adds up, no row is settled twice, and once the faults end every row is
// sent or closed by the rules. Attempts are never more than allowed.
func TestRandomFaults(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		bubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 0))
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			const faultsEnd = 15 * time.Minute
			fault := func(ctx context.Context, c storetest.Call) error {
				if now() > faultsEnd {
					return nil
				}
				switch draw(12) {
				case 0, 1:
					return errAway
				case 2:
					return errRefused
				case 3:
					wait(ctx, time.Duration(draw(15))*time.Second)
				}
				return ctx.Err()
			}
			outcomes := []state.Outcome{
				accepted, accepted, accepted,
				{Category: state.CategoryNetwork},
				{Category: state.CategoryNetwork, NotCalled: true},
				{Category: state.CategoryNumber},
				{},
			}
			l := transports.Func(func(ctx context.Context, m transports.Message) state.Outcome {
				if m.Attempt > m.MaxAttempts {
					t.Errorf("%s: attempt %d of %d", m, m.Attempt, m.MaxAttempts)
				}
				switch draw(10) {
				case 0:
					panic("boom")
				case 1:
					wait(context.Background(), time.Duration(draw(40))*time.Second)
				case 2:
					wait(ctx, time.Duration(draw(40))*time.Second)
				}
				return outcomes[draw(len(outcomes))]
			})
			b := newBox(t)
			b.enqueue(100)
			faulty := &storetest.Faulty{Complete: b, Before: fault, After: fault}
			cfg := dispatch.Config{Lease: 30 * time.Second, Timeout: 10 * time.Second, Grace: 20 * time.Second, PollInterval: 5 * time.Second, Transports: serve(l)}
			var ended int
			for now() < faultsEnd { // workers come and go, two at a time
				one, two := run(t, faulty, cfg), run(t, faulty, cfg)
				pass(time.Duration(60+draw(120)) * time.Second)
				for _, r := range []*running{one, two} {
					sum := r.end()
					ended += sum.Sent + sum.Discarded + sum.Failed
				}
				if t.Failed() {
					return
				}
			}
			r := run(t, faulty, cfg)
			pass(2 * time.Hour)
			sum := r.end()
			ended += sum.Sent + sum.Discarded + sum.Failed
			for n := range b.ids {
				if m := b.row(n + 1); !m.State.Terminal() || m.Attempts > m.MaxAttempts {
					t.Errorf("%s, attempts %d of %d", m, m.Attempts, m.MaxAttempts)
				}
			}
			if ended > 100 { // less where the answer to a closing claim, or to a write, was lost for good
				t.Errorf("%d ends of 100 messages were counted", ended)
			}
		})
	}
}

// A row that somebody else holds is settled when it can be; the others do not wait for it.
func TestALockedRowStandsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = 20 * time.Second
		b := newBox(t)
		b.enqueue(9)
		locked := &store.Error{Op: "settle", Code: "55P03", Locked: true}
		w := newWorker(t, &holding{Faulty: &storetest.Faulty{Complete: b}, id: id(5), until: away, err: locked},
			dispatch.Config{Concurrency: 9, Transports: serve(answer(accepted))})
		done := make(chan dispatch.Report)
		go func() { done <- w.ProcessBatch(context.Background()) }()
		pass(away / 2)
		if got := b.count()[state.Sent]; got != 8 {
			t.Errorf("%d rows are settled while one is held, want the other 8", got)
		}
		wantReport(t, <-done, dispatch.Report{Claimed: 9, Sent: 9})
		if now() < away || now() > away+6*time.Second {
			t.Errorf("the pass ended at %s", now())
		}
	})
}

// A row that is held past its time is an error, like any result that cannot be stored.
func TestARowLockedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(2)
		locked := &store.Error{Op: "settle", Code: "55P03", Locked: true}
		w := newWorker(t, &holding{Faulty: &storetest.Faulty{Complete: b}, id: id(1), until: 24 * time.Hour, err: locked},
			dispatch.Config{Lease: time.Minute, Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(context.Background()), dispatch.Report{Claimed: 2, Sent: 1, Errors: 1, LastError: "55P03"})
		if now() > 2*time.Minute+time.Second { // jitter
			t.Errorf("the pass ended at %s, want one lease after the lease", now())
		}
	})
}

// holding is a store with a row that another transaction holds for a while.
type holding struct {
	*storetest.Faulty
	id    string
	until time.Duration
	err   error
}

func (h *holding) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	if now() < h.until && slices.ContainsFunc(s, func(one store.Settlement) bool { return one.ID == h.id }) {
		return nil, h.err
	}
	return h.Faulty.Settle(ctx, s)
}

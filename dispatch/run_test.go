package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// A slot that falls free is filled at once, however long the other calls take.
func TestRunRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(101)
		l := transports.Func(func(ctx context.Context, m transports.Message) state.Outcome {
			if m.ID == id(1) {
				wait(ctx, 50*time.Second)
			} else {
				wait(ctx, time.Second)
			}
			return accepted
		})
		r := run(t, b, dispatch.Config{Concurrency: 2, Transports: serve(l)})
		pass(50*time.Second + time.Millisecond)
		if sent := b.count()[state.Sent]; sent != 51 {
			t.Errorf("%d sent beside a call of 50 s, want 50 and that one", sent)
		}
		pass(30 * time.Second)
		wantReport(t, r.end(), dispatch.Report{Claimed: 101, Sent: 101})
	})
}

// No more than a batch is held without having been started.
func TestRunHoldsNoMoreThanABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 10 * time.Second}
		b.enqueue(100)
		r := run(t, b, dispatch.Config{BatchSize: 7, Concurrency: 3, Transports: serve(l)})
		for range 200 {
			pass(time.Second / 2)
			if held := b.count()[state.Processing]; held > 7+3 {
				t.Fatalf("%d rows are claimed, want no more than a batch and what is being called", held)
			}
		}
		r.end()
	})
}

func TestNotify(t *testing.T) {
	bubble(t, "wakes at once", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		r := run(t, b, dispatch.Config{PollInterval: time.Hour, Transports: serve(l)})
		pass(time.Minute)
		b.enqueue(1)
		r.Notify()
		synctest.Wait()
		if len(l.log()) != 1 || now() != time.Minute {
			t.Errorf("%d calls at %s", len(l.log()), now())
		}
		wantReport(t, r.end(), dispatch.Report{Claimed: 1, Sent: 1})
	})
	bubble(t, "during a claim", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		faulty := &storetest.Faulty{Complete: b, After: func(ctx context.Context, c storetest.Call) error {
			if c == (storetest.Call{Op: storetest.OpClaim, N: 1}) { // it has found nothing, and its answer is slow
				wait(ctx, time.Second)
			}
			return ctx.Err()
		}}
		r := run(t, faulty, dispatch.Config{PollInterval: time.Hour, Transports: serve(l)})
		b.enqueue(1)
		r.Notify()
		pass(time.Second)
		if len(l.log()) != 1 {
			t.Error("a wake-up during a claim was lost")
		}
		r.end()
	})
	bubble(t, "never blocks nor hurries a claim that finds nothing", func(t *testing.T) {
		b := newBox(t)
		faulty := &storetest.Faulty{Complete: b}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted))})
		for range 100 {
			w.Notify() // nobody runs
		}
		r := run(t, faulty, dispatch.Config{PollInterval: time.Hour, Transports: serve(answer(accepted))})
		for range 100 {
			r.Notify()
		}
		synctest.Wait()
		if claims := faulty.Calls(storetest.OpClaim); claims > 102 {
			t.Errorf("%d claims for 100 wake-ups", claims)
		}
		r.end()
	})
	bubble(t, "wakes every lane", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		r := run(t, b, dispatch.Config{PollInterval: time.Hour, Transports: dispatch.Transports{mail: l, chat: l}})
		b.enqueue(1)
		b.enqueue(1, onChannel(chat))
		r.Notify()
		synctest.Wait()
		if len(l.log()) != 2 {
			t.Errorf("%d calls, want 2", len(l.log()))
		}
		r.end()
	})
}

// A due time is met without a poll: that of a scheduled message, and that of a retry which the worker itself decided.
func TestRunWakesAtTheNextDueTime(t *testing.T) {
	bubble(t, "scheduled", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		for n := range 3 {
			b.enqueue(1, func(m *store.NewMessage) { m.ScheduledAt = epoch.Add(time.Duration(n+1) * time.Minute) })
		}
		r := run(t, b, dispatch.Config{PollInterval: 24 * time.Hour, Transports: serve(l)})
		pass(10 * time.Minute)
		for i, c := range l.log() {
			if c.at != time.Duration(i+1)*time.Minute {
				t.Errorf("call %d was at %s", i+1, c.at)
			}
		}
		wantReport(t, r.end(), dispatch.Report{Claimed: 3, Sent: 3})
	})
	bubble(t, "retried", func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: time.Second, answer: func(m transports.Message) state.Outcome {
			if m.Attempt == 1 {
				return state.Outcome{Category: state.CategoryNetwork}
			}
			return accepted
		}}
		b.enqueue(1)
		r := run(t, b, dispatch.Config{PollInterval: 24 * time.Hour, Policy: noJitter, Transports: serve(l)})
		pass(10 * time.Minute)
		if calls := l.log(); len(calls) != 2 || calls[1].at != 31*time.Second {
			t.Errorf("calls %v, want the second at 31s", calls)
		}
		wantReport(t, r.end(), dispatch.Report{Claimed: 2, Sent: 1, Retried: 1})
	})
	bubble(t, "asked one at a time", func(t *testing.T) {
		asking, most := 0, 0
		faulty := &storetest.Faulty{Complete: newBox(t), Before: func(ctx context.Context, c storetest.Call) error {
			if c.Op == storetest.OpNextDue {
				asking++
				most = max(most, asking)
				<-ctx.Done()
				asking--
			}
			return ctx.Err()
		}}
		r := run(t, faulty, dispatch.Config{PollInterval: 10 * time.Millisecond, Transports: serve(answer(accepted))})
		pass(time.Minute)
		r.end()
		if most != 1 {
			t.Errorf("%d questions at once", most)
		}
	})
}

// Polls are about the interval apart, and not in step.
func TestPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		faulty := &storetest.Faulty{Complete: newBox(t), Before: func(_ context.Context, c storetest.Call) error {
			if c.Op == storetest.OpClaim {
				at = append(at, now())
			}
			return nil
		}}
		r := run(t, faulty, dispatch.Config{PollInterval: 10 * time.Second, Transports: serve(answer(accepted))})
		pass(1000 * time.Second)
		r.end()
		if len(at) < 90 || len(at) > 113 {
			t.Errorf("%d polls in 1000 s, want about 100", len(at))
		}
		different := map[time.Duration]bool{}
		for i := 1; i < len(at); i++ {
			gap := at[i] - at[i-1]
			if gap < 9*time.Second || gap > 11*time.Second {
				t.Errorf("gap of %s", gap)
			}
			different[gap] = true
		}
		if len(different) < len(at)/2 {
			t.Errorf("%d different gaps of %d: no jitter", len(different), len(at))
		}
	})
}

// Rows below the mark (a foreign writer's, or of a lease that ended) are found within about a second, also when polls are
// rare and the head is not empty.
func TestSweepsFindRowsBelowTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		pass(time.Hour)
		b.enqueue(200)
		var found time.Duration
		l := transports.Func(func(ctx context.Context, m transports.Message) state.Outcome {
			if m.ID == id(201) {
				found = now()
			}
			wait(ctx, 500*time.Millisecond)
			return accepted
		})
		r := run(t, b, dispatch.Config{PollInterval: time.Hour, Transports: serve(l)})
		pass(7100 * time.Millisecond)
		planted := now()
		b.enqueue(1, func(m *store.NewMessage) { m.ScheduledAt = epoch }) // an hour before all others
		pass(time.Minute)
		// At worst it waits for the sweep, and then behind a batch of 20 that is held already: 4 rounds of 5.
		if waited := found - planted; found == 0 || waited > 4*time.Second {
			t.Errorf("found after %s", waited)
		}
		wantReport(t, r.end(), dispatch.Report{Claimed: 201, Sent: 201})
	})
}

// A dry claim from the mark is no reason to wait for a poll: there may be rows below.
func TestADryClaimFromTheMarkIsFollowedByASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		r := run(t, b, dispatch.Config{PollInterval: time.Hour, Concurrency: 20, Transports: serve(answer(accepted))})
		pass(30 * time.Minute)
		b.enqueue(25) // a batch from the head, and the rest from the mark
		r.Notify()
		synctest.Wait()
		b.wantCount(all(25, state.Sent))
		b.enqueue(1, func(m *store.NewMessage) { m.ScheduledAt = epoch })
		pass(time.Second)
		b.wantCount(all(26, state.Sent))
		r.end()
	})
}

// A busy lane spares itself the head of the queue, but for a sweep every second.
func TestABusyLaneClaimsFromItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		pass(time.Minute)
		b.enqueue(1000)
		s := &marks{box: b}
		r := run(t, s, dispatch.Config{Transports: serve(&ledger{takes: 50 * time.Millisecond})})
		pass(9500 * time.Millisecond)
		if s.head < 9 || s.head > 11 || s.mark < 5*s.head {
			t.Errorf("%d claims from the head and %d from a mark in 9.5 s", s.head, s.mark)
		}
		r.end()
	})
}

// marks counts where claims begin. There is one claim at a time.
type marks struct {
	*box
	head, mark int
}

func (s *marks) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if p.From == (store.Mark{}) {
		s.head++
	} else {
		s.mark++
	}
	return s.box.Claim(ctx, p)
}

// A database that is away is asked ever less often; afterwards all goes on by itself.
func TestClaimErrorsBackOff(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code string
		away time.Duration
		most int // claims while away
	}{
		{"connection lost", errAway, "08006", 5 * time.Second, 20},
		{"read only", &store.Error{Op: "claim", Code: "25006", Refused: true, Err: errors.New("x")}, "25006", 3 * time.Second, 20},
		{"an hour", errAway, "08006", time.Hour, 850},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			b, l := newBox(t), &ledger{}
			b.enqueue(30)
			var at []time.Duration
			faulty := &storetest.Faulty{Complete: b, Before: func(_ context.Context, c storetest.Call) error {
				if c.Op == storetest.OpClaim && now() < test.away {
					at = append(at, now())
					return test.err
				}
				return nil
			}}
			r := run(t, faulty, dispatch.Config{PollInterval: 100 * time.Millisecond, Transports: serve(l), Logger: zap.New(core)})
			for now() < test.away {
				pass(500 * time.Millisecond)
				r.Notify() // which hurries nothing
			}
			if len(at) < 3 || len(at) > test.most {
				t.Errorf("%d claims in %s, want some, and %d at most", len(at), test.away, test.most)
			}
			wantPauses(t, at)
			pass(5*time.Second + 600*time.Millisecond) // the longest pause and a poll
			b.wantCount(all(30, state.Sent))
			wantReport(t, r.end(), dispatch.Report{Claimed: 30, Sent: 30, ClaimErrors: len(at), LastError: test.code})
			if n := logs.FilterMessageSnippet("claim failed").Len(); n != 1 {
				t.Errorf("%d log lines about claims, want one for the outage", n)
			}
			if n := logs.FilterMessageSnippet("work again").Len(); n != 1 {
				t.Errorf("%d log lines about the end of the outage", n)
			}
		})
	}
}

// In flight when the context ends: finished and recorded. Not yet started: given back at once, uncharged.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 2 * time.Second}
		b.enqueue(20)
		r := run(t, b, dispatch.Config{Grace: 5 * time.Second, Transports: serve(l)})
		pass(time.Second)
		r.stop()
		synctest.Wait()
		b.wantCount(map[state.State]int{state.Processing: 5, state.Pending: 15})
		for n := 6; n <= 20; n++ {
			if m := b.row(n); m.Attempts != 0 || !m.LeasedUntil.IsZero() || !m.NextAttemptAt.IsZero() {
				t.Errorf("%s: attempts %d, lease %s", m, m.Attempts, m.LeasedUntil)
			}
		}
		wantReport(t, r.end(), dispatch.Report{Claimed: 20, Sent: 5, Released: 15})
		b.wantCount(map[state.State]int{state.Sent: 5, state.Pending: 15})
		if now() != 2*time.Second {
			t.Errorf("stopped at %s, want the end of the calls", now())
		}
	})
}

// What a claim takes that was on its way when the context ended is given back.
func TestStopDuringAClaim(t *testing.T) {
	for name, start := range map[string]func(*dispatch.Worker, context.Context) dispatch.Report{
		"ProcessBatch": (*dispatch.Worker).ProcessBatch,
		"Drain":        (*dispatch.Worker).Drain,
	} {
		bubble(t, name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(7)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			faulty := &storetest.Faulty{Complete: b, Before: slowClaim(2 * time.Second)}
			w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted))})
			wantReport(t, start(w, ctx), dispatch.Report{Claimed: 7, Released: 7})
			b.wantCount(all(7, state.Pending))
		})
	}
}

// The context ends after the provider has accepted and before the call returns, and the store is slow: all is recorded.
func TestStopRecordsWhatWasAccepted(t *testing.T) {
	for name, start := range map[string]func(*dispatch.Worker, context.Context) dispatch.Report{
		"ProcessBatch": (*dispatch.Worker).ProcessBatch,
		"Drain":        (*dispatch.Worker).Drain,
		"Run": func(w *dispatch.Worker, ctx context.Context) dispatch.Report {
			if err := w.Run(ctx); err != nil {
				panic(err)
			}
			return dispatch.Report{Claimed: 5, Sent: 5, Warnings: []dispatch.Warning{}}
		},
	} {
		bubble(t, name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(5)
			faulty := &storetest.Faulty{Complete: b, Before: slowSettle(200 * time.Millisecond)}
			ctx, cancel := context.WithCancel(t.Context())
			w := newWorker(t, faulty, dispatch.Config{Transports: serve(transports.Func(
				func(own context.Context, m transports.Message) state.Outcome {
					wait(own, time.Second)
					cancel()
					wait(own, time.Second)
					if own.Err() != nil {
						t.Errorf("the call's context ended by %v", own.Err())
					}
					return state.Outcome{OK: true, ExternalID: "x-" + m.ID}
				}))})
			wantReport(t, start(w, ctx), dispatch.Report{Claimed: 5, Sent: 5})
			for n := range 5 {
				if m := b.row(n + 1); m.State != state.Sent || m.ExternalID != "x-"+m.ID {
					t.Errorf("%s by %q", m, m.ExternalID)
				}
			}
		})
	}
}

// A pass that is cancelled leaves its calls their whole timeout, never a short remainder.
func TestACancelledPassKeepsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 59 * time.Second}
		b.enqueue(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := newWorker(t, b, dispatch.Config{Concurrency: 1, Grace: time.Second, Transports: serve(l)})
		wantReport(t, w.ProcessBatch(ctx), dispatch.Report{Claimed: 2, Sent: 1, Released: 1})
		if now() != 59*time.Second {
			t.Errorf("it ended at %s", now())
		}
	})
}

// Calls that outlive the grace are cut off, and their rows are doubtful timeouts.
func TestGraceEnds(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		bubble(t, fmt.Sprintf("stuck=%t", stuck), func(t *testing.T) {
			b, l := newBox(t), &ledger{takes: 50 * time.Second, stuck: stuck}
			b.enqueue(8)
			r := run(t, b, dispatch.Config{Grace: 5 * time.Second, Transports: serve(l)})
			pass(10 * time.Second)
			r.stop()
			pass(5*time.Second - time.Millisecond)
			b.wantCount(map[state.State]int{state.Processing: 5, state.Pending: 3})
			wantReport(t, r.end(), dispatch.Report{Claimed: 8, Retried: 5, Released: 3})
			if now() != 15*time.Second {
				t.Errorf("stopped at %s, want 15s", now())
			}
			for n := range 5 {
				wantTimedOut(t, b.row(n+1), 15*time.Second)
			}
			pass(2 * time.Minute) // what is stuck goes on without a worker, and changes nothing
			wantTimedOut(t, b.row(1), 15*time.Second)
		})
	}
}

func TestDefaultGraceFitsTheLongestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1, onChannel(chat))
		l := transports.Func(func(ctx context.Context, _ transports.Message) state.Outcome {
			<-ctx.Done() // and what it says then may be heard or not
			return state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout, Ambiguous: true}
		})
		// There is time to store the result, too.
		away := failing(storetest.OpSettle, errAway, func(storetest.Call) bool { return now() < 4*time.Minute+2*time.Second })
		r := run(t, &storetest.Faulty{Complete: b, Before: away}, dispatch.Config{Transports: dispatch.Transports{
			mail: answer(accepted), chat: dispatch.Lane{Transport: l, Timeout: 4 * time.Minute},
		}})
		wantReport(t, r.end(), dispatch.Report{Claimed: 1, Retried: 1})
		if now() < 4*time.Minute+2*time.Second || now() > 4*time.Minute+5*time.Second {
			t.Errorf("it stopped at %s, want the whole timeout, and the result stored within 5 s", now())
		}
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: time.Second}
		w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
		for round := range 3 {
			b.enqueue(7)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			synctest.Wait()
			var also sync.WaitGroup
			for range 10 {
				also.Go(func() {
					if err := w.Run(ctx); !errors.Is(err, dispatch.ErrRunning) {
						t.Errorf("a second Run: %v, want ErrRunning", err)
					}
				})
			}
			also.Wait()
			pass(5 * time.Second)
			for range 10 { // as often as one likes
				go cancel()
			}
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
			b.wantCount(all(7*(round+1), state.Sent))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run with an ended context: %v", err)
		}
	})
}

// The database goes away for good, before the stop or in the middle of it; Run returns all the same.
func TestStopWithoutADatabase(t *testing.T) {
	const grace = 5 * time.Second
	const hung = 21 * time.Second // a write that hangs to its own deadline, and one more
	gone := map[string]storetest.Hook{
		"fails":                   func(context.Context, storetest.Call) error { return errAway },
		"hangs":                   func(ctx context.Context, _ storetest.Call) error { <-ctx.Done(); return ctx.Err() },
		"claims hang":             func(ctx context.Context, c storetest.Call) error { return hangOn(ctx, c, storetest.OpClaim) },
		"settlements hang":        func(ctx context.Context, c storetest.Call) error { return hangOn(ctx, c, storetest.OpSettle) },
		"settlements fail":        failing(storetest.OpSettle, errAway, always),
		"settlements are refused": failing(storetest.OpSettle, errRefused, always),
		"channels and due hang": func(ctx context.Context, c storetest.Call) error {
			return hangOn(ctx, c, storetest.OpChannels, storetest.OpNextDue)
		},
		"after the write was done": nil,
	}
	for name, hook := range gone {
		for _, at := range []time.Duration{0, 1500 * time.Millisecond, 10 * time.Second} {
			bubble(t, fmt.Sprintf("%s/from %s on", name, at), func(t *testing.T) {
				b, l := newBox(t), &ledger{takes: 2 * time.Second}
				b.enqueue(100)
				faulty := &storetest.Faulty{Complete: b}
				broken := func(ctx context.Context, c storetest.Call) error {
					if now() < at {
						return nil
					}
					if hook == nil {
						return errAway
					}
					return hook(ctx, c)
				}
				if hook == nil {
					faulty.After = broken
				} else {
					faulty.Before = broken
				}
				r := run(t, faulty, dispatch.Config{Grace: grace, Transports: serve(l)})
				pass(11 * time.Second)
				stopped := now()
				r.end()
				limit := grace
				if strings.Contains(name, "hang") {
					limit += hung
				}
				if took := now() - stopped; took > limit {
					t.Errorf("Run took %s to stop, want %s at most", took, limit)
				}
			})
		}
	}
}

func hangOn(ctx context.Context, c storetest.Call, ops ...storetest.Op) error {
	if slices.Contains(ops, c.Op) {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// A driver that minds no deadline cannot hold up the stop for ever.
func TestStopWithADriverThatMindsNoDeadline(t *testing.T) {
	for _, op := range []storetest.Op{storetest.OpClaim, storetest.OpSettle} {
		for name, start := range map[string]func(*dispatch.Worker, context.Context){
			"Run":          func(w *dispatch.Worker, ctx context.Context) { _ = w.Run(ctx) },
			"ProcessBatch": func(w *dispatch.Worker, ctx context.Context) { wantConserved(t, w.ProcessBatch(ctx)) },
		} {
			bubble(t, fmt.Sprint(name, " ", op), func(t *testing.T) {
				b := newBox(t)
				b.enqueue(3)
				free := make(chan struct{})
				faulty := &storetest.Faulty{Complete: b, Before: func(_ context.Context, c storetest.Call) error {
					if c.Op == op {
						<-free
					}
					return nil
				}}
				w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted)), Grace: time.Second, Timeout: time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start(w, ctx)
				if now() > 30*time.Second {
					t.Errorf("it took %s", now())
				}
				close(free)
			})
		}
	}
}

// A dead provider holds up no other channel.
func TestASlowLaneHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slow, fast := newBox(t), &ledger{takes: time.Hour, stuck: true}, &ledger{takes: 100 * time.Millisecond}
		b.enqueue(100)
		b.enqueue(100, onChannel(chat))
		r := run(t, b, dispatch.Config{Transports: dispatch.Transports{mail: slow, chat: fast}})
		pass(2*time.Second + time.Millisecond)
		if got := len(fast.log()); got != 100 {
			t.Errorf("%d calls of the other lane, want all 100", got)
		}
		if got := len(slow.log()); got != 5 {
			t.Errorf("%d calls of the slow lane, want 5", got)
		}
		sum := r.end()
		if sum.Sent != 100 || sum.Retried != 5 || sum.Released != 15 {
			t.Errorf("report %v", sum)
		}
		pass(time.Hour)
	})
}

// While there is work reports come about once a second; each adds up, and so do all of them.
func TestOnReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		outcomes := []state.Outcome{
			accepted, {Category: state.CategoryNetwork}, {Category: state.CategoryNetwork, NotCalled: true}, {Category: state.CategoryWindow},
		}
		n := 0
		l := &ledger{takes: 100 * time.Millisecond, answer: func(transports.Message) state.Outcome {
			n++
			return outcomes[n%len(outcomes)]
		}}
		b.enqueue(100, attempts(2))
		r := run(t, b, dispatch.Config{Transports: serve(l), Concurrency: 1})
		pass(9500 * time.Millisecond)
		if n := len(r.told()); n < 8 || n > 11 {
			t.Errorf("%d reports in 9.5 s of work, want about one a second", n)
		}
		pass(time.Hour)
		idle := len(r.told())
		pass(time.Hour)
		if len(r.told()) != idle {
			t.Error("an idle worker reports")
		}
		sum := r.end()
		ended := b.count()
		if sum.Sent != ended[state.Sent] || sum.Discarded != ended[state.Discarded] || sum.Failed != ended[state.Failed] ||
			sum.Sent+sum.Discarded+sum.Failed != 100 || sum.Claimed != len(l.log()) {
			t.Errorf("report %v for %d calls and rows %v", sum, len(l.log()), ended)
		}
	})
}

// A report does not wait for a call that takes long, nor for a poll.
func TestOnReportBesideALongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(2)
		r := run(t, b, dispatch.Config{PollInterval: time.Hour, Transports: serve(transports.Func(
			func(ctx context.Context, m transports.Message) state.Outcome {
				if m.ID == id(2) {
					wait(ctx, 50*time.Second)
				}
				return accepted
			}))})
		pass(time.Second)
		if reports := r.told(); len(reports) != 1 || reports[0].Sent != 1 {
			t.Errorf("after a second: %v, want a report of the first message", reports)
		}
		pass(time.Minute)
		wantReport(t, r.end(), dispatch.Report{Claimed: 2, Sent: 2})
	})
}

// A callback that panics or is slow is its owner's affair.
func TestOnReportMayMisbehave(t *testing.T) {
	for round := range 8 { // the last report and the end are two events, in either order
		bubble(t, fmt.Sprint(round), misbehaveOnReport)
	}
}

func misbehaveOnReport(t *testing.T) {
	b := newBox(t)
	calls := 0
	w := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted)), OnReport: func(dispatch.Report) {
		calls++
		wait(context.Background(), 10*time.Second)
		panic(canary)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for range 4 {
		b.enqueue(1)
		pass(2 * time.Second)
	}
	b.wantCount(all(4, state.Sent)) // though the first report is still being looked at
	cancel()
	if err := <-done; err != nil || calls != 2 {
		t.Errorf("Run: %v after %d reports, want 2: the first, and all that came meanwhile", err, calls)
	}
}

// A worker without lanes waits, and stops.
func TestRunWithoutTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		r := run(t, b, dispatch.Config{})
		r.Notify()
		pass(time.Hour)
		wantReport(t, r.end(), dispatch.Report{})
		b.wantCount(all(1, state.Pending))
	})
}

// The context of the caller reaches a transport, all but its end.
func TestValuesReachTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		b := newBox(t)
		b.enqueue(1)
		got := any(nil)
		w := newWorker(t, b, dispatch.Config{Transports: serve(transports.Func(func(ctx context.Context, _ transports.Message) state.Outcome {
			got = ctx.Value(key{})
			return accepted
		}))})
		w.ProcessBatch(context.WithValue(t.Context(), key{}, 7))
		if got != 7 {
			t.Errorf("the value is %v", got)
		}
	})
}

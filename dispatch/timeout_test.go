package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// wantTimedOut wants the n-th row as a timeout leaves it.
func wantTimedOut(t *testing.T, m store.Message, at time.Duration) {
	t.Helper()
	if m.State != state.Pending || m.LastErrorCategory != state.CategoryNetwork || m.LastErrorCode != state.CodeTimeout ||
		m.Doubts != 1 || m.Attempts != 1 || m.UpdatedAt != epoch.Add(at) || !m.NextAttemptAt.After(m.UpdatedAt) {
		t.Errorf("%s, %s/%s, doubts %d, attempts %d, changed at %s: want a timeout of %s",
			m, m.LastErrorCategory, m.LastErrorCode, m.Doubts, m.Attempts, m.UpdatedAt.Sub(epoch), at)
	}
}

// A call that minds its context ends at its timeout, to the tick; what it says then is not heard.
func TestTimeout(t *testing.T) {
	for _, late := range []state.Outcome{accepted, {Category: state.CategoryRejected}, {}} {
		bubble(t, fmt.Sprint(late), func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1)
			w := newWorker(t, b, dispatch.Config{Timeout: 2 * time.Second, Transports: serve(
				transports.Func(func(ctx context.Context, _ transports.Message) state.Outcome {
					<-ctx.Done()
					if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
						t.Errorf("the call ended by %v", ctx.Err())
					}
					return late
				}))})
			wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Retried: 1})
			wantTimedOut(t, b.row(1), 2*time.Second)
			if now() != 2*time.Second {
				t.Errorf("the pass took %s", now())
			}
		})
	}
}

// Where a policy holds what is in doubt, a timeout is the end of it.
func TestATimeoutMayBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: time.Hour}
		b.enqueue(1)
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), Policy: policy(func(p *state.Policy) { p.HoldAmbiguous = true })})
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Failed: 1})
		if m := b.row(1); m.State != state.Failed || m.LastErrorCode != state.CodeAmbiguous || m.Doubts != 1 {
			t.Errorf("%s, code %s, doubts %d", m, m.LastErrorCode, m.Doubts)
		}
	})
}

// An answer just before the timeout counts in full.
func TestAnAnswerJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 2*time.Second - 1}
		b.enqueue(1)
		w := newWorker(t, b, dispatch.Config{Timeout: 2 * time.Second, Transports: serve(l)})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
	})
}

// A call that does not mind its context has its row settled at the timeout and keeps its slot, but not for ever.
func TestACallThatIgnoresItsContext(t *testing.T) {
	tests := []struct {
		name      string
		takes     time.Duration
		abandoned int
		free      time.Duration // when the slot is
	}{
		{"late", 3 * time.Second, 0, 3 * time.Second},
		{"a tick before it is given up", 4*time.Second - 1, 0, 4*time.Second - 1},
		{"given up", 5 * time.Second, 1, 4 * time.Second},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			b := newBox(t)
			b.enqueue(2)
			second := time.Duration(0)
			w := newWorker(t, b, dispatch.Config{
				Concurrency: 1, Lease: time.Minute, Timeout: 2 * time.Second, Logger: zap.New(core), BatchSize: 2,
				Transports: serve(transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
					if m.ID == id(1) {
						wait(context.Background(), test.takes)
						return state.Outcome{OK: true, ExternalID: "late"}
					}
					second = now()
					return accepted
				})),
			})
			done := make(chan dispatch.Report)
			go func() { done <- w.ProcessBatch(context.Background()) }()
			pass(2 * time.Second)
			wantTimedOut(t, b.row(1), 2*time.Second) // before the call returns

			wantReport(t, <-done, dispatch.Report{Claimed: 2, Sent: 1, Retried: 1, Abandoned: test.abandoned})
			if second != test.free {
				t.Errorf("the second call began at %s, want %s", second, test.free)
			}
			synctest.Wait()
			if got := logs.FilterMessageSnippet("abandoned").Len(); got != test.abandoned {
				t.Errorf("%d log lines about abandoned calls, want %d", got, test.abandoned)
			}
			pass(time.Minute)
			wantTimedOut(t, b.row(1), 2*time.Second) // the late answer changed nothing
		})
	}
}

// A pass ends with its last slot, so that the next one does not exceed the concurrency.
func TestAPassWaitsForLateCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 3 * time.Second, stuck: true}
		b.enqueue(1)
		w := newWorker(t, b, dispatch.Config{Timeout: 2 * time.Second, Transports: serve(l)})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Retried: 1})
		if now() != 3*time.Second {
			t.Errorf("the pass took %s, want 3s", now())
		}
	})
}

func TestNeverMoreCallsThanSlots(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes time.Duration
		stuck bool
	}{
		{"in time", 100 * time.Millisecond, false},
		{"out of time", 10 * time.Second, false},
		{"late", 3 * time.Second, true},
	} {
		bubble(t, test.name, func(t *testing.T) {
			b, l := newBox(t), &ledger{takes: test.takes, stuck: test.stuck}
			b.enqueue(60)
			r := run(t, b, dispatch.Config{Concurrency: 3, Timeout: 2 * time.Second, Transports: serve(l)})
			pass(time.Minute)
			r.end()
			pass(time.Minute)
			if l.most != 3 {
				t.Errorf("up to %d calls at once, want 3", l.most)
			}
		})
	}
}

// quarrelsome is an error that cannot even be printed.
type quarrelsome struct{}

func (quarrelsome) Error() string { panic("Error " + canary) }

func TestPanics(t *testing.T) {
	panics := map[string]func(){
		"text":                     func() { panic(canary) },
		"nil":                      func() { panic(nil) },
		"error":                    func() { panic(errors.New(canary)) },
		"error that panics":        func() { panic(quarrelsome{}) },
		"nil map":                  func() { m := map[bool]map[string]int{}; m[true][canary] = 1 },
		"nil pointer":              func() { var m *store.Message; m.ID = canary },
		"index":                    func() { var s []int; n := 7; s[n] = 1 },
		"end of the goroutine":     runtime.Goexit,
		"panic while panicking":    func() { defer func() { panic(canary) }(); panic(canary) },
		"goexit while panicking":   func() { defer runtime.Goexit(); panic(canary) },
		"message with its own key": func() { panic(store.Message{IdempotencyKey: canary}) },
	}
	for name, boom := range panics {
		for _, logged := range []bool{true, false} {
			bubble(t, fmt.Sprintf("%s/logged=%t", name, logged), func(t *testing.T) {
				core, logs := observer.New(zap.DebugLevel)
				b := newBox(t)
				b.enqueue(3)
				cfg := dispatch.Config{Transports: serve(transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
					if m.ID == id(2) {
						boom()
					}
					return accepted
				}))}
				if logged {
					cfg.Logger = zap.New(core)
				}
				wantReport(t, newWorker(t, b, cfg).ProcessBatch(t.Context()), dispatch.Report{Claimed: 3, Sent: 2, Retried: 1})
				m := b.row(2)
				if m.State != state.Pending || m.LastErrorCategory != state.CategoryNetwork || m.LastErrorCode != state.CodePanic || m.Doubts != 1 {
					t.Errorf("%s, %s/%s, doubts %d", m, m.LastErrorCategory, m.LastErrorCode, m.Doubts)
				}
				wantNoCanary(t, logs)
				if logged && !strings.Contains(name, "goroutine") && !strings.Contains(name, "goexit") {
					lines := logs.FilterMessageSnippet("panicked").All()
					if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["stack"]), "timeout_test.go") {
						t.Errorf("logged %v, want one line with the stack", lines)
					}
				}
			})
		}
	}
}

// A panic after the timeout is no second result.
func TestALatePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		w := newWorker(t, b, dispatch.Config{Timeout: 2 * time.Second, Transports: serve(
			transports.Func(func(ctx context.Context, _ transports.Message) state.Outcome {
				wait(context.Background(), 3*time.Second)
				panic("late")
			}))})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Retried: 1})
		wantTimedOut(t, b.row(1), 2*time.Second)
	})
}

// Calls that are never given up on their own: an hour of a dead provider under Run neither ends the lane nor uses more
// goroutines than calls it gave up.
func TestADeadProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(30, attempts(1))
		hang := make(chan struct{})
		var calls sync.WaitGroup
		l := transports.Func(func(context.Context, transports.Message) state.Outcome {
			calls.Add(1)
			defer calls.Done()
			<-hang
			return accepted
		})
		r := run(t, b, dispatch.Config{Concurrency: 2, Timeout: 10 * time.Second, Lease: time.Minute, Transports: serve(l)})
		pass(time.Hour)
		b.wantCount(all(30, state.Failed))
		sum := r.end()
		if sum.Failed != 30 || sum.Abandoned != 30 {
			t.Errorf("report %v, want 30 failed and abandoned", sum)
		}
		close(hang)
		calls.Wait()
		b.wantCount(all(30, state.Failed))
	})
}

// No write waits for a call, and no call holds the store: while all slots are taken others claim and change rows.
func TestNothingIsHeldWhileATransportRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: 5 * time.Second}
		b.enqueue(25)
		faulty := &storetest.Faulty{Complete: b}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(l)})
		done := make(chan dispatch.Report)
		go func() { done <- w.ProcessBatch(context.Background()) }()
		pass(time.Second)
		c, err := b.Claim(t.Context(), store.ClaimParams{Channel: mail, Limit: 100, Lease: time.Minute})
		if err != nil || len(c.Messages) != 5 || now() != time.Second {
			t.Errorf("a claim beside it took %d rows at %s, error %v", len(c.Messages), now(), err)
		}
		if got := faulty.Calls(storetest.OpClaim) + faulty.Calls(storetest.OpSettle); got != 1 {
			t.Errorf("%d statements while nothing was answered, want the claim alone", got)
		}
		if r := <-done; r.Sent != 20 {
			t.Errorf("report %v", r)
		}
		sent := l.sent()
		slices.Sort(sent)
		if !slices.Equal(sent, ids(20)) {
			t.Errorf("sent %v", sent)
		}
	})
}

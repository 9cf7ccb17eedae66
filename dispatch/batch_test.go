package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// noJitter makes waits exact.
var noJitter = policy(func(p *state.Policy) { p.Backoff.Jitter = 0 })

func TestOutcomes(t *testing.T) {
	type stored struct {
		state          state.State
		attempts       int
		category, code string
		externalID     string
		wait           time.Duration // until the next attempt
		doubts         int
	}
	tests := []struct {
		name    string
		max     int // attempts
		outcome state.Outcome
		report  dispatch.Report
		row     stored
	}{
		{"accepted", 5, state.Outcome{OK: true, ExternalID: "re_1"}, dispatch.Report{Sent: 1}, stored{state: state.Sent, attempts: 1, externalID: "re_1"}},
		{"accepted without id", 5, state.Outcome{OK: true}, dispatch.Report{Sent: 1}, stored{state: state.Sent, attempts: 1}},
		{
			"transient", 5,
			state.Outcome{Category: state.CategoryNetwork, Code: "http_503"},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryNetwork, code: "http_503", wait: 30 * time.Second},
		},
		{
			"transient and ambiguous", 5,
			state.Outcome{Category: state.CategoryNetwork, Code: "reset", Ambiguous: true},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryNetwork, code: "reset", wait: 30 * time.Second, doubts: 1},
		},
		{
			"with a wait of the provider", 5,
			state.Outcome{Category: state.CategoryRateLimit, RetryAfter: 10 * time.Minute},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryRateLimit, wait: 10 * time.Minute},
		},
		{
			"with an endless wait of the provider", 5,
			state.Outcome{Category: state.CategoryRateLimit, RetryAfter: 1 << 62},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryRateLimit, wait: 6 * time.Hour},
		},
		{
			"idempotency conflict", 5,
			state.Outcome{Category: state.CategoryIdempotencyConflict},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryIdempotencyConflict, wait: time.Minute},
		},
		{
			"transient at the last attempt", 1,
			state.Outcome{Category: state.CategoryRateLimit, Code: "http_429", RetryAfter: time.Hour},
			dispatch.Report{Failed: 1},
			stored{state: state.Failed, attempts: 1, category: state.CategoryRateLimit, code: "http_429"},
		},
		{
			"unknown category", 5,
			state.Outcome{Category: "marciano", Code: "x"},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: "marciano", code: "x", wait: 30 * time.Second},
		},
		{
			"nothing at all", 5,
			state.Outcome{},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryNetwork, code: state.CodeMalformed, wait: 30 * time.Second},
		},
		{
			"a sentence for a code", 5,
			state.Outcome{Category: state.CategoryNetwork, Code: "no such user\x00"},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryNetwork, code: state.CodeMalformed, wait: 30 * time.Second},
		},
		{
			"a code of 200", 5,
			state.Outcome{Category: state.CategoryNetwork, Code: strings.Repeat("x", 200)},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryNetwork, code: strings.Repeat("x", 64), wait: 30 * time.Second},
		},
		{
			"unreachable", 5,
			state.Outcome{Category: state.CategoryNetwork, Code: "dns", NotCalled: true},
			dispatch.Report{Deferred: 1},
			stored{state: state.Pending, attempts: 0, category: state.CategoryNetwork, code: state.CodeUnreachable + ":dns", wait: 30 * time.Second},
		},
		{
			"unreachable at the last attempt", 1,
			state.Outcome{Category: state.CategoryNetwork, NotCalled: true},
			dispatch.Report{Deferred: 1},
			stored{state: state.Pending, attempts: 0, category: state.CategoryNetwork, code: state.CodeUnreachable, wait: 30 * time.Second},
		},
		{
			"not called for another reason", 5,
			state.Outcome{Category: state.CategoryRateLimit, NotCalled: true},
			dispatch.Report{Retried: 1},
			stored{state: state.Pending, attempts: 1, category: state.CategoryRateLimit, wait: 30 * time.Second},
		},
		{
			"a template that cannot be rendered", 5,
			state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender, NotCalled: true},
			dispatch.Report{Discarded: 1},
			stored{state: state.Discarded, attempts: 1, category: state.CategoryTemplate, code: state.CodeRender},
		},
	}
	for _, category := range state.PermanentCategories() {
		tests = append(tests, tests[0])
		last := &tests[len(tests)-1]
		last.name, last.outcome = "permanent "+category, state.Outcome{Category: category, Code: "http_400"}
		last.report, last.row = dispatch.Report{Discarded: 1}, stored{state: state.Discarded, attempts: 1, category: category, code: "http_400"}
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			b := newBox(t)
			b.enqueue(1, attempts(test.max))
			l := &ledger{takes: 3 * time.Second, answer: func(transports.Message) state.Outcome { return test.outcome }}
			w := newWorker(t, b, dispatch.Config{Transports: serve(l), Policy: noJitter})
			test.report.Claimed = 1
			wantReport(t, w.ProcessBatch(t.Context()), test.report)

			m := b.row(1)
			got := stored{m.State, m.Attempts, m.LastErrorCategory, m.LastErrorCode, m.ExternalID, 0, m.Doubts}
			if !m.NextAttemptAt.IsZero() {
				got.wait = m.NextAttemptAt.Sub(m.UpdatedAt)
			}
			if got != test.row {
				t.Errorf("row %+v\nwant %+v", got, test.row)
			}
			if !m.LeasedUntil.IsZero() {
				t.Error("a settled row has a lease")
			}
			if sent := epoch.Add(3 * time.Second); m.UpdatedAt != sent || (m.State == state.Sent) != (m.SentAt == sent) {
				t.Errorf("updated %s, sent %s: want the time of the answer", m.UpdatedAt, m.SentAt)
			}
			if m.State.Terminal() { // and it stays so
				pass(24 * time.Hour)
				wantReport(t, w.Drain(t.Context()), dispatch.Report{})
			}
			if calls := len(l.log()); calls != 1 {
				t.Errorf("%d calls, want 1", calls)
			}
		})
	}
}

func TestWhatATransportIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		headers := map[string]string{"traceparent": "00-1"}
		b.enqueue(1, func(m *store.NewMessage) {
			m.IdempotencyKey, m.Data, m.Headers = "alta-1", map[string]any{"b": 1, "a": []int{2}}, headers
		})
		l := &ledger{answer: func(m transports.Message) state.Outcome {
			if m.Attempt < 3 {
				return state.Outcome{Category: state.CategoryNetwork}
			}
			return accepted
		}}
		pass(time.Second)
		for range 3 {
			newWorker(t, b, dispatch.Config{Transports: serve(l)}).ProcessBatch(t.Context())
			pass(time.Hour)
		}
		calls := l.log()
		if len(calls) != 3 {
			t.Fatalf("%d calls, want 3", len(calls))
		}
		for i, c := range calls {
			want := transports.Message{
				ID: id(1), TenantID: "club", Channel: mail, Destination: "ana@example.org", Template: "alta",
				Data: json.RawMessage(`{"a":[2],"b":1}`), IdempotencyKey: "club:alta-1", CreatedAt: epoch, Headers: headers,
				Attempt: i + 1, MaxAttempts: 5,
			}
			if fmt.Sprintf("%+v", plain(c.Message)) != fmt.Sprintf("%+v", plain(want)) {
				t.Errorf("call %d got  %+v\nwant %+v", i+1, plain(c.Message), plain(want))
			}
		}
		b.wantCount(all(1, state.Sent))
	})
}

// plain undoes the String method.
func plain(m transports.Message) any {
	type bare transports.Message
	return struct {
		bare
		data string
	}{bare(m), string(m.Data)}
}

func TestBatchTakesTheOldestFirstAndNoMoreThanItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{takes: time.Second}
		b.enqueue(3, func(m *store.NewMessage) { m.ScheduledAt = epoch.Add(time.Duration(10-b.ids) * time.Minute) }) // due 10, 9 and 8 min
		b.enqueue(4)
		pass(time.Hour)
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), BatchSize: 4, Concurrency: 1, Lease: time.Hour})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 4, Sent: 4})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 3, Sent: 3})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{})
		want := []string{id(4), id(5), id(6), id(7), id(3), id(2), id(1)}
		if got := l.sent(); !slices.Equal(got, want) {
			t.Errorf("sent in the order %v, want %v", got, want)
		}
	})
}

func TestNothingIsSentBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1, func(m *store.NewMessage) { m.ScheduledAt = epoch.Add(time.Minute) })
		w := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted))})
		pass(time.Minute - time.Microsecond)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{})
		pass(time.Microsecond)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
	})
}

func TestDrainGoesOnUntilNothingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(205)
		b.enqueue(33, onChannel(chat))
		slow, fast := &ledger{takes: time.Second}, &ledger{}
		w := newWorker(t, b, dispatch.Config{Transports: dispatch.Transports{mail: slow, chat: fast}})
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 238, Sent: 238})
		b.wantCount(all(238, state.Sent))
		if got := now(); got != 41*time.Second { // 205 calls of 1 s, 5 at once
			t.Errorf("it took %s, want 41s: a slot was idle", got)
		}
		if slow.most != 5 || fast.most > 5 {
			t.Errorf("up to %d and %d calls at once, want 5 and no more than 5", slow.most, fast.most)
		}
	})
}

func TestDrainTakesWhatTurnsUpMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(10)
		late := false
		l := &ledger{takes: 10 * time.Second, answer: func(m transports.Message) state.Outcome {
			if m.ID == id(10) && !late {
				late = true
				b.put(3, func(m *store.Message) { // the oldest of all
					m.State, m.Attempts, m.ScheduledAt, m.NextAttemptAt = state.Pending, 0, epoch.Add(-time.Hour), time.Time{}
				})
			}
			return accepted
		}}
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), BatchSize: 4, Concurrency: 1})
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 11, Sent: 11})
	})
}

func TestRowsAtTheirLimitAreClosedWithoutACall(t *testing.T) {
	bubble(t, "one by one", func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		b.enqueue(3)
		b.put(1, func(m *store.Message) { m.Attempts = m.MaxAttempts })
		b.put(2, func(m *store.Message) { // its worker died at the last attempt
			m.State, m.Attempts, m.LeasedUntil = state.Processing, m.MaxAttempts, epoch
		})
		b.put(3, func(m *store.Message) { m.ExpiresAt = epoch })
		w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 3, Failed: 3})
		for n, code := range []string{state.CodeAttemptsExhausted, state.CodeLeaseExhausted, state.CodeExpired} {
			if m := b.row(n + 1); m.State != state.Failed || m.LastErrorCode != code || m.LastErrorCategory != state.CategoryNetwork {
				t.Errorf("row %d is %s with %s, want %s", n+1, m, m.LastErrorCode, code)
			}
		}
		if len(l.log()) > 0 {
			t.Error("the transport was called")
		}
		pass(time.Hour)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{})
	})
	bubble(t, "a head of line of them", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(60)
		for n := range 60 {
			b.put(n+1, func(m *store.Message) { m.State, m.Attempts, m.LeasedUntil = state.Processing, m.MaxAttempts, epoch })
		}
		pass(time.Second)
		b.enqueue(5)
		w := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted))})
		for range 3 {
			wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 20, Failed: 20})
		}
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 5, Sent: 5})
	})
	for _, limit := range []int{1, 3} {
		bubble(t, fmt.Sprintf("%d workers that die", limit), func(t *testing.T) {
			b, l := newBox(t), &ledger{}
			b.enqueue(1, attempts(limit))
			for range limit {
				if _, err := b.Claim(t.Context(), store.ClaimParams{Channel: mail, Limit: 1, Lease: time.Minute}); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
			}
			w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
			wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Failed: 1})
			if m := b.row(1); m.Attempts != limit || m.LastErrorCode != state.CodeLeaseExhausted || len(l.log()) > 0 {
				t.Errorf("%s: attempts %d, code %s, %d calls", m, m.Attempts, m.LastErrorCode, len(l.log()))
			}
		})
	}
}

func TestTheLastAttemptDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{answer: func(m transports.Message) state.Outcome {
			return state.Outcome{Category: state.CategoryNetwork, Code: fmt.Sprint("try", m.Attempt), RetryAfter: time.Minute}
		}}
		b.enqueue(1, attempts(3))
		w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
		for n := 1; n <= 3; n++ {
			want := dispatch.Report{Claimed: 1, Retried: 1}
			if n == 3 {
				want = dispatch.Report{Claimed: 1, Failed: 1}
			}
			wantReport(t, w.Drain(t.Context()), want)
			if m := b.row(1); m.Attempts != n || m.LastErrorCode != fmt.Sprint("try", n) || m.State == state.Pending && m.Attempts == m.MaxAttempts {
				t.Errorf("after attempt %d: %s, attempts %d, %s", n, m, m.Attempts, m.LastErrorCode)
			}
			pass(24 * time.Hour)
		}
		wantReport(t, w.Drain(t.Context()), dispatch.Report{})
	})
}

func TestAFailingRowDoesNotStandInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1, attempts(2))
		b.enqueue(100)
		l := &ledger{answer: func(m transports.Message) state.Outcome {
			if m.ID == id(1) {
				return state.Outcome{Category: state.CategoryNetwork}
			}
			return accepted
		}}
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), BatchSize: 1, Concurrency: 1})
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 101, Sent: 100, Retried: 1})
		if got := l.sent(); !slices.Equal(got, ids(101)) {
			t.Errorf("sent in the order %v", got)
		}
		pass(time.Hour)
		b.enqueue(1)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 2, Sent: 1, Failed: 1})
	})
}

// A tenant with a backlog delays another's message by what was due before it, and by nothing else: not by its failures,
// which come again later, nor by what it goes on enqueueing, be it twice what the worker can do. There is no share per
// tenant: what was due before is all done first.
func TestABacklogDelaysOnlyWhatCameAfterIt(t *testing.T) {
	for what, outcome := range map[string]state.Outcome{
		"sent": accepted, "failing": {Category: state.CategoryNetwork, Code: "http_500"}, "unreachable": {Category: state.CategoryNetwork, NotCalled: true},
	} {
		bubble(t, what, func(t *testing.T) {
			const backlog, batch = 200, 20
			of := func(tenant string) func(*store.NewMessage) {
				return func(m *store.NewMessage) { m.TenantID = tenant }
			}
			b, l := newBox(t), &ledger{takes: time.Second, answer: func(m transports.Message) state.Outcome {
				if m.TenantID == "grande" {
					return outcome
				}
				return accepted
			}}
			b.enqueue(backlog, of("grande"))
			b.enqueue(1, of("chico"))
			w := newWorker(t, b, dispatch.Config{Transports: serve(l), BatchSize: batch, Concurrency: 1})
			for range 2 * backlog / batch {
				w.ProcessBatch(t.Context())
				b.enqueue(2*batch, of("grande"))
			}
			calls := l.sent()
			if !slices.Equal(calls[:backlog+1], ids(backlog+1)) {
				t.Errorf("it was call %d, and came behind %d others", slices.Index(calls, id(backlog+1))+1, backlog)
			}
		})
	}
}

// Rows of writers that keep no rules are neither sent nor in the way.
func TestForeignRows(t *testing.T) {
	tests := []struct {
		name   string
		change func(*store.Message)
		report dispatch.Report
		state  state.State
		code   string
		calls  int
	}{
		{"key that is no header", func(m *store.Message) { m.IdempotencyKey = "a\r\nBcc: x" }, dispatch.Report{Discarded: 1}, state.Discarded, state.CodeBadKey, 0},
		{"key that is no ASCII", func(m *store.Message) { m.IdempotencyKey = "año" }, dispatch.Report{Discarded: 1}, state.Discarded, state.CodeBadKey, 0},
		{"key too long", func(m *store.Message) { m.IdempotencyKey = strings.Repeat("k", 300) }, dispatch.Report{Discarded: 1}, state.Discarded, state.CodeBadKey, 0},
		{"data that is no JSON", func(m *store.Message) { m.Data = json.RawMessage(`{"a":`) }, dispatch.Report{Discarded: 1}, state.Discarded, state.CodeBadData, 0},
		{"no data", func(m *store.Message) { m.Data = nil }, dispatch.Report{Discarded: 1}, state.Discarded, state.CodeBadData, 0},
		{"in work without a lease", func(m *store.Message) { m.State = state.Processing }, dispatch.Report{Sent: 1}, state.Sent, "", 1},
		{"scalar data", func(m *store.Message) { m.Data = json.RawMessage(`7`) }, dispatch.Report{Sent: 1}, state.Sent, "", 1},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			b, l := newBox(t), &ledger{}
			b.enqueue(2)
			b.put(1, test.change)
			test.report.Claimed++
			want := add(test.report, dispatch.Report{Claimed: 1, Sent: 1})
			w := newWorker(t, b, dispatch.Config{Transports: serve(l), Concurrency: 1})
			wantReport(t, w.ProcessBatch(t.Context()), want)
			if m := b.row(1); m.State != test.state || m.LastErrorCode != test.code || m.Attempts != 1 {
				t.Errorf("%s, code %q, attempts %d: want %s, %q, 1", m, m.LastErrorCode, m.Attempts, test.state, test.code)
			}
			if got := len(l.log()); got != test.calls+1 {
				t.Errorf("%d calls, want %d", got, test.calls+1)
			}
		})
	}
	bubble(t, "an unknown state", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(2)
		b.put(1, func(m *store.Message) { m.State = "congelado" })
		w := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted))})
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
		if got := b.row(1).State; got != "congelado" {
			t.Errorf("the row became %s", got)
		}
	})
}

// outage is a provider that refuses connections until it opens.
func outage(opens time.Duration) *ledger {
	return &ledger{answer: func(transports.Message) state.Outcome {
		if now() < opens {
			return state.Outcome{Category: state.CategoryNetwork, Code: "refused", NotCalled: true}
		}
		return accepted
	}}
}

// An hour without a connection costs no message, and no message an attempt.
func TestAnOutageCostsNoAttempts(t *testing.T) {
	const opens = time.Hour
	wantNothingSpent := func(t *testing.T, b *box) {
		t.Helper()
		for n := range b.ids {
			if m := b.row(n + 1); m.State == state.Failed || m.Attempts > 0 && m.State != state.Sent {
				t.Fatalf("at %s: %s, attempts %d", now(), m, m.Attempts)
			}
		}
	}
	wantAllSent := func(t *testing.T, b *box) {
		t.Helper()
		b.wantCount(all(b.ids, state.Sent))
		for n := range b.ids {
			if m := b.row(n + 1); m.Attempts != 1 || m.Doubts != 0 || m.LastErrorCode != "" {
				t.Errorf("%s: attempts %d, doubts %d, code %q", m, m.Attempts, m.Doubts, m.LastErrorCode)
			}
		}
	}
	bubble(t, "Run", func(t *testing.T) {
		b, l := newBox(t), outage(opens)
		b.enqueue(50, attempts(1))
		r := run(t, b, dispatch.Config{Transports: serve(l)})
		for now() < opens-time.Minute {
			pass(time.Minute)
			wantNothingSpent(t, b)
		}
		pass(6*time.Minute + 3*time.Second) // the opening, the longest wait, a poll
		wantAllSent(t, b)
		sum := r.end()
		if sum.Sent != 50 || sum.Deferred == 0 || sum.Retried+sum.Failed > 0 {
			t.Errorf("report %v, want 50 sent and the rest deferred", sum)
		}
		if calls := len(l.log()); calls > 50*25 {
			t.Errorf("%d calls during the outage, want no more than one in 5 min once it lasts", calls)
		}
	})
	bubble(t, "Drain every minute", func(t *testing.T) {
		b, l := newBox(t), outage(opens)
		b.enqueue(50, attempts(1))
		w := newWorker(t, b, dispatch.Config{Transports: serve(l)})
		for now() < opens {
			if r := w.Drain(t.Context()); r.Claimed != r.Deferred {
				t.Fatalf("at %s: %v", now(), r)
			}
			wantNothingSpent(t, b)
			pass(time.Minute)
		}
		for range 6 {
			w.Drain(t.Context())
			pass(time.Minute)
		}
		wantAllSent(t, b)
	})
	bubble(t, "one row and 60 new workers", func(t *testing.T) {
		b, l := newBox(t), outage(opens)
		b.enqueue(1, attempts(1))
		for range 60 {
			r := newWorker(t, b, dispatch.Config{Transports: serve(l)}).ProcessBatch(t.Context())
			if r.Claimed != r.Deferred || r.Err() != nil {
				t.Fatalf("at %s: %v", now(), r)
			}
			wantNothingSpent(t, b)
			pass(time.Minute)
		}
		pass(5 * time.Minute)
		wantReport(t, newWorker(t, b, dispatch.Config{Transports: serve(l)}).ProcessBatch(t.Context()), dispatch.Report{Claimed: 1, Sent: 1})
		wantAllSent(t, b)
	})
}

func TestAnOutageEndsAtMaxAge(t *testing.T) {
	unreachable := answer(state.Outcome{Category: state.CategoryNetwork, Code: "dns", NotCalled: true})
	cfg := dispatch.Config{Transports: serve(unreachable), Policy: policy(func(p *state.Policy) { p.MaxAge = time.Hour })}
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		w := newWorker(t, b, cfg)
		for now() <= time.Hour {
			if r := w.Drain(t.Context()); r.Claimed != r.Deferred {
				t.Fatalf("at %s: %v", now(), r)
			}
			pass(30 * time.Second)
		}
		pass(5 * time.Minute)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Failed: 1})
		if m := b.row(1); m.State != state.Failed || m.LastErrorCode != state.CodeUnreachable {
			t.Errorf("%s, code %s", m, m.LastErrorCode)
		}
	})
	bubble(t, "never at the first refused call", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		pass(1000 * time.Hour)
		w := newWorker(t, b, cfg)
		wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Deferred: 1})
	})
	bubble(t, "counted from the schedule", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1, func(m *store.NewMessage) { m.ScheduledAt = epoch.Add(100 * time.Hour) })
		pass(100 * time.Hour)
		w := newWorker(t, b, cfg)
		for range 6 {
			wantReport(t, w.Drain(t.Context()), dispatch.Report{Claimed: 1, Deferred: 1})
			pass(5 * time.Minute)
		}
	})
	bubble(t, "the call's own time counts", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1)
		l := &ledger{takes: 20 * time.Minute, answer: func(transports.Message) state.Outcome {
			return state.Outcome{Category: state.CategoryNetwork, NotCalled: true}
		}}
		w := newWorker(t, b, dispatch.Config{Transports: serve(l), Policy: cfg.Policy, Lease: 2 * time.Hour, Timeout: time.Hour})
		for _, want := range []dispatch.Report{{Claimed: 1, Deferred: 1}, {Claimed: 1, Deferred: 1}, {Claimed: 1, Failed: 1}} {
			wantReport(t, w.ProcessBatch(t.Context()), want) // it ends 20, 45 and 70 min after the enqueue
			pass(5 * time.Minute)
		}
	})
}

func TestAPassWhoseContextHasEndedDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted))})
		wantReport(t, w.ProcessBatch(ctx), dispatch.Report{})
		wantReport(t, w.Drain(ctx), dispatch.Report{})
		b.wantCount(all(3, state.Pending))
	})
}

// refusing is a store whose database refuses some rows.
type refusing struct {
	*box
	rows []store.Closed
}

func (r refusing) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	c, err := r.box.Claim(ctx, p)
	c.Refused = r.rows
	return c, err
}

// Rows that the database refuses to have claimed are an error of the pass, and no obstacle.
func TestRowsThatCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(3)
		w := newWorker(t, refusing{b, []store.Closed{{ID: id(9), Code: "P0001"}}}, dispatch.Config{Transports: serve(answer(accepted))})
		r := w.ProcessBatch(t.Context())
		wantReport(t, r, dispatch.Report{Claimed: 3, Sent: 3, ClaimErrors: 1, LastError: "P0001"})
		if !errors.Is(r.Err(), dispatch.ErrIncomplete) {
			t.Errorf("the pass ends with %v", r.Err())
		}
	})
}

// A provider that refuses the account is no affair of one message: the log says so, once until it changes.
func TestARefusedAccountIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(5)
		core, logged := observer.New(zap.ErrorLevel)
		w := newWorker(t, b, dispatch.Config{Logger: zap.New(core), Transports: serve(answer(
			state.Outcome{Category: state.CategoryCredentials, Code: "smtp_535", Account: true}))})
		w.ProcessBatch(t.Context())
		if n := logged.FilterMessageSnippet("refuses the account").Len(); n != 1 {
			t.Errorf("%d log lines, want one", n)
		}
	})
}

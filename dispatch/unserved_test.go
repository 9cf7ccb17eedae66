package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
)

// wantUnserved wants exactly one warning for each channel, in order.
func wantUnserved(t *testing.T, r dispatch.Report, channels ...string) {
	t.Helper()
	if len(r.Warnings) != len(channels) {
		t.Fatalf("warnings %v, want those for %v", r.Warnings, channels)
	}
	for i, channel := range channels {
		w := r.Warnings[i]
		if w.Code != dispatch.WarningUnserved || w.Channel != channel || !strings.Contains(w.Text, channel) {
			t.Errorf("warning %+v, want one for %s", w, channel)
		}
	}
}

// A worker leaves what it does not serve to those who do, crashed rows included.
func TestUnservedChannelsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBox(t), &ledger{}
		b.enqueue(2, onChannel("sms"))
		b.enqueue(6, onChannel(chat))
		for n := 3; n <= 5; n++ {
			b.put(n, func(m *store.Message) { m.State, m.Attempts, m.LeasedUntil = state.Processing, 1, epoch })
		}
		before := make([]store.Message, 8)
		for n := range before {
			before[n] = b.row(n + 1)
		}
		x := newWorker(t, b, dispatch.Config{Transports: serve(answer(accepted))})
		for range 5 {
			r := x.Drain(t.Context())
			wantUnserved(t, r, "sms", chat)
			r.Warnings = []dispatch.Warning{}
			wantReport(t, r, dispatch.Report{})
			pass(time.Minute)
		}
		for n, was := range before {
			if m := b.row(n + 1); fmt.Sprintf("%+v", m.Row()) != fmt.Sprintf("%+v", was.Row()) {
				t.Errorf("%s was changed", m)
			}
		}
		y := newWorker(t, b, dispatch.Config{Transports: dispatch.Transports{chat: l}})
		r := y.Drain(t.Context())
		wantUnserved(t, r, "sms")
		if r.Sent != 6 {
			t.Errorf("report %v, want 6 sent", r)
		}
	})
}

// The look-up is made at most once a minute; what it found is said by every report.
func TestUnservedChannelsAreLookedUpOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(1, onChannel(chat))
		faulty := &storetest.Faulty{Complete: b}
		w := newWorker(t, faulty, dispatch.Config{Transports: serve(answer(accepted))})
		for now() < 10*time.Minute {
			wantUnserved(t, w.ProcessBatch(t.Context()), chat)
			pass(time.Second)
		}
		if n := faulty.Calls(storetest.OpChannels); n != 10 {
			t.Errorf("%d look-ups in 10 min", n)
		}
		b.put(1, func(m *store.Message) { m.State = state.Sent })
		pass(time.Minute)
		wantUnserved(t, w.ProcessBatch(t.Context()))
	})
}

// Run logs warnings when they change, and not every minute.
func TestRunLogsWarningsOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		b := newBox(t)
		b.enqueue(1, onChannel(chat))
		r := run(t, b, dispatch.Config{Transports: serve(answer(accepted)), Logger: zap.New(core), Concurrency: 1})
		want := func(texts ...string) {
			t.Helper()
			lines := logs.TakeAll()
			if len(lines) != len(texts) {
				t.Fatalf("logged %v, want %d lines", lines, len(texts))
			}
			for i, text := range texts {
				if !strings.Contains(lines[i].Message, text) {
					t.Errorf("logged %q, want something about %s", lines[i].Message, text)
				}
			}
		}
		want("lease", chat)
		pass(10 * time.Minute)
		want()
		b.enqueue(1, onChannel("sms"))
		pass(time.Minute)
		want("lease", "sms", chat)
		b.enqueue(1) // whose report carries the warnings too
		r.Notify()
		synctest.Wait()
		want()
		r.end()
		want()
		if last := r.told()[len(r.told())-1]; len(last.Warnings) != 3 {
			t.Errorf("warnings of a report: %v, want 3", last.Warnings)
		}
	})
}

func TestDiscardUnserved(t *testing.T) {
	wantDiscarded := func(t *testing.T, b *box) {
		t.Helper()
		for n := 3; n <= 1202; n++ {
			m := b.row(n)
			if m.State != state.Discarded || m.LastErrorCategory != state.CategoryCredentials || m.LastErrorCode != state.CodeNoTransport || m.Attempts != 1 {
				t.Fatalf("%s, %s/%s, attempts %d", m, m.LastErrorCategory, m.LastErrorCode, m.Attempts)
			}
		}
		if m := b.row(1203); m.State != state.Pending {
			t.Errorf("a row whose time has not come is %s", m.State)
		}
	}
	fill := func(b *box) {
		b.enqueue(2)
		b.enqueue(1200, onChannel(chat))
		b.enqueue(1, onChannel(chat), func(m *store.NewMessage) { m.ScheduledAt = epoch.Add(time.Hour) })
	}
	bubble(t, "Drain", func(t *testing.T) {
		b := newBox(t)
		fill(b)
		w := newWorker(t, b, dispatch.Config{DiscardUnserved: true, Transports: serve(answer(accepted))})
		r := w.Drain(t.Context())
		wantUnserved(t, r, chat)
		r.Warnings = []dispatch.Warning{}
		wantReport(t, r, dispatch.Report{Claimed: 1202, Sent: 2, Discarded: 1200})
		wantDiscarded(t, b)
	})
	bubble(t, "Run", func(t *testing.T) {
		b := newBox(t)
		fill(b)
		r := run(t, b, dispatch.Config{DiscardUnserved: true, Transports: serve(answer(accepted))})
		wantDiscarded(t, b)
		b.enqueue(1, onChannel("sms"))
		pass(time.Minute)
		wantReport(t, r.end(), dispatch.Report{Claimed: 1203, Sent: 2, Discarded: 1201})
	})
	bubble(t, "ProcessBatch takes 500 at a time", func(t *testing.T) {
		b := newBox(t)
		fill(b)
		w := newWorker(t, b, dispatch.Config{DiscardUnserved: true, Transports: serve(answer(accepted))})
		if r := w.ProcessBatch(t.Context()); r.Discarded != 500 {
			t.Errorf("report %v", r)
		}
	})
}

// A store need not know its channels, and may fail to say.
func TestChannelsThatCannotBeLookedUp(t *testing.T) {
	tests := []struct {
		name  string
		store func(*box) store.Store
		code  string // of the warning; "" is none
	}{
		{"a store without that ability", func(b *box) store.Store { return struct{ store.Store }{b} }, ""},
		{"a store that says so", func(b *box) store.Store {
			return &storetest.Faulty{Complete: b, Before: failing(storetest.OpChannels, fmt.Errorf("wrapped: %w", errors.ErrUnsupported), always)}
		}, ""},
		{"a store that is away", func(b *box) store.Store {
			return &storetest.Faulty{Complete: b, Before: failing(storetest.OpChannels, errAway, always)}
		}, "08006"},
		{"a store that hangs", func(b *box) store.Store {
			return &storetest.Faulty{Complete: b, Before: func(ctx context.Context, c storetest.Call) error {
				return hangOn(ctx, c, storetest.OpChannels)
			}}
		}, "code"},
	}
	for _, test := range tests {
		for _, discard := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/discard=%t", test.name, discard), func(t *testing.T) {
				b := newBox(t)
				b.enqueue(1)
				b.enqueue(1, onChannel(chat))
				w := newWorker(t, test.store(b), dispatch.Config{Transports: serve(answer(accepted)), DiscardUnserved: discard})
				r := w.ProcessBatch(t.Context())
				switch {
				case test.code == "" && len(r.Warnings) > 0:
					t.Errorf("warnings %v", r.Warnings)
				case test.code != "" && (len(r.Warnings) != 1 || r.Warnings[0].Code != dispatch.WarningChannelsFail || !strings.Contains(r.Warnings[0].Text, test.code)):
					t.Errorf("warnings %+v, want one with code %s", r.Warnings, test.code)
				}
				wantNoCanary(t, r)
				r.Warnings = []dispatch.Warning{}
				wantReport(t, r, dispatch.Report{Claimed: 1, Sent: 1})
			})
		}
	}
	bubble(t, "a worker that stops warns of nothing", func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		faulty := &storetest.Faulty{Complete: newBox(t), Before: func(ctx context.Context, c storetest.Call) error {
			return hangOn(ctx, c, storetest.OpChannels)
		}}
		r := run(t, faulty, dispatch.Config{Transports: serve(answer(accepted)), Logger: zap.New(core)})
		r.end()
		if n := logs.FilterLevelExact(zap.WarnLevel).Len(); n > 0 {
			t.Errorf("%d warnings were logged", n)
		}
	})
}

// A store with the bare contract is enough for everything else.
func TestABareStoreIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(30)
		r := run(t, struct{ store.Store }{b}, dispatch.Config{Transports: serve(&ledger{takes: time.Second})})
		pass(10 * time.Second)
		b.enqueue(1)
		pass(3 * time.Second)
		wantReport(t, r.end(), dispatch.Report{Claimed: 31, Sent: 31})
	})
}

// Channels of foreign writers may be any text, and any number: a warning names only what is a name, and not too many.
func TestOddChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		b.enqueue(33)
		for i := range 30 {
			b.put(i+1, func(m *store.Message) { m.Channel = fmt.Sprintf("canal-%02d", i) })
		}
		for i, channel := range []string{"", canary + "@club.example", strings.Repeat("x", 100_000)} {
			b.put(31+i, func(m *store.Message) { m.Channel = channel })
		}
		w := newWorker(t, b, dispatch.Config{DiscardUnserved: true})
		r := w.Drain(t.Context())
		if r.Discarded != 20 || r.Err() != nil {
			t.Errorf("the report is %v, want 20 channels discarded", r)
		}
		if n := len(r.Warnings); n != 21 || !strings.HasPrefix(r.Warnings[20].Text, "13 more channels") {
			t.Errorf("%d warnings, the last is %v", n, r.Warnings[n-1])
		}
		if text := fmt.Sprint(r.Warnings); strings.Contains(text, canary) || len(text) > 10_000 {
			t.Errorf("the warnings are %.200s…", text)
		}
	})
}

package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
	"github.com/recado-dev/recado/transports"
)

// wantNoCanary wants that none of the values shows what must not get out, however it is printed.
func wantNoCanary(t *testing.T, values ...any) {
	t.Helper()
	for _, v := range values {
		texts := []string{fmt.Sprintf("%v %+v %#v", v, v, v)}
		if raw, err := json.Marshal(v); err == nil {
			texts = append(texts, string(raw))
		}
		if logs, ok := v.(*observer.ObservedLogs); ok {
			texts = nil
			for _, e := range logs.All() {
				enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", EncodeLevel: zapcore.LowercaseLevelEncoder})
				line, err := enc.EncodeEntry(e.Entry, e.Context)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, line.String(), fmt.Sprint(e.ContextMap()))
			}
		}
		for _, text := range texts {
			if strings.Contains(text, canary) {
				t.Errorf("it shows: %s", text)
			}
		}
	}
}

// What a message holds, and what a driver or a transport says of it, gets nowhere: not into logs at their most talkative,
// nor into reports, errors, events or the columns of the row's error.
func TestNothingPersonalGetsOut(t *testing.T) {
	outcomes := map[string]func(transports.Message) state.Outcome{
		"sent": func(transports.Message) state.Outcome { return accepted },
		"text for a code": func(m transports.Message) state.Outcome {
			return state.Outcome{Category: state.CategoryNetwork, Code: m.Destination}
		},
		"text for a word": func(m transports.Message) state.Outcome { return state.Outcome{Category: "<" + m.Destination + ">"} },
		"refused, with text": func(m transports.Message) state.Outcome {
			return state.Outcome{Category: state.CategoryRejected, Code: string(m.Data)}
		},
		"unreachable, text": func(m transports.Message) state.Outcome {
			return state.Outcome{Category: state.CategoryNetwork, Code: "to " + m.Destination, NotCalled: true}
		},
		"panic with text":    func(m transports.Message) state.Outcome { panic(m.Destination) },
		"panic with message": func(m transports.Message) state.Outcome { panic(m) },
		"panic with error":   func(m transports.Message) state.Outcome { panic(fmt.Errorf("smtp: %s", m.Destination)) },
	}
	stores := map[string]storetest.Hook{
		"works":           nil,
		"claim fails":     storetest.Nth(storetest.OpClaim, 1, errAway),
		"settle fails":    storetest.Nth(storetest.OpSettle, 1, errAway),
		"settle refused":  failing(storetest.OpSettle, errRefused, always),
		"bare error":      failing(storetest.OpSettle, errors.New(canary), func(c storetest.Call) bool { return c.N < 3 }),
		"channels fail":   failing(storetest.OpChannels, errAway, always),
		"next due fails":  failing(storetest.OpNextDue, errAway, always),
		"everything once": func(_ context.Context, c storetest.Call) error { return map[bool]error{true: errAway}[c.N == 1] },
	}
	for how, outcome := range outcomes {
		for what, hook := range stores {
			bubble(t, how+"/"+what, func(t *testing.T) {
				core, logs := observer.New(zap.DebugLevel)
				b, w := newBox(t), &witness{}
				b.enqueue(3, func(m *store.NewMessage) {
					m.Destination, m.Data = canary+"@example.org", map[string]string{"nombre": canary}
					m.IdempotencyKey = fmt.Sprint(canary, "-", b.ids)
					m.Headers = map[string]string{"propia": "x"}
				})
				b.put(2, func(m *store.Message) { m.Data = json.RawMessage(`{"` + canary) })
				b.put(3, func(m *store.Message) { m.IdempotencyKey = canary + "\n" })
				b.enqueue(1, onChannel(chat), func(m *store.NewMessage) { m.Destination = canary })
				faulty := &storetest.Faulty{Complete: b, Before: hook}
				r := run(t, faulty, dispatch.Config{
					Logger: zap.New(core), Observer: w, Concurrency: 1,
					Transports: serve(transports.Func(func(_ context.Context, m transports.Message) state.Outcome { return outcome(m) })),
				})
				pass(5 * time.Second)
				r.end()
				one := newWorker(t, faulty, dispatch.Config{Logger: zap.New(core), Observer: w, Transports: serve(answer(accepted))}).ProcessBatch(t.Context())
				wantNoCanary(t, logs, r.told(), one, one.String(), one.Err(), w.claims, w.attempts, w.outcomes, w.settled)
				for n := range b.ids {
					m := b.row(n + 1)
					wantNoCanary(t, m.LastErrorCategory, m.LastErrorCode, m.ExternalID)
				}
			})
		}
	}
}

// The check above must be able to fail.
func TestTheCanaryIsSeen(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	zap.New(core).Debug("x", zap.String("y", canary))
	for name, v := range map[string]any{
		"log": logs, "text": canary, "error": errors.New(canary), "event": []dispatch.Settled{{Code: canary}},
	} {
		probe := &testing.T{}
		wantNoCanary(probe, v)
		if !probe.Failed() {
			t.Errorf("a canary in a %s is not seen", name)
		}
	}
}

package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// A broker takes what is published at once and says later whether it has it. Only a message of which it says so is sent;
// where it says no, nothing in time, or is gone before it answers, the message is tried again.
func TestABrokerThatConfirmsLater(t *testing.T) {
	const confirmed, refused, silent, gone = "confirmed", "refused", "silent", "gone"
	bubble(t, "five messages", func(t *testing.T) {
		b := newBox(t)
		b.enqueue(5)
		fates := map[string]string{id(1): confirmed, id(2): refused, id(3): confirmed, id(4): silent, id(5): gone}
		publish := func(m transports.Message) (confirm <-chan string) {
			answer := make(chan string, 1)
			if fate := fates[m.ID]; fate != silent {
				time.AfterFunc(time.Second, func() { answer <- fate })
			}
			return answer
		}
		w := newWorker(t, b, dispatch.Config{Timeout: 10 * time.Second, Transports: serve(transports.Func(
			func(ctx context.Context, m transports.Message) state.Outcome {
				select {
				case fate := <-publish(m):
					switch fate {
					case confirmed:
						return state.Outcome{OK: true}
					case refused:
						return state.Outcome{Category: state.CategoryNetwork, Code: "nack"}
					default:
						return state.Outcome{Category: state.CategoryNetwork, Code: "sin_confirmar", Ambiguous: true}
					}
				case <-ctx.Done():
					return state.Outcome{Category: state.CategoryNetwork, Code: "sin_confirmar", Ambiguous: true}
				}
			}))})
		wantReport(t, w.ProcessBatch(t.Context()), dispatch.Report{Claimed: 5, Sent: 2, Retried: 3})
		for n, want := range map[int]state.State{1: state.Sent, 2: state.Pending, 3: state.Sent, 4: state.Pending, 5: state.Pending} {
			if m := b.row(n); m.State != want || (want == state.Pending) != m.NextAttemptAt.After(m.UpdatedAt) {
				t.Errorf("message %d, %s, is %s", n, fates[id(n)], m.State)
			}
		}
	})
}

package transports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// However a message is printed or logged, its content stays out of it.
func TestMessagePrintsNothing(t *testing.T) {
	const canary = "canario-7f3a"
	m := transports.Message{
		ID: "0190a5a0-0000-7000-8000-000000000007", Channel: "correo", TenantID: canary, Destination: canary, Template: canary,
		Data: json.RawMessage(`"` + canary + `"`), IdempotencyKey: canary, Headers: map[string]string{canary: canary},
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("message", "message", m)
	for _, text := range []string{fmt.Sprint(m), fmt.Sprintf("%v %+v %#v %s %q", m, m, m, m, m), log.String()} {
		if strings.Contains(text, canary) || !strings.Contains(text, m.ID) {
			t.Errorf("printed as %s", text)
		}
	}
}

func ExampleFunc() {
	var print transports.Transport = transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
		fmt.Println("to", m.Destination, "for the", m.Attempt, "time")
		return state.Outcome{OK: true, ExternalID: "1"}
	})
	fmt.Println(print.Send(context.Background(), transports.Message{Destination: "ana", Attempt: 1}).OK)
	// Output:
	// to ana for the 1 time
	// true
}

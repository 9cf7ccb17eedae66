package store_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Whatever way a message is printed, what is personal about it stays inside.
func TestMessagesKeepTheirContent(t *testing.T) {
	const secret = "secreto"
	row := store.Message{
		ID: "id-1", Channel: "correo", State: state.Sent, TenantID: secret, Destination: secret, Template: secret,
		IdempotencyKey: secret, Data: json.RawMessage(`"` + secret + `"`), Headers: map[string]string{secret: secret},
		ExternalID: secret,
	}
	message := store.NewMessage{
		Channel: "correo", TenantID: secret, Destination: secret, Template: secret, IdempotencyKey: secret, Data: secret,
		Headers: map[string]string{secret: secret},
	}
	for name, v := range map[string]any{
		"Message": row, "*Message": &row, "[]Message": []store.Message{row}, "Claim": store.Claim{Messages: []store.Message{row}},
		"NewMessage": message, "*NewMessage": &message, "Encoded": store.Encoded{NewMessage: message, DataJSON: row.Data},
	} {
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
		texts := []string{fmt.Sprint(v)}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
		if _, valuer := v.(slog.LogValuer); valuer {
			texts = append(texts, log.String())
		}
		for i, text := range texts {
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("%s, way %d: %s", name, i, text)
			}
			if !strings.Contains(text, "correo") {
				t.Errorf("%s, way %d does not name its channel: %s", name, i, text)
			}
		}
	}
	if got, want := row.String(), "message id-1 (correo, "+string(state.Sent)+")"; got != want {
		t.Errorf("a row prints as %q, want %q", got, want)
	}
}

func TestMessageParts(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 1, 1, h, 0, 0, 0, time.UTC) }
	m := store.Message{
		ID: "1", TenantID: "club", IdempotencyKey: "a:b", State: state.Processing, Attempts: 2, MaxAttempts: 3,
		ScheduledAt: at(1), NextAttemptAt: at(2), LeasedUntil: at(3), ExpiresAt: at(4), CreatedAt: at(5),
		LastErrorCategory: "red", LastErrorCode: "timeout", Token: store.Token{1},
	}
	if got, want := m.Fence(), (store.Fence{ID: "1", LeasedUntil: at(3), Token: store.Token{1}}); got != want {
		t.Errorf("the fence is %v, want %v", got, want)
	}
	if got, want := m.ProviderKey(), "club:a:b"; got != want {
		t.Errorf("the provider's key is %q, want %q", got, want)
	}
	want := state.Row{
		State: state.Processing, Attempts: 2, MaxAttempts: 3,
		ScheduledAt: at(1), NextAttemptAt: at(2), LeasedUntil: at(3), ExpiresAt: at(4), CreatedAt: at(5),
		LastErrorCategory: "red", LastErrorCode: "timeout",
	}
	if got := m.Row(); got != want {
		t.Errorf("the row is %+v, want %+v", got, want)
	}
}

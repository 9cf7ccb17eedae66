package notification_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/notification"
	"github.com/recado-dev/recado/transports/transporttest"
)

func TestConformance(t *testing.T) {
	numbers := map[string]int{}
	for c := 'a'; c < 'u'; c++ {
		numbers[string(c)] = int(c)
	}
	data, err := json.Marshal(map[string]any{"fecha": "canario-fecha", "mapa": numbers})
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, transporttest.Subject{
		New: func(t *testing.T, baseURL string, client *http.Client) transports.Transport {
			return newTransport(t, baseURL, notification.HTTPClient(client),
				notification.Header("X-API-Key", canaryKey), notification.BareIdempotencyKeys())
		},
		Message: transports.Message{
			ID: "0199", TenantID: "club-1", Channel: notification.Channel, Destination: "canario-destino@casa.example",
			Template: "account-activation", Data: data, IdempotencyKey: "club-1:canario-clave",
			CreatedAt: time.Date(2026, 9, 24, 12, 0, 0, 0, time.UTC),
		},
		Accepted:   `{"id":"job-81"}`,
		ExternalID: "job-81",
		Secrets:    []string{canaryKey, "canario"},
	})
}

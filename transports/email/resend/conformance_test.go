package resend_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
	"github.com/recado-dev/recado/transports/transporttest"
)

func TestConformance(t *testing.T) {
	templates := email.Templates(fstest.MapFS{"pedido.txt": {Data: []byte(
		`{{define "subject"}}canario-asunto{{end}}{{.fecha}}{{range $k, $v := .mapa}} {{$k}}={{$v}}{{end}}`,
	)}})
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
			tr, err := email.New(email.Config{
				From: "canario-remite@club.example", Sender: resend.New(canaryKey, resend.BaseURL(baseURL), resend.HTTPClient(client)),
				Render: templates,
			})
			if err != nil {
				t.Fatal(err)
			}
			return tr
		},
		Message: transports.Message{
			ID: "0199", TenantID: "club-1", Channel: email.Channel, Destination: "canario-destino@casa.example", Template: "pedido",
			Data: data, IdempotencyKey: "club-1:canario-clave", CreatedAt: time.Date(2026, 9, 24, 12, 0, 0, 0, time.UTC),
		},
		Accepted:   `{"id":"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}`,
		ExternalID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794",
		Secrets:    []string{canaryKey, "canario"},
	})
}

package notification_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/notification"
)

// The intent is written with the user; the worker gets it into the service's queue.
func Example() {
	ctx := context.Background()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Idempotency-Key"), string(body))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"jobId":"81"}`)
	}))
	defer service.Close()

	tr, err := notification.New(service.URL, // of one's own: "https://notification.example/jobs"
		notification.Bearer("from the configuration"), notification.BareIdempotencyKeys(), notification.IDField("jobId"))
	if err != nil {
		fmt.Println(err)
		return
	}
	box := memstore.New(memstore.Config{Rules: store.Rules{Channels: []string{notification.Channel}}})
	worker, err := dispatch.New(box, dispatch.Config{Transports: dispatch.Transports{notification.Channel: tr}})
	if err != nil {
		fmt.Println(err)
		return
	}

	tx, err := box.Begin(ctx) // which also writes the user
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = box.Enqueue(ctx, tx, store.NewMessage{
		TenantID: "0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001", Channel: notification.Channel, Destination: "ana@casa.example",
		Template: "account-activation", Data: map[string]string{"activationUrl": "https://club.example/activar/7f3a"},
		IdempotencyKey: "activacion-17", // the notice, and the user
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Drain(ctx))
	// Output:
	// 0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001:activacion-17 {"code":"account-activation","recipient":"ana@casa.example","variables":{"activationUrl":"https://club.example/activar/7f3a"}}
	// reclamados=1 enviados=1
}

// A service with another form of body, which answers 404 while it is deployed, and has codes of its own.
func ExampleOutcomes() {
	_, err := notification.New("https://notification.example/v2/notices",
		notification.Header("X-API-Key", "from the configuration"),
		notification.Body(func(_ context.Context, m transports.Message) (any, error) {
			return map[string]any{"type": m.Template, "to": m.Destination, "params": m.Data, "dedupeId": m.IdempotencyKey}, nil
		}),
		notification.CodeField("error.code"),
		notification.Outcomes(map[string]state.Outcome{
			"http_404":                    {Category: state.CategoryNetwork},
			"http_409":                    {OK: true}, // it has the job already
			"http_422:unknown_notice":     {Category: state.CategoryTemplate},
			"http_422:recipient_rejected": {Category: state.CategoryNumber},
		}))
	fmt.Println(err)
	// Output: <nil>
}

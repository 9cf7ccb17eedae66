package whatsapp_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// Each tenant sends from its own number; a tenant without one has its messages discarded.
func ExampleNew() {
	accounts := map[string]*whatsapp.Credentials{
		"club-1": {PhoneNumberID: "1065", APIKey: "from the application's vault"},
	}
	wa, err := whatsapp.New(whatsapp.Config{
		// A sender that prints. Real ones live in packages of their own.
		Sender: whatsapp.SenderFunc(func(_ context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
			fmt.Println(c.PhoneNumberID, "sends", m.Template, "in", m.Language, "to", m.To, m.Params[0].Value)
			return state.Outcome{OK: true, ExternalID: "wamid.1"}
		}),
		Credentials: func(_ context.Context, tenant string) (*whatsapp.Credentials, error) {
			return accounts[tenant], nil
		},
		Params: func(_ context.Context, m transports.Message) ([]whatsapp.Param, error) {
			var turno struct{ Hora string }
			err := json.Unmarshal(m.Data, &turno)
			return []whatsapp.Param{{Value: turno.Hora}}, err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"club-1", "club-2"} {
		o := wa.Send(context.Background(), transports.Message{
			TenantID: tenant, Destination: "5491122334455", Template: "turno_manana",
			Data: json.RawMessage(`{"hora": "10:00"}`), IdempotencyKey: tenant + ":turno-7",
		})
		fmt.Printf("%s: %s (%s)\n", tenant, state.Classify(o), o.Code)
	}
	// Output:
	// 1065 sends turno_manana in es_AR to 5491122334455 10:00
	// club-1: ok ()
	// club-2: permanente (sin_credenciales)
}

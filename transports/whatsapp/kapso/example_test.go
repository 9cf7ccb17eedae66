package kapso_test

import (
	"context"
	"fmt"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/whatsapp"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

// Each tenant has a number and a key of its own, from the application's vault.
func ExampleNew() {
	_, err := whatsapp.New(whatsapp.Config{
		Sender: kapso.New(),
		Credentials: func(_ context.Context, tenant string) (*whatsapp.Credentials, error) {
			return &whatsapp.Credentials{PhoneNumberID: "1065", APIKey: "the tenant's key"}, nil
		},
	})
	fmt.Println(err)
	// Output: <nil>
}

// Meta's own API, with a token for each tenant.
func ExampleBearer() {
	sender := kapso.New(kapso.BaseURL("https://graph.facebook.com/v24.0"), kapso.Bearer())
	fmt.Println(sender.Validate())
	// Output: <nil>
}

// Marketing that Meta held back is tried again instead of being discarded. A lane waits no longer than its MaxRetryAfter.
func ExampleOutcomes() {
	sender := kapso.New(kapso.Outcomes(map[string]state.Outcome{
		"131049": {Category: state.CategoryRateLimit, RetryAfter: 24 * time.Hour},
	}))
	fmt.Println(sender.Validate())
	// Output: <nil>
}

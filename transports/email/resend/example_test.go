package resend_test

import (
	"context"
	"fmt"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
)

// The key comes from the application's configuration. A bad one is an error of email.New.
func ExampleNew() {
	render := email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) {
		return email.Content{Subject: "Hola", Text: "Hola"}, nil
	})
	_, err := email.New(email.Config{From: "Mi Club <hola@club.example>", Sender: resend.New("re_123"), Render: render})
	fmt.Println(err)
	_, err = email.New(email.Config{From: "Mi Club <hola@club.example>", Sender: resend.New(""), Render: render})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}

// A repeat with another body under the same key proves that an earlier attempt arrived. Here it ends the message instead
// of being tried until Resend forgets the key.
func ExampleOutcomes() {
	sender := resend.New("re_123", resend.Outcomes(map[string]state.Outcome{
		"http_409:invalid_idempotent_request": {Category: state.CategoryRejected, Ambiguous: true},
	}))
	fmt.Println(sender)
	// Output: resend (key withheld)
}

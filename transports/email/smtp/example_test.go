package smtp_test

import (
	"fmt"

	"github.com/recado-dev/recado/transports/email/smtp"
)

// A server of one's own. The password comes from the application's configuration.
func ExampleNew() {
	sender, err := smtp.New(smtp.Config{Host: "mail.club.example", Username: "avisos", Password: "from the configuration"})
	fmt.Println(sender, err)
	// Output: smtp mail.club.example:587 <nil>
}

// An inbox for tests, such as Mailpit, on the same machine.
func ExampleConfig_testInbox() {
	sender, err := smtp.New(smtp.Config{Host: "127.0.0.1", Port: 1025, Security: smtp.InsecurePlaintext})
	fmt.Println(sender, err)
	// Output: smtp 127.0.0.1:1025 <nil>
}

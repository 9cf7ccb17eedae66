// Package smtp is an [email.Sender] over SMTP.
//
// It promises one transaction per call, on a connection of its own, encrypted unless the configuration says otherwise
// in so many words. SMTP has no idempotency key: what it can do is to make copies recognisable. The same mail gives the
// same bytes at every attempt, Message-ID, Date and boundary included; the Message-ID is a digest of the key, so that it
// tells nothing.
//
// Connections are not reused: a relay on a busy lane sees one TLS handshake per mail. The outcome of every reply, and of
// every way to lose a connection, is said at [Sender.Send].
package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
)

// Security says how the connection is protected. Certificates are always verified, and TLS is 1.2 at least.
type Security uint8

const (
	// StartTLS begins in plain text and asks for TLS before anything else. A server that does not offer it gets no mail.
	StartTLS Security = iota

	// ImplicitTLS speaks TLS from the first byte, as on port 465.
	ImplicitTLS

	// InsecurePlaintext sends mails readable by everybody on the way. It is meant for an inbox for tests or a relay on the
	// same machine, and cannot be combined with a password.
	InsecurePlaintext
)

// DefaultConnectTimeout bounds setting up a connection where Config does not.
const DefaultConnectTimeout = 10 * time.Second

// Config says which server takes the mails. It prints and logs without user name and password, except in an unexported
// field of another struct, where fmt calls no method; encoding/json shows them.
type Config struct {
	Host string // name or IP address; also what the server's certificate must be for. Required
	Port int    // 1 to 65535; 0: 587, or 465 with ImplicitTLS

	// Username and Password are used when Username is not empty, with PLAIN, or LOGIN where the server offers only that.
	Username string
	Password string

	Security Security       // default: StartTLS
	RootCAs  *x509.CertPool // who may vouch for the server; nil: the system's roots

	// LocalName is how the client introduces itself: a host name or an address literal. Empty: the machine's name.
	LocalName string

	// ConnectTimeout bounds everything before the mail itself: dialling, greeting, TLS and authentication. What it cuts off
	// certainly sent nothing and costs no attempt, so keep it well below the attempt's timeout. 0:
	// [DefaultConnectTimeout]; otherwise more than 0.
	ConnectTimeout time.Duration
}

// String returns host, port and nothing secret.
func (c Config) String() string { return fmt.Sprintf("smtp %s:%d", c.Host, c.Port) }

// GoString keeps %#v from printing the password.
func (c Config) GoString() string { return c.String() }

// LogValue keeps log/slog from printing the password.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Sender sends mails through one server. It is safe for concurrent use, and has nothing to close. It prints as its
// Config does.
type Sender struct {
	config Config
	tls    *tls.Config
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

var _ email.Sender = (*Sender)(nil)

// New returns a Sender. It connects to nothing. A senseless field is a [state.InvalidError] that names it.
func New(c Config) (*Sender, error) {
	if c.Port == 0 {
		c.Port = 587
		if c.Security == ImplicitTLS {
			c.Port = 465
		}
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = DefaultConnectTimeout
	}
	if c.LocalName == "" {
		c.LocalName, _ = os.Hostname()
		if !word(c.LocalName) {
			c.LocalName = "localhost"
		}
	}
	switch {
	case !word(c.Host):
		return nil, &state.InvalidError{Field: "Host", Reason: "is not a host name"}
	case strings.Contains(c.Host, ":") && net.ParseIP(c.Host) == nil:
		return nil, &state.InvalidError{Field: "Host", Reason: "has a ':': the port goes into Port"}
	case c.Port < 1 || c.Port > 65535:
		return nil, &state.InvalidError{Field: "Port", Reason: "must be between 1 and 65535"}
	case c.Security > InsecurePlaintext:
		return nil, &state.InvalidError{Field: "Security", Reason: "is not one of the three"}
	case c.Security == InsecurePlaintext && c.Username != "":
		return nil, &state.InvalidError{Field: "Username", Reason: "cannot be used without TLS"}
	case c.Username == "" && c.Password != "":
		return nil, &state.InvalidError{Field: "Username", Reason: "is empty although there is a password"}
	case !word(c.LocalName):
		return nil, &state.InvalidError{Field: "LocalName", Reason: "is not a host name"}
	case c.ConnectTimeout < 0:
		return nil, &state.InvalidError{Field: "ConnectTimeout", Reason: "must not be negative"}
	}
	return &Sender{
		config: c,
		tls:    &tls.Config{ServerName: c.Host, RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		dial:   (&net.Dialer{}).DialContext,
	}, nil
}

// word reports whether s is printable ASCII without blanks, and not empty: it goes into a line of the protocol.
func word(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// String returns host, port and nothing secret.
func (s Sender) String() string { return s.config.String() }

// GoString keeps %#v from printing the password.
func (s Sender) GoString() string { return s.config.String() }

// LogValue keeps log/slog from printing the password.
func (s Sender) LogValue() slog.Value { return s.config.LogValue() }

// Send makes one attempt, which ends with ctx at the latest. OK means that the server took the mail; ExternalID is its
// queue id where the reply shows one in a known form. What happens to the connection afterwards changes nothing.
//
// A refusal by reply has the code smtp_550 or, with an enhanced status code, smtp_550_5.1.1:
//
//   - 4xx: red; 452, 4.5.3 and 4.7.28: limite
//   - 530, 534, 535, 538, and any 5xx to STARTTLS or AUTH: credenciales, Account
//   - 550, 551, 553, 554, 556, 521 to MAIL, and 5.1.7, 5.1.8 anywhere: credenciales, Account (the sender is refused)
//   - 550, 551, 553, 556, 521 to RCPT unless the enhanced code says policy or full mailbox; 5.1.x: numero
//   - any other 5xx: rechazado; before MAIL with Account, since it is not about this mail
//
// Without a reply:
//
//   - the mail may have been taken (nothing came back after its final dot): red, Ambiguous
//   - the connection broke, or ctx ended, between MAIL and the end of the mail: red
//   - no session came about: red, NotCalled
//
// with the codes dns, conexion_rechazada, conexion, tls, conexion_cortada, respuesta_invalida and timeout. NotCalled is
// also set on a 4xx reply before MAIL (a greeting of 421, say): the server has not seen anything of the mail, and its
// outage must not use up attempts.
//
// A server that does not offer what the configuration demands: credenciales/tls_no_ofrecido and
// credenciales/auth_no_ofrecida, both Account. An address beyond ASCII that the server cannot take: smtputf8, in category
// numero, or credenciales with Account where it is the sender's. A mail that cannot be written: rechazado/clave_invalida
// without a key, numero/direccion_invalida, rechazado/remitente_invalido.
func (s *Sender) Send(ctx context.Context, m email.Mail) state.Outcome {
	l, refused := compose(m)
	if l == nil {
		return refused
	}
	var c conversation
	reply, err := c.run(ctx, s, l)
	if err != nil {
		return c.phase.outcome(err)
	}
	return state.Outcome{OK: true, ExternalID: queueID(reply)}
}

func (s *Sender) address() string {
	return net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port))
}

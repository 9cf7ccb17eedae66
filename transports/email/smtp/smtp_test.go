package smtp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	server "github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What must never show up in an outcome, an error or a log.
const (
	canaryTo       = "canario-destino@casa.example"
	canaryUser     = "canario-usuario"
	canaryPassword = "canario-secreto"
	canaryBody     = "canario-cuerpo"
	canaryKey      = "club-1:canario-clave"
)

var testMail = email.Mail{
	From:           "Club Ñandú <hola@club.example>",
	To:             canaryTo,
	Subject:        "Confirmación de tu pedido",
	HTML:           "<p>" + canaryBody + " ñ</p>\n.\n<p>fin</p>",
	Text:           canaryBody + " ñ\n.\nfin",
	IdempotencyKey: canaryKey,
	Date:           time.Date(2026, 9, 24, 9, 0, 0, 123456000, time.FixedZone("", -3*3600)),
}

func newSender(t *testing.T, c Config) *Sender {
	t.Helper()
	c.Host = "127.0.0.1"
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends and looks for canaries.
func send(t *testing.T, ctx context.Context, s *Sender, m email.Mail) state.Outcome {
	t.Helper()
	o := s.Send(ctx, m)
	if out := fmt.Sprintf("%+v", o); strings.Contains(out, "canario") {
		t.Errorf("the outcome tells a secret: %s", out)
	}
	if len(o.Category) > state.MaxCodeLength || len(o.Code) > state.MaxCodeLength {
		t.Errorf("too long to store: %+v", o)
	}
	return o
}

func check(t *testing.T, got, want state.Outcome) {
	t.Helper()
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func network(code string) state.Outcome {
	return state.Outcome{Category: state.CategoryNetwork, Code: code}
}

func uncalled(code string) state.Outcome {
	return state.Outcome{Category: state.CategoryNetwork, Code: code, NotCalled: true}
}

func ambiguous(code string) state.Outcome {
	return state.Outcome{Category: state.CategoryNetwork, Code: code, Ambiguous: true}
}

func refused(category, code string) state.Outcome {
	return state.Outcome{Category: category, Code: code}
}

func account(category, code string) state.Outcome {
	return state.Outcome{Category: category, Code: code, Account: true}
}

// Every line of the table of replies, from a server that keeps to the protocol.
func TestRefusals(t *testing.T) {
	consumed := func(answer func(net.Conn) error) func(net.Conn, io.Reader) error {
		return func(c net.Conn, body io.Reader) error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			return answer(c)
		}
	}
	onData := func(answer func(net.Conn) error) *relay { return &relay{data: consumed(answer)} }
	tests := []struct {
		name  string
		relay *relay
		want  state.Outcome
	}{
		{"MAIL 421", &relay{mail: refuse(421)}, network("smtp_421")},
		{"MAIL 451 4.7.1", &relay{mail: refuse(451, 4, 7, 1)}, network("smtp_451_4.7.1")},
		{"MAIL 452", &relay{mail: refuse(452, 4, 3, 1)}, refused(state.CategoryRateLimit, "smtp_452_4.3.1")},
		{"MAIL 500", &relay{mail: refuse(500)}, refused(state.CategoryRejected, "smtp_500")},
		{"MAIL 504", &relay{mail: refuse(504, 5, 5, 4)}, refused(state.CategoryRejected, "smtp_504_5.5.4")},
		{"MAIL 530", &relay{mail: refuse(530, 5, 7, 0)}, account(state.CategoryCredentials, "smtp_530_5.7.0")},
		{"MAIL 534", &relay{mail: refuse(534)}, account(state.CategoryCredentials, "smtp_534")},
		{"MAIL 535", &relay{mail: refuse(535)}, account(state.CategoryCredentials, "smtp_535")},
		{"MAIL 538", &relay{mail: refuse(538)}, account(state.CategoryCredentials, "smtp_538")},
		{"MAIL 550", &relay{mail: refuse(550)}, account(state.CategoryCredentials, "smtp_550")},
		{"MAIL 553 5.1.8", &relay{mail: refuse(553, 5, 1, 8)}, account(state.CategoryCredentials, "smtp_553_5.1.8")},
		{"MAIL 552 5.3.4", &relay{mail: refuse(552, 5, 3, 4)}, refused(state.CategoryRejected, "smtp_552_5.3.4")},
		{"MAIL 555", &relay{mail: refuse(555)}, refused(state.CategoryRejected, "smtp_555")},
		{"RCPT 450 greylisting", &relay{rcpt: refuse(450, 4, 7, 1)}, network("smtp_450_4.7.1")},
		{"RCPT 451", &relay{rcpt: refuse(451)}, network("smtp_451")},
		{"RCPT 452", &relay{rcpt: refuse(452)}, refused(state.CategoryRateLimit, "smtp_452")},
		{"RCPT 452 4.5.3", &relay{rcpt: refuse(452, 4, 5, 3)}, refused(state.CategoryRateLimit, "smtp_452_4.5.3")},
		{"RCPT 450 4.5.3", &relay{rcpt: refuse(450, 4, 5, 3)}, refused(state.CategoryRateLimit, "smtp_450_4.5.3")},
		{"RCPT 421 4.7.28", &relay{rcpt: refuse(421, 4, 7, 28)}, refused(state.CategoryRateLimit, "smtp_421_4.7.28")},
		{"RCPT 454", &relay{rcpt: refuse(454, 4, 7, 0)}, network("smtp_454_4.7.0")},
		{"RCPT 498, unheard of", &relay{rcpt: refuse(498)}, network("smtp_498")},
		{"RCPT 501", &relay{rcpt: refuse(501)}, refused(state.CategoryRejected, "smtp_501")},
		{"RCPT 501 5.1.3", &relay{rcpt: refuse(501, 5, 1, 3)}, refused(state.CategoryNumber, "smtp_501_5.1.3")},
		{"RCPT 521", &relay{rcpt: refuse(521)}, refused(state.CategoryNumber, "smtp_521")},
		{"RCPT 530", &relay{rcpt: refuse(530, 5, 7, 0)}, account(state.CategoryCredentials, "smtp_530_5.7.0")},
		{"RCPT 550", &relay{rcpt: refuse(550)}, refused(state.CategoryNumber, "smtp_550")},
		{"RCPT 550 5.1.1", &relay{rcpt: refuse(550, 5, 1, 1)}, refused(state.CategoryNumber, "smtp_550_5.1.1")},
		{"RCPT 550 5.2.1", &relay{rcpt: refuse(550, 5, 2, 1)}, refused(state.CategoryNumber, "smtp_550_5.2.1")},
		{"RCPT 550 5.7.1, policy", &relay{rcpt: refuse(550, 5, 7, 1)}, refused(state.CategoryRejected, "smtp_550_5.7.1")},
		{"RCPT 550 4.2.2, contradiction", &relay{rcpt: refuse(550, 4, 2, 2)}, refused(state.CategoryNumber, "smtp_550")},
		{"RCPT 551", &relay{rcpt: refuse(551)}, refused(state.CategoryNumber, "smtp_551")},
		{"RCPT 552 5.2.2, full", &relay{rcpt: refuse(552, 5, 2, 2)}, refused(state.CategoryRejected, "smtp_552_5.2.2")},
		{"RCPT 553", &relay{rcpt: refuse(553)}, refused(state.CategoryNumber, "smtp_553")},
		{"RCPT 554 5.7.1", &relay{rcpt: refuse(554, 5, 7, 1)}, refused(state.CategoryRejected, "smtp_554_5.7.1")},
		{"RCPT 556", &relay{rcpt: refuse(556, 5, 1, 10)}, refused(state.CategoryNumber, "smtp_556_5.1.10")},
		{"RCPT 599, unheard of", &relay{rcpt: refuse(599)}, refused(state.CategoryRejected, "smtp_599")},
		{"end 421", onData(refuse(421)), network("smtp_421")},
		{"end 450 4.7.26", onData(refuse(450, 4, 7, 26)), network("smtp_450_4.7.26")},
		{"end 451", onData(refuse(451)), network("smtp_451")},
		{"end 452", onData(refuse(452)), refused(state.CategoryRateLimit, "smtp_452")},
		{"end 421 4.7.28", onData(refuse(421, 4, 7, 28)), refused(state.CategoryRateLimit, "smtp_421_4.7.28")},
		{"end 550", onData(refuse(550)), refused(state.CategoryRejected, "smtp_550")},
		{"end 550 5.1.1", onData(refuse(550, 5, 1, 1)), refused(state.CategoryNumber, "smtp_550_5.1.1")},
		{"end 550 5.1.8", onData(refuse(550, 5, 1, 8)), account(state.CategoryCredentials, "smtp_550_5.1.8")},
		{"end 550 5.7.26", onData(refuse(550, 5, 7, 26)), refused(state.CategoryRejected, "smtp_550_5.7.26")},
		{"end 552 5.2.2, full", onData(refuse(552, 5, 2, 2)), refused(state.CategoryRejected, "smtp_552_5.2.2")},
		{"end 552 5.3.4, size", onData(refuse(552, 5, 3, 4)), refused(state.CategoryRejected, "smtp_552_5.3.4")},
		{"end 554 5.7.1, spam", onData(refuse(554, 5, 7, 1)), refused(state.CategoryRejected, "smtp_554_5.7.1")},
		{"end 251, taken in its own way", onData(refuse(251)), state.Outcome{OK: true}},
		{"end 354, nonsense", onData(refuse(354)), ambiguous(codeGarbage)},

		{"cut at EHLO", &relay{greet: cut}, uncalled(codeCut)},
		{"cut at MAIL", &relay{mail: cut}, network(codeCut)},
		{"cut at RCPT", &relay{rcpt: cut}, network(codeCut)},
		{"cut after the dot", onData(cut), ambiguous(codeCut)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSender(t, Config{Port: tt.relay.start(t), Security: InsecurePlaintext})
			check(t, send(t, t.Context(), s, testMail), tt.want)
		})
	}
}

// The connection goes while the mail is being written: it is too big for any buffer on the way.
func TestCutInsideTheMail(t *testing.T) {
	r := &relay{data: func(c net.Conn, body io.Reader) error {
		_, err := io.ReadFull(body, make([]byte, 100))
		return errors.Join(err, c.(*net.TCPConn).SetLinger(0), cut(c))
	}}
	s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
	m := testMail
	m.Text = strings.Repeat(strings.Repeat("x", 70)+"\n", 200_000)
	check(t, send(t, t.Context(), s, m), network(codeCut))
}

// What a well-behaved server never says.
func TestScripts(t *testing.T) {
	tests := []struct {
		name   string
		script script
		want   state.Outcome
	}{
		{"greeting 421", script{"greeting": "421 4.3.2 " + canaryTo}, uncalled("smtp_421_4.3.2")},
		{"greeting 421 4.7.28", script{"greeting": "421 4.7.28 slow down"}, state.Outcome{Category: state.CategoryRateLimit, Code: "smtp_421_4.7.28", NotCalled: true}},
		{"greeting 554", script{"greeting": "554 5.7.1 not you"}, account(state.CategoryRejected, "smtp_554_5.7.1")},
		{"greeting of another protocol", script{"greeting": "* OK IMAP4rev1"}, uncalled(codeGarbage)},
		{"cut before the greeting", script{"greeting": drop}, uncalled(codeCut)},
		{"endless greeting", script{"greeting": strings.Repeat("220-more\r\n", 40_000) + "220 end"}, uncalled(codeCut)},
		{"EHLO 421", script{"EHLO": "421 4.3.2 no", "HELO": drop}, uncalled("smtp_421_4.3.2")},
		{"EHLO and HELO 550", script{"EHLO": "550 no", "HELO": "550 no"}, account(state.CategoryRejected, "smtp_550")},
		{"a server from before EHLO", script{"EHLO": "502 what"}, state.Outcome{OK: true}},
		{"cut at EHLO", script{"EHLO": drop, "HELO": drop}, uncalled(codeCut)},
		{"MAIL nonsense", script{"MAIL": "354 eh"}, network(codeGarbage)},
		{"DATA 451", script{"DATA": "451 4.3.0 later"}, network("smtp_451_4.3.0")},
		{"DATA 554", script{"DATA": "554 5.5.1 no valid recipients"}, refused(state.CategoryRejected, "smtp_554_5.5.1")},
		{"cut at DATA", script{"DATA": drop}, network(codeCut)},
		{"cut after the dot", script{"dot": drop}, ambiguous(codeCut)},
		{"garbage after the dot", script{"dot": canaryTo + " was fine"}, ambiguous(codeGarbage)},
		{"more lines than one", script{"dot": "550-5.7.1 first\r\n550 5.7.1 second"}, refused(state.CategoryRejected, "smtp_550_5.7.1")},
		{"cut after accepting", script{"dot": "250 2.0.0 Ok: queued as 4WxYz01aBc", "QUIT": drop}, state.Outcome{OK: true, ExternalID: "4WxYz01aBc"}},
		{"refusing the farewell", script{"QUIT": "500 no"}, state.Outcome{OK: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			port, _ := tt.script.start(t)
			s := newSender(t, Config{Port: port, Security: InsecurePlaintext})
			check(t, send(t, t.Context(), s, testMail), tt.want)
		})
	}
}

// ctx ends while the server is silent, in every phase.
func TestContextEnds(t *testing.T) {
	tests := map[string]state.Outcome{
		"greeting": uncalled(state.CodeTimeout),
		"EHLO":     uncalled(state.CodeTimeout),
		"MAIL":     network(state.CodeTimeout),
		"RCPT":     network(state.CodeTimeout),
		"DATA":     network(state.CodeTimeout),
		"dot":      ambiguous(state.CodeTimeout),
		"QUIT":     {OK: true},
	}
	for step, want := range tests {
		t.Run(step, func(t *testing.T) {
			port, hung := script{step: hang}.start(t)
			s := newSender(t, Config{Port: port, Security: InsecurePlaintext})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-hung
				cancel()
			}()
			check(t, send(t, ctx, s, testMail), want)
		})
	}
	t.Run("before it began", func(t *testing.T) {
		port, _ := script{}.start(t)
		s := newSender(t, Config{Port: port, Security: InsecurePlaintext})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check(t, send(t, ctx, s, testMail), uncalled(state.CodeTimeout))
	})
}

func TestConnectTimeout(t *testing.T) {
	for _, silent := range []string{"dialling", "greeting"} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, Config{Security: InsecurePlaintext, ConnectTimeout: 7 * time.Second})
				here, there := net.Pipe()
				defer func() { _ = there.Close() }()
				s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					if silent == "dialling" {
						<-ctx.Done()
						return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
					}
					return here, nil
				}
				begin := time.Now()
				check(t, send(t, t.Context(), s, testMail), uncalled(state.CodeTimeout))
				if took := time.Since(begin); took != 7*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	s := newSender(t, Config{Port: port, Security: InsecurePlaintext})
	check(t, send(t, t.Context(), s, testMail), uncalled(adapter.CodeRefused))

	for code, err := range map[string]error{
		adapter.CodeDNS:     &net.OpError{Op: "dial", Err: &net.DNSError{Name: canaryTo, IsNotFound: true}},
		adapter.CodeConnect: &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
		state.CodeTimeout:   &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT},
	} {
		s.dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		check(t, send(t, t.Context(), s, testMail), uncalled(code))
	}
	s.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}
	}
	check(t, send(t, t.Context(), s, testMail), uncalled(adapter.CodeDNS))
}

func TestSecurity(t *testing.T) {
	good, roots := certify(t, nil)
	expired, expiredRoots := certify(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	stranger, strangerRoots := certify(t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} })
	old := good.Clone()
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	tests := []struct {
		name  string
		relay *relay
		roots *x509.CertPool
		want  state.Outcome
	}{
		{"trusted", &relay{tls: good}, roots, state.Outcome{OK: true}},
		{"untrusted", &relay{tls: good}, x509.NewCertPool(), uncalled(adapter.CodeTLS)},
		{"expired", &relay{tls: expired}, expiredRoots, uncalled(adapter.CodeTLS)},
		{"another host", &relay{tls: stranger}, strangerRoots, uncalled(adapter.CodeTLS)},
		{"too old", &relay{tls: old}, roots, uncalled(adapter.CodeTLS)},
	}
	for _, tt := range tests {
		for security, name := range map[Security]string{StartTLS: "STARTTLS", ImplicitTLS: "implicit"} {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				r := &relay{tls: tt.relay.tls, implicit: security == ImplicitTLS}
				s := newSender(t, Config{Port: r.start(t), RootCAs: tt.roots, Security: security})
				check(t, send(t, t.Context(), s, testMail), tt.want)
				if tt.want.OK != (len(r.received()) == 1) {
					t.Errorf("the server got %d mails", len(r.received()))
				}
			})
		}
	}

	scripts := []struct {
		name   string
		script script
		want   state.Outcome
	}{
		{"not offered", script{}, account(state.CategoryCredentials, codeNoTLS)},
		{"454", script{"STARTTLS": "454 4.7.0 not now"}, uncalled("smtp_454_4.7.0")},
		{"501", script{"STARTTLS": "501 no"}, account(state.CategoryCredentials, "smtp_501")},
		{"cut", script{"STARTTLS": drop}, uncalled(adapter.CodeTLS)},
		{"no TLS behind it", script{"STARTTLS": "220 go\r\n250-mx.example"}, uncalled(adapter.CodeTLS)},
	}
	for _, tt := range scripts {
		t.Run("STARTTLS "+tt.name, func(t *testing.T) {
			if tt.name != "not offered" {
				tt.script["EHLO"] = "250-mx.example\r\n250 STARTTLS"
			}
			port, _ := tt.script.start(t)
			s := newSender(t, Config{Port: port, Username: canaryUser, Password: canaryPassword})
			check(t, send(t, t.Context(), s, testMail), tt.want)
		})
	}
}

// heard is what goes over a connection as somebody on the way sees it.
type heard struct {
	net.Conn
	bytes *bytes.Buffer
}

func (h heard) Write(p []byte) (int, error) {
	h.bytes.Write(p)
	return h.Conn.Write(p)
}

// Whoever listens on the way hears nothing of the mail and the account: not when all goes well, and not when somebody takes
// the offer of TLS out of the server's answer, adds an offer to authenticate, or refuses or breaks the handshake.
func TestNothingIsSentInTheClear(t *testing.T) {
	certificate, roots := certify(t, nil)
	const offer = "250-mx.example\r\n250-AUTH PLAIN LOGIN\r\n250 "
	secure := func(t *testing.T) int {
		return (&relay{tls: certificate, mechanisms: []string{"PLAIN"}}).start(t)
	}
	scripted := func(s script) func(*testing.T) int {
		return func(t *testing.T) int {
			port, _ := s.start(t)
			return port
		}
	}
	for name, tt := range map[string]struct {
		start func(*testing.T) int
		sent  bool
	}{
		"all is well":               {secure, true},
		"the offer is taken out":    {scripted(script{"EHLO": offer + "8BITMIME"}), false},
		"STARTTLS is refused":       {scripted(script{"EHLO": offer + "STARTTLS", "STARTTLS": "454 4.7.0 not now"}), false},
		"STARTTLS is cut":           {scripted(script{"EHLO": offer + "STARTTLS", "STARTTLS": drop}), false},
		"there is no TLS behind it": {scripted(script{"EHLO": offer + "STARTTLS", "STARTTLS": "220 go\r\n" + offer + "8BITMIME"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, Config{Port: tt.start(t), RootCAs: roots, Username: canaryUser, Password: canaryPassword})
			dial, all := s.dial, new(bytes.Buffer)
			s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return heard{conn, all}, err
			}
			if o := send(t, t.Context(), s, testMail); o.OK != tt.sent {
				t.Errorf("%v", o)
			}
			clear := all.String()
			secrets := []string{
				"MAIL", "AUTH", "canario", base64.StdEncoding.EncodeToString([]byte("\x00" + canaryUser + "\x00" + canaryPassword)),
				base64.StdEncoding.EncodeToString([]byte(canaryUser)), base64.StdEncoding.EncodeToString([]byte(canaryPassword)),
			}
			for _, secret := range secrets {
				if strings.Contains(clear, secret) {
					t.Errorf("%q was to be heard", secret)
				}
			}
			if !strings.Contains(clear, "EHLO ") {
				t.Error("nothing was heard at all")
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	certificate, roots := certify(t, nil)
	both := []string{"LOGIN", "PLAIN"}
	tests := []struct {
		name       string
		mechanisms []string
		auth       func(net.Conn) error
		logins     string
		want       state.Outcome
	}{
		{"PLAIN", both, nil, "PLAIN", state.Outcome{OK: true}},
		{"LOGIN", both[:1], nil, "LOGIN", state.Outcome{OK: true}},
		{"none", nil, nil, "", account(state.CategoryCredentials, codeNoAuth)},
		{"only unknown ones", []string{"GSSAPI"}, nil, "", account(state.CategoryCredentials, codeNoAuth)},
		{"432", both, refuse(432, 4, 7, 12), "PLAIN", uncalled("smtp_432_4.7.12")},
		{"454", both, refuse(454, 4, 7, 0), "PLAIN", uncalled("smtp_454_4.7.0")},
		{"504", both, refuse(504, 5, 5, 4), "PLAIN", account(state.CategoryCredentials, "smtp_504_5.5.4")},
		{"530", both, refuse(530), "PLAIN", account(state.CategoryCredentials, "smtp_530")},
		{"534", both, refuse(534, 5, 7, 9), "PLAIN", account(state.CategoryCredentials, "smtp_534_5.7.9")},
		{"535", both, refuse(535, 5, 7, 8), "PLAIN", account(state.CategoryCredentials, "smtp_535_5.7.8")},
		{"535 to LOGIN", both[:1], refuse(535, 5, 7, 8), "LOGIN", account(state.CategoryCredentials, "smtp_535_5.7.8")},
		{"538", both, refuse(538), "PLAIN", account(state.CategoryCredentials, "smtp_538")},
		{"550", both, refuse(550), "PLAIN", account(state.CategoryCredentials, "smtp_550")},
		{"cut", both, cut, "PLAIN", uncalled(codeCut)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &relay{tls: certificate, mechanisms: tt.mechanisms, auth: tt.auth}
			s := newSender(t, Config{Port: r.start(t), RootCAs: roots, Username: canaryUser, Password: canaryPassword})
			check(t, send(t, t.Context(), s, testMail), tt.want)
			var want []string
			if tt.logins != "" {
				want = []string{tt.logins + " " + canaryUser + " " + canaryPassword}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.logins, want) {
				t.Errorf("logins %q, want %q", r.logins, want)
			}
		})
	}
}

func TestMailOnTheWire(t *testing.T) {
	r := &relay{}
	s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
	for range 2 {
		check(t, send(t, t.Context(), s, testMail), state.Outcome{OK: true})
	}
	mails := r.received()
	if len(mails) != 2 || mails[0] != mails[1] {
		t.Fatalf("the attempts differ:\n%q", mails)
	}
	got, err := netmail.ReadMessage(strings.NewReader(mails[0]))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	if err != nil || subject != testMail.Subject {
		t.Errorf("subject %q, %v", subject, err)
	}
	from, err := got.Header.AddressList("From")
	if err != nil || len(from) != 1 || from[0].Name != "Club Ñandú" || from[0].Address != "hola@club.example" {
		t.Errorf("from %v, %v", from, err)
	}
	for header, want := range map[string]string{
		"To":           "<" + canaryTo + ">",
		"Date":         "Thu, 24 Sep 2026 12:00:00 +0000",
		"Message-Id":   "<p6lk3ts5w5pkh77hsavsjaw4kwwsbiypsackfhzmctqp7j5ihkcq@club.example>",
		"Mime-Version": "1.0",
		"User-Agent":   "",
		"X-Mailer":     "",
	} {
		if have := got.Header.Get(header); have != want {
			t.Errorf("%s: %q, want %q", header, have, want)
		}
	}

	kind, params, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("%s, %v", kind, err)
	}
	parts := multipart.NewReader(got.Body, params["boundary"])
	for _, want := range []struct{ kind, body string }{
		{"text/plain; charset=UTF-8", testMail.Text},
		{"text/html; charset=UTF-8", testMail.HTML},
	} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if kind := part.Header.Get("Content-Type"); err != nil || kind != want.kind ||
			strings.ReplaceAll(string(body), "\r\n", "\n") != want.body {
			t.Errorf("part %q %q, %v", kind, body, err)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("another part: %v", err)
	}
}

func TestSinglePart(t *testing.T) {
	for _, html := range []bool{false, true} {
		m, kind := testMail, "text/plain; charset=UTF-8"
		if m.HTML = ""; html {
			m.HTML, m.Text, kind = testMail.HTML, "", "text/html; charset=UTF-8"
		}
		l, refused := compose(m)
		if l == nil {
			t.Fatal(refused)
		}
		got, err := netmail.ReadMessage(bytes.NewReader(l.bytes))
		if err != nil || got.Header.Get("Content-Type") != kind {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// A mail that is different gets another boundary, so that no content can hold its own.
func TestBoundaryFollowsContent(t *testing.T) {
	m := testMail
	m.HTML += "--" + boundary(testMail) + "--"
	if boundary(m) == boundary(testMail) {
		t.Error("the content could guess its boundary")
	}
	m = testMail
	m.Text, m.HTML = m.Text+m.HTML[:1], m.HTML[1:]
	if boundary(m) == boundary(testMail) {
		t.Error("the parts run into each other")
	}
}

// A line break cannot become another header or another command.
func TestInjection(t *testing.T) {
	r := &relay{}
	s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
	m := testMail
	m.Subject = "hola\r\nBcc: otro@casa.example"
	check(t, send(t, t.Context(), s, m), state.Outcome{OK: true})
	if mail := r.received()[0]; strings.Contains(mail, "\nBcc:") {
		t.Errorf("another header:\n%s", mail)
	}
	for _, to := range []string{"a@casa.example>\r\nRCPT TO:<b@casa.example", "a@casa.example, b@casa.example", "", "a"} {
		m.To = to
		check(t, send(t, t.Context(), s, m), refused(state.CategoryNumber, email.CodeBadAddress))
	}
	m.To = `"a b"@casa.example`
	check(t, send(t, t.Context(), s, m), state.Outcome{OK: true})
	m = testMail
	m.From = "nobody"
	check(t, send(t, t.Context(), s, m), account(state.CategoryRejected, codeBadSender))
	m = testMail
	m.IdempotencyKey = ""
	check(t, send(t, t.Context(), s, m), refused(state.CategoryRejected, state.CodeBadKey))
	if n := len(r.received()); n != 2 {
		t.Errorf("%d mails left", n)
	}
}

func TestAddressesBeyondASCII(t *testing.T) {
	for _, utf8 := range []bool{false, true} {
		r := &relay{utf8: utf8}
		s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
		for _, tt := range []struct {
			from, to string
			want     state.Outcome
		}{
			{"hola@club.example", "ñandú@casa.example", refused(state.CategoryNumber, codeNoUTF8)},
			{"hola@ñandú.example", "ana@casa.example", account(state.CategoryCredentials, codeNoUTF8)},
		} {
			m := testMail
			m.From, m.To = tt.from, tt.to
			if utf8 {
				tt.want = state.Outcome{OK: true}
			}
			check(t, send(t, t.Context(), s, m), tt.want)
		}
	}
}

// SMTPUTF8 is not asked for without need.
func TestPlainAddressesStayPlain(t *testing.T) {
	asked := make(chan bool, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := server.NewServer(server.BackendFunc(func(*server.Conn) (server.Session, error) {
		return &askedForUTF8{asked: asked}, nil
	}))
	srv.EnableSMTPUTF8 = true
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	s := newSender(t, Config{Port: l.Addr().(*net.TCPAddr).Port, Security: InsecurePlaintext})
	check(t, send(t, t.Context(), s, testMail), state.Outcome{OK: true})
	if <-asked {
		t.Error("SMTPUTF8 was asked for")
	}
	if err := errors.Join(srv.Close(), <-served); err != nil {
		t.Error(err)
	}
}

type askedForUTF8 struct {
	session
	asked chan bool
}

func (a *askedForUTF8) Mail(_ string, o *server.MailOptions) error {
	a.asked <- o.UTF8
	return nil
}
func (*askedForUTF8) Rcpt(string, *server.RcptOptions) error { return nil }
func (*askedForUTF8) Data(body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}
func (*askedForUTF8) AuthMechanisms() []string { return nil }

func TestQueueID(t *testing.T) {
	for reply, want := range map[string]string{
		"2.0.0 Ok: queued as 4WxYz01aBc":                                  "4WxYz01aBc",
		"2.0.0: 7f3a21bc Message accepted for delivery; id=9x":            "",
		"OK id=1tQxyz-0000000AbCd-1234":                                   "1tQxyz-0000000AbCd-1234",
		"Ok 0100018f2c1d3e4f-5a6b7c8d-0000-4000-8000-9e0f1a2b3c4d-000000": "0100018f2c1d3e4f-5a6b7c8d-0000-4000-8000-9e0f1a2b3c4d-000000",
		"2.0.0 OK  1718000000 af79cd13be357-7955d0 - gsmtp":               "1718000000",
		"2.0.0 58FA1b2c031234 Message accepted for delivery":              "58FA1b2c031234",
		"2.0.0 OK: queued":                                 "",
		"2.0.0 Ok queued":                                  "",
		"OK id=ana1990@casa.example":                       "",
		"2.0.0 Ok: queued as ana1990@casa.example":         "",
		"thanks, ana1990@casa.example":                     "",
		"2.0.0 Ok: queued as " + strings.Repeat("a1", 100): "",
		"": "",
	} {
		if got := queueID(reply); got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}

func TestNew(t *testing.T) {
	tests := []struct {
		field string
		edit  func(*Config)
	}{
		{"", func(*Config) {}},
		{"", func(c *Config) { c.Username, c.Password = canaryUser, canaryPassword }},
		{"", func(c *Config) { c.Security = InsecurePlaintext }},
		{"Host", func(c *Config) { c.Host = "" }},
		{"Host", func(c *Config) { c.Host = "mx.example\r\nQUIT" }},
		{"Host", func(c *Config) { c.Host = "mx.example:587" }},
		{"", func(c *Config) { c.Host = "::1" }},
		{"Port", func(c *Config) { c.Port = -1 }},
		{"Port", func(c *Config) { c.Port = 65536 }},
		{"Security", func(c *Config) { c.Security = 3 }},
		{"Username", func(c *Config) { c.Security, c.Username = InsecurePlaintext, canaryUser }},
		{"Username", func(c *Config) { c.Password = canaryPassword }},
		{"LocalName", func(c *Config) { c.LocalName = "a b" }},
		{"ConnectTimeout", func(c *Config) { c.ConnectTimeout = -1 }},
	}
	for _, tt := range tests {
		c := Config{Host: "mx.example"}
		tt.edit(&c)
		_, err := New(c)
		var invalid *state.InvalidError
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("%v", err)
		case tt.field != "" && (!errors.As(err, &invalid) || invalid.Field != tt.field):
			t.Errorf("%v, want the field %s", err, tt.field)
		case err != nil && strings.Contains(err.Error(), "canario"):
			t.Errorf("it tells a secret: %v", err)
		}
	}
	for security, port := range map[Security]int{StartTLS: 587, ImplicitTLS: 465, InsecurePlaintext: 587} {
		s, err := New(Config{Host: "mx.example", Security: security})
		if err != nil || s.config.Port != port || s.config.ConnectTimeout != DefaultConnectTimeout || s.config.LocalName == "" {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestPrintingTellsNothing(t *testing.T) {
	c := Config{Host: "mx.example", Username: canaryUser, Password: canaryPassword}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, nil))
	log.Info("", "config", c, "sender", s)
	_, _ = fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %s", c, c, c, c, s, s, s, s)
	if strings.Contains(b.String(), "canario") || !strings.Contains(b.String(), "smtp mx.example:587") {
		t.Error(b.String())
	}
}

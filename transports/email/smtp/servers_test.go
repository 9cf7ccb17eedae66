package smtp

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	server "github.com/emersion/go-smtp"
)

// relay is a real server in the process. Its functions, where set, decide what a phase answers; they get the
// connection so that they can cut it.
type relay struct {
	greet, mail, rcpt, auth func(net.Conn) error
	data                    func(net.Conn, io.Reader) error
	mechanisms              []string
	utf8                    bool
	tls                     *tls.Config
	implicit                bool

	mu     sync.Mutex
	mails  []string
	rcpts  []string
	logins []string
}

// start serves until the test ends and returns the port.
func (r *relay) start(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	s := server.NewServer(server.BackendFunc(func(c *server.Conn) (server.Session, error) {
		return &session{r, c}, call(r.greet, c)
	}))
	s.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableSMTPUTF8 = r.utf8
	if r.implicit {
		l = tls.NewListener(l, r.tls)
	} else {
		s.TLSConfig = r.tls
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return port
}

func (r *relay) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mails
}

func call(f func(net.Conn) error, c *server.Conn) error {
	if f == nil {
		return nil
	}
	return f(c.Conn())
}

type session struct {
	relay *relay
	conn  *server.Conn
}

func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }

func (s *session) Mail(string, *server.MailOptions) error { return call(s.relay.mail, s.conn) }

func (s *session) Rcpt(to string, _ *server.RcptOptions) error {
	s.relay.mu.Lock()
	s.relay.rcpts = append(s.relay.rcpts, to)
	s.relay.mu.Unlock()
	return call(s.relay.rcpt, s.conn)
}

func (s *session) Data(body io.Reader) error {
	if s.relay.data != nil {
		return s.relay.data(s.conn.Conn(), body)
	}
	b, err := io.ReadAll(body)
	s.relay.mu.Lock()
	s.relay.mails = append(s.relay.mails, string(b))
	s.relay.mu.Unlock()
	return err
}

func (s *session) AuthMechanisms() []string { return s.relay.mechanisms }

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		s.relay.mu.Lock()
		s.relay.logins = append(s.relay.logins, mechanism+" "+user+" "+password)
		s.relay.mu.Unlock()
		return call(s.relay.auth, s.conn)
	}
	if mechanism == "LOGIN" {
		return &login{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

// login is the server's side of AUTH LOGIN.
type login struct {
	check func(user, password string) error
	user  *string
}

func (l *login) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.user == nil:
		user := string(response)
		l.user = &user
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(*l.user, string(response))
}

// refuse answers with a reply that quotes what must never come back from a sender.
func refuse(code int, enhanced ...int) func(net.Conn) error {
	e := server.NoEnhancedCode
	if len(enhanced) == 3 {
		e = server.EnhancedCode(enhanced)
	}
	return func(net.Conn) error {
		return &server.SMTPError{Code: code, EnhancedCode: e, Message: canaryTo + ": " + canaryPassword + " refused"}
	}
}

func cut(c net.Conn) error {
	_ = c.Close()
	return errors.New("cut")
}

// Special answers of a script.
const (
	drop = "(drop)" // close the connection
	hang = "(hang)" // say no more, and report it
)

// script is a server that speaks line by line, for what a well-behaved one cannot be made to say. Its keys are the
// verbs, and "greeting" and "dot".
type script map[string]string

func (s script) answer(step string) string {
	if a, ok := s[step]; ok {
		return a
	}
	switch step {
	case "greeting":
		return "220 mx.example ESMTP"
	case "EHLO":
		return "250-mx.example\r\n250 ENHANCEDSTATUSCODES"
	case "DATA":
		return "354 go on"
	case "QUIT":
		return "221 bye"
	}
	return "250 2.0.0 Ok"
}

// start serves until the test ends; hung is closed when the script hangs.
func (s script) start(t *testing.T) (port int, hung <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hanging := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn, hanging) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port, hanging
}

// serve plays the script on one connection, until it ends or the client hangs up.
func (s script) serve(conn net.Conn, hanging chan struct{}) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for step := "greeting"; ; {
		answer := s.answer(step)
		switch answer {
		case drop:
			return
		case hang:
			close(hanging)
			_, _ = io.Copy(io.Discard, in)
			return
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return
		}
		inMail := step == "DATA" && strings.HasPrefix(answer, "354")
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if inMail && line != ".\r\n" {
				continue
			}
			step, _, _ = strings.Cut(strings.TrimSpace(line), " ")
			break
		}
		if inMail {
			step = "dot"
		}
	}
}

// certify returns a server's TLS configuration for 127.0.0.1 and the roots that trust it.
func certify(t *testing.T, edit func(*x509.Certificate)) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "mx.example"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	if edit != nil {
		edit(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}

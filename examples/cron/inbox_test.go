package main

import (
	"context"
	"io"
	"log"
	"net"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
)

// Recipients with whom the inbox has trouble.
const (
	unknown = "nadie@correo.example"
	busy    = "luego@correo.example"
)

// inbox is an SMTP server that keeps what it accepts.
type inbox struct {
	port int

	mu       sync.Mutex
	mails    []string
	arrived  func()          // called when a mail has arrived, before it is accepted
	released <-chan struct{} // nil, or what its acceptance waits for
}

func startInbox(t *testing.T) *inbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &inbox{port: l.Addr().(*net.TCPAddr).Port}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return session{i}, nil }))
	server.ErrorLog = log.New(io.Discard, "", 0)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return i
}

// hold calls arrived at every mail and then keeps it waiting until released is closed.
func (i *inbox) hold(arrived func(), released <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.arrived, i.released = arrived, released
}

func (i *inbox) received() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mails
}

type session struct{ *inbox }

func (session) Mail(string, *smtp.MailOptions) error { return nil }

func (session) Rcpt(to string, _ *smtp.RcptOptions) error {
	switch to {
	case unknown:
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	case busy:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"}
	}
	return nil
}

func (s session) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.mails = append(s.mails, string(mail))
	arrived, released := s.arrived, s.released
	s.mu.Unlock()
	if released != nil {
		arrived()
		<-released
	}
	return nil
}

func (session) Reset()        {}
func (session) Logout() error { return nil }

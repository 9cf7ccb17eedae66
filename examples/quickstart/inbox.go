package main

import (
	"context"
	"errors"
	"io"
	"log"
	"mime"
	"net"
	"net/mail"
	"regexp"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
)

// inbox is a real SMTP server in this process. It keeps what it accepts in its ledger, and misbehaves as planned.
type inbox struct {
	*ledger
	server *smtp.Server
	port   int
	served chan error
}

func startInbox() (*inbox, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &inbox{ledger: newLedger(), port: l.Addr().(*net.TCPAddr).Port, served: make(chan error, 1)}
	i.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &conversation{inbox: i, conn: c.Conn()}, nil
	}))
	i.server.Domain = "inbox.example"
	i.server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { i.served <- i.server.Serve(l) }()
	return i, nil
}

// close waits for the conversations that go on.
func (i *inbox) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(i.server.Shutdown(ctx), <-i.served)
}

// nowhere is the domain of the addresses that do not exist.
const nowhere = "@buzon-inexistente.example"

// conversation is one connection's. Recado's sender uses each for one mail.
type conversation struct {
	inbox *inbox
	conn  net.Conn
	to    string
}

func (c *conversation) Mail(string, *smtp.MailOptions) error { return nil }

func (c *conversation) Rcpt(to string, _ *smtp.RcptOptions) error {
	if strings.HasSuffix(to, nowhere) {
		c.inbox.forbid(to)
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "No such user"}
	}
	c.to = to
	return nil
}

// Data takes the mail. What it returns is the answer to the mail's final dot.
func (c *conversation) Data(r io.Reader) error {
	d, err := readMail(r)
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Not a mail of ours"}
	}
	d.to = c.to
	switch c.inbox.attempt(d) {
	case refuse:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "Try again later"}
	case cutBefore, cutAfter:
		_ = c.conn.Close() // the answer below finds no connection
		return errors.New("cut")
	}
	return nil
}

func (c *conversation) Reset()        { c.to = "" }
func (c *conversation) Logout() error { return nil }

// orderNumber finds the order in a subject such as "Pedido UG-0001: Bolso".
var orderNumber = regexp.MustCompile(`^Pedido (\S+):`)

func readMail(r io.Reader) (delivery, error) {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return delivery{}, err
	}
	subject, err := (&mime.WordDecoder{}).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		return delivery{}, err
	}
	number := orderNumber.FindStringSubmatch(subject)
	if number == nil {
		return delivery{}, errors.New("no order in the subject")
	}
	if _, err := io.Copy(io.Discard, m.Body); err != nil { // half a mail is none
		return delivery{}, err
	}
	return delivery{key: m.Header.Get("Message-Id"), order: number[1], text: subject}, nil
}

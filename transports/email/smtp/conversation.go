package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	netmail "net/mail"
	"slices"
	"strings"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"
)

// Bounds on a server that talks without end, or does not answer a farewell.
const (
	maxReceived = 256 << 10 // bytes per connection, certificates included
	maxFarewell = time.Second
)

// Errors of a session that the server did not cause by a reply.
var (
	errNoTLS      = errors.New("the server does not offer STARTTLS")
	errNoAuth     = errors.New("the server offers no usable authentication")
	errNoUTF8To   = errors.New("the server cannot take the recipient's address")
	errNoUTF8From = errors.New("the server cannot take the sender's address")
)

// conversation is one connection from dialling to hanging up. phase is how far it got, which decides what an error
// means.
type conversation struct {
	phase  phase
	conn   net.Conn // below TLS
	client *gosmtp.Client
}

// run holds the whole conversation and returns the server's reply to the mail.
func (c *conversation) run(ctx context.Context, s *Sender, l *letter) (reply string, err error) {
	if err = c.begin(ctx, s); err == nil {
		reply, err = c.transmit(ctx, l)
	}
	c.hangUp(err)
	return reply, err
}

// begin dials, greets, encrypts and authenticates, within ConnectTimeout.
func (c *conversation) begin(ctx context.Context, s *Sender) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", s.address())
	if err != nil {
		return cause(ctx, err)
	}
	c.conn = &bounded{Conn: conn, left: maxReceived}
	// Closing is what ends a read or write that waits; the protocol's client knows no context.
	release := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	err = c.setUp(ctx, s)
	if !release() && err == nil {
		err = ctx.Err()
	}
	return cause(ctx, err)
}

func (c *conversation) setUp(ctx context.Context, s *Sender) (err error) {
	conn := c.conn
	if s.config.Security == ImplicitTLS {
		c.phase = securing
		secured := tls.Client(conn, s.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = secured
	}
	c.phase = greeting
	if c.client, err = gosmtp.NewClient(conn, s.config.Host); err != nil {
		return err
	}
	if err := c.client.Hello(s.config.LocalName); err != nil {
		return err
	}
	if s.config.Security == StartTLS {
		c.phase = securing
		if ok, _ := c.client.Extension("STARTTLS"); !ok {
			return errNoTLS
		}
		if err := c.client.StartTLS(s.tls); err != nil {
			return err
		}
	}
	if s.config.Username != "" {
		c.phase = authenticating
		auth := c.authentication(s.config)
		if auth == nil {
			return errNoAuth
		}
		if err := c.client.Auth(auth); err != nil {
			return err
		}
	}
	return nil
}

// authentication sends the password as it is: TLS, without which there is no user name, protects it.
func (c *conversation) authentication(cfg Config) gosmtp.Auth {
	_, offer := c.client.Extension("AUTH")
	offered := strings.Fields(strings.ToUpper(offer))
	switch {
	case slices.Contains(offered, "PLAIN"):
		return gosmtp.PlainAuth("", cfg.Username, cfg.Password, cfg.Host, false)
	case slices.Contains(offered, "LOGIN"):
		return gosmtp.LoginAuth(cfg.Username, cfg.Password, cfg.Host, false)
	}
	return nil
}

// transmit runs the transaction.
func (c *conversation) transmit(ctx context.Context, l *letter) (reply string, err error) {
	release := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer release()
	defer func() { err = cause(ctx, err) }()

	// Asked for without need, SMTPUTF8 makes relays refuse mails that they could pass on.
	plainTo := !slices.ContainsFunc(l.to, func(a *netmail.Address) bool { return !ascii(a) })
	plain := plainTo && ascii(l.from) && ascii(l.replyTo)
	c.client.SkipSMTPUTF8(plain)
	if ok, _ := c.client.Extension("SMTPUTF8"); !plain && !ok {
		if plainTo {
			return "", errNoUTF8From
		}
		return "", errNoUTF8To
	}
	c.phase = sender
	if err := c.client.Mail(path(l.from)); err != nil {
		return "", err
	}
	c.phase = recipient
	for _, to := range l.to { // all or none: it is one message
		if err := c.client.Rcpt(path(to)); err != nil {
			return "", err
		}
	}
	c.phase = content
	w, err := c.client.Data()
	if err != nil {
		return "", err
	}
	if _, err := w.Write(l.bytes); err != nil { // never w.Close here: its dot would make half a mail a whole one
		return "", err
	}
	c.phase = dot
	err = w.Close()
	if r, ok := asReply(err); ok && r.Code/100 == 2 { // the client expects exactly 250
		return r.Msg, nil
	}
	return w.(*gosmtp.DataCloser).ServerResponse(), err
}

// hangUp says QUIT, briefly, where the last command got its reply, and closes the connection. After half a mail there
// must be no QUIT: the client would finish the mail first.
func (c *conversation) hangUp(err error) {
	if c.conn == nil {
		return
	}
	_, replied := asReply(err)
	if c.client != nil && (err == nil || replied) && c.conn.SetDeadline(time.Now().Add(maxFarewell)) == nil {
		_ = c.client.Quit()
	}
	_ = c.conn.Close()
}

// cause prefers the end of ctx to the broken connection that it brought about. A reply that arrived counts all the same.
func cause(ctx context.Context, err error) error {
	if _, replied := asReply(err); err != nil && !replied && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// bounded is a connection that reads no more than so many bytes.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

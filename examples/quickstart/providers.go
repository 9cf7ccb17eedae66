package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
	"github.com/recado-dev/recado/transports/email/smtp"
	"github.com/recado-dev/recado/transports/whatsapp"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

// nowhere is the domain of the addresses that the double of Resend does not take.
const nowhere = "@buzon-inexistente.example"

// faults are the doubles', the same at every run: some calls are refused, fail, or are cut off.
var faults = fakes.Seeded(2)

// doubleKey is the key of an account at the doubles.
func doubleKey(account string) string { return "llave-de-" + account }

// openMail returns what e-mail leaves through: the sender for the server or the account of the command line, or the one for
// Resend with its double, which the caller closes.
func openMail(o options) (email.Sender, *double, error) {
	switch {
	case o.smtp != "":
		s, err := openSMTP(o.smtp)
		return s, nil, err
	case o.resendKey != "":
		return resend.New(o.resendKey), nil, nil
	}
	d, err := startDouble(fakes.NewResend(fakes.ResendConfig{
		Key: doubleKey("tienda"), Faults: faults, Refuse: func(to string) bool { return strings.HasSuffix(to, nowhere) },
	}))
	if err != nil {
		return nil, nil, err
	}
	return resend.New(doubleKey("tienda"), resend.BaseURL(d.url), resend.HTTPClient(d.client)), d, nil
}

// openChat returns what WhatsApp leaves through, and each club's account: the one of the command line, or all clubs' own at a
// double, which the caller closes.
func openChat(o options, orders []Order) (whatsapp.Sender, func(club string) *whatsapp.Credentials, *double, error) {
	if o.kapsoKey != "" {
		return kapso.New(), func(string) *whatsapp.Credentials {
			return &whatsapp.Credentials{PhoneNumberID: o.kapsoNumber, APIKey: o.kapsoKey}
		}, nil, nil
	}
	keys := map[string]string{}
	for _, o := range orders {
		keys[o.ClubID] = doubleKey(o.ClubID)
	}
	d, err := startDouble(fakes.NewKapso(fakes.KapsoConfig{Keys: keys, Templates: map[string]int{template: 3}, Faults: faults}))
	if err != nil {
		return nil, nil, nil, err
	}
	return kapso.New(kapso.BaseURL(d.url+"/meta/whatsapp/v24.0"), kapso.HTTPClient(d.client)), func(club string) *whatsapp.Credentials {
		return &whatsapp.Credentials{PhoneNumberID: club, APIKey: keys[club]}
	}, d, nil
}

const smtpForm = "smtp://usuario:clave@servidor:587, smtps://… (TLS desde el principio) o smtp+inseguro://localhost:1025"

// openSMTP reads the address of a server. Its errors show nothing of it, for there may be a password in it.
func openSMTP(address string) (*smtp.Sender, error) {
	u, err := url.Parse(address)
	if err != nil {
		u = &url.URL{}
	}
	security, known := map[string]smtp.Security{
		"smtp": smtp.StartTLS, "smtps": smtp.ImplicitTLS, "smtp+inseguro": smtp.InsecurePlaintext,
	}[u.Scheme]
	if !known || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return nil, errors.New("-smtp no es la URL de un servidor, o lleva sin escapar una @, /, ? o # de la clave: escriba " + smtpForm)
	}
	c := smtp.Config{Host: u.Hostname(), Username: u.User.Username(), Security: security}
	c.Password, _ = u.User.Password()
	if port := u.Port(); port != "" {
		if c.Port, err = strconv.Atoi(port); err != nil {
			return nil, errors.New("el puerto de -smtp no es un número")
		}
	}
	s, err := smtp.New(c)
	if err != nil {
		return nil, fmt.Errorf("el servidor de -smtp no sirve: %w", err)
	}
	return s, nil
}

// double is a provider in this process, over real HTTP.
type double struct {
	record func() fakes.Record
	url    string
	client *http.Client
	server *http.Server
	served chan error
}

func startDouble(provider interface {
	http.Handler
	Record() fakes.Record
},
) (*double, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &double{
		record: provider.Record, url: "http://" + l.Addr().String(), served: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}},
		server: &http.Server{Handler: provider, ReadHeaderTimeout: 5 * time.Second},
	}
	go func() { d.served <- d.server.Serve(l) }()
	return d, nil
}

// close waits for the calls that go on. The real thing, nil, has nothing to close.
func (d *double) close() error {
	if d == nil {
		return nil
	}
	d.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := d.server.Shutdown(ctx)
	if served := <-d.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// source says where it is known from what was accepted.
func (d *double) source() string {
	if d == nil {
		return " según el outbox (los registros del proveedor no están a la vista)"
	}
	return ""
}

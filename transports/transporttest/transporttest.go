// Package transporttest holds a transport over HTTP to what the worker relies on. Anybody who writes one runs it in a few
// lines:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, transporttest.Subject{New: newTransport, Message: message, Accepted: `{"id":"a-1"}`, ExternalID: "a-1"})
//	}
//
// One file holds one kind of accident: what is answered (answers.go), what happens on the wire (wire.go), and what is left
// behind (leaks.go). Everything runs against servers on this machine, on free ports.
//
// It shows what every such transport has to do. What a provider's own codes mean, and what its requests look like, is for
// the transport's own tests to show.
package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// Subject is a transport under test. All fields but Secrets and Categories are required.
type Subject struct {
	// New returns a transport that calls the provider at baseURL, through client. It is asked for a new one many times, and
	// all of them must send the same message in the same bytes.
	New func(t *testing.T, baseURL string, client *http.Client) transports.Transport

	// Message is one that the transport sends. Its destination, key and data should be like no other text, since they
	// must not show up in an outcome.
	Message transports.Message

	// Accepted is the body, under status 200, with which the provider takes the message, and ExternalID what the outcome
	// then has.
	Accepted   string
	ExternalID string

	// Secrets are more texts that must never show up in an outcome or a log, such as keys.
	Secrets []string

	// Categories are those of statuses to which the provider gives another meaning than the rest of the world.
	Categories map[int]string
}

// patience bounds what should happen at once.
const patience = 20 * time.Second

// Run runs the whole battery as subtests of t.
func Run(t *testing.T, s Subject) {
	t.Helper()
	for _, g := range []struct {
		name  string
		cases []testCase
	}{
		{"Answers", answerCases},
		{"Wire", wireCases},
		{"Leaks", leakCases},
	} {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newKit(t, s)) })
			}
		})
	}
}

type testCase struct {
	name string
	run  func(k *kit)
}

// kit is one case's provider, the client that leads to it, and a transport over both.
type kit struct {
	*testing.T
	subject   Subject
	provider  *provider
	client    *http.Client
	transport transports.Transport
}

func newKit(t *testing.T, s Subject) *kit {
	t.Helper()
	k := &kit{T: t, subject: s, provider: newProvider(t), client: newClient(t)}
	k.provider.answer = k.accept
	k.transport = s.New(t, k.provider.URL, k.client)
	return k
}

// newClient has no timeout: the attempt's context is what ends a call.
func newClient(t *testing.T) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 2 * senders}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (k *kit) accept(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, k.subject.Accepted)
}

// send makes an attempt and checks what holds for every outcome.
func (k *kit) send(ctx context.Context) state.Outcome {
	k.Helper()
	o := k.transport.Send(ctx, k.subject.Message)
	k.wellFormed(o)
	return o
}

func (k *kit) wellFormed(o state.Outcome) {
	k.Helper()
	switch {
	case o.OK && (o.Category != "" || o.Ambiguous || o.NotCalled || o.Account):
		k.Errorf("accepted, and yet %+v", o)
	case !o.OK && (o.Category == "" || o.Code == "" || len(o.Category) > state.MaxCodeLength || len(o.Code) > state.MaxCodeLength):
		k.Errorf("no words to store: %+v", o)
	case o.Ambiguous && o.NotCalled:
		k.Errorf("both taken and not called: %+v", o)
	case o.RetryAfter < 0:
		k.Errorf("a negative wait: %+v", o)
	}
	k.tellsNothing(fmt.Sprintf("%+v", o))
}

// tellsNothing looks for secrets. The external id of an accepted message is not asked about: a provider makes it up.
func (k *kit) tellsNothing(text string) {
	k.Helper()
	m := k.subject.Message
	for _, secret := range append([]string{m.Destination, m.IdempotencyKey, string(m.Data)}, k.subject.Secrets...) {
		if secret != "" && strings.Contains(text, secret) {
			k.Errorf("it tells a secret: %s", text)
		}
	}
}

func (k *kit) wantAccepted(o state.Outcome, id string) {
	k.Helper()
	if o != (state.Outcome{OK: true, ExternalID: id}) {
		k.Errorf("not accepted with id %q: %+v", id, o)
	}
}

// wantLost wants an attempt without an answer.
func (k *kit) wantLost(o state.Outcome, ambiguous, notCalled bool) {
	k.Helper()
	if o.OK || o.Category != state.CategoryNetwork || o.Ambiguous != ambiguous || o.NotCalled != notCalled || o.Account {
		k.Errorf("%+v, want category %s, Ambiguous %v, NotCalled %v", o, state.CategoryNetwork, ambiguous, notCalled)
	}
}

func (k *kit) wantCalls(n int) {
	k.Helper()
	if got := len(k.provider.seen()); got != n {
		k.Errorf("%d requests on the wire, want %d", got, n)
	}
}

// provider is a server that does what answer says, and keeps a ledger.
type provider struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)
	unread bool // leave the bodies of requests where they are

	mu    sync.Mutex
	calls []call
	conns map[net.Conn]bool // open ones
	total int               // connections ever
}

type call struct {
	method, uri string
	header      http.Header
	body        []byte
}

func newProvider(t *testing.T) *provider {
	p := &provider{conns: map[net.Conn]bool{}}
	p.Server = httptest.NewUnstartedServer(p)
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.Config.ConnState = func(c net.Conn, s http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch s {
		case http.StateNew:
			p.total++
			p.conns[c] = true
		case http.StateClosed, http.StateHijacked:
			delete(p.conns, c)
		}
	}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{method: r.Method, uri: r.RequestURI, header: r.Header.Clone()}
	if !p.unread {
		body, err := io.ReadAll(r.Body)
		if err != nil { // the client went away
			return
		}
		c.body = body
	}
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	p.answer(w, r)
}

func (p *provider) seen() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func (p *provider) connections() (open, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns), p.total
}

func (c call) equal(d call) bool {
	return c.method == d.method && c.uri == d.uri && bytes.Equal(c.body, d.body) && fmt.Sprint(c.header) == fmt.Sprint(d.header)
}

// cut ends the connection without an answer; with reset, so that even what was received is lost.
func cut(t *testing.T, w http.ResponseWriter, reset bool) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		if err := tcp.SetLinger(0); err != nil {
			t.Error(err)
		}
	}
	_ = conn.Close()
}

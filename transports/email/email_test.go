package email_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testMessage = transports.Message{
	ID:             "0199",
	TenantID:       "club-1",
	Channel:        email.Channel,
	Destination:    "ana@casa.example",
	Template:       "bienvenida",
	Data:           json.RawMessage(`{"nombre":"Ana"}`),
	IdempotencyKey: "club-1:bienvenida-1",
	CreatedAt:      time.Date(2026, 9, 24, 12, 0, 0, 0, time.UTC),
	Attempt:        2,
	MaxAttempts:    5,
}

var testContent = email.Content{Subject: "Hola, Ana!", HTML: "<p>Hola</p>", Text: "Hola"}

// probe records what a sender was handed.
type probe struct {
	calls   int
	ctx     context.Context
	mail    email.Mail
	outcome state.Outcome
}

func (p *probe) Send(ctx context.Context, m email.Mail) state.Outcome {
	p.calls++
	p.ctx, p.mail = ctx, m
	return p.outcome
}

func renders(c email.Content, err error) email.Renderer {
	return email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) { return c, err })
}

func newTransport(t *testing.T, s email.Sender, r email.Renderer) *email.Transport {
	t.Helper()
	tr, err := email.New(email.Config{From: "Mi Club <hola@club.example>", Sender: s, Render: r})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestSend(t *testing.T) {
	p := &probe{outcome: state.Outcome{OK: true, ExternalID: "re_1"}}
	tr := newTransport(t, p, email.RenderFunc(func(_ context.Context, m transports.Message) (email.Content, error) {
		if m.Template != testMessage.Template || !bytes.Equal(m.Data, testMessage.Data) {
			t.Errorf("rendered %q with %s", m.Template, m.Data)
		}
		return testContent, nil
	}))
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	if got := tr.Send(ctx, testMessage); got != p.outcome {
		t.Errorf("%+v", got)
	}
	want := email.Mail{
		From: "Mi Club <hola@club.example>", To: "ana@casa.example", Subject: "Hola, Ana!", HTML: "<p>Hola</p>",
		Text: "Hola", IdempotencyKey: "club-1:bienvenida-1", Date: testMessage.CreatedAt,
	}
	if !reflect.DeepEqual(p.mail, want) || p.calls != 1 {
		t.Errorf("%d calls, the last with %#v", p.calls, []any{p.mail.From, p.mail.To, p.mail.Subject})
	}
	if p.ctx != ctx {
		t.Error("the sender got another context")
	}
}

func TestOutcomesPassedOn(t *testing.T) {
	for _, tt := range []struct{ from, want state.Outcome }{
		{state.Outcome{OK: true}, state.Outcome{OK: true}},
		{state.Outcome{Category: "limite"}, state.Outcome{Category: "limite", Code: "limite"}},
		{
			state.Outcome{Category: "red", Code: "http_502", RetryAfter: time.Minute, Ambiguous: true},
			state.Outcome{Category: "red", Code: "http_502", RetryAfter: time.Minute, Ambiguous: true},
		},
		{
			state.Outcome{Category: "credenciales", Code: "invalid_api_key", Account: true, NotCalled: true},
			state.Outcome{Category: "credenciales", Code: "invalid_api_key", Account: true, NotCalled: true},
		},
	} {
		tr := newTransport(t, &probe{outcome: tt.from}, renders(testContent, nil))
		if got := tr.Send(t.Context(), testMessage); got != tt.want {
			t.Errorf("%+v became %+v", tt.from, got)
		}
	}
}

func TestRefusedUncalled(t *testing.T) {
	content := func(edit func(*email.Content)) email.Renderer {
		c := testContent
		edit(&c)
		return renders(c, nil)
	}
	failed := errors.New("quotes ana@casa.example")
	discard := state.Outcome{Category: "plantilla", Code: "render"}
	retry := state.Outcome{Category: "red", Code: "render"}
	tests := []struct {
		name   string
		render email.Renderer
		want   state.Outcome
	}{
		{"error", renders(testContent, failed), discard},
		{"transient error", renders(testContent, state.Transient(failed)), retry},
		{"wrapped transient error", renders(testContent, fmt.Errorf("reading: %w", state.Transient(failed))), retry},
		{"panic", email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) { panic(failed) }), discard},
		{"nothing", renders(email.Content{}, nil), discard},
		{"no subject", content(func(c *email.Content) { c.Subject = "" }), discard},
		{"blank subject", content(func(c *email.Content) { c.Subject = " \u00a0" }), discard},
		{"LF in subject", content(func(c *email.Content) { c.Subject += "\nBcc: otro@casa.example" }), discard},
		{"CR in subject", content(func(c *email.Content) { c.Subject += "\r" }), discard},
		{"NUL in subject", content(func(c *email.Content) { c.Subject += "\x00" }), discard},
		{"tab in subject", content(func(c *email.Content) { c.Subject += "\t" }), discard},
		{"subject that is no text", content(func(c *email.Content) { c.Subject += "\xff" }), discard},
		{"no body", content(func(c *email.Content) { c.HTML, c.Text = "", "" }), discard},
		{"blank body", content(func(c *email.Content) { c.HTML, c.Text = " ", "\n" }), discard},
		{"body that is no text", content(func(c *email.Content) { c.HTML = "\xc3\x28" }), discard},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &probe{outcome: state.Outcome{OK: true}}
			if got := newTransport(t, p, tt.render).Send(t.Context(), testMessage); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if p.calls != 0 {
				t.Error("the sender was called")
			}
		})
	}
}

func TestOneBodyIsEnough(t *testing.T) {
	for _, c := range []email.Content{{Subject: "a", Text: "b"}, {Subject: "a", HTML: "b"}} {
		p := &probe{outcome: state.Outcome{OK: true}}
		if got := newTransport(t, p, renders(c, nil)).Send(t.Context(), testMessage); !got.OK {
			t.Errorf("%+v", got)
		}
	}
}

func TestDestinations(t *testing.T) {
	tests := map[string]bool{
		"ana@casa.example":                     true,
		" ana+x@casa.example\t":                true,
		"ñandú@casa.example":                   true,
		"ana@localhost":                        true,
		"":                                     false,
		" ":                                    false,
		"ana":                                  false,
		"ana@":                                 false,
		"@casa.example":                        false,
		"ana@casa.example, eva@casa.example":   false,
		"ana@casa.example;eva@casa.example":    false,
		"ana@casa.example eva@casa.example":    false,
		"Ana <ana@casa.example>":               false,
		"<ana@casa.example>":                   false,
		"ana@casa.example (Ana)":               false,
		`"a b"@casa.example`:                   false,
		"todos: ana@casa.example;":             false,
		"ana@casa.example\r\nBcc: e@x.example": false,
		"ana@casa.example\n":                   false,
		"ana\x00@casa.example":                 false,
		"ana\u0085@casa.example":               false,
		"ana\xff@casa.example":                 false,
	}
	for destination, good := range tests {
		p := &probe{outcome: state.Outcome{OK: true}}
		m := testMessage
		m.Destination = destination
		rendered := 0
		tr := newTransport(t, p, email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) {
			rendered++
			return testContent, nil
		}))
		got := tr.Send(t.Context(), m)
		switch {
		case good && (!got.OK || p.mail.To != strings.Trim(destination, " \t")):
			t.Errorf("%q: %+v", destination, got)
		case !good && (got != state.Outcome{Category: "numero", Code: email.CodeBadAddress} || p.calls+rendered != 0):
			t.Errorf("%q: %+v after %d calls", destination, got, p.calls)
		}
	}
}

// A Render that blocks is left behind; one that obeys its context is not taken for a broken template.
func TestRenderBlocks(t *testing.T) {
	for _, obeys := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := &probe{outcome: state.Outcome{OK: true}}
			tr := newTransport(t, p, email.RenderFunc(func(ctx context.Context, _ transports.Message) (email.Content, error) {
				if obeys {
					<-ctx.Done()
					return email.Content{}, ctx.Err()
				}
				<-release
				return testContent, nil
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			got := tr.Send(ctx, testMessage)
			if want := (state.Outcome{Category: "red", Code: "timeout"}); got != want {
				t.Errorf("%+v", got)
			}
			if took := time.Since(begin); took != time.Minute {
				t.Errorf("took %v", took)
			}
			close(release)
			synctest.Wait()
			if p.calls != 0 {
				t.Error("the sender was called when all was over")
			}
		})
	}
}

func TestSenderPanicReachesTheWorker(t *testing.T) {
	tr := newTransport(t, email.SenderFunc(func(context.Context, email.Mail) state.Outcome { panic("sender") }), renders(testContent, nil))
	defer func() {
		if recover() != "sender" {
			t.Error("the panic was swallowed")
		}
	}()
	tr.Send(t.Context(), testMessage)
}

func TestNew(t *testing.T) {
	fine := email.Config{
		From: "hola@club.example", Sender: &probe{},
		Render: email.Templates(fstest.MapFS{"a.txt": {Data: []byte(`{{define "subject"}}a{{end}}a`)}}),
	}
	if _, err := email.New(fine); err != nil {
		t.Error(err)
	}
	tests := []struct {
		field string
		edit  func(*email.Config)
	}{
		{"From", func(c *email.Config) { c.From = "" }},
		{"From", func(c *email.Config) { c.From = "  " }},
		{"From", func(c *email.Config) { c.From = "canario" }},
		{"From", func(c *email.Config) { c.From = "a@canario.example, b@canario.example" }},
		{"From", func(c *email.Config) { c.From = "Club\r\n <a@canario.example>" }},
		{"Sender", func(c *email.Config) { c.Sender = nil }},
		{"Sender", func(c *email.Config) { c.Sender = email.SenderFunc(nil) }},
		{"Render", func(c *email.Config) { c.Render = nil }},
		{"Render", func(c *email.Config) { c.Render = email.RenderFunc(nil) }},
		{"Render", func(c *email.Config) { c.Render = email.Templates(nil) }},
		{"Render", func(c *email.Config) { c.Render = email.Templates(fstest.MapFS{}) }},
	}
	for _, tt := range tests {
		c := fine
		tt.edit(&c)
		tr, err := email.New(c)
		var invalid *state.InvalidError
		if tr != nil || !errors.As(err, &invalid) || invalid.Field != tt.field || strings.Contains(err.Error(), "canario") {
			t.Errorf("%v, %v; want the field %s", tr, err, tt.field)
		}
	}
}

func TestMailPrintsNothing(t *testing.T) {
	m := email.Mail{"canario", "canario", "canario", "canario", "canario", email.Extras{ReplyTo: "canario"}, "canario", time.Time{}}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("", "mail", m)
	_, _ = fmt.Fprintf(&b, "%v %+v %#v %s %v", m, m, m, m, []*email.Mail{&m}[0])
	if strings.Contains(b.String(), "canario") {
		t.Error(b.String())
	}
}

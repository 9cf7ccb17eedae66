package whatsapp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/whatsapp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testMessage = transports.Message{
	ID:             "0199",
	TenantID:       "club-1",
	Channel:        whatsapp.Channel,
	Destination:    "5491122334455",
	Template:       "turno_manana",
	Data:           json.RawMessage(`["10:00"]`),
	IdempotencyKey: "club-1:turno-1",
}

var testCredentials = whatsapp.Credentials{PhoneNumberID: "123", APIKey: "secreto"}

// probe records what a sender was handed.
type probe struct {
	calls       int
	ctx         context.Context
	credentials whatsapp.Credentials
	message     whatsapp.TemplateMessage
	outcome     state.Outcome
}

func (p *probe) Send(ctx context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
	p.calls++
	p.ctx, p.credentials, p.message = ctx, c, m
	return p.outcome
}

func found(context.Context, string) (*whatsapp.Credentials, error) {
	c := testCredentials
	return &c, nil
}

func newTransport(t *testing.T, c whatsapp.Config) *whatsapp.Transport {
	t.Helper()
	if c.Credentials == nil {
		c.Credentials = found
	}
	tr, err := whatsapp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestSend(t *testing.T) {
	p := &probe{outcome: state.Outcome{OK: true, ExternalID: "wamid.1"}}
	tr := newTransport(t, whatsapp.Config{
		Sender: p,
		Credentials: func(_ context.Context, tenant string) (*whatsapp.Credentials, error) {
			return &whatsapp.Credentials{PhoneNumberID: "of " + tenant, APIKey: "k"}, nil
		},
	})
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	if got := tr.Send(ctx, testMessage); got != p.outcome {
		t.Errorf("%+v", got)
	}
	want := whatsapp.TemplateMessage{
		To: "5491122334455", Template: "turno_manana", Language: "es_AR",
		Params: []whatsapp.Param{{Value: "10:00"}}, IdempotencyKey: "club-1:turno-1",
	}
	if p.calls != 1 || !reflect.DeepEqual(p.message, want) {
		t.Errorf("%d calls, the last with %q", p.calls, []any{p.message.To, p.message.Params, p.message.IdempotencyKey})
	}
	if (p.credentials != whatsapp.Credentials{PhoneNumberID: "of club-1", APIKey: "k"}) {
		t.Error("other credentials")
	}
	if p.ctx != ctx {
		t.Error("another context")
	}
}

func TestOutcomesPassedOn(t *testing.T) {
	for _, tt := range []struct{ from, want state.Outcome }{
		{state.Outcome{OK: true}, state.Outcome{OK: true}},
		{state.Outcome{Category: "ventana"}, state.Outcome{Category: "ventana", Code: "ventana"}},
		{
			state.Outcome{Category: "red", Code: "131000", RetryAfter: time.Minute, Ambiguous: true},
			state.Outcome{Category: "red", Code: "131000", RetryAfter: time.Minute, Ambiguous: true},
		},
	} {
		tr := newTransport(t, whatsapp.Config{Sender: &probe{outcome: tt.from}})
		if got := tr.Send(t.Context(), testMessage); got != tt.want {
			t.Errorf("%+v became %+v", tt.from, got)
		}
	}
}

func TestCredentials(t *testing.T) {
	none := state.Outcome{Category: "credenciales", Code: "sin_credenciales"}
	failed := state.Outcome{Category: "red", Code: "credenciales_excepcion"}
	tests := []struct {
		name string
		look func(context.Context, string) (*whatsapp.Credentials, error)
		want state.Outcome
	}{
		{"none", func(context.Context, string) (*whatsapp.Credentials, error) { return nil, nil }, none},
		{"empty", func(context.Context, string) (*whatsapp.Credentials, error) { return &whatsapp.Credentials{}, nil }, none},
		{"error", func(context.Context, string) (*whatsapp.Credentials, error) { return nil, errors.New("secreto") }, failed},
		{"error beside credentials", func(context.Context, string) (*whatsapp.Credentials, error) {
			return &testCredentials, errors.New("secreto")
		}, failed},
		{"panic", func(context.Context, string) (*whatsapp.Credentials, error) { panic("secreto") }, failed},
		{"blocks", nil, failed}, // until it is released
		{"obeys its context", func(ctx context.Context, _ string) (*whatsapp.Credentials, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{outcome: state.Outcome{OK: true}}
				release := make(chan struct{})
				defer close(release)
				if tt.look == nil {
					tt.look = func(context.Context, string) (*whatsapp.Credentials, error) {
						<-release
						return &testCredentials, nil
					}
				}
				tr := newTransport(t, whatsapp.Config{
					Sender: p, Credentials: tt.look,
					Params: func(context.Context, transports.Message) ([]whatsapp.Param, error) {
						t.Error("the parameters were made before there were credentials")
						return nil, nil
					},
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				if got := tr.Send(ctx, testMessage); got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("took %v", took)
				}
				if p.calls != 0 {
					t.Error("the sender was called")
				}
			})
		})
	}
}

// Two tenants at once, the first of them slow: each message leaves on its own tenant's account.
func TestTenantsAreNotMixedUp(t *testing.T) {
	second := make(chan struct{})
	var mu sync.Mutex
	used := map[string]string{}
	tr := newTransport(t, whatsapp.Config{
		Credentials: func(_ context.Context, tenant string) (*whatsapp.Credentials, error) {
			if tenant == "lento" {
				<-second
			}
			return &whatsapp.Credentials{PhoneNumberID: tenant, APIKey: "k"}, nil
		},
		Sender: whatsapp.SenderFunc(func(_ context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
			mu.Lock()
			defer mu.Unlock()
			used[m.IdempotencyKey] = c.PhoneNumberID
			return state.Outcome{OK: true}
		}),
	})
	var all sync.WaitGroup
	for _, tenant := range []string{"lento", "rapido"} {
		all.Go(func() {
			tr.Send(t.Context(), transports.Message{TenantID: tenant, IdempotencyKey: tenant + ":1"})
			if tenant == "rapido" {
				close(second)
			}
		})
	}
	all.Wait()
	if want := map[string]string{"lento:1": "lento", "rapido:1": "rapido"}; !reflect.DeepEqual(used, want) {
		t.Errorf("%v", used)
	}
}

// Many tenants at once, whose look-ups answer, fail beside another tenant's credentials, panic, or find nothing: no message
// leaves on another account than its own tenant's, and none after a look-up that failed.
func TestNoFallbackToAnotherAccount(t *testing.T) {
	random := rand.New(rand.NewPCG(proof.Seed(t), 0))
	count := proof.New(t, "credentials per tenant", "error", "panic", "none", "empty")
	const tenants = 20
	kinds := []string{"", "error", "panic", "none", "empty"}
	type attempt struct{ tenant, kind string }
	attempts := make([]attempt, proof.Size(2_000, 50_000))
	for i := range attempts {
		attempts[i] = attempt{fmt.Sprint("club-", random.IntN(tenants)), kinds[random.IntN(len(kinds))]}
	}
	of := func(tenant string) whatsapp.Credentials {
		return whatsapp.Credentials{PhoneNumberID: "numero de " + tenant, APIKey: "clave de " + tenant}
	}
	type kindOf struct{}
	tr := newTransport(t, whatsapp.Config{
		Credentials: func(ctx context.Context, tenant string) (*whatsapp.Credentials, error) {
			another := of("otro")
			kind := ctx.Value(kindOf{}).(string)
			if kind != "" {
				count.Fault(kind)
			}
			switch kind {
			case "error":
				return &another, errors.New("no database")
			case "panic":
				panic(another)
			case "none":
				return nil, nil
			case "empty":
				return &whatsapp.Credentials{}, nil
			}
			own := of(tenant)
			return &own, nil
		},
		Sender: whatsapp.SenderFunc(func(ctx context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
			if kind := ctx.Value(kindOf{}).(string); kind != "" || c != of(m.IdempotencyKey) {
				count.Violation(t, "after %q, a message of %s left on another account", kind, m.IdempotencyKey)
			}
			return state.Outcome{OK: true}
		}),
	})
	want := map[string]state.Outcome{
		"":      {OK: true},
		"error": {Category: "red", Code: "credenciales_excepcion"}, "panic": {Category: "red", Code: "credenciales_excepcion"},
		"none": {Category: "credenciales", Code: "sin_credenciales"}, "empty": {Category: "credenciales", Code: "sin_credenciales"},
	}
	var all sync.WaitGroup
	for share := range slices.Chunk(attempts, len(attempts)/8) {
		all.Go(func() {
			for _, a := range share {
				ctx := context.WithValue(t.Context(), kindOf{}, a.kind)
				if got := tr.Send(ctx, transports.Message{TenantID: a.tenant, IdempotencyKey: a.tenant}); got != want[a.kind] {
					count.Violation(t, "%q: %v", a.kind, got)
				}
				count.Checked(1)
			}
		})
	}
	all.Wait()
}

func TestParamsFromData(t *testing.T) {
	bad := &state.Outcome{Category: "plantilla", Code: "render"}
	tests := []struct {
		data    string
		want    []string
		refused *state.Outcome
	}{
		{`["a","b"]`, []string{"a", "b"}, nil},
		{` [ "a\"ñ\u00f1" , 9007199254740993 , 10.50 , 1e400 , -0 , true , false ] `, []string{`a"ññ`, "9007199254740993", "10.50", "1e400", "-0", "true", "false"}, nil},
		{`["null","nil"]`, []string{"null", "nil"}, nil},
		{`[]`, []string{}, nil},
		{`{"turno":"10:00"}`, nil, nil},
		{`"10:00"`, nil, nil},
		{`null`, nil, nil},
		{``, nil, nil},
		{`["a",null]`, nil, bad},
		{`["a",["b"]]`, nil, bad},
		{`["a",{"b":1}]`, nil, bad},
		{`["a"`, nil, bad},
	}
	for _, tt := range tests {
		p := &probe{outcome: state.Outcome{OK: true}}
		m := testMessage
		m.Data = json.RawMessage(tt.data)
		got := newTransport(t, whatsapp.Config{Sender: p}).Send(t.Context(), m)
		if tt.refused != nil {
			if got != *tt.refused || p.calls != 0 {
				t.Errorf("%s: %+v after %d calls", tt.data, got, p.calls)
			}
			continue
		}
		values := []string{}
		for _, param := range p.message.Params {
			if param.Name != "" {
				t.Errorf("%s: a name", tt.data)
			}
			values = append(values, param.Value)
		}
		if !got.OK || fmt.Sprint(values) != fmt.Sprint(tt.want) || len(values) != len(tt.want) {
			t.Errorf("%s: %+v with %q", tt.data, got, values)
		}
	}
}

func TestParams(t *testing.T) {
	own := errors.New("quotes 10:00")
	discard, retry := state.Outcome{Category: "plantilla", Code: "render"}, state.Outcome{Category: "red", Code: "render"}
	tests := []struct {
		name string
		f    func(context.Context, transports.Message) ([]whatsapp.Param, error)
		want state.Outcome
	}{
		{"error", func(context.Context, transports.Message) ([]whatsapp.Param, error) { return nil, own }, discard},
		{"transient error", func(context.Context, transports.Message) ([]whatsapp.Param, error) {
			return nil, fmt.Errorf("reading: %w", state.Transient(own))
		}, retry},
		{"panic", func(context.Context, transports.Message) ([]whatsapp.Param, error) { panic(own) }, discard},
		{"blocks", nil, state.Outcome{Category: "red", Code: "timeout"}}, // until it is released
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{outcome: state.Outcome{OK: true}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				release := make(chan struct{})
				defer close(release)
				if tt.f == nil {
					tt.f = func(context.Context, transports.Message) ([]whatsapp.Param, error) { <-release; return nil, nil }
				}
				if got := newTransport(t, whatsapp.Config{Sender: p, Params: tt.f}).Send(ctx, testMessage); got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if p.calls != 0 {
					t.Error("the sender was called")
				}
			})
		})
	}

	t.Run("of the application, with names and another language", func(t *testing.T) {
		p := &probe{outcome: state.Outcome{OK: true}}
		tr := newTransport(t, whatsapp.Config{
			Sender: p, Language: "pt_BR",
			Params: func(_ context.Context, m transports.Message) ([]whatsapp.Param, error) {
				return []whatsapp.Param{{Name: "turno", Value: "10:00"}, {Name: "club", Value: m.TenantID}}, nil
			},
		})
		tr.Send(t.Context(), testMessage)
		want := []whatsapp.Param{{Name: "turno", Value: "10:00"}, {Name: "club", Value: "club-1"}}
		if !reflect.DeepEqual(p.message.Params, want) || p.message.Language != "pt_BR" {
			t.Errorf("%q in %s", p.message.Params, p.message.Language)
		}
	})
}

func TestParamsThatWhatsAppRefuses(t *testing.T) {
	good := [][]whatsapp.Param{
		nil,
		{{Value: "a    b"}}, // four spaces
		{{Value: strings.Repeat("ñ", whatsapp.MaxParameterLength)}},
		{{Name: "a", Value: "x"}, {Name: "b", Value: "x"}},
		{{Value: "null"}},
	}
	bad := [][]whatsapp.Param{
		{{Value: ""}},
		{{Value: "   "}},
		{{Value: "\u00a0"}},
		{{Value: "a\nb"}},
		{{Value: "a\rb"}},
		{{Value: "a\tb"}},
		{{Value: "a\u2028b"}},
		{{Value: "a\x00b"}},
		{{Value: "a\xffb"}},
		{{Value: "a     b"}}, // five
		{{Value: strings.Repeat("x", whatsapp.MaxParameterLength+1)}},
		{{Value: strings.Repeat("x", 2000)}},
		{{Value: "ok"}, {Value: ""}},
		{{Name: "a", Value: "x"}, {Value: "x"}},
		{{Name: "a", Value: "x"}, {Name: "a", Value: "y"}},
	}
	for i, params := range append(good, bad...) {
		p := &probe{outcome: state.Outcome{OK: true}}
		got := newTransport(t, whatsapp.Config{
			Sender: p,
			Params: func(context.Context, transports.Message) ([]whatsapp.Param, error) { return params, nil },
		}).Send(t.Context(), testMessage)
		want := p.outcome
		if i >= len(good) {
			want = state.Outcome{Category: "plantilla", Code: whatsapp.CodeBadParameter}
		}
		if got != want || (p.calls == 1) != want.OK {
			t.Errorf("%.40q: %+v after %d calls", params, got, p.calls)
		}
	}
}

// The rule holds for parameters taken from the data as well.
func TestDataThatWhatsAppRefuses(t *testing.T) {
	p := &probe{}
	m := testMessage
	m.Data = json.RawMessage(`["a\nb"]`)
	got := newTransport(t, whatsapp.Config{Sender: p}).Send(t.Context(), m)
	if want := (state.Outcome{Category: "plantilla", Code: "parametro_invalido"}); got != want || p.calls != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSenderPanicReachesTheWorker(t *testing.T) {
	tr := newTransport(t, whatsapp.Config{
		Sender: whatsapp.SenderFunc(func(context.Context, whatsapp.Credentials, whatsapp.TemplateMessage) state.Outcome {
			panic("sender")
		}),
	})
	defer func() {
		if recover() != "sender" {
			t.Error("the panic was swallowed")
		}
	}()
	tr.Send(t.Context(), testMessage)
}

func TestNew(t *testing.T) {
	tests := []struct {
		field string
		edit  func(*whatsapp.Config)
	}{
		{"", func(*whatsapp.Config) {}},
		{"", func(c *whatsapp.Config) { c.Language = "zh_CN" }},
		{"Sender", func(c *whatsapp.Config) { c.Sender = nil }},
		{"Sender", func(c *whatsapp.Config) { c.Sender = whatsapp.SenderFunc(nil) }},
		{"Credentials", func(c *whatsapp.Config) { c.Credentials = nil }},
		{"Language", func(c *whatsapp.Config) { c.Language = "es-AR" }},
		{"Language", func(c *whatsapp.Config) { c.Language = "español" }},
	}
	for _, tt := range tests {
		c := whatsapp.Config{Sender: &probe{}, Credentials: found}
		tt.edit(&c)
		_, err := whatsapp.New(c)
		var invalid *state.InvalidError
		if tt.field == "" && err != nil || tt.field != "" && (!errors.As(err, &invalid) || invalid.Field != tt.field) {
			t.Errorf("%v, want the field %q", err, tt.field)
		}
	}
}

func TestPrintingTellsNothing(t *testing.T) {
	c := whatsapp.Credentials{PhoneNumberID: "canario", APIKey: "canario"}
	m := whatsapp.TemplateMessage{
		To: "canario", Template: "turno", Language: "es_AR", IdempotencyKey: "canario",
		Params: []whatsapp.Param{{Name: "canario", Value: "canario"}},
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("", "credentials", c, "pointer", &c, "message", m)
	_, _ = fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %v %+v %#v", c, c, c, c, &c, []whatsapp.Credentials{c}, m, m, m)
	if strings.Contains(b.String(), "canario") || !strings.Contains(b.String(), "template turno (es_AR)") {
		t.Error(b.String())
	}
}

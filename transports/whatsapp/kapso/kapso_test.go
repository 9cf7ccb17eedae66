package kapso_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/transporttest"
	"github.com/recado-dev/recado/transports/whatsapp"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testCredentials = whatsapp.Credentials{PhoneNumberID: "1065", APIKey: "canario-llave"}
	testMessage     = whatsapp.TemplateMessage{
		To: "5491122334455", Template: "turno_manana", Language: "es_AR", IdempotencyKey: "club-1:canario",
		Params: []whatsapp.Param{{Value: "Ana & Eva"}, {Value: "10:00"}},
	}
)

// provider answers every request alike.
func provider(t *testing.T, handle http.HandlerFunc, options ...kapso.Option) *kapso.Sender {
	t.Helper()
	server := httptest.NewServer(handle)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	s := kapso.New(append([]kapso.Option{kapso.BaseURL(server.URL + "/v24.0/"), kapso.HTTPClient(client)}, options...)...)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Subject{
		New: func(t *testing.T, baseURL string, client *http.Client) transports.Transport {
			tr, err := whatsapp.New(whatsapp.Config{
				Sender: kapso.New(kapso.BaseURL(baseURL), kapso.HTTPClient(client)),
				Credentials: func(context.Context, string) (*whatsapp.Credentials, error) {
					c := testCredentials
					return &c, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return tr
		},
		Message: transports.Message{
			ID: "0199", TenantID: "club-1", Channel: whatsapp.Channel, Destination: "5491122334455", Template: "turno_manana",
			Data: json.RawMessage(`["canario-dato",10.50]`), IdempotencyKey: "club-1:canario-clave",
		},
		Accepted:   `{"messaging_product":"whatsapp","contacts":[{"input":"5491122334455"}],"messages":[{"id":"wamid.HBg+/A=="}]}`,
		ExternalID: "wamid.HBg+/A==",
		Secrets:    []string{testCredentials.APIKey, "canario"},
	})
}

func TestRequest(t *testing.T) {
	const head = `{"messaging_product":"whatsapp","recipient_type":"individual","to":"5491122334455","type":"template",` +
		`"template":{"name":"turno_manana","language":{"code":"es_AR"}`
	const tail = `},"biz_opaque_callback_data":"club-1:canario"}`
	for name, tt := range map[string]struct {
		params  []whatsapp.Param
		options []kapso.Option
		header  string
		value   string
		body    string
	}{
		"positional": {
			testMessage.Params, nil, "X-API-Key", "canario-llave",
			head + `,"components":[{"type":"body","parameters":[{"type":"text","text":"Ana \u0026 Eva"},{"type":"text","text":"10:00"}]}]` + tail,
		},
		"named, with a token": {
			[]whatsapp.Param{{Name: "nombre", Value: "Ana"}, {Name: "hora", Value: "10:00"}},
			[]kapso.Option{kapso.Bearer()},
			"Authorization", "Bearer canario-llave",
			head + `,"components":[{"type":"body","parameters":[{"type":"text","parameter_name":"nombre","text":"Ana"},` +
				`{"type":"text","parameter_name":"hora","text":"10:00"}]}]` + tail,
		},
		"none": {nil, nil, "X-API-Key", "canario-llave", head + tail},
	} {
		t.Run(name, func(t *testing.T) {
			s := provider(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if string(body) != tt.body {
					t.Errorf("the body is %s\nwant        %s", body, tt.body)
				}
				for header := range map[string]bool{"X-Api-Key": true, "Authorization": true, "Idempotency-Key": true} {
					want := ""
					if strings.EqualFold(header, tt.header) {
						want = tt.value
					}
					if got := r.Header.Get(header); got != want {
						t.Errorf("%s: %q, want %q", header, got, want)
					}
				}
				if r.Method+r.URL.Path != "POST/v24.0/1065/messages" {
					t.Error(r.Method, r.URL.Path)
				}
				_, _ = io.WriteString(w, `{"messages":[{"id":"wamid.1"}]}`)
			}, tt.options...)
			m := testMessage
			m.Params = tt.params
			if got := s.Send(t.Context(), testCredentials, m); got != (state.Outcome{OK: true, ExternalID: "wamid.1"}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What WhatsApp would refuse of parameters never leaves: the refusal costs neither a call nor another attempt.
func TestParametersThatWhatsAppRefuses(t *testing.T) {
	calls := 0
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = io.WriteString(w, "{}")
	})
	tr, err := whatsapp.New(whatsapp.Config{Sender: s, Credentials: func(context.Context, string) (*whatsapp.Credentials, error) {
		c := testCredentials
		return &c, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	bad := []any{"a\nb", "a\tb", "a     b", "", "   ", nil, strings.Repeat("x", 2000), "a\u2028b", map[string]any{}}
	for _, value := range append(bad, "a    b", 10.5, true, strings.Repeat("ñ", 1024)) {
		data, err := json.Marshal([]any{value})
		if err != nil {
			t.Fatal(err)
		}
		before := calls
		o := tr.Send(t.Context(), transports.Message{Destination: "5491122334455", Template: "x", Data: data})
		if o.OK != (calls == before+1) || !o.OK && (o.Category != state.CategoryTemplate || calls != before) {
			t.Errorf("%.20q: %+v, %d calls", data, o, calls-before)
		}
	}
	if calls != 4 {
		t.Errorf("%d calls, want one for each of the 4 good values", calls)
	}
}

// Every line of the table. The status that comes along makes no difference, nor does a code that is written as a text.
func TestGraphCodes(t *testing.T) {
	account := func(category string) state.Outcome { return state.Outcome{Category: category, Account: true} }
	refused := func(category string) state.Outcome { return state.Outcome{Category: category} }
	doubt := state.Outcome{Category: "red", Ambiguous: true}
	want := map[int]state.Outcome{
		0: account("credenciales"), 190: account("credenciales"), 3: account("credenciales"), 10: account("credenciales"),
		33: account("credenciales"), 131005: account("credenciales"), 368: account("credenciales"), 131031: account("credenciales"),
		131037: account("credenciales"), 131045: account("credenciales"), 133000: account("credenciales"),
		133005: account("credenciales"), 133006: account("credenciales"), 133008: account("credenciales"),
		133009: account("credenciales"), 133010: account("credenciales"), 133015: account("credenciales"),
		131042: account("facturacion"), 134011: account("facturacion"),
		4: refused("limite"), 80007: refused("limite"), 130429: refused("limite"), 132069: refused("limite"),
		131056: {Category: "limite", RetryAfter: time.Minute},
		131048: {Category: "limite", RetryAfter: 6 * time.Hour, Account: true},
		133016: {Category: "limite", RetryAfter: 6 * time.Hour, Account: true},
		134101: {Category: "limite", Code: "plantilla_sincronizando", RetryAfter: 10 * time.Minute},
		1:      doubt, 2: doubt, 131000: doubt, 131016: doubt, 133004: doubt,
		131057: {Category: "red", RetryAfter: 10 * time.Minute},
		131021: refused("numero"), 131026: refused("numero"), 131030: refused("numero"),
		131047: refused("ventana"),
		132000: refused("plantilla"), 132001: refused("plantilla"), 132005: refused("plantilla"), 132007: refused("plantilla"),
		132012: refused("plantilla"), 132015: refused("plantilla"), 132016: refused("plantilla"), 132068: refused("plantilla"),
		134102: refused("plantilla"),
		100:    refused("rechazado"), 131008: refused("rechazado"), 131009: refused("rechazado"), 130497: refused("rechazado"),
		131063: refused("rechazado"), 130472: refused("rechazado"), 131049: refused("rechazado"), 131051: refused("rechazado"),
		131052: refused("rechazado"), 131053: refused("rechazado"), 131055: refused("rechazado"), 135000: refused("rechazado"),
		131050: {Category: "rechazado", Code: "destino_baja"},
	}
	for code := 200; code < 300; code++ {
		want[code] = account("credenciales")
	}
	for code, o := range want {
		if o.Code == "" {
			o.Code = fmt.Sprint(code)
		}
		for _, status := range []int{400, 500} {
			for _, form := range []string{"%d", `"%d"`} {
				body := `{"error":{"message":"(#1) canario 5491122334455","type":"OAuthException","code":` + fmt.Sprintf(form, code) +
					`,"error_data":{"details":"canario"},"fbtrace_id":"canario"}}`
				if got := provider(t, answering(status, body)).Send(t.Context(), testCredentials, testMessage); got != o {
					t.Errorf("%d as %s under %d: %+v, want %+v", code, form, status, got, o)
				}
			}
		}
	}
	for key := range kapso.DefaultOutcomes() {
		var code int
		if _, err := fmt.Sscan(key, &code); err == nil && want[code] == (state.Outcome{}) {
			t.Errorf("no test for %s", key)
		}
	}
}

func TestWithoutAKnownCode(t *testing.T) {
	red := func(code string, ambiguous bool) state.Outcome {
		return state.Outcome{Category: "red", Code: code, Ambiguous: ambiguous}
	}
	for _, tt := range []struct {
		status int
		body   string
		want   state.Outcome
	}{
		{400, `{"error":{"code":131999}}`, red("desconocido:131999", false)},
		{400, `{"error":{"code":"131999"}}`, red("desconocido:131999", false)},
		{404, `{"error":{"code":131999}}`, red("desconocido:131999", false)},
		{500, `{"error":{"code":131999}}`, red("desconocido:131999", true)},
		{501, `{"error":{"code":131999}}`, red("desconocido:131999", true)},
		{401, `{"error":{"code":131999}}`, state.Outcome{Category: "credenciales", Code: "desconocido:131999", Account: true}},
		{429, `{"error":{"code":131999}}`, state.Outcome{Category: "limite", Code: "desconocido:131999"}},
		{400, `{"error":{"code":"canario"}}`, red("desconocido:http_400", false)},
		{400, `{"error":{"code":5491122334455}}`, red("desconocido:http_400", false)},
		{400, `{"error":{"code":-1}}`, red("desconocido:http_400", false)},
		{400, `{"error":{"code":131047.5}}`, red("desconocido:http_400", false)},
		{400, `{"error":{"code":null}}`, red("desconocido:http_400", false)},
		{400, `{"error":{}}`, red("desconocido:http_400", false)},
		{400, `{}`, red("desconocido:http_400", false)},
		{400, `<html>template</html>`, state.Outcome{Category: "rechazado", Code: "http_400"}},
		{402, `{"error":"canario"}`, state.Outcome{Category: "facturacion", Code: "http_402", Account: true}},
		{403, `{"error":"template"}`, state.Outcome{Category: "credenciales", Code: "http_403", Account: true}},
		{429, `{"error":"canario"}`, state.Outcome{Category: "limite", Code: "http_429"}},
		{502, `{"error":"canario"}`, red("http_502", true)},
		{422, `{"error":"Template canario not found"}`, state.Outcome{Category: "plantilla", Code: "http_422"}},
		{422, `{"error":"outside the 24-hour window"}`, state.Outcome{Category: "ventana", Code: "http_422"}},
		{422, `{"error":"fuera de la ventana de 24 h"}`, state.Outcome{Category: "ventana", Code: "http_422"}},
		{422, `{"error":"no such phone"}`, state.Outcome{Category: "numero", Code: "http_422"}},
		{422, `{"error":"bad recipient"}`, state.Outcome{Category: "numero", Code: "http_422"}},
		{422, `{"error":"canario"}`, red("desconocido:http_422", false)},
	} {
		if got := provider(t, answering(tt.status, tt.body)).Send(t.Context(), testCredentials, testMessage); got != tt.want {
			t.Errorf("%d %s: %+v, want %+v", tt.status, tt.body, got, tt.want)
		}
	}
}

func TestAccepted(t *testing.T) {
	for body, id := range map[string]string{
		`{"messages":[{"id":"wamid.1"},{"id":"x"}]}`: "wamid.1", `{"messages":[]}`: "", `{"messages":[{}]}`: "", `{}`: "", ``: "", `<p>`: "",
		`{"messages":[{"id":"not an id"}]}`: "", `{"messages":{"id":"x"}}`: "",
	} {
		got := provider(t, answering(200, body)).Send(t.Context(), testCredentials, testMessage)
		if got != (state.Outcome{OK: true, ExternalID: id}) {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	later := state.Outcome{Category: state.CategoryRateLimit, Code: "131049", RetryAfter: 24 * time.Hour}
	s := provider(t, answering(400, `{"error":{"code":131049}}`), kapso.Outcomes(map[string]state.Outcome{"131049": later}))
	if got := s.Send(t.Context(), testCredentials, testMessage); got != later {
		t.Errorf("%+v", got)
	}
}

// A message whose fate is unknown waits for a person where the lane says so, and is tried again where it does not.
func TestAmbiguousMessages(t *testing.T) {
	s := provider(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	o := s.Send(t.Context(), testCredentials, testMessage)
	if !o.Ambiguous {
		t.Fatalf("%+v", o)
	}
	policy := state.DefaultPolicy()
	for hold, want := range map[bool]state.State{false: state.Pending, true: state.Failed} {
		policy.HoldAmbiguous = hold
		tr, err := state.Resolve(state.Row{State: state.Processing, Attempts: 1, MaxAttempts: 5}, time.Minute, o, policy)
		if err != nil || tr.To != want {
			t.Errorf("hold %v: %+v, %v", hold, tr, err)
		}
	}
}

func TestRefusedUncalled(t *testing.T) {
	s := provider(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	to := func(to string) whatsapp.TemplateMessage {
		m := testMessage
		m.To = to
		return m
	}
	with := func(id, key string) whatsapp.Credentials { return whatsapp.Credentials{PhoneNumberID: id, APIKey: key} }
	noNumber := state.Outcome{Category: "numero", Code: "numero_invalido"}
	none := state.Outcome{Category: "credenciales", Code: "sin_credenciales"}
	bad := state.Outcome{Category: "credenciales", Code: "credencial_invalida", Account: true}
	for _, tt := range []struct {
		c    whatsapp.Credentials
		m    whatsapp.TemplateMessage
		want state.Outcome
	}{
		{testCredentials, to(""), noNumber},
		{testCredentials, to("549 11 2233-4455"), noNumber},
		{testCredentials, to("ana@casa.example"), noNumber},
		{testCredentials, to("123456"), noNumber},
		{testCredentials, to("1234567890123456"), noNumber},
		{with("", "k"), testMessage, none},
		{with("1", ""), testMessage, none},
		{with("1", "k\n"), testMessage, bad},
		{with("..", "k"), testMessage, bad},
		{with("1/2", "k"), testMessage, bad},
	} {
		if got := s.Send(t.Context(), tt.c, tt.m); got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}

func TestInvalid(t *testing.T) {
	for field, option := range map[string]kapso.Option{
		"BaseURL": kapso.BaseURL("http://api.example"), "Outcomes": kapso.Outcomes(map[string]state.Outcome{"1": {Code: "x"}}),
	} {
		s := kapso.New(option)
		_, err := whatsapp.New(whatsapp.Config{
			Sender: s, Credentials: func(context.Context, string) (*whatsapp.Credentials, error) { return nil, nil },
		})
		var invalid *state.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		want := state.Outcome{Category: "credenciales", Code: "configuracion_invalida", Account: true}
		if got := s.Send(t.Context(), testCredentials, testMessage); got != want {
			t.Errorf("%+v", got)
		}
	}
	if err := kapso.New().Validate(); err != nil {
		t.Error(err)
	}
}

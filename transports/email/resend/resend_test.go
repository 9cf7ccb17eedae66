package resend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canaryKey = "re_canario"

var testMail = email.Mail{
	From: "Club Ñandú <hola@club.example>", To: "canario@casa.example", Subject: "canario <1> & más",
	HTML: "<p>canario</p>", Text: "canario", IdempotencyKey: "club-1:canario", Date: time.Now(),
}

// provider answers every request alike, and counts them.
func provider(t *testing.T, handle http.HandlerFunc, options ...resend.Option) *resend.Sender {
	t.Helper()
	server := httptest.NewServer(handle)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	s := resend.New(canaryKey, append([]resend.Option{resend.BaseURL(server.URL + "/"), resend.HTTPClient(client)}, options...)...)
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

func TestSend(t *testing.T) {
	s := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		const want = `{"from":"Club Ñandú \u003chola@club.example\u003e","to":["canario@casa.example"],` +
			`"subject":"canario \u003c1\u003e \u0026 más","html":"\u003cp\u003ecanario\u003c/p\u003e","text":"canario"}`
		if string(body) != want {
			t.Errorf("the body is %s", body)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer re_canario", "Idempotency-Key": "club-1:canario", "Content-Type": "application/json",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s", name, got)
			}
		}
		if r.Method+r.URL.Path != "POST/emails" {
			t.Error(r.Method, r.URL.Path)
		}
		_, _ = io.WriteString(w, `{"id":"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}`)
	})
	want := state.Outcome{OK: true, ExternalID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}
	if got := s.Send(t.Context(), testMail); got != want {
		t.Errorf("%+v", got)
	}
}

func TestOneBodyAlone(t *testing.T) {
	s := provider(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if _, html := body["html"]; html || len(body) != 4 {
			t.Error("an empty field was sent")
		}
	})
	m := testMail
	m.HTML = ""
	if got := s.Send(t.Context(), m); got != (state.Outcome{OK: true}) {
		t.Errorf("%+v", got)
	}
}

func TestAccepted(t *testing.T) {
	for body, id := range map[string]string{
		`{"id":"a-1"}`: "a-1", `{"id":7}`: "", `{}`: "", ``: "", `<html>`: "", `[]`: "", `{"id":"canario@casa.example"}`: "",
		`{"id":"` + strings.Repeat("a", 300) + `"}`: "",
	} {
		if got := provider(t, answering(200, body)).Send(t.Context(), testMail); got != (state.Outcome{OK: true, ExternalID: id}) {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// Every line of the table, from a server that repeats everything it was told.
func TestRefusals(t *testing.T) {
	refused := state.Outcome{Category: "rechazado"}
	account := func(category string) state.Outcome { return state.Outcome{Category: category, Account: true} }
	doubt := state.Outcome{Category: "red", Ambiguous: true}
	quota := state.Outcome{Category: "limite", Account: true, RetryAfter: 6 * time.Hour}
	want := map[string]state.Outcome{
		"http_400:invalid_idempotency_key":        refused,
		"http_400:validation_error":               refused,
		"http_400":                                refused,
		"http_401:missing_api_key":                account("credenciales"),
		"http_401:restricted_api_key":             account("credenciales"),
		"http_401:validation_error":               account("credenciales"),
		"http_401":                                account("credenciales"),
		"http_402":                                account("facturacion"),
		"http_403:invalid_api_key":                account("credenciales"),
		"http_403:validation_error":               account("credenciales"),
		"http_403":                                account("credenciales"),
		"http_404:not_found":                      account("rechazado"),
		"http_404":                                account("rechazado"),
		"http_405:method_not_allowed":             account("rechazado"),
		"http_405":                                account("rechazado"),
		"http_408":                                doubt,
		"http_409:concurrent_idempotent_requests": {Category: "conflicto_idempotencia", RetryAfter: time.Minute},
		"http_409:invalid_idempotent_request":     {Category: "conflicto_idempotencia", RetryAfter: time.Minute, Ambiguous: true},
		"http_409":                                {Category: "conflicto_idempotencia"},
		"http_413":                                refused,
		"http_422:validation_error":               refused,
		"http_422:missing_required_field":         refused,
		"http_422:invalid_from_address":           refused,
		"http_422:invalid_attachment":             refused,
		"http_422:invalid_parameter":              refused,
		"http_422:invalid_access":                 refused,
		"http_422:invalid_region":                 refused,
		"http_422":                                refused,
		"http_429:rate_limit_exceeded":            {Category: "limite"},
		"http_429:daily_quota_exceeded":           quota,
		"http_429:monthly_quota_exceeded":         quota,
		"http_429":                                {Category: "limite"},
		"http_451:security_error":                 refused,
		"http_451":                                refused,
		"http_500:application_error":              doubt,
		"http_500:internal_server_error":          doubt,
		"http_500":                                doubt,
		"http_503":                                doubt,
	}
	for key, o := range want {
		t.Run(key, func(t *testing.T) {
			o.Code = key
			statusText, name, named := strings.Cut(strings.TrimPrefix(key, "http_"), ":")
			var status int
			if _, err := fmt.Sscan(statusText, &status); err != nil {
				t.Fatal(err)
			}
			bodies := []string{fmt.Sprintf(`{"statusCode":%d,"name":%q,"message":"canario re_canario canario@casa.example"}`, status, name)}
			if !named { // by status, whatever else comes
				bodies = append(bodies, "", "<html>canario</html>", `{"name":7}`, `{"name":"canario"}`, `"canario"`, `{"name":"`)
			}
			for _, body := range bodies {
				if got := provider(t, answering(status, body)).Send(t.Context(), testMail); got != o {
					t.Errorf("%s: %+v, want %+v", body, got, o)
				}
			}
		})
	}
	for key := range resend.DefaultOutcomes() {
		if _, named := want[key]; !named && strings.Contains(key, ":") && key != "http_400:invalid_api_key" {
			t.Errorf("no test for %s", key)
		}
	}
}

// Newer answers to a bad key are told apart from refusals of one mail by their text alone.
func TestABadKeyOfTheNewKind(t *testing.T) {
	s := provider(t, answering(400, `{"statusCode":400,"name":"validation_error","message":"API key is invalid"}`))
	want := state.Outcome{Category: "credenciales", Code: "http_400:invalid_api_key", Account: true}
	if got := s.Send(t.Context(), testMail); got != want {
		t.Errorf("%+v", got)
	}
}

func TestOutcomes(t *testing.T) {
	differs := state.Outcome{Category: state.CategoryRejected, Code: "cuerpo_distinto", Ambiguous: true}
	s := provider(t, answering(409, `{"name":"invalid_idempotent_request"}`),
		resend.Outcomes(map[string]state.Outcome{"http_409:invalid_idempotent_request": differs}))
	if got := s.Send(t.Context(), testMail); got != differs {
		t.Errorf("%+v", got)
	}
}

func TestInvalid(t *testing.T) {
	for name, tt := range map[string]struct {
		key     string
		options []resend.Option
		field   string
	}{
		"no key":            {"", nil, "apiKey"},
		"key with new line": {"re_canario\n", nil, "apiKey"},
		"plain http":        {canaryKey, []resend.Option{resend.BaseURL("http://api.example")}, "BaseURL"},
		"no address":        {canaryKey, []resend.Option{resend.BaseURL("canario")}, "BaseURL"},
		"no category":       {canaryKey, []resend.Option{resend.Outcomes(map[string]state.Outcome{"http_500": {}})}, "Outcomes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := resend.New(tt.key, tt.options...)
			_, err := email.New(email.Config{
				From: "a@b.example", Sender: s,
				Render: email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) { return email.Content{}, nil }),
			})
			var invalid *state.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != tt.field || strings.Contains(err.Error(), "canario") {
				t.Errorf("%v", err)
			}
			want := state.Outcome{Category: "credenciales", Code: "configuracion_invalida", Account: true}
			if got := s.Send(t.Context(), testMail); got != want {
				t.Errorf("%+v", got)
			}
		})
	}
	if err := resend.New(canaryKey).Validate(); err != nil {
		t.Error(err)
	}
}

func TestBadKeysAreRefusedUncalled(t *testing.T) {
	s := provider(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	for _, key := range []string{"", "a b", "a\nb", "ñ", strings.Repeat("k", 257)} {
		m := testMail
		m.IdempotencyKey = key
		if got := s.Send(t.Context(), m); got != (state.Outcome{Category: "rechazado", Code: "clave_invalida"}) {
			t.Errorf("%q: %+v", key, got)
		}
	}
}

func TestPrintsNothing(t *testing.T) {
	s := resend.New(canaryKey)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "sender", s)
	if out := fmt.Sprintf("%v %+v %#v %s", s, s, s, s) + log.String(); strings.Contains(out, "canario") {
		t.Error(out)
	}
}

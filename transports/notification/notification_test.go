package notification_test

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
	"github.com/recado-dev/recado/transports/notification"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canaryKey = "llave-canario"

var testMessage = transports.Message{
	ID: "0199", TenantID: "club-1", Channel: notification.Channel, Destination: "canario@casa.example",
	Template: "account-activation", Data: json.RawMessage(`{"url": "https://canario.example/?a=1&b=2", "n": 12345678901234567890}`),
	IdempotencyKey: `club-1:canario"\`, Attempt: 1,
}

func newTransport(t *testing.T, url string, options ...notification.Option) *notification.Transport {
	t.Helper()
	tr, err := notification.New(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// service handles every request alike.
func service(t *testing.T, handle http.HandlerFunc, options ...notification.Option) *notification.Transport {
	t.Helper()
	server := httptest.NewServer(handle)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	return newTransport(t, server.URL+"/jobs", append([]notification.Option{notification.HTTPClient(client)}, options...)...)
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// What is on the wire: the seed's three fields, and of the headers only what was asked for.
func TestRequest(t *testing.T) {
	const job = `{"code":"account-activation","recipient":"canario@casa.example",` +
		`"variables":{"url":"https://canario.example/?a=1\u0026b=2","n":12345678901234567890}}`
	for _, tt := range []struct {
		name    string
		options []notification.Option
		body    string
		headers map[string]string
	}{
		{"plain", nil, job, map[string]string{"Content-Type": "application/json", "Authorization": "", "Idempotency-Key": ""}},
		{"bearer", []notification.Option{notification.Bearer(canaryKey)}, job, map[string]string{"Authorization": "Bearer llave-canario"}},
		{
			"another header",
			[]notification.Option{notification.Bearer("x"), notification.Header("x-api_key", canaryKey)},
			job,
			map[string]string{"x-api_key": canaryKey, "Authorization": ""},
		},
		{
			"bare key",
			[]notification.Option{notification.BareIdempotencyKeys()},
			job,
			map[string]string{"Idempotency-Key": `club-1:canario"\`},
		},
		{
			"quoted key",
			[]notification.Option{notification.QuotedIdempotencyKeys()},
			job,
			map[string]string{"Idempotency-Key": `"club-1:canario\"\\"`},
		},
		{
			"a body of one's own",
			[]notification.Option{notification.Body(func(_ context.Context, m transports.Message) (any, error) {
				return map[string]any{"type": m.Template, "to": m.Destination, "dedupe": m.IdempotencyKey, "club": m.TenantID}, nil
			})},
			`{"club":"club-1","dedupe":"club-1:canario\"\\","to":"canario@casa.example","type":"account-activation"}`, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := service(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if string(body) != tt.body {
					t.Errorf("the body is %s", body)
				}
				for name, want := range tt.headers {
					if got := r.Header.Get(name); got != want {
						t.Errorf("%s: %q", name, got)
					}
				}
				if r.Method+r.URL.Path != "POST/jobs" {
					t.Error(r.Method, r.URL.Path)
				}
				w.WriteHeader(http.StatusAccepted)
			}, tt.options...)
			if got := s.Send(t.Context(), testMessage); got != (state.Outcome{OK: true}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, tt := range []struct{ field, body, id string }{
		{"", `{"id":"job-1"}`, "job-1"},
		{"", `{"id":4711}`, "4711"},
		{"", `{"id":null}`, ""},
		{"", `{"id":true}`, ""},
		{"", `{"id":{"id":"a"}}`, ""},
		{"", `{"id":"canario@casa.example"}`, ""},
		{"", `{"id":"` + long + `"}`, ""},
		{"", `{}`, ""},
		{"", ``, ""},
		{"", `null`, ""},
		{"", `[]`, ""},
		{"", `<html>`, ""},
		{"data.job.id", `{"data":{"job":{"id":"job-2"}}}`, "job-2"},
		{"data.job.id", `{"data":{"job":"id"}}`, ""},
		{"data.job.id", `{"id":"job-3"}`, ""},
	} {
		options := []notification.Option{}
		if tt.field != "" {
			options = append(options, notification.IDField(tt.field))
		}
		got := service(t, answering(http.StatusAccepted, tt.body), options...).Send(t.Context(), testMessage)
		if got != (state.Outcome{OK: true, ExternalID: tt.id}) {
			t.Errorf("%s in %s: %+v", tt.field, tt.body, got)
		}
	}
}

// Where only some statuses mean that the job was taken, another success is a doubt, or what a line says.
func TestAcceptedStatuses(t *testing.T) {
	for status, want := range map[int]state.Outcome{
		200: {Category: "red", Code: "http_200", Ambiguous: true},
		202: {OK: true, ExternalID: "job-1"},
		207: {Category: "rechazado", Code: "http_207"},
		409: {OK: true},
	} {
		s := service(t, answering(status, `{"id":"job-1"}`), notification.Accepted(201, 202), notification.Outcomes(map[string]state.Outcome{
			"http_207": {Category: state.CategoryRejected}, "http_409": {OK: true},
		}))
		if got := s.Send(t.Context(), testMessage); got != want {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

// Every status that means something, from a service that repeats all it was told, and those that nobody has heard of.
func TestRefusals(t *testing.T) {
	account := func(category string) state.Outcome { return state.Outcome{Category: category, Account: true} }
	refused := state.Outcome{Category: "rechazado"}
	doubt := state.Outcome{Category: "red", Ambiguous: true}
	notTaken := state.Outcome{Category: "red"}
	for want, statuses := range map[state.Outcome][]int{
		refused:                              {301, 302, 303, 304, 307, 308, 400, 404, 405, 406, 411, 413, 414, 415, 417, 422, 426, 428, 431, 451, 501, 505},
		account("credenciales"):              {401, 403, 407},
		account("facturacion"):               {402},
		doubt:                                {408, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 525, 526, 527, 529},
		{Category: "conflicto_idempotencia"}: {409},
		{Category: "rechazado", Code: "destino_baja"}: {410},
		notTaken:                                             {421, 423, 424, 425},
		{Category: "limite"}:                                 {429},
		{Category: "red", Code: "http_418"}:                  {418}, // unheard of: tried again, and stored as what it is
		{Category: "red", Code: "http_499"}:                  {499},
		{Category: "red", Code: "http_599", Ambiguous: true}: {599},
	} {
		for _, status := range statuses {
			want := want
			if want.Code == "" {
				want.Code = fmt.Sprintf("http_%d", status)
			}
			coded := want // with a code that no line has
			if status == 400 || status == 422 {
				coded = state.Outcome{Category: "red", Code: "desconocido:" + want.Code}
			}
			for body, want := range map[string]state.Outcome{
				"": want, "<html>canario</html>": want, `{"message":"canario"}`: want, `{"code":{}}`: want, `{"code":"`: want,
				`{"code":"canario@casa.example","message":"llave-canario"}`: coded, `{"code":7}`: coded,
			} {
				if got := service(t, answering(status, body)).Send(t.Context(), testMessage); got != want {
					t.Errorf("%d %s: %+v, want %+v", status, body, got, want)
				}
			}
		}
	}
	for status, want := range map[int]state.Outcome{
		503: {Category: "red", Code: "http_503", RetryAfter: time.Minute}, // sent away, so it was not taken
		429: {Category: "limite", Code: "http_429", RetryAfter: time.Minute},
	} {
		s := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(status)
		})
		if got := s.Send(t.Context(), testMessage); got != want {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
	}
}

// The request was read, and what came back is no answer.
func TestAnswersThatAreNone(t *testing.T) {
	for _, bytes := range []string{"", "canario\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 2"} {
		s := service(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, bytes)
			_ = conn.Close()
		})
		if got := s.Send(t.Context(), testMessage); got != (state.Outcome{Category: "red", Code: "conexion_cortada", Ambiguous: true}) {
			t.Errorf("%q: %+v", bytes, got)
		}
	}
}

// A line for status and code counts before one for the status, wherever the code is; nothing else is taken from an answer.
func TestOutcomes(t *testing.T) {
	lines := notification.Outcomes(map[string]state.Outcome{
		"http_400":                 {Category: state.CategoryRejected, Code: "http_400_propio"},
		"http_404":                 {Category: state.CategoryNetwork},
		"http_409:payload_differs": {Category: state.CategoryRejected, Code: "cuerpo_distinto", Ambiguous: true},
		"http_422:unknown_code":    {Category: state.CategoryTemplate},
		"http_422:17":              {Category: state.CategoryNumber},
	})
	differs := state.Outcome{Category: "rechazado", Code: "cuerpo_distinto", Ambiguous: true}
	for _, tt := range []struct {
		field  string
		status int
		body   string
		want   state.Outcome
	}{
		{"", 404, "", state.Outcome{Category: "red", Code: "http_404"}},
		{"", 409, `{"code":"payload_differs"}`, differs},
		{"error.code", 409, `{"error":{"code":"payload_differs"}}`, differs},
		{"error.code", 409, `{"code":"payload_differs"}`, state.Outcome{Category: "conflicto_idempotencia", Code: "http_409"}},
		{"", 409, `{"code":"in_flight"}`, state.Outcome{Category: "conflicto_idempotencia", Code: "http_409"}},
		{"", 422, `{"code":"unknown_code"}`, state.Outcome{Category: "plantilla", Code: "http_422:unknown_code"}},
		{"", 422, `{"code":17}`, state.Outcome{Category: "numero", Code: "http_422:17"}},
		{"", 422, `{"code":"another"}`, state.Outcome{Category: "red", Code: "desconocido:http_422"}},
		{"", 400, `{"code":"unknown_code"}`, state.Outcome{Category: "rechazado", Code: "http_400_propio"}},
	} {
		options := []notification.Option{lines}
		if tt.field != "" {
			options = append(options, notification.CodeField(tt.field))
		}
		if got := service(t, answering(tt.status, tt.body), options...).Send(t.Context(), testMessage); got != tt.want {
			t.Errorf("%d %s: %+v, want %+v", tt.status, tt.body, got, tt.want)
		}
	}
	if notification.DefaultOutcomes()["http_404"].Category != state.CategoryRejected {
		t.Error("the default lines were changed")
	}
}

// What cannot be sent is not.
func TestRefusedUncalled(t *testing.T) {
	body := func(v any, err error) notification.Option {
		return notification.Body(func(context.Context, transports.Message) (any, error) { return v, err })
	}
	keyed := notification.BareIdempotencyKeys()
	for _, tt := range []struct {
		name   string
		option notification.Option
		key    string
		want   state.Outcome
	}{
		{"a body that fails", body(nil, errors.New("canario")), "k", state.Outcome{Category: "plantilla", Code: "render"}},
		{"a body that fails for now", body(nil, state.Transient(errors.New("canario"))), "k", state.Outcome{Category: "red", Code: "render"}},
		{"a body that is no JSON", body(func() {}, nil), "k", state.Outcome{Category: "plantilla", Code: "render"}},
		{"a body that panics", notification.Body(func(context.Context, transports.Message) (any, error) { panic("canario") }), "k", state.Outcome{Category: "plantilla", Code: "render"}},
		{"no key", keyed, "", state.Outcome{Category: "rechazado", Code: "clave_invalida"}},
		{"a key with a line break", keyed, "a\nb", state.Outcome{Category: "rechazado", Code: "clave_invalida"}},
		{"a key with a blank, quoted", notification.QuotedIdempotencyKeys(), "a b", state.Outcome{Category: "rechazado", Code: "clave_invalida"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := service(t, func(http.ResponseWriter, *http.Request) { t.Error("called") }, tt.option)
			m := testMessage
			m.IdempotencyKey = tt.key
			if got := s.Send(t.Context(), m); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	const url = "https://notification.example/jobs"
	for name, tt := range map[string]struct {
		url    string
		option notification.Option
		field  string
	}{
		"no url":              {"", notification.Bearer(canaryKey), "url"},
		"plain http":          {"http://canario.example", notification.Bearer(canaryKey), "url"},
		"a secret in the url": {"https://canario.example/?key=1", notification.Bearer(canaryKey), "url"},
		"no token":            {url, notification.Bearer(""), "Header"},
		"token with a break":  {url, notification.Bearer("canario\n"), "Header"},
		"no header at all":    {url, notification.Header("", ""), "Header"},
		"no header value":     {url, notification.Header("X-Canario", ""), "Header"},
		"header with a colon": {url, notification.Header("X-Canario:", "x"), "Header"},
		"a header that net/http repeats requests for": {url, notification.Header("x-idempotency-key", "canario"), "Header"},
		"no body":              {url, notification.Body(nil), "Body"},
		"no status":            {url, notification.Accepted(), "Accepted"},
		"a status that is not": {url, notification.Accepted(202, 409), "Accepted"},
		"no id field":          {url, notification.IDField(""), "IDField"},
		"no code field":        {url, notification.CodeField(""), "CodeField"},
		"no category":          {url, notification.Outcomes(map[string]state.Outcome{"http_404": {Code: "canario"}}), "Outcomes"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := notification.New(tt.url, tt.option)
			var invalid *state.InvalidError
			if tr != nil || !errors.As(err, &invalid) || invalid.Field != tt.field || strings.Contains(err.Error(), "canario") {
				t.Errorf("%v, %v", tr, err)
			}
		})
	}
}

func TestPrintsNothing(t *testing.T) {
	tr := newTransport(t, "https://canario.example/jobs", notification.Bearer(canaryKey))
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "transport", tr)
	if out := fmt.Sprintf("%v %+v %#v %s", tr, tr, *tr, tr) + log.String(); strings.Contains(out, "canario") {
		t.Error(out)
	}
}

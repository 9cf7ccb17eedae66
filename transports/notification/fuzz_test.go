package notification_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/notification"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	statusCode = regexp.MustCompile(`^(http_\d{3}|desconocido:http_4(00|22))$`)
	idForm     = regexp.MustCompile(`^[A-Za-z0-9._:=+/-]{0,255}$`)
)

// Whatever a service answers, what is kept of it is a code that is written in the table, or the status, and perhaps an id.
func FuzzAnswer(f *testing.F) {
	f.Add(202, []byte(`{"data":{"id":"job-1"}}`), "")
	f.Add(200, []byte(`{"data":{"id":1e999}}`), "1")
	f.Add(200, []byte(`{"data":{"id":"sent to ana@casa.example"}}`), "")
	f.Add(422, []byte(`{"error":{"code":"unknown_code"}}`), "")
	f.Add(422, []byte(`{"error":{"code":"ana@casa.example"}}`), "99999999999999999999")
	f.Add(400, []byte(`{"error":{"code":-0}}`), "-1")
	f.Add(503, []byte(strings.Repeat(`{"error":`, 10_000)), "soon")
	f.Add(302, []byte(strings.Repeat("[", 100_000)), "")
	lines := map[string]state.Outcome{"http_422:unknown_code": {Category: state.CategoryTemplate}}
	f.Fuzz(func(t *testing.T, status int, body []byte, retryAfter string) {
		if status < 200 || status > 999 {
			return // no answer to a request
		}
		calls := 0
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			calls++
			return &http.Response{
				StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}, "Location": {"https://casa.example"}},
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, nil
		})}
		tr := newTransport(t, "https://notification.example/jobs", notification.HTTPClient(client), notification.Outcomes(lines),
			notification.IDField("data.id"), notification.CodeField("error.code"))
		o := tr.Send(t.Context(), testMessage)
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		if o.RetryAfter < 0 || o.NotCalled || o.OK != (status/100 == 2) || o.OK && o.Ambiguous {
			t.Errorf("%d %q is %v", status, body, o)
		}
		if !idForm.MatchString(o.ExternalID) || !o.OK && o.ExternalID != "" {
			t.Errorf("id %q", o.ExternalID)
		}
		if _, known := lines[o.Code]; !o.OK && !known && !statusCode.MatchString(o.Code) && o.Code != "destino_baja" {
			t.Errorf("%d %q has the code %q", status, body, o.Code)
		}
		r := state.Row{State: state.Processing, Attempts: 1, MaxAttempts: 9}
		if kept, err := state.Resolve(r, 0, o, state.DefaultPolicy()); err != nil || kept.Category != o.Category || kept.Code != o.Code || kept.ExternalID != o.ExternalID {
			t.Errorf("%v is kept as %v, %v", o, kept, err)
		}
	})
}

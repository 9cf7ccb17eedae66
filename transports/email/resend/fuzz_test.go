package resend_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email/resend"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	statusCode = regexp.MustCompile(`^http_\d{3}$`)
	idForm     = regexp.MustCompile(`^[A-Za-z0-9._:=+/-]{0,255}$`)
)

// Whatever a provider answers, what is kept of it is a code that is written in the table, or the status, and perhaps an id.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"id":"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}`), "")
	f.Add(200, []byte(`{"id":"mail to ana@casa.example"}`), "1")
	f.Add(403, []byte(`{"name":"validation_error","message":"ana@casa.example is no domain"}`), "")
	f.Add(400, []byte(`{"name":"validation_error","message":"API key is invalid: re_1"}`), "")
	f.Add(422, []byte(`{"name":"ana@casa.example"}`), "")
	f.Add(429, []byte(`{"name":"daily_quota_exceeded"}`), "99999999999999999999")
	f.Add(503, []byte(`<html>`), "-1")
	f.Add(302, []byte(strings.Repeat("[", 100_000)), "soon")
	f.Fuzz(func(t *testing.T, status int, body []byte, retryAfter string) {
		if status < 200 || status > 999 {
			return // no answer to a request
		}
		calls := 0
		s := resend.New(canaryKey, resend.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			calls++
			return &http.Response{
				StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}, "Location": {"https://casa.example"}},
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, nil
		})}))
		o := s.Send(t.Context(), testMail)
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		if o.RetryAfter < 0 || o.NotCalled || o.OK != (status/100 == 2) || o.OK && o.Ambiguous {
			t.Errorf("%d %q is %v", status, body, o)
		}
		if !idForm.MatchString(o.ExternalID) || !o.OK && o.ExternalID != "" {
			t.Errorf("id %q", o.ExternalID)
		}
		lines := resend.DefaultOutcomes()
		if _, known := lines[o.Code]; !o.OK && !known && !statusCode.MatchString(o.Code) && o.Code != "destino_baja" {
			t.Errorf("%d %q has the code %q", status, body, o.Code)
		}
		r := state.Row{State: state.Processing, Attempts: 1, MaxAttempts: 9}
		if kept, err := state.Resolve(r, 0, o, state.DefaultPolicy()); err != nil || kept.Category != o.Category || kept.Code != o.Code || kept.ExternalID != o.ExternalID {
			t.Errorf("%v is kept as %v, %v", o, kept, err)
		}
	})
}

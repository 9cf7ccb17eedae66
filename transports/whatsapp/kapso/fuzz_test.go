package kapso_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	keptCode = regexp.MustCompile(`^(http_\d{3}|desconocido:(http_\d{3}|-?\d{1,8}))$`)
	keptID   = regexp.MustCompile(`^[A-Za-z0-9._:=+/-]{0,255}$`)
)

// Whatever a provider answers, what is kept of it is a code that is written in the table, a number of Graph's or the status,
// and perhaps an id.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"messages":[{"id":"wamid.HBgNNTQ5MTE="}]}`), "")
	f.Add(200, []byte(`{"messages":[{"id":"sent to +5491122334455"}]}`), "1")
	f.Add(400, []byte(`{"error":{"code":131026,"message":"5491122334455 is not on WhatsApp"}}`), "")
	f.Add(400, []byte(`{"error":{"code":5491122334455}}`), "")
	f.Add(400, []byte(`{"error":{"code":"ana@casa.example"}}`), "")
	f.Add(422, []byte(`{"error":"phone +5491122334455 is wrong"}`), "99999999999999999999")
	f.Add(400, []byte(`{"error":{"code":1e2}}`), "-1")
	f.Add(500, []byte(`{"error":{"code":-1.5}}`), "soon")
	f.Add(503, []byte(strings.Repeat(`{"error":`, 10_000)), "")
	f.Fuzz(func(t *testing.T, status int, body []byte, retryAfter string) {
		if status < 200 || status > 999 {
			return // no answer to a request
		}
		calls := 0
		s := kapso.New(kapso.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			calls++
			return &http.Response{
				StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}, "Location": {"https://casa.example"}},
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, nil
		})}))
		o := s.Send(t.Context(), testCredentials, testMessage)
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		if o.RetryAfter < 0 || o.NotCalled || o.OK != (status/100 == 2) || o.OK && o.Ambiguous {
			t.Errorf("%d %q is %v", status, body, o)
		}
		if !keptID.MatchString(o.ExternalID) || !o.OK && o.ExternalID != "" {
			t.Errorf("id %q", o.ExternalID)
		}
		known := false
		for key, line := range kapso.DefaultOutcomes() {
			known = known || o.Code == key || o.Code == line.Code
		}
		// The state keeps what is no word, such as a number of more than 8 digits, from being stored.
		r := state.Row{State: state.Processing, Attempts: 1, MaxAttempts: 9}
		kept, err := state.Resolve(r, 0, o, state.DefaultPolicy())
		if err != nil || kept.Category != o.Category || kept.ExternalID != o.ExternalID {
			t.Errorf("%v is kept as %v, %v", o, kept, err)
		}
		if !o.OK && !known && !keptCode.MatchString(kept.Code) && kept.Code != state.CodeMalformed {
			t.Errorf("%d %q has the code %q", status, body, kept.Code)
		}
	})
}

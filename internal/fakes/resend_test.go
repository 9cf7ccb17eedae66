package fakes_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
)

var testMail = email.Mail{
	From: "Club <hola@club.example>", To: "ana@casa.example", Subject: "Hola", Text: "Hola, Ana", IdempotencyKey: "club-1:a-1",
}

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2026, 9, 24, 12, 0, 0, 0, time.UTC)} }

func resendPair(t *testing.T, c fakes.ResendConfig) (*fakes.Resend, *resend.Sender) {
	t.Helper()
	c.Key = "re_1"
	double := fakes.NewResend(c)
	url, client := serve(t, double)
	return double, resend.New("re_1", resend.BaseURL(url), resend.HTTPClient(client))
}

func TestResendKeys(t *testing.T) {
	now := newClock()
	double, sender := resendPair(t, fakes.ResendConfig{Now: now.Now})
	first := sender.Send(t.Context(), testMail)
	now.add(24*time.Hour - 1)
	if again := sender.Send(t.Context(), testMail); !first.OK || first.ExternalID == "" || again != first {
		t.Errorf("%+v, and again %+v", first, again)
	}
	other := testMail
	other.Text = "Chau"
	want := state.Outcome{
		Category: "conflicto_idempotencia", Code: "http_409:invalid_idempotent_request", Ambiguous: true, RetryAfter: time.Minute,
	}
	if got := sender.Send(t.Context(), other); got != want {
		t.Errorf("another body: %+v", got)
	}
	r := double.Record()
	wantRecord(t, r, 1, 2)
	if d := r.Accepted[0]; r.Repeated[d.Key] != 1 || d.Key != testMail.IdempotencyKey || d.To != testMail.To || d.Text != "Hola" || d.ID != first.ExternalID {
		t.Errorf("%+v", r)
	}
	now.add(1)
	if got := sender.Send(t.Context(), other); !got.OK || got.ExternalID == first.ExternalID {
		t.Errorf("a day later: %+v", got)
	}
	wantRecord(t, double.Record(), 2, 3)
}

// What the sender makes of a mail with all that it may have is what Resend takes.
func TestResendTakesExtras(t *testing.T) {
	double, sender := resendPair(t, fakes.ResendConfig{})
	m := testMail
	m.Extras = email.Extras{
		ReplyTo: "Club <a@club.example>", CC: []string{"b@casa.example"}, BCC: []string{"c@casa.example"}, Headers: map[string]string{"X-A": "b"},
		Tags: map[string]string{"a": "b"}, Attachments: []email.Attachment{{Name: "a.pdf", Type: "application/pdf", Content: []byte("%PDF")}},
	}
	for range 2 {
		if got := sender.Send(t.Context(), m); !got.OK {
			t.Errorf("%+v", got)
		}
	}
	wantRecord(t, double.Record(), 1, 2)
}

func TestResendKeyInFlight(t *testing.T) {
	arrived, done := make(chan struct{}), make(chan struct{}, 3)
	double := fakes.NewResend(fakes.ResendConfig{Key: "re_1", Faults: func(_ string, attempt int) fakes.Fault {
		if attempt > 1 {
			return ""
		}
		close(arrived)
		return fakes.Stalled
	}})
	url, client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { done <- struct{}{} }()
		double.ServeHTTP(w, r)
	}))
	sender := resend.New("re_1", resend.BaseURL(url), resend.HTTPClient(client))
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan state.Outcome)
	go func() { first <- sender.Send(ctx, testMail) }()
	<-arrived
	want := state.Outcome{Category: "conflicto_idempotencia", Code: "http_409:concurrent_idempotent_requests", RetryAfter: time.Minute}
	if got := sender.Send(t.Context(), testMail); got != want {
		t.Errorf("meanwhile: %+v", got)
	}
	<-done
	giveUp()
	if got := <-first; got.OK || !got.Ambiguous {
		t.Errorf("given up: %+v", got)
	}
	<-done
	if got := sender.Send(t.Context(), testMail); !got.OK {
		t.Errorf("afterwards: %+v", got)
	}
	wantRecord(t, double.Record(), 1, 2)
}

func TestResendFaults(t *testing.T) {
	for fault, want := range faultCases {
		double, sender := resendPair(t, fakes.ResendConfig{Faults: always(fault)})
		if got := sender.Send(t.Context(), testMail); !sameKind(got, want) || (got.RetryAfter > 0) != (fault == fakes.TooMany) {
			t.Errorf("%q: %+v", fault, got)
		}
		r := double.Record()
		taken := 0
		if fault == "" || fault == fakes.CutAfter {
			taken = 1
		}
		wantRecord(t, r, taken, 1)
		if fault != "" && r.Faults[fault] != 1 || (r.Lost[testMail.IdempotencyKey] == 1) != (fault == fakes.CutAfter) {
			t.Errorf("%q: %+v", fault, r)
		}
	}
}

// Whatever goes wrong, nothing is taken twice.
func TestResendTakesEachMailOnce(t *testing.T) {
	const seed = 20260924
	t.Log("seed", seed)
	double, sender := resendPair(t, fakes.ResendConfig{Faults: fakes.Seeded(seed)})
	calls := keep(t, func(n int) state.Outcome {
		m := testMail
		m.IdempotencyKey = fmt.Sprint("club-1:", n)
		return sender.Send(t.Context(), m)
	})
	r := double.Record()
	wantRecord(t, r, 200, calls)
	if len(r.Lost) == 0 || len(r.Lost) != len(r.Repeated) {
		t.Errorf("%d lost, %d repeated", len(r.Lost), len(r.Repeated))
	}
}

func TestResendLimit(t *testing.T) {
	now := newClock()
	double, sender := resendPair(t, fakes.ResendConfig{Limit: 2, Now: now.Now})
	for call, ok := range []bool{true, true, false} {
		if got := sender.Send(t.Context(), testMail); got.OK != ok {
			t.Errorf("call %d: %+v", call+1, got)
		}
	}
	want := state.Outcome{Category: "limite", Code: "http_429:rate_limit_exceeded", RetryAfter: time.Second}
	if got := sender.Send(t.Context(), testMail); got != want {
		t.Errorf("%+v", got)
	}
	now.add(time.Second)
	if got := sender.Send(t.Context(), testMail); !got.OK {
		t.Errorf("a second later: %+v", got)
	}
	wantRecord(t, double.Record(), 1, 3)
}

func TestResendRefusals(t *testing.T) {
	double := fakes.NewResend(fakes.ResendConfig{
		Key: "re_1", Domain: "club.example", Refuse: func(to string) bool { return strings.HasPrefix(to, "nadie@") },
	})
	url, client := serve(t, double)
	good := func(more string) string {
		return `{"from":"a@club.example","to":"b@c.example","subject":"s","text":"t"` + more + `}`
	}
	for _, tt := range []struct {
		name, body, key, token, path, method string
		status                               int
		want                                 string
	}{
		{name: "good", body: good(""), status: 200},
		{name: "all there is", status: 200, body: good(`,"to":["b@c.example"],"cc":["c@c.example"],"bcc":"d@c.example","reply_to":"e@c.example",` +
			`"headers":{"X-A":"b"},"tags":[{"name":"a","value":"b"}],"attachments":[{"filename":"a.txt","content":"YQ=="}]`)},
		{name: "no token", body: good(""), token: "-", status: 401, want: "missing_api_key"},
		{name: "another's token", body: good(""), token: "re_2", status: 403, want: "invalid_api_key"},
		{name: "elsewhere", body: good(""), path: "/mails", status: 404, want: "not_found"},
		{name: "another method", method: "PUT", status: 405, want: "method_not_allowed"},
		{name: "key too long", body: good(""), key: strings.Repeat("k", 257), status: 400, want: "invalid_idempotency_key"},
		{name: "no JSON", body: "{", status: 422, want: "validation_error"},
		{name: "nothing in it", body: "{}", status: 422, want: "missing_required_field"},
		{name: "no sender", body: good(`,"from":"a"`), status: 422, want: "invalid_from_address"},
		{name: "another's domain", body: good(`,"from":"a@other.example"`), status: 403, want: "validation_error"},
		{name: "no address", body: good(`,"to":["b"]`), status: 422, want: "validation_error"},
		{name: "no address to copy", body: good(`,"cc":["b"]`), status: 422, want: "validation_error"},
		{name: "refused for good", body: good(`,"to":["nadie@c.example"]`), status: 422, want: "validation_error"},
		{name: "too many", body: good(`,"to":["b@c.example"` + strings.Repeat(`,"b@c.example"`, 50) + `]`), status: 422, want: "validation_error"},
		{name: "a tag with a blank", body: good(`,"tags":[{"name":"a b","value":"c"}]`), status: 422, want: "validation_error"},
		{name: "an empty attachment", body: good(`,"attachments":[{"filename":"a.txt"}]`), status: 422, want: "invalid_attachment"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), cmp.Or(tt.method, "POST"), url+cmp.Or(tt.path, "/emails"), strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.token != "-" {
				request.Header.Set("Authorization", "Bearer "+cmp.Or(tt.token, "re_1"))
			}
			if tt.key != "" {
				request.Header.Set("Idempotency-Key", tt.key)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close() //nolint:errcheck // it was only read
			var answer struct {
				StatusCode int
				Name, ID   string
			}
			if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
				t.Error(err)
			}
			if response.StatusCode != tt.status || answer.Name != tt.want || (answer.ID != "") != (tt.want == "") || tt.want != "" && answer.StatusCode != tt.status {
				t.Errorf("%d %+v", response.StatusCode, answer)
			}
		})
	}
	if r := double.Record(); len(r.Accepted) != 2 || r.Refused["nadie@c.example"] != 1 {
		t.Errorf("%+v", r)
	}
}

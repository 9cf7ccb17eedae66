package fakes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns the double's address, and a client that leads to it.
func serve(t *testing.T, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(h)
	client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	return server.URL, client
}

// Every kind of fault happens, the same at every run, and no message meets more than two.
func TestSeeded(t *testing.T) {
	count := map[fakes.Fault]int{}
	same, other := fakes.Seeded(1), 0
	for n := range 500 {
		key := fmt.Sprint("clave-", n)
		for attempt := 1; attempt <= 3; attempt++ {
			f := fakes.Seeded(1)(key, attempt)
			if f != same(key, attempt) || attempt == 3 && f != "" {
				t.Errorf("%s, attempt %d: %q", key, attempt, f)
			}
			if f != fakes.Seeded(2)(key, attempt) {
				other++
			}
			count[f]++
		}
	}
	for _, f := range []fakes.Fault{fakes.TooMany, fakes.Unavailable, fakes.CutBefore, fakes.CutAfter} {
		if count[f] < 10 {
			t.Errorf("%q happened %d times", f, count[f])
		}
	}
	if other == 0 || count[fakes.Stalled] > 0 {
		t.Errorf("%d differ under another seed, %d stalled", other, count[fakes.Stalled])
	}
}

// faultCases are what a sender makes of each fault.
var faultCases = map[fakes.Fault]state.Outcome{
	"":                {OK: true},
	fakes.TooMany:     {Category: state.CategoryRateLimit},
	fakes.Unavailable: {Category: state.CategoryNetwork, Ambiguous: true},
	fakes.CutBefore:   {Category: state.CategoryNetwork, Ambiguous: true},
	fakes.CutAfter:    {Category: state.CategoryNetwork, Ambiguous: true},
}

// always is the same fault at every attempt.
func always(f fakes.Fault) fakes.Faults { return func(string, int) fakes.Fault { return f } }

// sameKind compares what every sender says alike.
func sameKind(got, want state.Outcome) bool {
	return got.OK == want.OK && got.Category == want.Category && got.Ambiguous == want.Ambiguous && !got.NotCalled
}

// keep sends each message until it is accepted, and returns how many calls that took.
func keep(t *testing.T, send func(n int) state.Outcome) (calls int) {
	t.Helper()
	for n := range 200 {
		for attempt := 1; ; attempt++ {
			calls++
			o := send(n)
			if o.OK {
				break
			}
			if attempt > 2 || state.Classify(o) != state.ClassTransient {
				t.Fatalf("message %d, attempt %d: %+v", n, attempt, o)
			}
		}
	}
	return calls
}

func wantRecord(t *testing.T, r fakes.Record, accepted, calls int) {
	t.Helper()
	all := 0
	for _, n := range r.Calls {
		all += n
	}
	if len(r.Accepted) != accepted || all != calls {
		t.Errorf("%d accepted of %d calls, want %d of %d", len(r.Accepted), all, accepted, calls)
	}
}

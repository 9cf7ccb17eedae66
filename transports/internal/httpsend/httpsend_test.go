package httpsend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 9, 24, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, tt := range []struct {
		value, answered string
		want            time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{"120", date(time.Hour), 2 * time.Minute},
		{"-1", "", 0},
		{"+5", "", 0},
		{"1.5", "", 0},
		{"9223372036854775807", "", 9223372036 * time.Second},
		{"99999999999999999999", "", 0},
		{"soon", "", 0},
		{"120 s", "", 0},
		{date(90 * time.Second), "", 90 * time.Second},
		{date(-90 * time.Second), "", 0},
		{date(time.Hour + 90*time.Second), date(time.Hour), 90 * time.Second}, // their clock is an hour ahead
		{date(90 * time.Second), "nonsense", 90 * time.Second},
		{now.Add(90 * time.Second).Format(time.RFC850), "", 90 * time.Second},
		{now.Add(90 * time.Second).Format(time.ANSIC), "", 90 * time.Second},
		{now.Add(90 * time.Second).Format(time.RFC3339), "", 0},
	} {
		h := http.Header{"Retry-After": {tt.value}, "Date": {tt.answered}}
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%q, answered %q: %v, want %v", tt.value, tt.answered, got, tt.want)
		}
	}
	if got := retryAfter(http.Header{}, now); got != 0 {
		t.Errorf("no header: %v", got)
	}
}

// Every line of the table, and the rules for what it leaves out.
func TestStatuses(t *testing.T) {
	network := func(ambiguous bool) state.Outcome { return state.Outcome{Category: "red", Ambiguous: ambiguous} }
	account := func(category string) state.Outcome { return state.Outcome{Category: category, Account: true} }
	refused := state.Outcome{Category: "rechazado"}
	want := map[int]state.Outcome{
		101: network(true),
		301: refused, 302: refused, 303: refused, 304: refused, 307: refused, 308: refused, 399: refused,
		400: refused, 405: refused, 406: refused, 411: refused, 413: refused, 414: refused, 415: refused, 417: refused,
		426: refused, 428: refused, 431: refused, 451: refused, 404: refused, 422: refused, 501: refused, 505: refused,
		401: account("credenciales"), 403: account("credenciales"), 407: account("credenciales"), 402: account("facturacion"),
		408: network(true),
		409: {Category: "conflicto_idempotencia"},
		410: {Category: "rechazado", Code: "destino_baja"},
		421: network(false), 423: network(false), 424: network(false), 425: network(false),
		429: {Category: "limite"},
		500: network(true), 502: network(true), 503: network(true), 504: network(true), 507: network(true), 520: network(true),
		527: network(true), 529: network(true), 599: network(true),
		418: network(false), 499: network(false), // unheard of: transient
		600: network(true),
	}
	for status, o := range want {
		if o.Code == "" {
			o.Code = fmt.Sprintf("http_%d", status)
		}
		if got := Statuses().Status(Answer{Status: status}); got != o {
			t.Errorf("%d: %+v, want %+v", status, got, o)
		}
	}
	for key := range Statuses() {
		var status int
		if _, err := fmt.Sscanf(key, "http_%d", &status); err != nil || want[status] == (state.Outcome{}) {
			t.Errorf("no test for %s", key)
		}
	}
	away := state.Outcome{Category: "red", Code: "http_503", RetryAfter: time.Minute}
	if got := Statuses().Status(Answer{Status: 503, RetryAfter: time.Minute}); got != away {
		t.Errorf("sent away: %+v", got)
	}
}

func TestTable(t *testing.T) {
	base := Table{"a": {Category: "red", RetryAfter: time.Minute}}
	table := base.With(map[string]state.Outcome{"b": {OK: true}, "c": {Category: "limite", Code: "propio"}})
	if len(base) != 1 || base.Check() != nil || table.Check() != nil {
		t.Error("With changed its receiver, or Check refuses good lines")
	}
	for _, tt := range []struct {
		key  string
		wait time.Duration
		want state.Outcome
	}{
		{"a", 0, state.Outcome{Category: "red", Code: "a", RetryAfter: time.Minute}},
		{"a", time.Second, state.Outcome{Category: "red", Code: "a", RetryAfter: time.Minute}},
		{"a", time.Hour, state.Outcome{Category: "red", Code: "a", RetryAfter: time.Hour}},
		{"b", 0, state.Outcome{OK: true}},
		{"c", 0, state.Outcome{Category: "limite", Code: "propio"}},
	} {
		if got, ok := table.Find(tt.key, Answer{RetryAfter: tt.wait}); !ok || got != tt.want {
			t.Errorf("%s, %v: %+v", tt.key, tt.wait, got)
		}
	}
	if _, ok := table.Find("d", Answer{}); ok {
		t.Error("found what is not there")
	}
	if err := table.With(map[string]state.Outcome{"d": {Code: "x"}}).Check(); !errors.Is(err, state.ErrInvalidOptions) {
		t.Errorf("a line without category: %v", err)
	}
}

func TestCheckURL(t *testing.T) {
	for base, good := range map[string]bool{
		"https://api.example": true, "https://api.example:8443/v1": true,
		"http://127.0.0.1:80": true, "http://localhost:80/x": true, "http://[::1]:80": true,
		"http://api.example": false, "http://127.0.0.1.example": false, "ftp://api.example": false, "api.example": false,
		"": false, "https://": false, "https://user:pass@api.example": false, "https://api.example?x=1": false,
		"https://api.example#x": false, "https://api.example/%zz": false, "//api.example": false,
	} {
		if err := CheckURL(base); (err == nil) != good {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	for s, good := range map[string]bool{"re_1:x~!": true, "": false, "a b": false, "a\n": false, "ñ": false, "a\x7f": false} {
		if HeaderValue(s) != good {
			t.Errorf("%q", s)
		}
	}
}

func TestID(t *testing.T) {
	for s, good := range map[string]bool{
		"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794": true, "wamid.HBgNNTQ5MTEy+/AA==": true, strings.Repeat("a", 255): true,
		"": false, strings.Repeat("a", 256): false, "ana@casa.example": false, "two words": false, "<b>": false, "ñ": false,
	} {
		if (ID(s) == s && s != "") != good {
			t.Errorf("%q", s)
		}
	}
}

func post(t *testing.T, ctx context.Context, caller *http.Client, url string) (Answer, state.Outcome, bool) {
	t.Helper()
	c := New(caller)
	defer c.http.CloseIdleConnections()
	return c.Post(ctx, Request{
		URL: url, Authentication: [2]string{"Authorization", "Bearer x"}, IdempotencyKey: "k", Body: []byte(`{}`),
	})
}

// dialing answers every dial with an error.
func dialing(err error) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, err },
	}}
}

// What goes wrong before anything was written certainly did not go out.
func TestNotCalled(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	noTLS := httptest.NewServer(http.NotFoundHandler())
	noTLS.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer noTLS.Close()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("canario"))
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		caller *http.Client
		url    string
		code   string
	}{
		{"no such host", t.Context(), dialing(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "canario", IsNotFound: true}}), "https://a.example", "dns"},
		{"no route", t.Context(), dialing(&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}), "https://a.example", "conexion"},
		{"nobody answers", t.Context(), dialing(&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}), "https://a.example", "timeout"},
		{"refused", t.Context(), nil, closed.URL, "conexion_rechazada"},
		{"untrusted certificate", t.Context(), nil, untrusted.URL, "tls"},
		{"no TLS", t.Context(), nil, strings.Replace(noTLS.URL, "http:", "https:", 1), "tls"},
		{"context ended", ended, nil, noTLS.URL, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, lost, ok := post(t, tt.ctx, tt.caller, tt.url)
			if want := (state.Outcome{Category: "red", Code: tt.code, NotCalled: true}); ok || lost != want {
				t.Errorf("%+v, want %+v", lost, want)
			}
		})
	}
	t.Run("TLS that never ends", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 1)) // the handshake has begun
			cancel()
			_, _ = io.Copy(io.Discard, c)
		}()
		_, lost, ok := post(t, ctx, nil, "https://"+l.Addr().String())
		if want := (state.Outcome{Category: "red", Code: "timeout", NotCalled: true}); ok || lost != want {
			t.Errorf("%+v, want %+v", lost, want)
		}
	})
}

// stalled is an answer whose body never comes.
type stalled struct {
	ctx    context.Context
	closed chan struct{}
}

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (s stalled) Close() error {
	close(s.closed)
	return nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A body that does not come takes half of the time that is left, and 5 s at most, so that the status is heard.
func TestAStalledBodyLeavesTime(t *testing.T) {
	for _, tt := range []struct {
		timeout, want time.Duration
	}{{2 * time.Second, time.Second}, {time.Minute, 5 * time.Second}, {0, 5 * time.Second}} {
		t.Run(fmt.Sprint(tt.timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				closed := make(chan struct{})
				began := time.Now()
				a, _, ok := post(t, ctx, &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: stalled{r.Context(), closed}}, nil
				})}, "https://a.example")
				if !ok || !a.Accepted() || time.Since(began) != tt.want {
					t.Errorf("%v, %+v after %v, want %v", ok, a, time.Since(began), tt.want)
				}
				<-closed
			})
		})
	}
}

// The caller's client keeps its settings, and is not changed.
func TestTheCallersClient(t *testing.T) {
	caller := dialing(errors.New("canario"))
	caller.Timeout = time.Minute
	c := New(caller)
	if c.http == caller || caller.CheckRedirect != nil || c.http.Timeout != time.Minute || c.http.Transport != caller.Transport {
		t.Error("not a copy with one change")
	}
}

func TestTheDefaultClient(t *testing.T) {
	tr := New(nil).http.Transport.(*http.Transport)
	if tr.Proxy != nil || tr.TLSClientConfig != nil || tr.TLSHandshakeTimeout <= 0 || tr.MaxResponseHeaderBytes <= 0 {
		t.Errorf("%+v", tr)
	}
}

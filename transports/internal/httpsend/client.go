// Package httpsend is what the senders over HTTP share: one POST, what its answer says, and what is known when there is
// none.
//
// A call is one request on the wire: redirects are not followed, nothing is tried again, and no more of an answer than
// [MaxAnswer] is read. The caller's context, and a timeout of the caller's client, end it.
package httpsend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

// Bounds of the client that is used where the caller gives none, and of every answer.
const (
	MaxAnswer = 64 << 10 // bytes of a body; what follows is not read

	maxConnect   = 10 * time.Second // dialling, and TLS again: what they cut off costs no attempt
	maxHeader    = 64 << 10         // bytes
	maxIdle      = 90 * time.Second
	maxIdleConns = 100 // per host: a busy lane keeps its connections

	// maxBody bounds reading a body, and half of the time that is left does: the status has said what counts, and an
	// accepted message must be reported as such before the attempt's time is up.
	maxBody = 5 * time.Second
)

// Client makes calls. It is safe for concurrent use.
type Client struct {
	http *http.Client
}

// New returns a Client over the caller's, or over a safe one: certificates verified, TLS 1.2 at least, no proxy, since
// that would be read from the environment. Of the caller's client only the handling of redirects is changed, in a copy.
func New(caller *http.Client) Client {
	c := http.Client{Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: maxConnect}).DialContext,
		TLSHandshakeTimeout:    maxConnect,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        maxIdle,
		MaxResponseHeaderBytes: maxHeader,
	}}
	if caller != nil {
		c = *caller
	}
	// A redirected request would take the key along to another host: only the standard header is dropped on the way.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return Client{&c}
}

// Request is a POST of JSON.
type Request struct {
	URL            string
	Authentication [2]string // name and value of a header
	IdempotencyKey string    // "": no such header
	Body           []byte
}

// Answer is what a server said. Body is what could be read of the answer's, at most [MaxAnswer] bytes.
type Answer struct {
	Status     int
	Body       []byte
	RetryAfter time.Duration // how long the server wants to be left alone; 0: it does not say
}

// Accepted reports whether the status is a success. It is one even when the body is broken off or makes no sense.
func (a Answer) Accepted() bool { return a.Status/100 == 2 }

// Post makes one call. Without an answer ok is false, and lost is what the attempt came to, in category red:
//
//   - NotCalled: no request was written, so that none can have been taken
//   - Ambiguous: one was, at least in part
//
// with a code of [adapter.LossCode]. Nothing of an error's text gets out.
func (c Client) Post(ctx context.Context, r Request) (a Answer, lost state.Outcome, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p progress
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, p.trace()), http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil { // the sender has validated the address
		return a, state.Outcome{Category: state.CategoryCredentials, Code: CodeBadConfig, Account: true}, false
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "recado")
	request.Header.Set(r.Authentication[0], r.Authentication[1])
	if r.IdempotencyKey != "" {
		// Spelled like this, it is the same header to a server. As Idempotency-Key it would make net/http repeat, by itself,
		// requests that were already written; without it, only those of which nothing was.
		request.Header["idempotency-key"] = []string{r.IdempotencyKey}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return a, p.lost(ctx, err), false
	}
	a = Answer{Status: response.StatusCode, RetryAfter: retryAfter(response.Header, time.Now())}
	a.Body = read(ctx, cancel, response)
	return a, lost, true
}

// read reads and closes the body. Whatever goes wrong, the status stands.
func read(ctx context.Context, cancel context.CancelFunc, response *http.Response) []byte {
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK { // the connection speaks another protocol from here on
		return nil
	}
	limit := maxBody
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	defer time.AfterFunc(limit, cancel).Stop()
	body, _ := io.ReadAll(io.LimitReader(response.Body, MaxAnswer))
	return body
}

// progress is how far a request came. net/http tells from goroutines of its own.
type progress struct {
	securing, written atomic.Bool
}

func (p *progress) trace() *httptrace.ClientTrace {
	start := func() { p.securing.Store(true) }
	return &httptrace.ClientTrace{
		// A second time when the first connection took nothing of the request.
		GetConn:           func(string) { p.written.Store(false) },
		TLSHandshakeStart: start,
		GotConn:           func(httptrace.GotConnInfo) { p.securing.Store(false) },
		WroteHeaders:      func() { p.written.Store(true) }, // before they leave the buffer, so never too late
	}
}

func (p *progress) lost(ctx context.Context, err error) state.Outcome {
	otherwise := adapter.CodeCut
	switch {
	case p.written.Load():
	case p.securing.Load():
		otherwise = adapter.CodeTLS
	default:
		otherwise = adapter.CodeConnect
	}
	if ctx.Err() != nil { // err may be any cause that the caller gave
		err = ctx.Err()
	}
	return state.Outcome{
		Category: state.CategoryNetwork, Code: adapter.LossCode(err, otherwise),
		Ambiguous: p.written.Load(), NotCalled: !p.written.Load(),
	}
}

// CodeBadConfig is the code, with category credenciales, of a sender that was used although its options are invalid.
const CodeBadConfig = "configuracion_invalida"

// CheckURL returns an error unless base is an https address without query, or an http one on this machine.
func CheckURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("is not a plain https address")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("is not https, so that everybody on the way could read the key")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// HeaderValue reports whether s, a key or a token, can travel in a header: printable ASCII without blanks, not empty.
func HeaderValue(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

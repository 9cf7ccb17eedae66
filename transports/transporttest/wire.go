package transporttest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

var wireCases = []testCase{
	{"a context that has ended", func(k *kit) {
		ctx, cancel := context.WithCancel(k.Context())
		cancel()
		if o := k.send(ctx); o.OK || o.Ambiguous {
			k.Errorf("%+v", o)
		}
		k.wantCalls(0)
	}},

	{"a provider that never answers", func(k *kit) {
		ctx, cancel := context.WithCancel(k.Context())
		defer cancel()
		k.provider.answer = func(_ http.ResponseWriter, r *http.Request) {
			cancel() // the attempt ends while the provider has the whole request
			<-r.Context().Done()
		}
		began := time.Now()
		k.wantLost(k.send(ctx), true, false)
		if took := time.Since(began); took > patience {
			k.Errorf("it took %v to notice that the context had ended", took)
		}
		k.wantCalls(1)
	}},

	{"a provider that stalls after its headers", func(k *kit) {
		for _, status := range []int{200, 500} {
			k.provider.answer = func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
			ctx, cancel := context.WithTimeout(k.Context(), 2*time.Second)
			o := k.send(ctx)
			if ctx.Err() != nil {
				k.Errorf("%d: the status was known, and is now too late to be heard", status)
			}
			cancel()
			k.wantStatus(status, o)
		}
		k.wantCalls(2)
	}},

	{"nobody there", func(k *kit) {
		k.provider.Close()
		k.wantLost(k.send(k.Context()), false, true)
	}},

	{"a name that cannot be resolved", func(k *kit) {
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: k.subject.Message.Destination, IsNotFound: true}}
		}}
		k.transport = k.subject.New(k.T, k.provider.URL, &http.Client{Transport: tr})
		k.wantLost(k.send(k.Context()), false, true)
	}},

	{"a certificate that nobody vouches for", func(k *kit) {
		stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { k.Error("it was sent") }))
		stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
		stranger.StartTLS()
		defer stranger.Close()
		k.transport = k.subject.New(k.T, stranger.URL, k.client)
		k.wantLost(k.send(k.Context()), false, true)
	}},

	{"reset before the request is read", func(k *kit) {
		k.provider.unread = true
		k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { cut(k.T, w, true) }
		o := k.send(k.Context())
		k.wantLost(o, o.Ambiguous, o.NotCalled) // how far it came, the client cannot always know
		k.wantCalls(1)
	}},

	{"cut after the request was read", func(k *kit) {
		for i, reset := range []bool{true, false} {
			k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { cut(k.T, w, reset) }
			k.wantLost(k.send(k.Context()), true, false)
			k.wantCalls(i + 1)
		}
	}},

	// On a connection that was used before, net/http repeats some requests by itself: the first answer is a good one.
	{"cut on a connection that was kept", func(k *kit) {
		for _, reset := range []bool{true, false} {
			before := len(k.provider.seen())
			k.provider.answer = k.accept
			k.wantAccepted(k.send(k.Context()), k.subject.ExternalID)
			_, connections := k.provider.connections()
			k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { cut(k.T, w, reset) }
			k.wantLost(k.send(k.Context()), true, false)
			k.wantCalls(before + 2)
			if _, now := k.provider.connections(); now != connections {
				k.Error("the connection was not kept, so that this shows nothing")
			}
		}
	}},

	{"redirects", func(k *kit) {
		elsewhere := newProvider(k.T)
		elsewhere.answer = k.accept
		n := 0
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, to := range []string{elsewhere.URL + "/x", k.provider.URL + "/x", "/x"} {
				k.provider.answer = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) }
				k.wantStatus(status, k.send(k.Context()))
				n++
			}
		}
		k.wantCalls(n)
		if calls := elsewhere.seen(); len(calls) > 0 {
			k.Errorf("%d requests, with their secrets, went to another host", len(calls))
		}
	}},

	{"the same bytes at every attempt", func(k *kit) {
		k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		for attempt := range 5 {
			if attempt == 3 { // the worker was restarted
				k.transport = k.subject.New(k.T, k.provider.URL, k.client)
			}
			k.subject.Message.Attempt = attempt + 1
			k.send(k.Context())
		}
		calls := k.provider.seen()
		k.wantCalls(5)
		for i, c := range calls {
			if !c.equal(calls[0]) {
				k.Errorf("attempt %d differs from the first", i+1)
			}
		}
		if key := calls[0].header.Get("Idempotency-Key"); key != "" && strings.Trim(key, `"`) != k.subject.Message.IdempotencyKey {
			k.Error("the key on the wire is not the message's")
		}
	}},
}

package transporttest

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/recado-dev/recado/state"
)

var answerCases = []testCase{
	{"accepted", func(k *kit) {
		k.wantAccepted(k.send(k.Context()), k.subject.ExternalID)
		k.wantCalls(1)
		if k.subject.ExternalID == "" {
			k.Error("the subject has no external id to look for")
		}
	}},

	{"every status", func(k *kit) {
		n := 0
		for status := 200; status < 600; status++ {
			k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
			o := k.send(k.Context())
			n++
			k.wantStatus(status, o)
		}
		k.wantCalls(n)
	}},

	{"an accepted message whatever the body", func(k *kit) {
		for name, body := range map[string]string{
			"HTML": page, "empty": "", "another JSON": `[{"x":{}}]`, "a number": "1", "broken off": k.subject.Accepted[:1],
		} {
			k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
			if o := k.send(k.Context()); o != (state.Outcome{OK: true}) {
				k.Errorf("%s: %+v", name, o)
			}
		}
		k.provider.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler) // the connection ends inside the body
		}
		k.wantAccepted(k.send(k.Context()), "")
	}},

	{"answers that are not the provider's", func(k *kit) {
		for _, status := range []int{400, 401, 403, 429, 500, 502, 503, 504, 520} {
			for _, body := range []string{page, "", `{`, `null`, `"x"`, `[]`, "\x00\xff"} {
				k.provider.answer = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				}
				o := k.send(k.Context())
				k.wantStatus(status, o)
				if !strings.Contains(o.Code, strconv.Itoa(status)) {
					k.Errorf("%d: the code does not say so: %+v", status, o)
				}
			}
		}
	}},

	{"bodies without end", func(k *kit) {
		const all = 50 << 20
		for _, status := range []int{200, 400, 500, 502} {
			var written atomic.Int64
			done := make(chan struct{})
			k.provider.answer = func(w http.ResponseWriter, _ *http.Request) {
				defer close(done)
				w.WriteHeader(status)
				chunk := []byte(strings.Repeat("x", 1<<16))
				for written.Load() < all {
					n, err := w.Write(chunk)
					if err != nil {
						return
					}
					written.Add(int64(n))
				}
			}
			o := k.send(k.Context())
			<-done
			if written.Load() >= all {
				k.Fatalf("%d: all of 50 MB were read", status)
			}
			if status == http.StatusOK {
				k.wantAccepted(o, "")
			} else {
				k.wantStatus(status, o)
			}
		}
	}},

	{"the provider's own wait", func(k *kit) {
		now := time.Now().UTC()
		for _, status := range []int{429, 503} {
			for _, tt := range []struct {
				after, date string
				want        time.Duration
			}{
				{"120", "", 2 * time.Minute},
				{now.Add(90 * time.Second).Format(http.TimeFormat), now.Format(http.TimeFormat), 90 * time.Second},
				{"", "", 0},
				{"-5", "", 0},
				{"soon", "", 0},
				{now.Add(-time.Hour).Format(http.TimeFormat), now.Format(http.TimeFormat), 0},
				{"9999999999999999999999", "", 0},
			} {
				k.provider.answer = func(w http.ResponseWriter, _ *http.Request) {
					if tt.date != "" {
						w.Header().Set("Date", tt.date)
					}
					if tt.after != "" {
						w.Header().Set("Retry-After", tt.after)
					}
					w.WriteHeader(status)
				}
				if o := k.send(k.Context()); state.Classify(o) != state.ClassTransient || o.RetryAfter != tt.want {
					k.Errorf("%d, Retry-After %q: %+v, want a wait of %v", status, tt.after, o, tt.want)
				}
			}
		}
	}},

	{"nothing that a provider repeats gets out", func(k *kit) {
		var logged strings.Builder
		defer log.SetOutput(log.Writer())
		log.SetOutput(&logged)
		n := 0
		for _, status := range []int{400, 401, 402, 403, 404, 409, 410, 422, 429, 451, 500, 503} {
			for _, form := range []string{
				`%s`,
				`{"statusCode":400,"name":%[1]s,"message":%[1]s}`,
				`{"error":%s}`,
				`{"error":{"code":%[1]s,"message":%[1]s,"type":%[1]s,"error_data":{"details":%[1]s}}}`,
				`{"errors":[{"code":%[1]s,"title":%[1]s}]}`,
			} {
				k.provider.answer = func(w http.ResponseWriter, r *http.Request) {
					calls := k.provider.seen()
					echo, err := json.Marshal(fmt.Sprint(r.Header, string(calls[len(calls)-1].body)))
					if err != nil {
						k.Error(err)
					}
					for _, name := range []string{"Retry-After", "Location", "X-Request-Id"} {
						w.Header().Set(name, k.subject.Message.Destination)
					}
					w.WriteHeader(status)
					_, _ = fmt.Fprintf(w, form, echo)
				}
				k.send(k.Context()) // which looks
				n++
				for _, word := range append([]string{k.subject.Message.Destination, k.subject.Message.IdempotencyKey}, k.subject.Secrets...) {
					k.provider.answer = func(w http.ResponseWriter, _ *http.Request) {
						w.WriteHeader(status)
						_, _ = fmt.Fprintf(w, form, strconv.Quote(word)) // short enough to pass for a code
					}
					k.send(k.Context())
					n++
				}
			}
		}
		k.tellsNothing(logged.String())
		k.wantCalls(n)
	}},
}

const page = "<!DOCTYPE html><html><head><title>Bad Gateway</title></head><body>template phone 24 window</body></html>"

// wantStatus holds an outcome to what a status means where nothing else is known.
func (k *kit) wantStatus(status int, o state.Outcome) {
	k.Helper()
	category, account := state.CategoryNetwork, false
	switch status {
	case 401, 403, 407:
		category, account = state.CategoryCredentials, true
	case 402:
		category, account = state.CategoryBilling, true
	case 409:
		category = state.CategoryIdempotencyConflict
	case 429:
		category = state.CategoryRateLimit
	case 400, 404, 405, 406, 410, 411, 413, 414, 415, 417, 422, 426, 428, 431, 451, 501, 505:
		category = state.CategoryRejected
	default:
		if status/100 == 3 {
			category = state.CategoryRejected
		}
	}
	if own, ok := k.subject.Categories[status]; ok {
		category = own
	}
	switch {
	case status/100 == 2:
		k.wantAccepted(o, "")
	case o.OK || o.Category != category || o.NotCalled || account && !o.Account:
		k.Errorf("%d: %+v, want category %s", status, o, category)
	case status/100 == 5 && category == state.CategoryNetwork && !o.Ambiguous:
		k.Errorf("%d: it may have been taken, but %+v", status, o)
	}
}

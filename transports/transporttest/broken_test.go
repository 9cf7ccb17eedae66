package transporttest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/internal/httpsend"
	"github.com/recado-dev/recado/transports/transporttest"
)

const canary = "canario"

// defect is one thing that a transport does wrong.
type defect struct {
	noticed string // by which case
	client  func(*http.Client) *http.Client
	request func(*http.Request, transports.Message)
	body    func(*http.Response) []byte
	outcome func(a httpsend.Answer, err error, o state.Outcome) state.Outcome
	anyCtx  bool
	twice   bool
}

var defects = map[string]defect{
	"follows redirects": {noticed: "Wire/redirects", client: func(c *http.Client) *http.Client {
		return &http.Client{Transport: c.Transport}
	}},
	"trusts every certificate": {noticed: "Wire/a_certificate_that_nobody_vouches_for", client: func(c *http.Client) *http.Client {
		return &http.Client{
			Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the defect
			CheckRedirect: c.CheckRedirect,
		}
	}},
	"minds no context": {noticed: "Wire/a_context_that_has_ended", anyCtx: true},
	"tries again":      {noticed: "Wire/cut_after_the_request_was_read", twice: true},
	"lets net/http repeat requests": {noticed: "Wire/cut_on_a_connection_that_was_kept", request: func(r *http.Request, m transports.Message) {
		r.Header.Set("Idempotency-Key", m.IdempotencyKey)
	}},
	"makes a key per attempt": {noticed: "Wire/the_same_bytes_at_every_attempt", request: func(r *http.Request, m transports.Message) {
		r.Header.Set("X-Key", fmt.Sprint(m.IdempotencyKey, m.Attempt))
	}},
	"says nothing went out": {noticed: "Wire/cut_after_the_request_was_read", outcome: func(_ httpsend.Answer, err error, o state.Outcome) state.Outcome {
		if err != nil {
			return state.Outcome{Category: state.CategoryNetwork, Code: "x", NotCalled: true}
		}
		return o
	}},
	"takes a doubt for a success": {noticed: "Wire/cut_after_the_request_was_read", outcome: func(_ httpsend.Answer, err error, o state.Outcome) state.Outcome {
		if err != nil {
			return state.Outcome{OK: true}
		}
		return o
	}},
	"reads everything": {noticed: "Answers/bodies_without_end", body: func(r *http.Response) []byte {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		return nil
	}},
	"closes no body": {noticed: "Leaks/refused", body: func(*http.Response) []byte { return nil }},
	"stores the provider's words": {noticed: "Answers/nothing_that_a_provider_repeats_gets_out", outcome: func(a httpsend.Answer, _ error, o state.Outcome) state.Outcome {
		var said struct{ Name string }
		if json.Unmarshal(a.Body, &said) == nil && said.Name != "" && !o.OK {
			o.Code = said.Name[:min(len(said.Name), 64)]
		}
		return o
	}},
	"knows no wait": {noticed: "Answers/the_provider's_own_wait", outcome: func(_ httpsend.Answer, _ error, o state.Outcome) state.Outcome {
		o.RetryAfter = 0
		return o
	}},
	"gives up on a bad gateway": {noticed: "Answers/answers_that_are_not_the_provider's", outcome: func(a httpsend.Answer, _ error, o state.Outcome) state.Outcome {
		if a.Status == http.StatusBadGateway {
			o.Category = state.CategoryRejected
		}
		return o
	}},
	"takes a success without sense for a failure": {noticed: "Answers/an_accepted_message_whatever_the_body", outcome: func(a httpsend.Answer, _ error, o state.Outcome) state.Outcome {
		if o.OK && o.ExternalID == "" {
			return state.Outcome{Category: state.CategoryNetwork, Code: "x", Ambiguous: true}
		}
		return o
	}},
	"mixes up statuses": {noticed: "Answers/every_status", outcome: func(a httpsend.Answer, _ error, o state.Outcome) state.Outcome {
		if a.Status == http.StatusTooManyRequests {
			o.Category = state.CategoryRejected
		}
		return o
	}},
}

// naive is a transport written by hand, sound but for its defect.
type naive struct {
	defect
	url    string
	client *http.Client
}

func (n naive) Send(ctx context.Context, m transports.Message) state.Outcome {
	if n.anyCtx {
		ctx = context.WithoutCancel(ctx)
	}
	o := n.once(ctx, m)
	if n.twice && o.Ambiguous {
		o = n.once(ctx, m)
	}
	return o
}

func (n naive) once(ctx context.Context, m transports.Message) state.Outcome {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(m.Data))
	if err != nil {
		return state.Outcome{Category: state.CategoryNetwork, Code: "x"}
	}
	if n.request != nil {
		n.request(r, m)
	}
	var a httpsend.Answer
	o := state.Outcome{Category: state.CategoryNetwork, Code: "x", Ambiguous: ctx.Err() == nil}
	response, err := n.client.Do(r)
	if err == nil {
		a.Status = response.StatusCode
		if n.body != nil {
			a.Body = n.body(response)
		} else {
			a.Body, _ = io.ReadAll(io.LimitReader(response.Body, httpsend.MaxAnswer))
			_ = response.Body.Close()
		}
		o = answered(a)
	}
	if n.outcome != nil {
		o = n.outcome(a, err, o)
	}
	return o
}

// sound is the transport on which the battery finds nothing.
type sound struct {
	url    string
	client httpsend.Client
}

func (s sound) Send(ctx context.Context, m transports.Message) state.Outcome {
	a, lost, ok := s.client.Post(ctx, httpsend.Request{
		URL: s.url, Authentication: [2]string{"X-Api-Key", canary}, IdempotencyKey: m.IdempotencyKey, Body: m.Data,
	})
	if !ok {
		return lost
	}
	return answered(a)
}

func answered(a httpsend.Answer) state.Outcome {
	if !a.Accepted() {
		return httpsend.Statuses().Status(a)
	}
	var taken struct{ ID string }
	_ = json.Unmarshal(a.Body, &taken)
	return state.Outcome{OK: true, ExternalID: httpsend.ID(taken.ID)}
}

const defectVariable = "TRANSPORTTEST_DEFECT"

// TestBatteryFindsDefects runs the battery, in a process of its own, against transports that are broken in one way each:
// the case that guards the broken promise must fail.
func TestBatteryFindsDefects(t *testing.T) {
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			group, c, _ := strings.Cut(d.noticed, "/")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestDefect$/^"+group+"$/^"+c+"$", "-test.v", "-test.short", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), defectVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDefect/"+d.noticed) {
				t.Errorf("the battery did not notice (%v):\n%s", err, out)
			}
		})
	}
}

// TestDefect is what TestBatteryFindsDefects starts; by itself it runs the battery against a sound transport.
func TestDefect(t *testing.T) {
	d, broken := defects[os.Getenv(defectVariable)]
	transporttest.Run(t, transporttest.Subject{
		New: func(_ *testing.T, baseURL string, client *http.Client) transports.Transport {
			if !broken {
				return sound{baseURL, httpsend.New(client)}
			}
			n := naive{defect: d, url: baseURL, client: &http.Client{Transport: client.Transport}}
			n.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			if d.client != nil {
				n.client = d.client(n.client)
			}
			return n
		},
		Message: transports.Message{
			Destination: "canario-destino", Data: json.RawMessage(`{"canario":"canario-datos"}`), IdempotencyKey: "club:canario-clave",
		},
		Accepted: `{"id":"a-1"}`, ExternalID: "a-1", Secrets: []string{canary},
	})
}

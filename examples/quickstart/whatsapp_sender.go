package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// whatsappSender is a sender of this application's own: one HTTP call per attempt, and an outcome that says what is
// known about it. Whether and when to try again is not its business.
type whatsappSender struct {
	url    string
	client *http.Client
}

var _ whatsapp.Sender = (*whatsappSender)(nil)

func newWhatsAppSender(url string) *whatsappSender {
	return &whatsappSender{url: url, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 10},
		// Following a redirect would be a second call.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Send makes the call. ctx ends at the attempt's timeout.
func (s *whatsappSender) Send(ctx context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
	params := make([]string, len(m.Params))
	for i, p := range m.Params {
		params[i] = p.Value
	}
	// The mark does not go into an Idempotency-Key header: the provider knows none, and net/http would take it as leave
	// to repeat the call by itself.
	body, err := json.Marshal(whatsappRequest{To: m.To, Template: m.Template, Language: m.Language, Params: params, Mark: m.IdempotencyKey})
	if err != nil {
		return state.Outcome{Category: state.CategoryTemplate, Code: "json"}
	}
	address := s.url + "/" + url.PathEscape(c.PhoneNumberID) + "/messages"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return state.Outcome{Category: state.CategoryCredentials, Code: "url", Account: true}
	}
	req.Header.Set("Authorization", "Bearer "+c.APIKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return lostCall(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	return answer(resp)
}

// lostCall is a call without an answer. Only when no connection came about is it certain that nothing was taken.
func lostCall(ctx context.Context, err error) state.Outcome {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return state.Outcome{Category: state.CategoryNetwork, Code: "conexion", NotCalled: true}
	case ctx.Err() != nil:
		return state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout, Ambiguous: true}
	}
	return state.Outcome{Category: state.CategoryNetwork, Code: "conexion_cortada", Ambiguous: true}
}

// answer translates the provider's answer. Its text stays out of the outcome: it may quote the number.
func answer(resp *http.Response) state.Outcome {
	o := state.Outcome{Code: "http_" + strconv.Itoa(resp.StatusCode)}
	switch code := resp.StatusCode; {
	case code/100 == 2:
		// Accepted is accepted, even when the id cannot be read.
		var r whatsappResponse
		_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&r)
		return state.Outcome{OK: true, ExternalID: r.ID}
	case code == http.StatusTooManyRequests:
		o.Category = state.CategoryRateLimit
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			o.RetryAfter = time.Duration(seconds) * time.Second
		}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		o.Category, o.Account = state.CategoryCredentials, true
	case code >= 500:
		o.Category, o.Ambiguous = state.CategoryNetwork, true
	default:
		o.Category = state.CategoryRejected
	}
	return o
}

package resend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// quotaWait is how long a spent quota is left alone where Resend names no wait: the default five attempts of a lane then
// span the day after which a daily quota is new.
const quotaWait = 6 * time.Hour

// DefaultOutcomes returns what Resend's refusals mean, in a map of the caller's own. A key is status and name, as in
// http_429:daily_quota_exceeded, or a status alone, as in http_422, for all other names and for answers that are not
// Resend's JSON. The key is also the code that is stored, unless the line has another.
//
// The two kinds of 409 are told apart by their code, and both retried after a minute at least. A different body under a
// known key (http_409:invalid_idempotent_request) proves that an earlier attempt arrived, so it counts as ambiguous, and
// will be refused until Resend forgets the key; [Outcomes] can make it permanent.
func DefaultOutcomes() map[string]state.Outcome {
	account := func(category string) state.Outcome { return state.Outcome{Category: category, Account: true} }
	quota := state.Outcome{Category: state.CategoryRateLimit, Account: true, RetryAfter: quotaWait}
	return httpsend.Statuses().With(map[string]state.Outcome{
		"http_400:invalid_idempotency_key":        {Category: state.CategoryRejected},
		"http_400:validation_error":               {Category: state.CategoryRejected},
		"http_400:invalid_api_key":                account(state.CategoryCredentials), // see nameOf
		"http_401:missing_api_key":                account(state.CategoryCredentials),
		"http_401:restricted_api_key":             account(state.CategoryCredentials),
		"http_401:validation_error":               account(state.CategoryCredentials),
		"http_403:invalid_api_key":                account(state.CategoryCredentials),
		"http_403:validation_error":               account(state.CategoryCredentials), // the domain is not verified
		"http_404":                                account(state.CategoryRejected),    // not Resend's address
		"http_404:not_found":                      account(state.CategoryRejected),
		"http_405":                                account(state.CategoryRejected),
		"http_405:method_not_allowed":             account(state.CategoryRejected),
		"http_409:concurrent_idempotent_requests": {Category: state.CategoryIdempotencyConflict, RetryAfter: state.MinConflictWait},
		"http_409:invalid_idempotent_request":     {Category: state.CategoryIdempotencyConflict, RetryAfter: state.MinConflictWait, Ambiguous: true},
		"http_422:validation_error":               {Category: state.CategoryRejected},
		"http_422:missing_required_field":         {Category: state.CategoryRejected},
		"http_422:invalid_from_address":           {Category: state.CategoryRejected},
		"http_422:invalid_attachment":             {Category: state.CategoryRejected},
		"http_422:invalid_parameter":              {Category: state.CategoryRejected},
		"http_422:invalid_access":                 {Category: state.CategoryRejected},
		"http_422:invalid_region":                 {Category: state.CategoryRejected},
		"http_429:rate_limit_exceeded":            {Category: state.CategoryRateLimit},
		"http_429:daily_quota_exceeded":           quota,
		"http_429:monthly_quota_exceeded":         quota,
		"http_451:security_error":                 {Category: state.CategoryRejected},
		"http_500:application_error":              {Category: state.CategoryNetwork, Ambiguous: true},
		"http_500:internal_server_error":          {Category: state.CategoryNetwork, Ambiguous: true},
	})
}

// refusal looks an answer up. A name that no line has is never stored: it is the provider's text.
func (s *Sender) refusal(a httpsend.Answer) state.Outcome {
	if name := nameOf(a); name != "" {
		if o, ok := s.table.Find(fmt.Sprintf("http_%d:%s", a.Status, name), a); ok {
			return o
		}
	}
	return s.table.Status(a)
}

// nameOf is the name in an answer. Newer answers to a bad key share theirs with refusals of one mail; their text alone
// tells them apart, and that matters: with a bad key every mail is refused.
func nameOf(a httpsend.Answer) string {
	var refused struct{ Name, Message string }
	if json.Unmarshal(a.Body, &refused) != nil {
		return ""
	}
	if refused.Name == "validation_error" && a.Status == http.StatusBadRequest &&
		strings.HasPrefix(strings.ToLower(refused.Message), "api key is") {
		return "invalid_api_key"
	}
	return refused.Name
}

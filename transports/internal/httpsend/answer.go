package httpsend

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/recado-dev/recado/state"
)

// retryAfter reads the header, in seconds or as a date. A date counts from the answer's own Date where there is one, so
// that the two clocks need not agree. What is malformed or past is no wish.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		const most = uint64(1<<63-1) / uint64(time.Second)
		return time.Duration(min(seconds, most)) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if answered, err := http.ParseTime(h.Get("Date")); err == nil {
		now = answered
	}
	return max(0, at.Sub(now))
}

// Table says what refusals mean. A key is a status as http_404, or what a sender makes of a provider's own code. A line
// without a Code has its key as the code.
type Table map[string]state.Outcome

// With returns a table in which lines replace, or join, those of t.
func (t Table) With(lines map[string]state.Outcome) Table {
	all := maps.Clone(t)
	maps.Copy(all, lines)
	return all
}

// Check returns an error if a line is neither OK nor has a category.
func (t Table) Check() error {
	for _, o := range t {
		if !o.OK && o.Category == "" {
			return &state.InvalidError{Field: "Outcomes", Reason: "has a line without a category"}
		}
	}
	return nil
}

// Find returns the line of a key, with the wait that the answer asks for where that is longer than the line's.
func (t Table) Find(key string, a Answer) (state.Outcome, bool) {
	o, ok := t[key]
	return a.finish(o, key), ok
}

// Status returns what the answer's status alone means. One that is not in the table is transient, and ambiguous unless
// it blames the request or, as a 503 with Retry-After does, sends it away.
func (t Table) Status(a Answer) state.Outcome {
	key := fmt.Sprintf("http_%d", a.Status)
	if o, ok := t.Find(key, a); ok {
		return o
	}
	if a.Status/100 == 3 { // never followed
		return a.finish(state.Outcome{Category: state.CategoryRejected}, key)
	}
	sentAway := a.Status == http.StatusServiceUnavailable && a.RetryAfter > 0
	return a.finish(state.Outcome{Category: state.CategoryNetwork, Ambiguous: a.Status/100 != 4 && !sentAway}, key)
}

func (a Answer) finish(o state.Outcome, key string) state.Outcome {
	if !o.OK && o.Code == "" {
		o.Code = key
	}
	o.RetryAfter = max(o.RetryAfter, a.RetryAfter)
	return o
}

var (
	rejected    = state.Outcome{Category: state.CategoryRejected}
	credentials = state.Outcome{Category: state.CategoryCredentials, Account: true}
	again       = state.Outcome{Category: state.CategoryNetwork} // it was not taken
)

// Statuses is what statuses mean where a provider gives them no meaning of its own.
func Statuses() Table {
	return Table{
		"http_400": rejected,
		"http_401": credentials,
		"http_402": {Category: state.CategoryBilling, Account: true},
		"http_403": credentials,
		"http_404": rejected,
		"http_405": rejected,
		"http_406": rejected,
		"http_407": credentials,
		"http_408": {Category: state.CategoryNetwork, Ambiguous: true}, // it may have been read all the same
		"http_409": {Category: state.CategoryIdempotencyConflict},
		"http_410": {Category: state.CategoryRejected, Code: CodeGone},
		"http_411": rejected,
		"http_413": rejected,
		"http_414": rejected,
		"http_415": rejected,
		"http_417": rejected,
		"http_421": again,
		"http_422": rejected,
		"http_423": again,
		"http_424": again,
		"http_425": again,
		"http_426": rejected,
		"http_428": rejected,
		"http_429": {Category: state.CategoryRateLimit},
		"http_431": rejected,
		"http_451": rejected,
		"http_501": rejected,
		"http_505": rejected,
	}
}

// CodeGone is the code, with category rechazado, of a destination that wants no more messages.
const CodeGone = "destino_baja"

var idForm = regexp.MustCompile(`^[A-Za-z0-9._:=+/-]{1,255}$`)

// ID is the id that a provider gave an accepted message, or "" where it does not look like one.
func ID(s string) string {
	if !idForm.MatchString(s) {
		return ""
	}
	return s
}

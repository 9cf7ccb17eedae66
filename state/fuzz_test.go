package state_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
)

// word reports whether s can stand in a column, a log and a label without telling anything of a person.
func word(s string) bool {
	return len(s) <= state.MaxCodeLength && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == ""
}

// Whatever a transport answers, and whatever the policy, the transition is legal, holds nothing but words, waits within its
// bounds, and follows from the category alone.
func FuzzResolve(f *testing.F) {
	const minute = int64(time.Minute)
	f.Add(true, "ana@club.example", "ext-1", "", int64(0), 0, 1, 5, minute, 6*60*minute)
	f.Add(false, "red", "timeout", "", int64(0), 1, 1, 5, minute, 6*60*minute)
	f.Add(false, "red", "dns", "inalcanzable:dns", int64(-1), 2, 1, 5, int64(math.MaxInt64), int64(0))
	f.Add(false, "conflicto_idempotencia", "http_409", "", int64(math.MaxInt64), 8, 4, 5, minute, int64(math.MaxInt64))
	f.Add(false, "rechazado", "550 5.1.1 <ana@club.example>: no such user", "", int64(math.MinInt64), 7, 5, 5, minute, minute)
	f.Add(false, "limite", "no such user", "", int64(math.MaxInt64), 0, 1, 5, minute, 6*60*minute)
	f.Add(false, "+5491155550000", "\xff\x00", "\r\n", int64(1), 15, math.MaxInt, math.MinInt, int64(math.MinInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, ok bool, category, code, lastCode string, retryAfter int64, flags, attempts, limit int, age, maxRetryAfter int64) {
		o := state.Outcome{
			OK: ok, ExternalID: category, Category: category, Code: code, RetryAfter: time.Duration(retryAfter),
			Ambiguous: flags&1 != 0, NotCalled: flags&2 != 0, Account: flags&4 != 0,
		}
		r := claimed(func(r *state.Row) {
			r.Attempts, r.MaxAttempts, r.LastErrorCategory, r.LastErrorCode = attempts, limit, state.CategoryNetwork, lastCode
		})
		p := state.DefaultPolicy()
		p.MaxRetryAfter, p.HoldAmbiguous = time.Duration(maxRetryAfter), flags&8 != 0
		got, err := state.Resolve(r, time.Duration(age), o, p)
		if err != nil || got.Validate() != nil {
			t.Fatalf("%v, %v, %v", got, err, got.Validate())
		}
		if !word(got.Category) || !word(got.Code) || got.Event != state.EventSend && got.Category == "" {
			t.Errorf("%q, %q", got.Category, got.Code)
		}
		if id := got.ExternalID; len(id) > state.MaxExternalIDLength || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsSpace) || id != "" && !ok {
			t.Errorf("external id %q", id)
		}
		longest := 72 * time.Minute // the backoff's
		if got.Wait < 0 || got.Waits() != (got.Wait > 0) || got.Wait > max(longest, p.MaxRetryAfter) {
			t.Errorf("%v", got)
		}
		if hint := min(o.RetryAfter, p.MaxRetryAfter); got.Waits() && got.Wait < hint {
			t.Errorf("%v comes before %v", got, hint)
		}
		if got.Event == state.EventRetry && category == state.CategoryIdempotencyConflict && got.Wait < state.MinConflictWait {
			t.Errorf("%v", got)
		}
		permanent := slices.Contains(state.PermanentCategories(), category)
		switch class := state.Classify(o); {
		case ok != (class == state.ClassOK), ok != (got.Event == state.EventSend):
			t.Errorf("%v is %s, and becomes %v", o, class, got)
		case (!ok && permanent) != (class == state.ClassPermanent), (!ok && permanent) != (got.Event == state.EventDiscard):
			t.Errorf("%v is %s, and becomes %v", o, class, got)
		}
		// An outcome whose category is no word is not believed that nothing went out.
		if got.Event == state.EventDefer && !o.NotCalled || got.Ambiguous && (!o.Ambiguous || o.NotCalled && got.Category == category) {
			t.Errorf("%v becomes %v", o, got)
		}
	})
}

// The five words are states, and nothing else is.
func FuzzParse(f *testing.F) {
	for _, s := range state.States() {
		f.Add(string(s))
		f.Add(strings.ToUpper(string(s)))
		f.Add(string(s) + " ")
	}
	f.Add("pendiente\x00")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := state.Parse(text)
		if known := slices.Contains(state.States(), state.State(text)); known != (err == nil) || known && string(s) != text || !known && s != "" {
			t.Errorf("%q became %q, %v", text, s, err)
		}
		if err != nil && len(text) > 12 && strings.Contains(err.Error(), text) {
			t.Errorf("the error repeats %q", text)
		}
	})
}

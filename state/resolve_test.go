package state_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
)

// claimed is a row whose first of five attempts is running, as changed.
func claimed(change func(*state.Row)) state.Row {
	return row(func(r *state.Row) {
		r.State, r.Attempts, r.LeasedUntil = state.Processing, 1, noon.Add(time.Minute)
		if change != nil {
			change(r)
		}
	})
}

// steady is the default policy without jitter, as changed.
func steady(change func(*state.Policy)) state.Policy {
	p := state.DefaultPolicy()
	p.Backoff.Jitter = 0
	if change != nil {
		change(&p)
	}
	return p
}

func attempt(n int) func(*state.Row) { return func(r *state.Row) { r.Attempts = n } }

func recorded(category, code string) func(*state.Row) {
	return func(r *state.Row) { r.LastErrorCategory, r.LastErrorCode = category, code }
}

func retry(wait time.Duration, category, code string) state.Transition {
	return state.Transition{Event: state.EventRetry, To: state.Pending, Wait: wait, Category: category, Code: code}
}

func deferral(wait time.Duration, code string) state.Transition {
	return state.Transition{Event: state.EventDefer, To: state.Pending, Wait: wait, Category: state.CategoryNetwork, Code: code}
}

func fail(category, code string) state.Transition {
	return state.Transition{Event: state.EventFail, To: state.Failed, Category: category, Code: code}
}

func doubtful(t state.Transition) state.Transition { t.Ambiguous = true; return t }

func TestResolve(t *testing.T) {
	const day = 24 * time.Hour
	down := state.Outcome{Category: state.CategoryNetwork, Code: "dns", NotCalled: true}
	lost := state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout, Ambiguous: true}
	later := func(d time.Duration) state.Outcome {
		return state.Outcome{Category: state.CategoryRateLimit, Code: "http_429", RetryAfter: d}
	}
	conflict := state.Outcome{Category: state.CategoryIdempotencyConflict, Code: "http_409"}
	hold := func(p *state.Policy) { p.HoldAmbiguous = true }
	backoff := func(b state.Backoff) func(*state.Policy) { return func(p *state.Policy) { p.Backoff = b } }

	for _, tc := range []struct {
		name    string
		row     func(*state.Row)
		age     time.Duration
		outcome state.Outcome
		policy  func(*state.Policy)
		want    state.Transition
	}{
		{
			name: "accepted", outcome: state.Outcome{OK: true, ExternalID: "m-1"},
			want: state.Transition{Event: state.EventSend, To: state.Sent, ExternalID: "m-1"},
		},
		{
			name: "accepted without an id", outcome: state.Outcome{OK: true},
			want: state.Transition{Event: state.EventSend, To: state.Sent},
		},
		{
			name: "accepted on the last attempt, past every age", row: attempt(5), age: 1000 * day,
			outcome: state.Outcome{OK: true, Category: state.CategoryRejected, Code: "x", Ambiguous: true, NotCalled: true},
			policy:  hold,
			want:    state.Transition{Event: state.EventSend, To: state.Sent},
		},

		{
			name: "permanent", outcome: state.Outcome{Category: state.CategoryNumber, Code: "131026"},
			want: state.Transition{Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryNumber, Code: "131026"},
		},
		{
			name: "permanent without a call", age: 100 * day, row: recorded(state.CategoryNetwork, state.CodeUnreachable),
			outcome: state.Outcome{Category: state.CategoryCredentials, Code: state.CodeNoCredentials, NotCalled: true},
			want: state.Transition{
				Event: state.EventDiscard, To: state.Discarded,
				Category: state.CategoryCredentials, Code: state.CodeNoCredentials,
			},
		},
		{
			name: "permanent on the last attempt", row: attempt(5), outcome: state.Outcome{Category: state.CategoryBilling},
			want: state.Transition{Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryBilling},
		},
		{
			name:    "permanent and ambiguous is not held",
			outcome: state.Outcome{Category: state.CategoryRejected, Code: "x", Ambiguous: true}, policy: hold,
			want: doubtful(state.Transition{
				Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryRejected, Code: "x",
			}),
		},

		{name: "transient", outcome: state.Outcome{Category: state.CategoryNetwork, Code: "http_503"}, want: retry(30*time.Second, "red", "http_503")},
		{name: "transient, third attempt", row: attempt(3), outcome: later(0), want: retry(2*time.Minute, "limite", "http_429")},
		{name: "transient, attempts not counted", row: attempt(0), outcome: later(0), want: retry(30*time.Second, "limite", "http_429")},
		{name: "unknown category", outcome: state.Outcome{Category: "marciano", Code: "x"}, want: retry(30*time.Second, "marciano", "x")},
		{name: "ambiguous", outcome: lost, want: doubtful(retry(30*time.Second, "red", "timeout"))},
		{name: "last attempt", row: attempt(5), outcome: later(time.Hour), want: fail("limite", "http_429")},
		{name: "past the last attempt", row: attempt(6), outcome: later(0), want: fail("limite", "http_429")},
		{name: "ambiguous last attempt", row: attempt(5), outcome: lost, want: doubtful(fail("red", "timeout"))},
		{name: "conflict on the last attempt", row: attempt(5), outcome: conflict, want: fail("conflicto_idempotencia", "http_409")},
		{
			name: "not called, but not the network", age: 100 * day, row: recorded(state.CategoryNetwork, state.CodeUnreachable),
			outcome: state.Outcome{Category: state.CategoryRateLimit, Code: "local", NotCalled: true},
			want:    retry(30*time.Second, "limite", "local"),
		},

		{name: "ambiguous held", outcome: lost, policy: hold, want: doubtful(fail("red", state.CodeAmbiguous))},
		{name: "ambiguous held on the last attempt", row: attempt(5), outcome: lost, policy: hold, want: doubtful(fail("red", state.CodeAmbiguous))},
		{name: "unambiguous is not held", outcome: later(0), policy: hold, want: retry(30*time.Second, "limite", "http_429")},

		{name: "refused, fresh", outcome: down, want: deferral(30*time.Second, "inalcanzable:dns")},
		{name: "refused, 60 s old", age: time.Minute, outcome: down, want: deferral(30*time.Second, "inalcanzable:dns")},
		{name: "refused, just over 60 s old", age: time.Minute + 2*tick, outcome: down, want: deferral(30*time.Second+tick, "inalcanzable:dns")},
		{name: "refused, 4 min old", age: 4 * time.Minute, outcome: down, want: deferral(2*time.Minute, "inalcanzable:dns")},
		{name: "refused, just under 10 min old", age: 10*time.Minute - 2*tick, outcome: down, want: deferral(5*time.Minute-tick, "inalcanzable:dns")},
		{name: "refused, 10 min old", age: 10 * time.Minute, outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns")},
		{name: "refused, older", age: day, outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns")},
		{name: "refused on the last attempt", row: attempt(5), outcome: down, want: deferral(30*time.Second, "inalcanzable:dns")},
		{name: "refused without a code", outcome: state.Outcome{Category: "red", NotCalled: true}, want: deferral(30*time.Second, "inalcanzable")},
		{
			name:    "refused, the provider says when",
			outcome: state.Outcome{Category: "red", Code: "dns", NotCalled: true, RetryAfter: 20 * time.Minute},
			want:    deferral(20*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "refused with a long code", outcome: state.Outcome{Category: "red", Code: strings.Repeat("a", 64), NotCalled: true},
			want: deferral(30*time.Second, "inalcanzable:"+strings.Repeat("a", 64-len("inalcanzable:"))),
		},

		{name: "past MaxAge, first refusal", age: 100 * day, outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns")},
		{
			name: "past MaxAge, deferred before", age: 3*day + tick, row: recorded("red", "inalcanzable:dns"),
			outcome: down, want: fail("red", state.CodeUnreachable),
		},
		{
			name: "past MaxAge, deferred before without a code", age: 3*day + tick, row: recorded("red", "inalcanzable"),
			outcome: down, want: fail("red", state.CodeUnreachable),
		},
		{
			name: "exactly MaxAge", age: 3 * day, row: recorded("red", "inalcanzable:dns"),
			outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "past MaxAge, another error before", age: 100 * day, row: recorded("red", "timeout"),
			outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "past MaxAge, another category before", age: 100 * day, row: recorded("limite", "inalcanzable:dns"),
			outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "past MaxAge, a code that only begins alike", age: 100 * day, row: recorded("red", "inalcanzables"),
			outcome: down, want: deferral(5*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "no MaxAge", age: 1000 * day, row: recorded("red", "inalcanzable:dns"), outcome: down,
			policy: func(p *state.Policy) { p.MaxAge = 0 },
			want:   deferral(5*time.Minute, "inalcanzable:dns"),
		},
		{
			name: "past MaxAge but called", age: 100 * day, row: recorded("red", "inalcanzable:dns"),
			outcome: state.Outcome{Category: "red", Code: "http_503"},
			want:    retry(30*time.Second, "red", "http_503"),
		},

		{name: "shorter hint", outcome: later(29 * time.Second), want: retry(30*time.Second, "limite", "http_429")},
		{name: "longer hint", outcome: later(31 * time.Second), want: retry(31*time.Second, "limite", "http_429")},
		{name: "hint at its cap", outcome: later(6 * time.Hour), want: retry(6*time.Hour, "limite", "http_429")},
		{name: "hint over its cap", outcome: later(math.MaxInt64), want: retry(6*time.Hour, "limite", "http_429")},
		{name: "negative hint", outcome: later(math.MinInt64), want: retry(30*time.Second, "limite", "http_429")},
		{
			name: "no hints wanted", outcome: later(time.Hour), policy: func(p *state.Policy) { p.MaxRetryAfter = 0 },
			want: retry(30*time.Second, "limite", "http_429"),
		},
		{
			name: "negative cap", outcome: later(time.Hour), policy: func(p *state.Policy) { p.MaxRetryAfter = -1 },
			want: retry(30*time.Second, "limite", "http_429"),
		},

		{name: "conflict on the first attempt", outcome: conflict, want: retry(time.Minute, "conflicto_idempotencia", "http_409")},
		{name: "conflict grows from there", row: attempt(3), outcome: conflict, want: retry(4*time.Minute, "conflicto_idempotencia", "http_409")},
		{
			name: "conflict with short waits", outcome: conflict,
			policy: backoff(state.Backoff{Base: time.Millisecond, Factor: 1, Max: time.Second}),
			want:   retry(time.Minute, "conflicto_idempotencia", "http_409"),
		},
		{
			name: "conflict with the lowest draw", outcome: conflict,
			policy: backoff(state.Backoff{Base: time.Second, Factor: 2, Max: time.Hour, Jitter: 1, Rand: fixed(0)}),
			want:   retry(time.Minute, "conflicto_idempotencia", "http_409"),
		},
		{
			name: "conflict with long waits", outcome: conflict,
			policy: backoff(state.Backoff{Base: time.Hour, Factor: 2, Max: 3 * time.Hour}),
			want:   retry(time.Hour, "conflicto_idempotencia", "http_409"),
		},
		{
			name: "conflict where no hints are wanted", outcome: conflict,
			policy: func(p *state.Policy) { p.MaxRetryAfter, p.Backoff.Jitter, p.Backoff.Rand = 0, 1, fixed(0) },
			want:   retry(time.Minute, "conflicto_idempotencia", "http_409"),
		},

		{name: "no outcome", outcome: state.Outcome{}, want: retry(30*time.Second, "red", "resultado_invalido")},
		{name: "no category", outcome: state.Outcome{Code: "http_500"}, want: retry(30*time.Second, "red", "resultado_invalido")},
		{name: "no outcome on the last attempt", row: attempt(5), want: fail("red", "resultado_invalido")},
		{name: "sentence for a category", outcome: state.Outcome{Category: "no such user"}, want: retry(30*time.Second, "red", "resultado_invalido")},
		{name: "no code", outcome: state.Outcome{Category: "limite"}, want: retry(30*time.Second, "limite", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := state.Resolve(claimed(tc.row), tc.age, tc.outcome, steady(tc.policy))
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first attempt waits the base although it is counted as 1 by then.
func TestResolveUsesThePolicysJitter(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 24 * time.Second, 0.5: 30 * time.Second, 1: 36 * time.Second} {
		p := state.DefaultPolicy()
		p.Backoff.Rand = fixed(r)
		got, err := state.Resolve(claimed(nil), 0, state.Outcome{Category: "red"}, p)
		if err != nil || got.Wait != want {
			t.Errorf("draw %v: %v, %v; want %v", r, got.Wait, err, want)
		}
	}
}

// Whoever cannot name what happened is charged, and what certainly did not go out leaves no doubt.
func TestResolveContradictions(t *testing.T) {
	got, err := state.Resolve(claimed(nil), 0, state.Outcome{NotCalled: true, Ambiguous: true}, steady(nil))
	if err != nil || got.Event != state.EventRetry || got.Code != state.CodeMalformed || !got.Ambiguous {
		t.Errorf("malformed: %+v, %v", got, err)
	}
	got, err = state.Resolve(claimed(nil), 0, state.Outcome{Category: state.CategoryNetwork, Code: "dns", NotCalled: true, Ambiguous: true}, steady(nil))
	if err != nil || got.Event != state.EventDefer || got.Ambiguous {
		t.Errorf("not called: %+v, %v", got, err)
	}
}

func TestResolveStoresOnlyMachineWords(t *testing.T) {
	long := strings.Repeat("a", 200)
	for _, tc := range []struct {
		name, code, want string
	}{
		{"plain", "http_503", "http_503"},
		{"every allowed character", "aZ09_.:-", "aZ09_.:-"},
		{"empty", "", ""},
		{"64 characters", long[:64], long[:64]},
		{"65 characters", long[:65], long[:64]},
		{"200 characters", long, long[:64]},
		{"space", "user unknown", state.CodeMalformed},
		{"address", "ana@club.example", state.CodeMalformed},
		{"number", "+5491155550000", state.CodeMalformed},
		{"number without its plus", "5491155550000", state.CodeMalformed},
		{"number inside", "a_123456789", state.CodeMalformed},
		{"8 digits", "12345678", "12345678"},
		{"8 digits twice", "12345678.12345678", "12345678.12345678"},
		{"NUL", "http\x00503", state.CodeMalformed},
		{"line break", "http_503\n", state.CodeMalformed},
		{"accent", "límite", state.CodeMalformed},
		{"invalid UTF-8", "\xff\xfe", state.CodeMalformed},
		{"cut inside a character", long[:63] + "é", state.CodeMalformed},
		{"quote", "a'b", state.CodeMalformed},
		{"slash", "a/b", state.CodeMalformed},
		{"neighbours of the letters", "`", state.CodeMalformed},
		{"bracket", "[", state.CodeMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for category, event := range map[string]state.Event{
				state.CategoryRateLimit: state.EventRetry,
				state.CategoryRejected:  state.EventDiscard,
			} {
				got, err := state.Resolve(claimed(nil), 0, state.Outcome{Category: category, Code: tc.code}, steady(nil))
				if err != nil || got.Event != event || got.Category != category || got.Code != tc.want {
					t.Errorf("code: %+v, %v; want %q", got, err, tc.want)
				}
			}
			// A category that is none makes the whole outcome malformed.
			got, err := state.Resolve(claimed(nil), 0, state.Outcome{Category: tc.code, Code: "kept"}, steady(nil))
			category, code := tc.want, "kept"
			if tc.want == "" || tc.want == state.CodeMalformed {
				category, code = state.CategoryNetwork, state.CodeMalformed
			}
			if err != nil || got.Event != state.EventRetry || got.Category != category || got.Code != code {
				t.Errorf("category: %+v, %v; want %q, %q", got, err, category, code)
			}
		})
	}
}

func TestResolveCleansTheExternalID(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, tc := range []struct {
		name, id, want string
	}{
		{"empty", "", ""},
		{"plain", "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"},
		{"message id", "<a.b@mail.example>", "<a.b@mail.example>"},
		{"WhatsApp id", "wamid.HBgNNTQ5MTE=", "wamid.HBgNNTQ5MTE="},
		{"printable beyond ASCII", "ñandú-1", "ñandú-1"},
		{"255 bytes", long[:255], long[:255]},
		{"256 bytes", long, ""},
		{"NUL", "a\x00b", ""},
		{"line break", "a\r\nb", ""},
		{"invalid UTF-8", "a\xffb", ""},
		{"invisible", "a\u200bb", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := state.Resolve(claimed(nil), 0, state.Outcome{OK: true, ExternalID: tc.id}, steady(nil))
			if err != nil || got.Event != state.EventSend || got.ExternalID != tc.want {
				t.Errorf("%+v, %v; want the id %q", got, err, tc.want)
			}
			// Nothing but an accepted outcome has one.
			got, err = state.Resolve(claimed(nil), 0, state.Outcome{Category: "red", ExternalID: tc.id}, steady(nil))
			if err != nil || got.ExternalID != "" {
				t.Errorf("a refusal: %+v, %v", got, err)
			}
		})
	}
}

// Whatever the outcome, a row that is not being processed is not settled.
func TestResolveRefusesOtherStates(t *testing.T) {
	for _, tc := range []struct {
		name    string
		outcome state.Outcome
		row     func(*state.Row)
		event   state.Event
	}{
		{"accepted", state.Outcome{OK: true}, nil, state.EventSend},
		{"permanent", state.Outcome{Category: state.CategoryRejected}, nil, state.EventDiscard},
		{"transient", state.Outcome{Category: state.CategoryNetwork}, nil, state.EventRetry},
		{"refused", state.Outcome{Category: state.CategoryNetwork, NotCalled: true}, nil, state.EventDefer},
		{"exhausted", state.Outcome{Category: state.CategoryNetwork}, attempt(5), state.EventFail},
		{"held", state.Outcome{Category: state.CategoryNetwork, Ambiguous: true}, nil, state.EventFail},
		{
			"unreachable",
			state.Outcome{Category: state.CategoryNetwork, NotCalled: true},
			recorded(state.CategoryNetwork, state.CodeUnreachable), state.EventFail,
		},
	} {
		for _, s := range append(state.States(), "", "otra") {
			if s == state.Processing {
				continue
			}
			t.Run(tc.name+" in "+string(s), func(t *testing.T) {
				r := claimed(tc.row)
				r.State = s
				got, err := state.Resolve(r, 1000*time.Hour, tc.outcome, steady(func(p *state.Policy) { p.HoldAmbiguous = true }))
				if got != (state.Transition{}) {
					t.Errorf("a transition: %+v", got)
				}
				wantTransitionError(t, err, tc.event, s)
			})
		}
	}
}

func TestResolveRefusesASenselessBackoff(t *testing.T) {
	p := steady(func(p *state.Policy) { p.Backoff.Factor = 0 })
	got, err := state.Resolve(claimed(nil), 0, state.Outcome{Category: "red"}, p)
	wantInvalid(t, err, "Backoff.Factor")
	if got != (state.Transition{}) {
		t.Errorf("a transition: %+v", got)
	}
}

func TestResolveOnRandomOutcomes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	categories := append(append(state.TransientCategories(), state.PermanentCategories()...), "", "otra", "dos palabras", "\xff")
	text := func() string {
		b := make([]byte, random.IntN(300))
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		return string(b)
	}
	flip := func() bool { return random.IntN(2) == 0 }
	for range 30_000 {
		r := claimed(func(r *state.Row) { r.Attempts, r.MaxAttempts = random.IntN(8), random.IntN(8) })
		if flip() {
			r.LastErrorCategory, r.LastErrorCode = state.CategoryNetwork, state.CodeUnreachable
		}
		o := state.Outcome{
			OK: random.IntN(4) == 0, ExternalID: text(), Category: categories[random.IntN(len(categories))], Code: text(),
			RetryAfter: time.Duration(random.Int64()), Ambiguous: flip(), NotCalled: flip(), Account: flip(),
		}
		p := state.DefaultPolicy()
		p.HoldAmbiguous = flip()
		age := time.Duration(random.Int64N(int64(200 * time.Hour)))
		got, err := state.Resolve(r, age, o, p)
		if err != nil {
			t.Fatalf("%+v, %+v: %v", r, o, err)
		}
		switch {
		case got.Validate() != nil:
			t.Fatalf("%+v: %v", got, got.Validate())
		case (got.Wait > 0) != got.Waits() || got.Wait > p.MaxRetryAfter:
			t.Fatalf("%+v waits %v", got, got.Wait)
		case len(got.Code) > state.MaxCodeLength || len(got.Category) > state.MaxCodeLength:
			t.Fatalf("%+v: too long", got)
		case !utf8.ValidString(got.Code+got.Category+got.ExternalID) || strings.ContainsAny(got.Code+got.Category+got.ExternalID, "\x00\r\n"):
			t.Fatalf("%+v: not to be stored", got)
		case got.Event == state.EventRetry && r.Exhausted():
			t.Fatalf("%+v: retried beyond its limit", got)
		case (got.Event == state.EventSend) != o.OK:
			t.Fatalf("%+v for %+v", got, o)
		}
	}
}

// Which columns a settlement writes, event by event.
func TestTransitionWrites(t *testing.T) {
	for _, tc := range []struct {
		transition                   state.Transition
		settles                      bool
		charged, waits, keepsTheLast bool
	}{
		{state.Transition{Event: state.EventSend, To: state.Sent}, true, true, false, false},
		{state.Transition{Event: state.EventRetry, To: state.Pending}, true, true, true, false},
		{state.Transition{Event: state.EventFail, To: state.Failed}, true, true, false, false},
		{state.Transition{Event: state.EventDiscard, To: state.Discarded}, true, true, false, false},
		{state.ReleaseTransition(), true, false, false, true},
		{state.Transition{Event: state.EventDefer, To: state.Pending}, true, false, true, false},
		{state.CloseTransition(state.CodeExpired), true, true, false, false},
		// What is no settlement of a claimed row.
		{state.Transition{}, false, true, false, false},
		{state.Transition{Event: state.EventSend, To: state.Failed}, false, true, false, false},
		{state.Transition{Event: state.EventReclaim, To: state.Processing}, false, true, false, false},
		{state.Transition{Event: state.EventClaim, To: state.Processing}, false, true, false, false},
		{state.Transition{Event: state.EventRequeue, To: state.Pending}, false, true, false, false},
		{state.Transition{Event: state.EventCancel, To: state.Discarded}, false, true, false, false},
		{state.Transition{Event: state.EventReconcile, To: state.Sent}, false, true, false, false},
	} {
		t.Run(string(tc.transition.Event)+" to "+string(tc.transition.To), func(t *testing.T) {
			err := tc.transition.Validate()
			if (err == nil) != tc.settles {
				t.Errorf("Validate: %v", err)
			}
			if err != nil && tc.transition.Event != "" {
				wantTransitionError(t, err, tc.transition.Event, state.Processing)
			}
			if got := tc.transition.Charged(); got != tc.charged {
				t.Errorf("Charged: %v", got)
			}
			if got := tc.transition.Waits(); got != tc.waits {
				t.Errorf("Waits: %v", got)
			}
			if got := tc.transition.KeepsError(); got != tc.keepsTheLast {
				t.Errorf("KeepsError: %v", got)
			}
		})
	}
	if got := state.CloseTransition(state.CodeExpired); got != fail(state.CategoryNetwork, state.CodeExpired) {
		t.Errorf("CloseTransition: %+v", got)
	}
	if got := state.ReleaseTransition(); got != (state.Transition{Event: state.EventRelease, To: state.Pending}) {
		t.Errorf("ReleaseTransition: %+v", got)
	}
}

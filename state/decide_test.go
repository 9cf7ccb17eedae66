package state_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
)

const (
	tick = time.Microsecond // what every store can tell apart
	none = time.Duration(math.MinInt64)
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// around returns noon moved by d, or the zero time for none.
func around(d time.Duration) time.Time {
	if d == none {
		return time.Time{}
	}
	return noon.Add(d)
}

// row is a fresh row that is due at noon, as changed.
func row(change func(*state.Row)) state.Row {
	r := state.Row{
		State: state.Pending, MaxAttempts: 5,
		CreatedAt: noon.Add(-time.Hour), ScheduledAt: noon.Add(-time.Hour),
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestDecide(t *testing.T) {
	pending := func(r *state.Row) {}
	scheduled := func(d time.Duration) func(*state.Row) {
		return func(r *state.Row) { r.ScheduledAt = around(d) }
	}
	retried := func(d time.Duration) func(*state.Row) {
		return func(r *state.Row) { r.Attempts, r.NextAttemptAt = 1, around(d) }
	}
	expires := func(d time.Duration) func(*state.Row) { return func(r *state.Row) { r.ExpiresAt = around(d) } }
	leased := func(d time.Duration) func(*state.Row) {
		return func(r *state.Row) { r.State, r.Attempts, r.LeasedUntil = state.Processing, 1, around(d) }
	}
	exhausted := func(r *state.Row) { r.Attempts = r.MaxAttempts }
	in := func(s state.State) func(*state.Row) { return func(r *state.Row) { r.State = s } }
	const (
		before, exactly, after = -tick, time.Duration(0), tick
	)
	for _, tc := range []struct {
		name    string
		changes []func(*state.Row)
		want    state.Decision
		closing string
	}{
		{"due", []func(*state.Row){pending}, state.DecisionSend, ""},
		{"due just before", []func(*state.Row){scheduled(before)}, state.DecisionSend, ""},
		{"due exactly now", []func(*state.Row){scheduled(exactly)}, state.DecisionSend, ""},
		{"scheduled", []func(*state.Row){scheduled(after)}, state.DecisionWait, ""},
		{"waiting for its retry", []func(*state.Row){retried(after)}, state.DecisionRetryLater, ""},
		{"retry exactly now", []func(*state.Row){retried(exactly)}, state.DecisionSend, ""},
		{"retry due", []func(*state.Row){retried(before)}, state.DecisionSend, ""},
		{"scheduled after its retry", []func(*state.Row){retried(after), scheduled(after)}, state.DecisionWait, ""},
		{"exhausted", []func(*state.Row){exhausted}, state.DecisionDiscard, state.CodeAttemptsExhausted},
		{"exhausted and scheduled", []func(*state.Row){exhausted, scheduled(after)}, state.DecisionDiscard, state.CodeAttemptsExhausted},
		{"over its limit", []func(*state.Row){func(r *state.Row) { r.Attempts = 6 }}, state.DecisionDiscard, state.CodeAttemptsExhausted},
		{"one attempt left", []func(*state.Row){func(r *state.Row) { r.Attempts = 4 }}, state.DecisionSend, ""},

		{"deliver-by just ahead", []func(*state.Row){expires(after)}, state.DecisionSend, ""},
		{"deliver-by exactly now", []func(*state.Row){expires(exactly)}, state.DecisionDiscard, state.CodeExpired},
		{"deliver-by passed", []func(*state.Row){expires(before)}, state.DecisionDiscard, state.CodeExpired},
		{"deliver-by passed, not its turn", []func(*state.Row){expires(before), retried(after)}, state.DecisionRetryLater, state.CodeExpired},
		{"exhausted and past deliver-by", []func(*state.Row){exhausted, expires(before)}, state.DecisionDiscard, state.CodeAttemptsExhausted},

		{"live lease", []func(*state.Row){leased(after)}, state.DecisionWait, ""},
		{"lease ends exactly now", []func(*state.Row){leased(exactly)}, state.DecisionReclaim, ""},
		{"lease ended", []func(*state.Row){leased(before)}, state.DecisionReclaim, ""},
		{"no lease", []func(*state.Row){leased(none)}, state.DecisionReclaim, ""},
		{"lease ended and exhausted", []func(*state.Row){leased(exactly), exhausted}, state.DecisionDiscard, state.CodeLeaseExhausted},
		{"no lease and exhausted", []func(*state.Row){leased(none), exhausted}, state.DecisionDiscard, state.CodeLeaseExhausted},
		{"live lease and exhausted", []func(*state.Row){leased(after), exhausted}, state.DecisionWait, state.CodeLeaseExhausted},
		{"live lease past deliver-by", []func(*state.Row){leased(after), expires(before)}, state.DecisionWait, state.CodeExpired},
		{"lease ended past deliver-by", []func(*state.Row){leased(before), expires(exactly)}, state.DecisionDiscard, state.CodeExpired},
		{"lease ended, turn ahead", []func(*state.Row){leased(before), scheduled(after)}, state.DecisionReclaim, ""},

		{"sent", []func(*state.Row){in(state.Sent)}, state.DecisionDiscard, ""},
		{"failed", []func(*state.Row){in(state.Failed)}, state.DecisionDiscard, ""},
		{"discarded, scheduled", []func(*state.Row){in(state.Discarded), scheduled(after)}, state.DecisionDiscard, ""},
		{"unknown state", []func(*state.Row){in("otra")}, state.DecisionWait, ""},
		{"no state", []func(*state.Row){in("")}, state.DecisionWait, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := row(nil)
			for _, change := range tc.changes {
				change(&r)
			}
			if got := state.Decide(r, noon); got != tc.want {
				t.Errorf("Decide: %s, want %s", got, tc.want)
			}
			if got := state.Closing(r, noon); got != tc.closing {
				t.Errorf("Closing: %q, want %q", got, tc.closing)
			}
			// The same instants in another zone are the same instants.
			if got := state.Decide(r, noon.In(time.FixedZone("", -3*3600))); got != tc.want {
				t.Errorf("Decide in another zone: %s, want %s", got, tc.want)
			}
		})
	}
}

// claims is the claim's predicate as a store writes it, on numbers instead of times.
func claims(r state.Row, now time.Time) (due, leaseOver, closes bool) {
	at := func(t time.Time) int64 { // NULL sorts before everything
		if t.IsZero() {
			return math.MinInt64
		}
		return t.UnixMicro()
	}
	turn := max(at(r.ScheduledAt), at(r.NextAttemptAt))
	due = turn <= at(now)
	leaseOver = r.State == state.Pending || at(r.LeasedUntil) <= at(now)
	closes = r.Attempts >= r.MaxAttempts || (!r.ExpiresAt.IsZero() && at(r.ExpiresAt) <= at(now))
	return due, leaseOver, closes
}

// checkParity holds Decide to the claim's predicate, its two exceptions included, and its events to the table.
func checkParity(t *testing.T, r state.Row, now time.Time) {
	t.Helper()
	got := state.Decide(r, now)
	due, leaseOver, closes := claims(r, now)
	want := []state.Decision{state.DecisionWait}
	var event state.Event
	switch {
	case r.State.Terminal():
		want = []state.Decision{state.DecisionDiscard}
	case r.State != state.Pending && r.State != state.Processing: // unknown
	case due && leaseOver && closes:
		want, event = []state.Decision{state.DecisionDiscard}, state.EventFail
	case due && leaseOver && r.State == state.Pending:
		want, event = []state.Decision{state.DecisionSend}, state.EventClaim
	case due && leaseOver:
		want, event = []state.Decision{state.DecisionReclaim}, state.EventReclaim
	case r.State == state.Pending && r.Exhausted(): // first exception: not due yet
		want = []state.Decision{state.DecisionDiscard}
	case r.State == state.Pending:
		want = []state.Decision{state.DecisionWait, state.DecisionRetryLater}
	case leaseOver: // second exception: not due yet
		want = []state.Decision{state.DecisionReclaim, state.DecisionDiscard}
	}
	if !slices.Contains(want, got) {
		t.Fatalf("%+v at %v: %s, want one of %s", r, now, got, want)
	}
	if event != "" {
		if _, err := state.Next(r.State, event); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if closes == (state.Closing(r, now) == "") {
			t.Fatalf("%+v: closing %q", r, state.Closing(r, now))
		}
	}
}

func TestDecideAgreesWithTheClaimOnEveryBoundary(t *testing.T) {
	offsets := []time.Duration{none, -tick, 0, tick}
	n := 0
	for _, s := range append(state.States(), "", "otra") {
		for _, attempts := range []int{0, 4, 5, 6} {
			for _, scheduled := range offsets[1:] {
				for _, next := range offsets {
					for _, lease := range offsets {
						for _, expires := range offsets {
							n++
							checkParity(t, state.Row{
								State: s, Attempts: attempts, MaxAttempts: 5,
								ScheduledAt: around(scheduled), NextAttemptAt: around(next),
								LeasedUntil: around(lease), ExpiresAt: around(expires), CreatedAt: noon.Add(-time.Hour),
							}, noon)
						}
					}
				}
			}
		}
	}
	if n != 7*4*3*4*4*4 {
		t.Errorf("%d rows", n)
	}
}

func TestDecideOnRandomRows(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	instant := func() time.Time {
		switch random.IntN(4) {
		case 0:
			return time.Time{}
		case 1:
			return noon.Add(time.Duration(random.Int64N(5)-2) * tick)
		case 2:
			return time.UnixMicro(random.Int64N(2e15))
		}
		return time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	}
	all := append(state.States(), "otra")
	for range 50_000 {
		r := state.Row{
			State: all[random.IntN(len(all))], Attempts: random.IntN(4), MaxAttempts: random.IntN(4),
			ScheduledAt: instant(), NextAttemptAt: instant(), LeasedUntil: instant(), ExpiresAt: instant(), CreatedAt: instant(),
		}
		checkParity(t, r, noon)
		if r.Age(noon) < 0 {
			t.Fatalf("%+v is %v old", r, r.Age(noon))
		}
	}
}

// Whatever a row holds, and whenever it is, there is one of the five answers and no panic, and the claim agrees.
func FuzzDecide(f *testing.F) {
	f.Add(string(state.Processing), 5, 5, int64(0), int64(-1), int64(1), int64(0), int64(0))
	f.Add("", math.MinInt, math.MaxInt, int64(math.MinInt64), int64(math.MaxInt64), int64(0), int64(1), int64(-1))
	f.Fuzz(func(t *testing.T, s string, attempts, limit int, scheduled, next, lease, expires, now int64) {
		r := state.Row{
			State: state.State(s), Attempts: attempts, MaxAttempts: limit,
			ScheduledAt: time.Unix(scheduled, 0), NextAttemptAt: time.Unix(next, 0),
			LeasedUntil: time.Unix(lease, 0), ExpiresAt: time.Unix(expires, 0),
		}
		at := time.Unix(now, 0)
		switch got := state.Decide(r, at); got {
		case state.DecisionSend, state.DecisionRetryLater, state.DecisionDiscard, state.DecisionReclaim, state.DecisionWait:
		default:
			t.Errorf("Decide: %q", got)
		}
		if age := r.Age(at); age < 0 {
			t.Errorf("%v old", age)
		}
		if closing := state.Closing(r, at); closing != "" && closing != state.CodeLeaseExhausted && closing != state.CodeAttemptsExhausted && closing != state.CodeExpired {
			t.Errorf("Closing: %q", closing)
		}
		_ = r.Turn()
		// Times beyond those of databases do not fit into the microseconds of the predicate.
		const end = 1 << 40
		for _, sec := range []int64{scheduled, next, lease, expires, now} {
			if sec < -end || sec > end {
				return
			}
		}
		checkParity(t, r, at)
	})
}

func TestTurnAndAge(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*state.Row)
		turn   time.Time
		age    time.Duration
	}{
		{"fresh", nil, noon.Add(-time.Hour), time.Hour},
		{"scheduled for later", func(r *state.Row) { r.ScheduledAt = noon.Add(time.Hour) }, noon.Add(time.Hour), 0},
		{"scheduled and come due", func(r *state.Row) { r.ScheduledAt = noon.Add(-time.Minute) }, noon.Add(-time.Minute), time.Minute},
		{
			"retried", func(r *state.Row) { r.NextAttemptAt = noon.Add(time.Minute) },
			noon.Add(time.Minute), time.Hour,
		},
		{
			"retry before its schedule", func(r *state.Row) { r.NextAttemptAt = noon.Add(-2 * time.Hour) },
			noon.Add(-time.Hour), time.Hour,
		},
		{
			"processing", func(r *state.Row) { r.State, r.NextAttemptAt = state.Processing, noon },
			noon, time.Hour,
		},
		{
			"scheduled in the past at enqueue", func(r *state.Row) { r.ScheduledAt = noon.Add(-24 * time.Hour) },
			noon.Add(-24 * time.Hour), time.Hour,
		},
		{"terminal", func(r *state.Row) { r.State = state.Failed }, time.Time{}, time.Hour},
		{"unknown", func(r *state.Row) { r.State = "otra" }, time.Time{}, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := row(tc.change)
			if got := r.Turn(); !got.Equal(tc.turn) {
				t.Errorf("Turn: %v, want %v", got, tc.turn)
			}
			if got := r.Age(noon); got != tc.age {
				t.Errorf("Age: %v, want %v", got, tc.age)
			}
		})
	}
}

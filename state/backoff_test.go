package state_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
)

// fixed is a random source that always draws r. 0.5 means no jitter.
func fixed(r float64) func() float64 { return func() float64 { return r } }

// almostOne is the largest number below 1.
var almostOne = math.Nextafter(1, 0)

func delay(t *testing.T, b state.Backoff, attempt int) time.Duration {
	t.Helper()
	d, err := b.Delay(attempt)
	if err != nil {
		t.Fatalf("%+v after %d: %v", b, attempt, err)
	}
	return d
}

func TestBackoffDelay(t *testing.T) {
	withDefaults := func(change func(*state.Backoff)) state.Backoff {
		b := state.DefaultBackoff()
		b.Rand = fixed(0.5)
		if change != nil {
			change(&b)
		}
		return b
	}
	for _, tc := range []struct {
		name    string
		backoff state.Backoff
		want    []time.Duration // after attempts 0, 1, 2, …
	}{
		{
			"default doubles from the base to the cap", withDefaults(nil),
			[]time.Duration{
				30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
				32 * time.Minute, time.Hour, time.Hour, time.Hour, time.Hour,
			},
		},
		{
			"own base, factor and cap",
			state.Backoff{Base: time.Second, Factor: 3, Max: 20 * time.Second},
			[]time.Duration{time.Second, 3 * time.Second, 9 * time.Second, 20 * time.Second, 20 * time.Second},
		},
		{
			"factor 1 is constant",
			state.Backoff{Base: time.Second, Factor: 1, Max: time.Hour},
			[]time.Duration{time.Second, time.Second, time.Second},
		},
		{
			"a cap equal to the base is constant",
			state.Backoff{Base: time.Second, Factor: 1e9, Max: time.Second},
			[]time.Duration{time.Second, time.Second},
		},
		{
			"a factor need not be whole",
			state.Backoff{Base: 2 * time.Second, Factor: 1.5, Max: time.Hour},
			[]time.Duration{2 * time.Second, 3 * time.Second, 4500 * time.Millisecond},
		},
		{
			"lowest draw", withDefaults(func(b *state.Backoff) { b.Rand = fixed(0) }),
			[]time.Duration{24 * time.Second, 48 * time.Second},
		},
		{
			"highest draw", withDefaults(func(b *state.Backoff) { b.Rand = fixed(almostOne) }),
			[]time.Duration{36 * time.Second, 72 * time.Second},
		},
		{
			"no jitter ignores the source", withDefaults(func(b *state.Backoff) { b.Jitter, b.Rand = 0, fixed(0) }),
			[]time.Duration{30 * time.Second, time.Minute},
		},
		{
			"full jitter reaches 0", withDefaults(func(b *state.Backoff) { b.Jitter, b.Rand = 1, fixed(0) }),
			[]time.Duration{0, 0},
		},
		{
			"full jitter doubles at most", withDefaults(func(b *state.Backoff) { b.Jitter, b.Rand = 1, fixed(almostOne) }),
			[]time.Duration{time.Minute, 2 * time.Minute},
		},
		{
			"jitter comes after the cap", withDefaults(func(b *state.Backoff) { b.Max, b.Rand = 30*time.Second, fixed(almostOne) }),
			[]time.Duration{36 * time.Second, 36 * time.Second},
		},
		{
			"a wait is whole nanoseconds",
			state.Backoff{Base: 1, Factor: 1.4, Max: time.Hour},
			[]time.Duration{1, 1, 2, 3},
		},
		{
			"jitter does not round the shortest wait away",
			state.Backoff{Base: 1, Factor: 1, Max: 1, Jitter: 0.9, Rand: fixed(0)},
			[]time.Duration{1, 1},
		},
		{
			"a broken source means no jitter", withDefaults(func(b *state.Backoff) { b.Rand = fixed(math.NaN()) }),
			[]time.Duration{30 * time.Second},
		},
		{
			"a source out of range means no jitter", withDefaults(func(b *state.Backoff) { b.Rand = fixed(-7) }),
			[]time.Duration{30 * time.Second},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for attempt, want := range tc.want {
				if got := delay(t, tc.backoff, attempt); got != want {
					t.Errorf("after %d: %v, want %v", attempt, got, want)
				}
			}
		})
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	b := state.DefaultBackoff()
	for _, r := range []float64{0, 0.5, almostOne} {
		b.Rand = fixed(r)
		for n := range 100_001 {
			got := delay(t, b, n)
			if got <= 0 || got > b.Max+b.Max/5 {
				t.Fatalf("draw %v, after %d: %v", r, n, got)
			}
			if n >= 7 && (got < b.Max-b.Max/5) {
				t.Fatalf("draw %v, after %d: %v, below the capped wait", r, n, got)
			}
		}
	}

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, base := range []time.Duration{1, time.Second, math.MaxInt64} {
		for _, limit := range []time.Duration{base, math.MaxInt64} {
			for _, factor := range []float64{1, 2, 1e9, math.MaxFloat64} {
				for _, jitter := range []float64{0, 0.2, 1} {
					for _, r := range []float64{0, 0.5, almostOne} {
						for _, n := range []int{0, 1, 62, 63, 64, 1023, 1024, 2000, math.MaxInt} {
							b := state.Backoff{Base: base, Factor: factor, Max: limit, Jitter: jitter, Rand: fixed(r)}
							got := delay(t, b, n)
							if got < 0 || (got == 0) != (jitter == 1 && r == 0) {
								t.Fatalf("%+v after %d: %v", b, n, got)
							}
							if due := now.Add(got); due.Before(now) || due.Year() > 9999 {
								t.Fatalf("%+v after %d: due %v", b, n, due)
							}
						}
					}
				}
			}
		}
	}
}

func TestBackoffStaysInItsBand(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := state.DefaultBackoff()
	for _, source := range []func() float64{nil, random.Float64} {
		b.Rand = source
		seen := map[time.Duration]bool{}
		for range 10_000 {
			got := delay(t, b, 2)
			if got < 96*time.Second || got > 144*time.Second {
				t.Fatalf("%v is not 2 min ± 20 %%", got)
			}
			seen[got] = true
		}
		if len(seen) < 9000 {
			t.Errorf("only %d different waits in 10000", len(seen))
		}
	}
}

func TestBackoffRefusesSenselessOptions(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name    string
		change  func(*state.Backoff)
		attempt int
		field   string
	}{
		{"negative attempt", func(*state.Backoff) {}, -1, "attempt"},
		{"lowest attempt", func(*state.Backoff) {}, math.MinInt, "attempt"},
		{"no base", func(b *state.Backoff) { b.Base = 0 }, 0, "Backoff.Base"},
		{"negative base", func(b *state.Backoff) { b.Base = -1 }, 0, "Backoff.Base"},
		{"no factor", func(b *state.Backoff) { b.Factor = 0 }, 0, "Backoff.Factor"},
		{"factor just below 1", func(b *state.Backoff) { b.Factor = almostOne }, 0, "Backoff.Factor"},
		{"factor NaN", func(b *state.Backoff) { b.Factor = nan }, 0, "Backoff.Factor"},
		{"factor infinite", func(b *state.Backoff) { b.Factor = inf }, 0, "Backoff.Factor"},
		{"cap just below the base", func(b *state.Backoff) { b.Max = b.Base - 1 }, 0, "Backoff.Max"},
		{"no cap", func(b *state.Backoff) { b.Max = 0 }, 0, "Backoff.Max"},
		{"jitter below 0", func(b *state.Backoff) { b.Jitter = -math.SmallestNonzeroFloat64 }, 0, "Backoff.Jitter"},
		{"jitter above 1", func(b *state.Backoff) { b.Jitter = math.Nextafter(1, 2) }, 0, "Backoff.Jitter"},
		{"jitter NaN", func(b *state.Backoff) { b.Jitter = nan }, 0, "Backoff.Jitter"},
		{"zero value", func(b *state.Backoff) { *b = state.Backoff{} }, 0, "Backoff.Base"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := state.DefaultBackoff()
			b.Rand = func() float64 { t.Error("a senseless backoff draws"); return 0 }
			tc.change(&b)
			d, err := b.Delay(tc.attempt)
			if d != 0 {
				t.Errorf("a wait of %v", d)
			}
			wantInvalid(t, err, tc.field)
			if tc.field != "attempt" {
				wantInvalid(t, b.Validate(), tc.field)
			}
		})
	}
	if err := state.DefaultBackoff().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

// The documentation says for how long a message is retried. Waits alone, without jitter and without the calls.
func TestRetryHorizons(t *testing.T) {
	b := state.DefaultBackoff()
	b.Jitter = 0
	for attempts, want := range map[int]time.Duration{
		5:  7*time.Minute + 30*time.Second,
		8:  time.Hour + 3*time.Minute + 30*time.Second,
		12: 5*time.Hour + 3*time.Minute + 30*time.Second,
		31: 24*time.Hour + 3*time.Minute + 30*time.Second,
	} {
		var got time.Duration
		for attempt := range attempts - 1 { // no wait follows the last one
			got += delay(t, b, attempt)
		}
		if got != want {
			t.Errorf("%d attempts last %v, want %v", attempts, got, want)
		}
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *state.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, state.ErrInvalidOptions) {
		t.Fatalf("%v is not an InvalidError", err)
	}
	if invalid.Field != field || !strings.Contains(err.Error(), field) || invalid.Reason == "" {
		t.Errorf("%v does not name %s", err, field)
	}
}

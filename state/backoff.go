package state

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential wait with jitter. The fields are taken literally: a zero field is a zero, not a default.
// Start from [DefaultBackoff] to change one of them.
type Backoff struct {
	Base   time.Duration  // the wait before the first retry; more than 0
	Factor float64        // growth for each further one; at least 1
	Max    time.Duration  // cap, applied before the jitter; at least Base
	Jitter float64        // share of the wait that is drawn at random, 0 to 1
	Rand   func() float64 // a source in [0, 1), safe for concurrent use; nil means math/rand/v2
}

// DefaultBackoff is 30 s, doubling up to 1 h, ± 20 %.
func DefaultBackoff() Backoff {
	return Backoff{Base: 30 * time.Second, Factor: 2, Max: time.Hour, Jitter: 0.2}
}

// Validate returns an [InvalidError] that names the first senseless field, or nil.
func (b Backoff) Validate() error {
	switch {
	case b.Base <= 0:
		return &InvalidError{"Backoff.Base", "must be more than 0"}
	case !(b.Factor >= 1) || math.IsInf(b.Factor, 0):
		return &InvalidError{"Backoff.Factor", "must be a finite number of at least 1"}
	case b.Max < b.Base:
		return &InvalidError{"Backoff.Max", "must be at least Backoff.Base"}
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return &InvalidError{"Backoff.Jitter", "must be between 0 and 1"}
	}
	return nil
}

// Delay returns the wait after the given attempt, counted from 0: min(Base·Factorⁿ, Max)·(1 ± Jitter). It is never
// negative, and zero only where Jitter is 1 and the source draws 0. It never overflows. Senseless fields or a negative
// attempt give an [InvalidError].
func (b Backoff) Delay(attempt int) (time.Duration, error) {
	if err := b.Validate(); err != nil {
		return 0, err
	}
	if attempt < 0 {
		return 0, &InvalidError{"attempt", "must not be negative"}
	}
	draw := b.Rand
	if draw == nil {
		draw = rand.Float64
	}
	r := draw()
	if !(r >= 0 && r <= 1) { // a broken source must not break the wait
		r = 0.5
	}
	wait := min(float64(b.Base)*math.Pow(b.Factor, float64(attempt)), float64(b.Max))
	wait *= 1 + (2*r-1)*b.Jitter
	switch {
	case wait >= math.MaxInt64:
		return math.MaxInt64, nil
	case wait > 0 && wait < 1:
		return 1, nil
	}
	return time.Duration(math.Round(wait)), nil
}

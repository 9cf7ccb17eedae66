// Package simulation plays many workers over one store in virtual time, with faults of many kinds between them, and checks
// after each step that what the library promises holds.
//
// A schedule is drawn from a seed. Each call that a worker makes of the store or of a transport waits at a turnstile until
// the scheduler lets it go on: executed and answered, executed but its reply lost, not executed, executed long after its
// caller was told of an error, or never, since the worker crashes. Only one call goes on at a time, and virtual time
// stands still until nothing moves any more, so that a seed always gives the same schedule. First there are faults, and
// what happens must be safe. Then the faults stop, and every row has to end.
//
// The limits: a crash takes a worker's calls away, but a paused worker's own timers go on; and of the calls of one lane
// that would time out at the same instant of virtual time all but one return a little earlier, since the runtime draws
// by itself which of them comes first.
package simulation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The promises hold in every schedule. A seed that breaks one is played again with as few steps as still break one, and
// printed: to repeat it, give it as -seed.
func TestSchedules(t *testing.T) {
	seed := proof.Seed(t)
	tally := proof.New(t, "simulation", slices.Concat(everyFault, everyEffect)...)
	began := time.Now()
	for range proof.Size(300, 20_000) {
		s := run(t, seed, math.MaxInt, flaw{}, tally)
		tally.Schedule()
		tally.Checked(len(s.rows))
		if len(s.violations) > 0 {
			s = shortest(t, seed, flaw{})
			tally.Violation(t, "seed %d breaks a promise (repeat with -run '^%s$' -seed %d): %q\n%s",
				seed, t.Name(), seed, s.broken(), strings.Join(s.trace, "\n"))
			return
		}
		if time.Since(began) > 4*time.Minute { // a slow machine tries fewer: the tally says how many
			return
		}
		seed = following(seed)
	}
}

// following is the seed after seed.
func following(seed uint64) uint64 { return seed*6364136223846793005 + 1442695040888963407 }

// shortest plays a seed that breaks a promise with as few steps before the faults stop as still break one.
func shortest(t *testing.T, seed uint64, f flaw) *schedule {
	for steps := 0; ; steps++ {
		if s := run(t, seed, steps, f, nil); len(s.violations) > 0 {
			return s
		}
	}
}

// A seed gives the same schedule each time, to the nanosecond.
func TestReplay(t *testing.T) {
	seed := proof.Seed(t)
	for range proof.Size(50, 1000) {
		once, again := run(t, seed, math.MaxInt, flaw{}, nil), run(t, seed, math.MaxInt, flaw{}, nil)
		if n := differ(once.trace, again.trace); n >= 0 {
			excerpt := func(trace []string) string {
				return strings.Join(trace[min(len(trace), max(0, n-20)):min(len(trace), n+3)], "\n")
			}
			t.Fatalf("seed %d: two runs differ in line %d of the trace:\n%s\n\n%s", seed, n+1, excerpt(once.trace), excerpt(again.trace))
		}
		seed = following(seed)
	}
}

// differ returns where two traces differ first, or -1.
func differ(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// A failure tells what happened in the words of the trace: the last line of a shortened one is about the broken promise.
func TestShortened(t *testing.T) {
	seed := proof.Seed(t)
	f := flaws[0]
	for {
		if s := run(t, seed, math.MaxInt, f, nil); len(s.violations) > 0 {
			short := shortest(t, seed, f)
			if again := shortest(t, seed, f); differ(short.trace, again.trace) >= 0 {
				t.Errorf("a shortened schedule of %d lines, then of %d", len(short.trace), len(again.trace))
			}
			if !slices.ContainsFunc(short.trace, func(line string) bool {
				return strings.Contains(line, fmt.Sprint("BROKEN: ", short.violations[0].promise))
			}) {
				t.Error("the trace does not name the broken promise")
			}
			return
		}
		seed = following(seed)
	}
}

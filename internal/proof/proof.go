// Package proof is what the random and destructive tests have in common: a seed that is printed first and can be given, a
// size that is small in make test and large in make proof, and a tally of what was tried, which make proof adds up.
package proof

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/recado-dev/recado/internal/proof/tally"
)

// fullEnv, when set to anything, asks for the whole proof.
const fullEnv = "RECADO_PROOF"

var seedFlag = flag.Uint64("seed", 0, "repeat the random run that printed this seed (0: a new one)")

// Short is the setting that has another process try no more than make test does.
const Short = fullEnv + "="

// Seed returns the seed of a test's random run, and prints it. The test takes all that is random from it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	tb.Logf("seed %d (repeat with -run '^%s$' -seed %d)", seed, tb.Name(), seed)
	return seed
}

// Full reports whether the whole proof was asked for.
func Full() bool { return os.Getenv(fullEnv) != "" }

// Size is how much to try: short in make test, full in make proof.
func Size(short, full int) int {
	if Full() {
		return full
	}
	return short
}

// Tally counts what one test has tried. Its methods may be called from many goroutines.
type Tally struct {
	mu     sync.Mutex
	counts tally.Tally
	wanted []string
}

// New is the tally of one technique in test tb. When the test ends it is printed. Of each kind of fault that wanted names
// at least one must have been injected by then: a test whose faults never fire shows nothing, and fails.
func New(tb testing.TB, technique string, wanted ...string) *Tally {
	tb.Helper()
	t := &Tally{counts: tally.Tally{Technique: technique, Faults: map[string]int{}}, wanted: wanted}
	tb.Cleanup(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !tb.Skipped() {
			for _, kind := range t.wanted {
				if t.counts.Faults[kind] == 0 {
					tb.Errorf("no fault of kind %q was injected: this run has shown nothing about it", kind)
				}
			}
		}
		if tb.Failed() {
			t.counts.Violations = max(1, t.counts.Violations)
		}
		fmt.Fprintln(tb.Output(), t.counts) // not tb.Log, whose line would begin with a file's name
	})
	return t
}

// Fault counts an injected fault, when it takes effect and not when it is planned.
func (t *Tally) Fault(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Faults[kind]++
}

// Schedule counts a random run.
func (t *Tally) Schedule() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Schedules++
}

// Checked counts messages whose whole fate was compared with what is promised.
func (t *Tally) Checked(rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Rows += rows
}

// Violation counts a broken promise, and fails the test.
func (t *Tally) Violation(tb testing.TB, format string, args ...any) {
	tb.Helper()
	t.mu.Lock()
	t.counts.Violations++
	t.mu.Unlock()
	tb.Errorf(format, args...)
}

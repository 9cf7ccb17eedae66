// Package simulation plays many workers over one store in virtual time.
package simulation

import (
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func after(seed uint64) uint64 {
	x := seed + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

func TestSchedules(t *testing.T) {
	seed := proof.Seed(t)
	tally := proof.New(t, "simulation", everyFault...)
	for range proof.Size(300, 20000) {
		s := run(t, seed, math.MaxInt, flaw{}, tally)
		tally.Schedule()
		tally.Checked(len(s.rows))
		if len(s.violations) > 0 {
			t.Fatalf("seed %d: %q\n%s", seed, s.broken(), strings.Join(s.trace, "\n"))
		}
		seed = after(seed)
	}
}

func TestReplay(t *testing.T) {
	seed := proof.Seed(t)
	for range proof.Size(50, 500) {
		a, b := run(t, seed, math.MaxInt, flaw{}, nil), run(t, seed, math.MaxInt, flaw{}, nil)
		for i := range max(len(a.trace), len(b.trace)) {
			if i >= len(a.trace) || i >= len(b.trace) || a.trace[i] != b.trace[i] {
				t.Fatalf("seed %d: line %d\n%s\n---\n%s", seed, i, strings.Join(a.trace[max(0,i-30):min(len(a.trace),i+5)], "\n"), strings.Join(b.trace[max(0,i-30):min(len(b.trace),i+5)], "\n"))
			}
		}
		seed = after(seed)
	}
}

package faultdriver_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/recado-dev/recado/internal/faultdriver"
	"github.com/recado-dev/recado/internal/proof"
)

// plan is one run to make.
type plan struct {
	text   string             // for people
	cold   bool               // begins without a connection
	inject func(Op) Fault     // may depend on the operations so far
	check  func(t *testing.T) // of the plan itself, afterwards
}

// onSites makes the runs of an engine's plans, on several databases at once, the first of which is there: most of a run is
// waiting.
func onSites(t *testing.T, tally *proof.Tally, first *site, plans []plan) {
	sites := proof.Size(1, 4)
	for i := range sites {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := first
			if i > 0 {
				s = newSite(t, first.engine)
			}
			for j := i; j < len(plans) && !t.Failed(); j += sites {
				s.run(t, tally, plans[j])
				plans[j].check(t)
			}
		})
	}
}

// operations are those of the scenario when nothing fails.
func operations(t *testing.T, s *site, tally *proof.Tally) (all []Op) {
	s.run(t, tally, plan{text: "no fault", inject: func(op Op) Fault {
		all = append(all, op)
		return Fault{}
	}})
	return all
}

// counted is what a fault is called in the tally. An answer withheld by a broken connection is another fault at COMMIT
// than elsewhere, and yet another where database/sql runs a statement again.
func counted(k kind, op Op) string {
	switch {
	case k.name != "cut after":
		return k.name
	case op.Kind == Commit:
		return k.name + " COMMIT"
	case op.InTx:
		return k.name + " in a transaction"
	}
	return k.name + " outside a transaction"
}

// wanted are the faults without which a run has shown nothing.
var wanted = []string{
	"cut before", "cut after COMMIT", "cut after in a transaction", "cut after outside a transaction", "reset before", "reset after",
	"stalled before", "stalled after", "40001", "40P01", "55P03", "25006", "57P01", "53300", "1205", "1213", "1290", "SQLITE_BUSY",
}

// One operation fails, for every operation of the scenario and every way it can.
func TestEveryOperationFails(t *testing.T) {
	tally := proof.New(t, "a fault at every operation", wanted...)
	seed := proof.Seed(t)
	for i, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			first := newSite(t, e)
			ops := operations(t, first, tally)
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			var plans []plan
			for _, k := range e.kinds(t) {
				at := map[string][]Op{}
				for _, op := range ops {
					if k.applies(op) {
						at[counted(k, op)] = append(at[counted(k, op)], op)
					}
				}
				for _, name := range slices.Sorted(maps.Keys(at)) {
					same := at[name]
					random.Shuffle(len(same), func(i, j int) { same[i], same[j] = same[j], same[i] })
					for _, op := range same[:proof.Size(1, len(same))] {
						plans = append(plans, single(tally, k, op))
					}
				}
			}
			t.Logf("%d operations, %d runs", len(ops), len(plans))
			onSites(t, tally, first, plans)
		})
	}
}

// single lets one operation fail. Until then a run is like any other, so that it is known which one this is.
func single(tally *proof.Tally, k kind, at Op) plan {
	fired := false
	return plan{
		text: fmt.Sprintf("%s at operation %d, a %s", k.name, at.N, at.Kind),
		cold: at.Kind == Connect,
		inject: func(op Op) Fault {
			if op.N != at.N || op.Kind != at.Kind || op.InTx != at.InTx {
				return Fault{}
			}
			fired = true
			tally.Fault(counted(k, op))
			return k.Fault
		},
		check: func(t *testing.T) {
			if !fired {
				t.Errorf("%s at operation %d, a %s: there was no such operation", k.name, at.N, at.Kind)
			}
		},
	}
}

// Two operations fail, drawn at random: the second often while the first is being recovered from.
func TestTwoOperationsFail(t *testing.T) {
	tally := proof.New(t, "pairs of faults")
	seed := proof.Seed(t)
	for i, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			first := newSite(t, e)
			ops := operations(t, first, tally)
			kinds := e.kinds(t)
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			plans := make([]plan, proof.Size(4, 100))
			for j := range plans {
				from := 1 + random.IntN(len(ops))
				near := []int{4, 20, len(ops)}[random.IntN(3)]
				plans[j] = pair(tally, [2]kind{kinds[random.IntN(len(kinds))], kinds[random.IntN(len(kinds))]}, [2]int{from, from + 1 + random.IntN(near)})
			}
			onSites(t, tally, first, plans)
		})
	}
}

// pair lets the first operation from each place on fail that can in this way.
func pair(tally *proof.Tally, kinds [2]kind, from [2]int) plan {
	next := 0
	return plan{
		text: fmt.Sprintf("%s from operation %d on, then %s from %d on", kinds[0].name, from[0], kinds[1].name, from[1]),
		inject: func(op Op) Fault {
			if next == len(kinds) || op.N < from[next] || !kinds[next].applies(op) {
				return Fault{}
			}
			k := kinds[next]
			next++
			tally.Fault(counted(k, op))
			return k.Fault
		},
		check: func(*testing.T) { tally.Schedule() },
	}
}

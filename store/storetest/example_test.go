package storetest_test

import (
	"testing"
	"time"

	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
)

// The author of a store runs the whole kit from one test. What the fixture leaves out is skipped, and the output says so.
func ExampleRun() {
	var t *testing.T // that of func TestConformance(t *testing.T)
	conformance := func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Fixture {
			var now time.Time
			s := memstore.New(memstore.Config{Clock: func() time.Time { return now }})
			return storetest.Fixture{
				Store: s, Put: s.Put, Get: s.Get, SetClock: func(at time.Time) { now = at },
			}
		})
	}
	if t != nil {
		conformance(t)
	}
	// Output:
}

package proof

import (
	"io"
	"strings"
	"testing"

	"github.com/recado-dev/recado/internal/proof/tally"
)

// fake records what a test would have been told.
type fake struct {
	testing.TB
	output  strings.Builder
	failed  bool
	cleanup []func()
}

func (f *fake) Helper()                         {}
func (f *fake) Name() string                    { return "TestIt" }
func (f *fake) Cleanup(fn func())               { f.cleanup = append(f.cleanup, fn) }
func (f *fake) Failed() bool                    { return f.failed }
func (f *fake) Skipped() bool                   { return false }
func (f *fake) Errorf(string, ...any)           { f.failed = true }
func (f *fake) Logf(format string, args ...any) { f.output.WriteString(format) }
func (f *fake) Output() io.Writer               { return &f.output }

func (f *fake) end() (tally.Tally, bool) {
	for _, fn := range f.cleanup {
		fn()
	}
	return tally.Parse(f.output.String())
}

func TestTally(t *testing.T) {
	f := &fake{TB: t}
	p := New(f, "kills", "sigkill")
	p.Fault("sigkill")
	p.Fault("sigstop")
	p.Schedule()
	p.Checked(7)
	got, ok := f.end()
	if !ok || f.failed || got.Technique != "kills" || got.Faults["sigkill"] != 1 || got.Schedules != 1 || got.Rows != 7 || got.Violations != 0 {
		t.Errorf("%+v, %v, failed: %v", got, ok, f.failed)
	}
}

// A run that did not inject what it is about has shown nothing.
func TestAFaultThatNeverFired(t *testing.T) {
	f := &fake{TB: t}
	New(f, "kills", "sigkill").Fault("sigstop")
	if got, ok := f.end(); !ok || !f.failed || got.Violations != 1 {
		t.Errorf("%+v, %v, failed: %v", got, ok, f.failed)
	}
}

func TestSeed(t *testing.T) {
	a, b := Seed(&fake{TB: t}), Seed(&fake{TB: t})
	if *seedFlag == 0 && (a == b || a == 0) {
		t.Errorf("two runs get %d and %d", a, b)
	}
	defer func(given uint64) { *seedFlag = given }(*seedFlag)
	*seedFlag = 17
	if got := Seed(&fake{TB: t}); got != 17 {
		t.Errorf("a run with -seed 17 gets %d", got)
	}
}

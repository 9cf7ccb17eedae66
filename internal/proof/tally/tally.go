// Package tally is what a technique of proof prints of itself, as one line of a test's output, and what sums such lines up.
package tally

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Prefix begins the line; JSON follows.
const Prefix = "proof: "

// Tally is what was tried.
type Tally struct {
	Technique  string         `json:"technique"`
	Schedules  int            `json:"schedules,omitempty"` // random runs, each from a seed of its own
	Rows       int            `json:"rows,omitempty"`      // messages whose fate was checked
	Faults     map[string]int `json:"faults,omitempty"`    // injected, by kind: kills and lost replies too
	Violations int            `json:"violations"`
}

// String is the line, without its end.
func (t Tally) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // texts and numbers cannot fail
	}
	return Prefix + string(text)
}

// Parse reads a line of output.
func Parse(line string) (t Tally, ok bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(line), Prefix)
	return t, ok && json.Unmarshal([]byte(text), &t) == nil
}

// Sum adds tallies up by technique.
type Sum map[string]Tally

// Add adds one.
func (s Sum) Add(t Tally) {
	sum := s[t.Technique]
	sum.Technique = t.Technique
	sum.Schedules += t.Schedules
	sum.Rows += t.Rows
	sum.Violations += t.Violations
	if sum.Faults == nil {
		sum.Faults = map[string]int{}
	}
	for kind, n := range t.Faults {
		sum.Faults[kind] += n
	}
	s[t.Technique] = sum
}

// Print writes a table, and below each technique its faults by kind.
func (s Sum) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%-34s %10s %10s %10s %10s\n", "proof", "schedules", "faults", "rows", "violations")
	for _, name := range slices.Sorted(maps.Keys(s)) {
		t := s[name]
		total, kinds := 0, []string{}
		for _, kind := range slices.Sorted(maps.Keys(t.Faults)) {
			total += t.Faults[kind]
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, t.Faults[kind]))
		}
		_, _ = fmt.Fprintf(w, "%-34s %10d %10d %10d %10d\n", name, t.Schedules, total, t.Rows, t.Violations)
		if len(kinds) > 0 {
			_, _ = fmt.Fprintf(w, "    %s\n", strings.Join(kinds, ", "))
		}
	}
}

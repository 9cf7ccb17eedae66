package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/recado-dev/recado/internal/proof/tally"
)

// event is one line of the stream; `go doc test2json` and `go help buildjson` describe it.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64 // seconds
	ImportPath  string  // of a build's output
	FailedBuild string  // the ImportPath that kept a package from being tested
}

type report struct {
	out    io.Writer
	builds map[string]string // the output of each build, by import path
	open   map[string]*testedPackage

	passed, failed, skipped int

	failures []string            // what failed, in the order of the stream
	reasons  []string            // why tests were skipped, in the order of the stream
	skips    map[string][]string // the tests that were skipped for each reason

	absent   []string       // what may be absent, see main
	absences map[string]int // how many tests were left out for it

	seeds bool // print the seeds of random runs, as they come
	proof tally.Sum
}

// testedPackage is a package whose result is not known yet.
type testedPackage struct {
	output  string // its own, outside any test
	tests   map[string]string
	order   []string // tests still running or failed, in the order of their start
	failed  []string
	counted struct{ passed, failed, skipped int }
}

func newReport(out io.Writer) *report {
	return &report{
		out:    out,
		builds: map[string]string{},
		open:   map[string]*testedPackage{},
		skips:  map[string][]string{},

		absences: map[string]int{},
		proof:    tally.Sum{},
	}
}

// read consumes the stream. What is not JSON (a message of the go command, say) is passed on as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				r.print("%s\n", strings.TrimSuffix(line, "\n"))
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

func (r *report) add(e event) {
	if e.Package == "" {
		r.builds[e.ImportPath] += e.Output
		return
	}
	p := r.open[e.Package]
	if p == nil {
		p = &testedPackage{tests: map[string]string{}}
		r.open[e.Package] = p
	}
	if e.Test == "" {
		p.output += e.Output
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			r.endPackage(p, e)
		}
		return
	}
	switch e.Action {
	case "run":
		p.order = append(p.order, e.Test)
	case "output":
		p.tests[e.Test] += e.Output
		if t, ok := tally.Parse(e.Output); ok {
			r.proof.Add(t)
		}
		if r.seeds && seedLine.MatchString(e.Output) {
			r.print("%s: %s", e.Test, sourceLine.ReplaceAllString(e.Output, ""))
		}
	case "pass":
		p.counted.passed++
		p.forget(e.Test)
	case "skip":
		reason := skipReason(p.tests[e.Test])
		if what, ok := strings.CutPrefix(reason, "absent: "); ok && slices.Contains(r.absent, what) {
			r.absences[what]++
		} else {
			p.counted.skipped++
			r.skip(e.Package+"."+e.Test, reason)
		}
		p.forget(e.Test)
	case "fail":
		p.counted.failed++
		p.failed = append(p.failed, e.Test)
	}
}

// forget drops the output of a test that nobody needs to read.
func (p *testedPackage) forget(test string) {
	delete(p.tests, test)
	p.order = slices.DeleteFunc(p.order, func(t string) bool { return t == test })
}

func (r *report) endPackage(p *testedPackage, e event) {
	delete(r.open, e.Package)
	if e.Action == "skip" {
		return // no test files
	}
	if len(p.order) > 0 { // some test failed, or ended the process with success in the middle of itself
		e.Action = "fail"
	}
	if e.Action == "fail" {
		r.explain(p, e)
	}
	verdict := map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action]
	c := p.counted
	r.print("%-4s %s: %d passed, %d failed, %d skipped in %.1f s\n",
		verdict, e.Package, c.passed, c.failed, c.skipped, e.Elapsed)
	r.passed, r.failed, r.skipped = r.passed+c.passed, r.failed+c.failed, r.skipped+c.skipped
}

// explain prints everything that is known of a failed package.
func (r *report) explain(p *testedPackage, e event) {
	r.print("%s", r.builds[e.FailedBuild])
	for _, test := range p.order { // what passed or was skipped is no longer listed
		if !slices.Contains(p.failed, test) { // a panic or a timeout leaves tests without a result
			p.counted.failed++
			p.failed = append(p.failed, test)
		}
		r.print("%s", p.tests[test])
	}
	for _, test := range p.failed {
		r.failures = append(r.failures, e.Package+"."+test)
	}
	if len(p.failed) == 0 { // did not build, or failed outside any test
		p.counted.failed++
		r.failures = append(r.failures, e.Package)
	}
	r.print("%s", p.output) // with the seed of a shuffled run
}

func (r *report) skip(test, reason string) {
	if _, known := r.skips[reason]; !known {
		r.reasons = append(r.reasons, reason)
	}
	r.skips[reason] = append(r.skips[reason], test)
}

var (
	seedLine   = regexp.MustCompile(`seed \d+ \(`)
	frameLine  = regexp.MustCompile(`^\s*(=== |--- )`)
	sourceLine = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
)

// skipReason is what a skipped test logged, without the test runner's own lines and the place in the source, so that
// tests skipped for the same reason can be listed together.
func skipReason(output string) string {
	var reason []string
	for line := range strings.Lines(output) {
		if line = strings.TrimRight(line, "\n"); !frameLine.MatchString(line) {
			reason = append(reason, strings.TrimSpace(sourceLine.ReplaceAllString(line, "")))
		}
	}
	if len(reason) == 0 {
		return "no reason given"
	}
	return strings.Join(reason, "\n")
}

// close prints the summary and reports whether the run is good.
func (r *report) close(strict bool) bool {
	for name, p := range r.open { // the go command died
		r.endPackage(p, event{Action: "fail", Package: name})
	}
	if len(r.failures) > 0 {
		r.print("\nFailed:\n")
		for _, test := range r.failures {
			r.print("  %s\n", test)
		}
	}
	if len(r.reasons) > 0 {
		r.print("\nSkipped:\n")
		for _, reason := range r.reasons {
			r.print("  %s\n", strings.ReplaceAll(reason, "\n", "\n  "))
			for _, test := range r.skips[reason] {
				r.print("    %s\n", test)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.absences)) {
		r.print("\nLeft out, as declared, without %s: %d tests\n", what, r.absences[what])
	}
	if len(r.proof) > 0 {
		r.proof.Print(r.out)
	}
	nothing := r.passed+r.failed+r.skipped == 0
	if nothing {
		r.print("\nNo test ran.\n")
	}
	r.print("\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0 && !nothing && (!strict || r.skipped == 0)
}

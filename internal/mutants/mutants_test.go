package mutants

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
)

// mutant is one way to break the library: a piece of a file that occurs there once, and what takes its place.
type mutant struct {
	promise  string // what no longer holds
	old, new string
	run      string // the tests that have to notice; "": those of the suite

	file, pkg string // the suite's
}

// suite is the mutants of one file, and the tests that have to notice them, as the go command takes them.
type suite struct {
	file, pkg, run string
	mutants        []mutant
}

func (m mutant) name() string { return m.file + ": " + m.promise }

// all returns the mutants with what their suites say of them.
func all() (all []mutant) {
	for _, s := range table {
		for _, m := range s.mutants {
			m.file, m.pkg, m.run = s.file, s.pkg, cmp.Or(m.run, s.run)
			all = append(all, m)
		}
	}
	return all
}

// root is the module's folder.
const root = "../.."

// Every mutant must fit the code that it is to break. In the whole proof it is also built, in an overlay so that no file
// changes, and must make a test fail.
func TestMutants(t *testing.T) {
	var env []string
	var before map[string]func() result
	var tally *proof.Tally
	if proof.Full() {
		tally = proof.New(t, "mutants", "mutant")
		// Without cgo they are linked faster.
		env = append(append(os.Environ(), dbtest.Env(t)...), proof.Short, "CGO_ENABLED=0")
		before = unbroken(t, env)
	}
	for _, m := range all() {
		t.Run(m.name(), func(t *testing.T) {
			mutated := m.apply(t)
			if tally == nil {
				return
			}
			t.Parallel()
			if r := before[m.pkg](); !r.ok || r.skipped != "" {
				t.Fatalf("without the mutant %q failed and %q was skipped:\n%s", r.failed, r.skipped, r.output)
			}
			r := run(t, env, m.pkg, m.run, "-overlay", overlay(t, m.file, mutated))
			switch {
			case !r.built:
				t.Fatalf("the mutant cannot be built:\n%s", r.output)
			case !r.ok && r.failed == "":
				t.Fatalf("the tests did not end well, but none of them failed:\n%s", r.output)
			}
			tally.Fault("mutant")
			if r.ok {
				tally.Violation(t, "none of %s notices", m.run)
			} else {
				t.Logf("%s: killed by %s of %s", m.name(), r.failed, m.pkg)
			}
		})
	}
}

// apply returns the file as the mutant has it.
func (m mutant) apply(t *testing.T) []byte {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		t.Fatalf("the text to replace occurs %d times, want once:\n%s", n, m.old)
	}
	mutated := bytes.Replace(source, []byte(m.old), []byte(m.new), 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
		t.Fatal(err)
	}
	return mutated
}

// overlay returns the go command's description of the module with another content for a file.
func overlay(t *testing.T, file string, content []byte) string {
	original, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	replacement, description := filepath.Join(t.TempDir(), "mutant.go"), filepath.Join(t.TempDir(), "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{replacement: content, description: text} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return description
}

// unbroken returns, for each package, what its tests come to on the library as it is: one that failed or was skipped there
// would say nothing.
func unbroken(t *testing.T, env []string) map[string]func() result {
	patterns := map[string][]string{}
	for _, m := range all() {
		if !slices.Contains(patterns[m.pkg], m.run) {
			patterns[m.pkg] = append(patterns[m.pkg], m.run)
		}
	}
	results := map[string]func() result{}
	for pkg := range patterns {
		results[pkg] = sync.OnceValue(func() result { return run(t, env, pkg, strings.Join(patterns[pkg], "|")) })
	}
	return results
}

// result is what a run of tests came to.
type result struct {
	built, ok       bool
	failed, skipped string // the first test that was; "" when none was
	output          string
}

// run runs the tests of a package that match pattern, until one fails.
func run(t *testing.T, env []string, pkg, pattern string, flags ...string) result {
	flags = append(flags, "-json", "-vet=off", "-count=1", "-failfast", "-timeout=5m", "-run", pattern, pkg)
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test"}, flags...)...)
	cmd.Dir, cmd.Env = root, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	events, err := cmd.Output()
	r := result{built: true, ok: err == nil}
	var output strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, len(events)+1)
	for lines.Scan() {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		output.WriteString(e.Output)
		r.built = r.built && e.FailedBuild == ""
		// A panic outside the test's own goroutine ends the process before the test is said to have failed.
		panicked := strings.HasPrefix(e.Output, "panic: ") && !strings.HasPrefix(e.Output, "panic: test timed out")
		if e.Action == "fail" || panicked {
			r.failed = cmp.Or(r.failed, e.Test)
		}
		if e.Action == "skip" {
			r.skipped = cmp.Or(r.skipped, e.Test)
		}
	}
	r.output = output.String() + stderr.String()
	r.output = r.output[max(0, len(r.output)-5000):]
	return r
}

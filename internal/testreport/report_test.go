package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The recordings hold one small package each, run by go 1.26.
func TestRecordedStreams(t *testing.T) {
	for _, tc := range []struct {
		name         string
		good, strict bool // the verdicts without and with -strict
		last         string
		want         []string // pieces of the output, in this order
		not          []string // pieces that must not be there
	}{
		{
			name: "good", good: true, strict: false,
			last: "3 passed, 0 failed, 3 skipped",
			want: []string{
				"ok   example.com/app/good: 3 passed, 0 failed, 3 skipped in ",
				"Skipped:\n  no server:\n  install one\n    example.com/app/good.TestParent/needs_a_server\n    example.com/app/good.TestSkips\n",
				"  no reason given\n    example.com/app/good.TestSkipsBare\n",
			},
			not: []string{"quiet", "Failed:"},
		},
		{
			name: "bad", last: "2 passed, 3 failed, 0 skipped",
			want: []string{
				"printed before\n", "got 1, want 2\n", "deep failure\n", "FAIL example.com/app/bad: 2 passed, 3 failed",
				"Failed:\n  example.com/app/bad.TestFails\n",
			},
			not: []string{"not shown", "Skipped:"},
		},
		{
			name: "panics", last: "1 passed, 1 failed, 0 skipped",
			want: []string{"panic: boom", "panics.TestPanics(", "FAIL example.com/app/panics", "  example.com/app/panics.TestPanics\n"},
		},
		{
			name: "hang", last: "1 passed, 1 failed, 0 skipped",
			want: []string{"waiting\n", "panic: test timed out after 1s", "  example.com/app/hang.TestHangs\n"},
		},
		{
			name: "broken", last: "0 passed, 1 failed, 0 skipped",
			want: []string{"undefined: undefined\n", "FAIL example.com/app/broken", "  example.com/app/broken\n"},
		},
		{
			name: "vets", last: "0 passed, 1 failed, 0 skipped",
			want: []string{"wrong type string\n", "FAIL example.com/app/vets"},
		},
		{
			name: "exits", last: "1 passed, 1 failed, 0 skipped",
			want: []string{"leaked: 3 goroutines\n", "FAIL example.com/app/exits", "  example.com/app/exits\n"},
		},
		{
			name: "none", last: "0 passed, 0 failed, 0 skipped",
			want: []string{"No test ran."},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stream := recording(t, tc.name)
			for strict, want := range map[bool]bool{false: tc.good, true: tc.strict} {
				if _, good := run(t, stream, strict); good != want {
					t.Errorf("strict %v: good is %v", strict, good)
				}
			}
			out, _ := run(t, stream, false)
			if !strings.HasSuffix(out, "\n"+tc.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", tc.last, out)
			}
			rest := out
			for _, piece := range tc.want {
				_, after, found := strings.Cut(rest, piece)
				if !found {
					t.Fatalf("%q is missing or out of place in:\n%s", piece, out)
				}
				rest = after
			}
			for _, piece := range tc.not {
				if strings.Contains(out, piece) {
					t.Errorf("%q is in:\n%s", piece, out)
				}
			}
		})
	}
}

// Every prefix of a stream is what is left of it when the go command is killed.
func TestCutStreamsAreNeverGood(t *testing.T) {
	lines := strings.SplitAfter(recording(t, "good"), "\n")
	for n := range len(lines) - 1 { // the last piece is empty, the one before it ends the package
		if out, good := run(t, strings.Join(lines[:n], ""), false); good {
			t.Fatalf("good after %d of %d lines:\n%s", n, len(lines)-1, out)
		}
	}
}

func TestSeveralPackagesAddUp(t *testing.T) {
	out, good := run(t, "go: a message of its own\n"+recording(t, "broken")+recording(t, "good")+recording(t, "bad"), false)
	if good || !strings.HasSuffix(out, "\n5 passed, 4 failed, 3 skipped\n") {
		t.Errorf("good is %v:\n%s", good, out)
	}
	if !strings.HasPrefix(out, "go: a message of its own\n") {
		t.Errorf("what is not JSON was not passed on:\n%s", out)
	}
}

// A test that ends the process with exit status 0 makes the go command report a pass.
func TestUnfinishedTestIsAFailure(t *testing.T) {
	out, good := run(t, `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestExits"}
{"Action":"pass","Package":"p","Elapsed":0.1}
`, false)
	if good || !strings.HasSuffix(out, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("good is %v:\n%s", good, out)
	}
}

// Only what is declared may be absent; anything else that a store lacks is a skipped test like others.
func TestDeclaredAbsences(t *testing.T) {
	stream := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    kit.go:1: absent: store.Operator\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":0.1}
`
	for _, tc := range []struct {
		absent []string
		good   bool
		end    string
	}{
		{[]string{"store.Renewer", "store.Operator"}, true, "without store.Operator: 1 tests\n\n1 passed, 0 failed, 0 skipped\n"},
		{[]string{"store.Renewer"}, false, "\n1 passed, 0 failed, 1 skipped\n"},
	} {
		var out strings.Builder
		r := newReport(&out)
		r.absent = tc.absent
		if err := r.read(strings.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		if good := r.close(true); good != tc.good || !strings.HasSuffix(out.String(), tc.end) {
			t.Errorf("%q: good is %v:\n%s", tc.absent, good, out.String())
		}
	}
}

// What techniques of proof tell is summed up, whether their tests passed or failed, and seeds are shown where asked for.
func TestProof(t *testing.T) {
	stream := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    proof.go:9: seed 17 (repeat with -run '^TestA$' -seed 17)\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    proof: {\"technique\":\"kills\",\"schedules\":2,\"rows\":20,\"faults\":{\"sigkill\":3},\"violations\":0}\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    proof: {\"technique\":\"kills\",\"rows\":1,\"faults\":{\"sigkill\":1,\"sigstop\":1},\"violations\":1}\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Elapsed":0.1}
`
	var out strings.Builder
	r := newReport(&out)
	r.seeds = true
	if err := r.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	r.close(true)
	for _, want := range []string{"TestA: seed 17 (repeat", "kills                                       2          5         21          1\n    sigkill 4, sigstop 1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestStrictPassesWithoutSkips(t *testing.T) {
	var kept []string
	for line := range strings.Lines(recording(t, "good")) {
		if !strings.Contains(line, "Skips") && !strings.Contains(line, "needs_a_server") {
			kept = append(kept, line)
		}
	}
	if out, good := run(t, strings.Join(kept, ""), true); !good {
		t.Errorf("not good:\n%s", out)
	}
}

func recording(t *testing.T, name string) string {
	t.Helper()
	stream, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(stream)
}

func run(t *testing.T, stream string, strict bool) (string, bool) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	good := r.close(strict)
	return out.String(), good
}

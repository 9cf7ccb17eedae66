package state_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
)

var update = flag.Bool("update", false, "rewrite the lifecycle diagram in the README files")

const (
	diagramBegin = "<!-- lifecycle:begin -->\n"
	diagramEnd   = "<!-- lifecycle:end -->"
)

// The README files show the machine itself, not a drawing of it.
func TestDiagramInREADME(t *testing.T) {
	want := "```mermaid\n" + strings.TrimSpace(state.Mermaid()) + "\n```\n"
	for _, name := range []string{"README.md", "README.es.md"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", name)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			before, rest, begun := strings.Cut(string(content), diagramBegin)
			block, after, ended := strings.Cut(rest, diagramEnd)
			if !begun || !ended {
				t.Fatalf("no lines %q and %q", strings.TrimSpace(diagramBegin), diagramEnd)
			}
			if block == want {
				return
			}
			if !*update {
				t.Fatalf("the diagram is stale; run: go test ./state -run TestDiagram -update")
			}
			if err := os.WriteFile(path, []byte(before+diagramBegin+want+diagramEnd+after), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDiagramShowsEveryMove(t *testing.T) {
	diagram := state.Mermaid()
	if again := state.Mermaid(); again != diagram {
		t.Errorf("two drawings differ:\n%s\n%s", diagram, again)
	}
	for _, m := range moves {
		if line := string(m.from) + " --> " + string(m.to) + ": " + string(m.event); !strings.Contains(diagram, line) {
			t.Errorf("%q is missing in:\n%s", line, diagram)
		}
	}
	if got := strings.Count(diagram, "-->"); got != len(moves)+1 { // the extra one marks the initial state
		t.Errorf("%d arrows for %d moves:\n%s", got, len(moves), diagram)
	}
	if !strings.Contains(diagram, "[*] --> "+string(state.Pending)) {
		t.Errorf("a row does not start pending in:\n%s", diagram)
	}
}

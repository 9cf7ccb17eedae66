package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
)

// environment returns where a library file reads the environment: configuration is the caller's business.
func environment(s source) []string {
	if s.isTest() || s.within("examples", "internal") {
		return nil
	}
	return slices.Concat(
		s.uses("os", "Getenv", "LookupEnv", "Environ", "ExpandEnv"),
		s.uses("syscall", "Getenv", "Environ"))
}

// sleeps returns where a test sleeps: it waits for an event or for a fake clock instead.
func sleeps(s source) []string {
	if !s.isTest() {
		return nil
	}
	return s.uses("time", "Sleep")
}

// unverified returns where a file that is no test turns the verification of certificates off, or could be asked to.
func unverified(s source) []string {
	if s.isTest() {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && name.Name == "InsecureSkipVerify" {
			found = append(found, s.at(n)+": does not verify certificates")
		}
		return true
	})
	return found
}

// spelledStates returns the string literals that are a state, or quote one as SQL does. Package state has the
// constants.
func spelledStates(s source) []string {
	if s.isTest() || s.within("state") {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(lit.Value) // the parser has checked it
		for _, st := range state.States() {
			if text == string(st) || strings.Contains(text, "'"+string(st)+"'") || strings.Contains(text, `"`+string(st)+`"`) {
				found = append(found, s.at(n)+": spells "+string(st))
			}
		}
		return true
	})
	return found
}

// explained lists the methods whose meaning a standard interface has fixed.
var explained = []string{"Error", "Unwrap", "String"}

// undocumented returns the exported names of a library file that have no comment. One comment over a group is enough
// for the group.
func undocumented(s source) []string {
	if s.isTest() || s.within("examples", "internal") {
		return nil
	}
	var found []string
	need := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil }) {
			found = append(found, s.at(name)+": "+name.Name+" has no doc comment")
		}
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || (receiver(d).IsExported() && !slices.Contains(explained, d.Name.Name)) {
				need(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch sp := spec.(type) {
				case *ast.TypeSpec:
					need(sp.Name, d.Doc, sp.Doc, sp.Comment)
				case *ast.ValueSpec:
					for _, name := range sp.Names {
						need(name, d.Doc, sp.Doc, sp.Comment)
					}
				}
			}
		}
	}
	return found
}

// receiver returns the type name a method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	expr := d.Recv.List[0].Type
	for {
		switch x := expr.(type) {
		case *ast.StarExpr:
			expr = x.X
		case *ast.IndexExpr:
			expr = x.X
		case *ast.IndexListExpr:
			expr = x.X
		case *ast.Ident:
			return x
		default:
			panic("a receiver the Go grammar does not have")
		}
	}
}

var habits = []struct {
	name  string
	check func(source) []string
}{
	{"the environment is the caller's", environment},
	{"tests do not sleep", sleeps},
	{"certificates are verified", unverified},
	{"states are spelled once", spelledStates},
	{"exported names are documented", undocumented},
}

func TestHabits(t *testing.T) {
	all := moduleSources(t)
	for _, habit := range habits {
		t.Run(habit.name, func(t *testing.T) {
			for _, s := range all {
				for _, problem := range habit.check(s) {
					t.Error(problem)
				}
			}
		})
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range moduleSources(t) {
		if !s.isTest() {
			documented[s.dir()] = documented[s.dir()] || s.file.Doc != nil
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func TestBadHabitsAreSeen(t *testing.T) {
	sent := string(state.Sent)
	for _, tc := range []struct {
		name  string
		check func(source) []string
		file  string
		text  string
		bad   int
	}{
		{"getenv", environment, "dispatch/x.go", `import "os"; var _ = os.Getenv("A")`, 1},
		{"getenv under another name", environment, "dispatch/x.go", `import o "os"; var _, _ = o.LookupEnv, o.Environ`, 2},
		{"another package's Getenv", environment, "dispatch/x.go", `import "example.com/os2"; var _ = os2.Getenv`, 0},
		{"getenv in a test", environment, "dispatch/x_test.go", `import "os"; var _ = os.Getenv("A")`, 0},
		{"getenv in an example", environment, "examples/cron/main.go", `import "os"; var _ = os.Getenv("A")`, 0},

		{"sleep", sleeps, "dispatch/x_test.go", `import "time"; func f() { time.Sleep(1) }`, 1},
		{"sleep outside tests", sleeps, "dispatch/x.go", `import "time"; func f() { time.Sleep(1) }`, 0},
		{"sleep in a comment", sleeps, "dispatch/x_test.go", "// time.Sleep(1)\n", 0},

		{"no verification", unverified, "transports/x.go", `import "crypto/tls"; var _ = tls.Config{InsecureSkipVerify: true}`, 1},
		{"none afterwards", unverified, "examples/cron/x.go", `import "crypto/tls"; func f(c *tls.Config) { c.InsecureSkipVerify = true }`, 1},
		{"no verification in a test", unverified, "transports/x_test.go", `import "crypto/tls"; var _ = tls.Config{InsecureSkipVerify: true}`, 0},

		{"state", spelledStates, "sqlstore/x.go", `const s = "` + sent + `"`, 1},
		{"state in SQL", spelledStates, "sqlstore/x.go", "const s = `WHERE estado = '" + sent + "'`", 1},
		{"state in JSON", spelledStates, "store/x.go", "const s = `{\"estado\":\"" + sent + "\"}`", 1},
		{"part of a word", spelledStates, "dispatch/x.go", `const s = "` + sent + `s"`, 0},
		{"comment", spelledStates, "dispatch/x.go", `// "` + sent + `"`, 0},
		{"test", spelledStates, "dispatch/x_test.go", `const s = "` + sent + `"`, 0},
		{"package state", spelledStates, "state/x.go", `const s = "` + sent + `"`, 0},

		{"bare func", undocumented, "store/x.go", "func F() {}", 1},
		{"bare method", undocumented, "store/x.go", "// T is.\ntype T[K any] struct{}\nfunc (*T[K]) M() {}", 1},
		{"method of a private type", undocumented, "store/x.go", "type t struct{}\nfunc (t) M() {}", 0},
		{"fixed meaning", undocumented, "store/x.go", "// T is.\ntype T struct{}\nfunc (T) Error() string { return \"\" }", 0},
		{"bare group", undocumented, "store/x.go", "const (\n A = 1\n b = 2\n)", 1},
		{"commented group", undocumented, "store/x.go", "// Two of them.\nconst (\n A = 1\n B = 2\n)", 0},
		{"line comment", undocumented, "store/x.go", "var (\n A = 1 // the first\n)", 0},
		{"bare type", undocumented, "store/x.go", "type T struct{}", 1},
		{"internal", undocumented, "internal/x/x.go", "func F() {}", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.check(parse(t, tc.file, "package x\n"+tc.text+"\n")); len(got) != tc.bad {
				t.Errorf("%d problems, want %d: %q", len(got), tc.bad, got)
			}
		})
	}
}

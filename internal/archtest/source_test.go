package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/recado-dev/recado"

// source is one Go file of the module, whatever its build constraints say.
type source struct {
	name string // slash-separated, from the module's root
	fset *token.FileSet
	file *ast.File
}

func (s source) dir() string { return path.Dir(s.name) }

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// within reports whether the file lies in one of the folders or below it.
func (s source) within(folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(s.name, f+"/") })
}

// at says where a node is, for messages.
func (s source) at(n ast.Node) string {
	return s.name + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// imports maps the name under which each import is used to its path.
func (s source) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
	return p
}

// uses returns where the file refers to one of the names of a package.
func (s source) uses(pkg string, names ...string) []string {
	imports := s.imports()
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, sel.Sel.Name) {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && imports[x.Name] == pkg {
			found = append(found, s.at(n)+": "+pkg+"."+sel.Sel.Name)
		}
		return true
	})
	return found
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{name, fset, file}
}

// moduleSources parses every Go file of the module, nested modules left out.
func moduleSources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all = append(all, parse(t, name, string(text)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A walk that finds nothing would make every check pass.
	if !slices.ContainsFunc(all, func(s source) bool { return s.name == "state/machine.go" }) {
		t.Fatalf("the module's sources were not found below %s", root)
	}
	return all
}

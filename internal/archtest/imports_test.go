// Package archtest holds the rules that span packages: who may import whom, and what no file may do.
package archtest

import (
	"slices"
	"strings"
	"testing"
)

// rule says which folders of this module a package may import, besides itself. A folder ending in "/..." stands for
// itself and all below it.
type rule struct {
	pkg     string
	imports []string
}

// allowed holds the directions. The first entry that fits a package counts; a package without one is a failure.
var allowed = []rule{
	{"state", nil},
	{"store", []string{"state"}},
	{"store/memstore", []string{"state", "store"}},
	{"store/storetest", []string{"state", "store"}},
	{"sqlstore", []string{"state", "store", "sqlstore/internal/script"}},
	{"sqlstore/internal/script", []string{"store"}},
	{"sqlstore/sqlstoretest", []string{"state", "store", "sqlstore"}},
	{"transports", []string{"state"}},
	{"transports/internal/...", []string{"state", "transports/internal/..."}},
	{"transports/transporttest", []string{"state", "transports"}},
	{"transports/...", []string{"state", "transports", "transports/internal/...", "transports/email", "transports/whatsapp"}},
	{"dispatch", []string{"state", "store", "transports"}},
	{"examples/...", []string{"..."}},
	{"internal/...", []string{"..."}},
}

// stateMayImport is all that the pure core needs besides the standard library.
const stateMayImport = "github.com/looplab/fsm"

func fits(pattern, dir string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(dir+"/", prefix)
	}
	return pattern == dir
}

// forbiddenImports returns the imports of a non-test file that its package may not have.
func forbiddenImports(s source) []string {
	i := slices.IndexFunc(allowed, func(r rule) bool { return fits(r.pkg, s.dir()) })
	if i < 0 {
		return []string{s.name + ": no rule says what " + s.dir() + " may import"}
	}
	var bad []string
	for _, spec := range s.file.Imports {
		imported := importPath(spec)
		dir, ours := strings.CutPrefix(imported, module+"/")
		switch {
		case ours && !slices.ContainsFunc(allowed[i].imports, func(p string) bool { return fits(p, dir) }):
			bad = append(bad, s.name+": "+s.dir()+" must not import "+dir)
		case !ours && s.dir() == "state" && strings.Contains(imported, ".") && imported != stateMayImport:
			bad = append(bad, s.name+": state must not import "+imported)
		}
	}
	return bad
}

func TestImportsPointInward(t *testing.T) {
	for _, s := range moduleSources(t) {
		if s.isTest() {
			continue
		}
		for _, problem := range forbiddenImports(s) {
			t.Error(problem)
		}
	}
}

func TestForbiddenImportsAreSeen(t *testing.T) {
	for _, tc := range []struct {
		file, imported string
		bad            bool
	}{
		{"state/x.go", module + "/store", true},
		{"state/x.go", "github.com/google/uuid", true},
		{"state/x.go", "github.com/looplab/fsm", false},
		{"state/x.go", "math/rand/v2", false},
		{"store/x.go", module + "/state", false},
		{"store/x.go", module + "/sqlstore", true},
		{"store/memstore/x.go", module + "/store", false},
		{"store/memstore/x.go", module + "/internal/dbtest", true},
		{"sqlstore/x.go", module + "/dispatch", true},
		{"dispatch/x.go", module + "/sqlstore", true},
		{"dispatch/x.go", module + "/transports", false},
		{"dispatch/x.go", module + "/transports/email", true},
		{"transports/x.go", module + "/transports/email", true},
		{"transports/email/smtp/x.go", module + "/transports/email", false},
		{"transports/email/x.go", module + "/transports", false},
		{"transports/email/x.go", module + "/store", true},
		{"transports/whatsapp/kapso/x.go", module + "/dispatch", true},
		{"transports/whatsapp/kapso/x.go", module + "/transports/internal/httpsend", false},
		{"transports/whatsapp/kapso/x.go", module + "/transports/email/resend", true},
		{"transports/email/resend/x.go", module + "/transports/transporttest", true},
		{"transports/transporttest/x.go", module + "/transports/internal/httpsend", true},
		{"transports/internal/httpsend/x.go", module + "/transports", true},
		{"examples/cron/x.go", module + "/dispatch", false},
		{"internal/dbtest/x.go", module + "/sqlstore", false},
		{"newcomer/x.go", "time", true},
	} {
		s := parse(t, tc.file, "package x\nimport _ \""+tc.imported+"\"\n")
		if bad := forbiddenImports(s); (len(bad) > 0) != tc.bad {
			t.Errorf("%s importing %s: %q", tc.file, tc.imported, bad)
		}
	}
}

// Package docs holds the tests of the documents: that their code compiles, their SQL runs, their numbers are right and
// the tests that they name exist.
package docs

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
)

const (
	root        = "../.."
	english     = root + "/README.md"
	spanish     = root + "/README.es.md"
	differences = root + "/DIFERENCIAS.md"
	customStore = root + "/examples/customstore/README.md"
	guarantees  = root + "/GUARANTEES.md"
)

var readmes = []string{english, spanish}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, text, found := strings.Cut(text, begin)
	text, _, closed := strings.Cut(text, end)
	if !found || !closed {
		t.Fatalf("there is nothing between %q and %q", begin, end)
	}
	return text
}

func dedent(code string) string {
	lines := strings.Split(strings.TrimRight(code, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "\t")
	}
	return strings.Join(lines, "\n")
}

func contains(blocks []string, code string) bool {
	return slices.ContainsFunc(blocks, func(b string) bool { return strings.TrimSpace(b) == strings.TrimSpace(code) })
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// blocks returns the fenced blocks in a language, or all of them for "".
func blocks(text, language string) (found []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if language == "" || m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// Both READMEs have the same headings, by level, and the same code, to the letter.
func TestSameReadmes(t *testing.T) {
	a, b := read(t, english), read(t, spanish)
	heading := regexp.MustCompile(`(?m)^#+ `)
	headingsA := heading.FindAllString(fence.ReplaceAllString(a, ""), -1)
	headingsB := heading.FindAllString(fence.ReplaceAllString(b, ""), -1)
	if !slices.Equal(headingsA, headingsB) {
		t.Errorf("the headings differ: %q and %q", headingsA, headingsB)
	}
	blocksA, blocksB := blocks(a, ""), blocks(b, "")
	if len(blocksA) != len(blocksB) {
		t.Fatalf("there are %d blocks of code in one and %d in the other", len(blocksA), len(blocksB))
	}
	for i := range blocksA {
		if blocksA[i] != blocksB[i] {
			t.Errorf("block %d differs:\n%s\n%s", i, blocksA[i], blocksB[i])
		}
	}
}

// The recipes for operators run as they stand, and with the words that the page gives for MySQL.
func TestRecipes(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		tryRecipes(t, "postgres", dbtest.Postgres(t)+"&timezone=UTC", sqlstore.Postgres, func(sql string) string { return sql })
	})
	t.Run("mariadb", func(t *testing.T) {
		for _, file := range readmes {
			if page := read(t, file); !strings.Contains(page, "`utc_timestamp(6)`") || !strings.Contains(page, "`interval 1 day`") {
				t.Errorf("%s does not say what changes on MySQL", file)
			}
		}
		words := strings.NewReplacer("now()", "utc_timestamp(6)", "interval '1 day'", "interval 1 day")
		tryRecipes(t, "mysql", dbtest.MariaDB(t), sqlstore.MySQL, words.Replace)
	})
}

func tryRecipes(t *testing.T, driver, dsn string, d sqlstore.Dialect, translate func(string) string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box, err := sqlstore.New(db, d, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert := func(key string, s state.State, ago, lease time.Duration) {
		t.Helper()
		at := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("'2006-01-02 15:04:05'") }
		leased := "NULL"
		if lease > 0 {
			leased = at(lease)
		}
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`
INSERT INTO outbox (organizacion_id, canal, destino, plantilla, clave_idempotencia, estado, programado_para, bloqueado_hasta, ultimo_error_categoria, ultimo_error_codigo)
VALUES ('7e000000-0000-4000-8000-000000000001', 'correo', 'a', 'b', '%s', '%s', %s, %s, 'red', 'http_503')`, key, s, at(-ago), leased))
		if err != nil {
			t.Fatal(err)
		}
	}
	insert("due", state.Pending, 2*time.Hour, 0)
	insert("later", state.Pending, -2*time.Hour, 0)
	insert("busy", state.Processing, time.Hour, time.Minute)
	insert("stuck", state.Processing, 3*time.Hour, 48*time.Hour)
	insert("failed", state.Failed, time.Hour, 0)
	insert("refused", state.Discarded, time.Hour, 0)
	insert("sent", state.Sent, time.Hour, 0)

	recipes := blocks(read(t, english), "sql")
	want := []int{1, 2, 1} // rows: channels with due messages, kinds of failure today, stuck rows
	if len(recipes) != len(want) {
		t.Fatalf("there are %d recipes, the test knows %d", len(recipes), len(want))
	}
	for i, recipe := range recipes {
		recipe = translate(recipe)
		rows, err := db.QueryContext(t.Context(), recipe)
		if err != nil {
			t.Errorf("%s: %v", recipe, err)
			continue
		}
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil || n != want[i] {
			t.Errorf("the recipe gives %d rows, want %d, %v:\n%s", n, want[i], err, recipe)
		}
	}
}

// The table of waits is what the default backoff does, without its jitter.
func TestRetryTable(t *testing.T) {
	backoff := state.DefaultBackoff()
	backoff.Jitter = 0
	for _, file := range readmes {
		text := read(t, file)
		for _, attempts := range []int{5, 8, 12, 31} {
			var total time.Duration
			for i := range attempts - 1 {
				wait, err := backoff.Delay(i)
				if err != nil {
					t.Fatal(err)
				}
				total += wait
			}
			row := fmt.Sprintf("| %d | %s |", attempts, total)
			if !strings.Contains(text, row) {
				t.Errorf("%s lacks the row %q", file, row)
			}
		}
	}
}

// Every test that a document names exists, and so does every file.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`).FindAllStringSubmatch(read(t, path), -1) {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			declared[filepath.ToSlash(dir)+" "+m[1]] = true
		}
		// The conformance kits' cases are named in tables.
		if kit := filepath.Base(filepath.Dir(path)); kit == "storetest" || kit == "transporttest" {
			for _, m := range regexp.MustCompile(`\{"([a-z][^"]*)", (?:\w+\}|func)`).FindAllStringSubmatch(read(t, path), -1) {
				declared[kit+" "+m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Documents write `dispatch TestDrain` for a test, and `storetest: zombie` for a case of a kit.
	named := regexp.MustCompile("`([a-z/]+) ((?:Test|Fuzz|Example)\\w+)`|`(storetest|transporttest): ([^`]+)`")
	for _, file := range append(readmes, differences, customStore, migrate, guarantees) {
		all := named.FindAllStringSubmatch(read(t, file), -1)
		if len(all) == 0 {
			t.Errorf("%s names no test", file)
		}
		for _, m := range all {
			name := m[1] + " " + m[2]
			if m[3] != "" {
				name = m[3] + " " + m[4]
			}
			if !declared[name] {
				t.Errorf("%s names a test that does not exist: %s", file, m[0])
			}
		}
	}
}

// The page leaves out no promise and no kind of accident, and each names a test that shows it.
func TestGuarantees(t *testing.T) {
	page := read(t, guarantees)
	for format, last := range map[string]int{"| I%d |": 36, "| F%02d |": 57} {
		for n := 1; n <= last; n++ {
			row := fmt.Sprintf(format, n)
			_, after, found := strings.Cut(page, "\n"+row)
			line, _, _ := strings.Cut(after, "\n")
			if !found || strings.Count(page, "\n"+row) != 1 || !strings.Contains(line, "`") {
				t.Errorf("there has to be one line %q with a test", row)
			}
		}
	}
}

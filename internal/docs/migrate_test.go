package docs

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
)

const migrate = root + "/MIGRAR.md"

func sampleMigrate(ctx context.Context, box *sqlstore.Store) error {
	// migrate:begin
	err := box.MigrateWith(ctx, sqlstore.MigrateParams{
		MaxRows: 3_000_000, // the table may have that many rows; 0: 500,000
	})
	if busy := (*sqlstore.TableBusyError)(nil); errors.As(err, &busy) {
		log.Print("another time: somebody uses the table") // nothing was changed
	}
	// migrate:end
	return err
}

// The SQL of the page on migrating runs as it stands, from a table of Recado's back to the old one and forth again.
func TestMigratePage(t *testing.T) {
	page := read(t, migrate)
	code := dedent(between(t, read(t, "migrate_test.go"), "\t// migrate:begin\n", "\t// migrate:end\n"))
	if !contains(blocks(page, "go"), code) {
		t.Error("the page does not show the code between the markers of migrate_test.go")
	}
	db, err := sql.Open("postgres", dbtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(begin string) {
		t.Helper()
		for _, block := range blocks(page, "sql") {
			if strings.HasPrefix(block, begin) {
				if _, err := db.ExecContext(t.Context(), block); err != nil {
					t.Fatalf("%s: %v", block, err)
				}
				return
			}
		}
		t.Fatalf("no block begins with %q", begin)
	}
	columns := func() (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.columns WHERE table_name = 'outbox'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	advised := func(about string) bool {
		t.Helper()
		advice, err := box.Check(t.Context())
		if err != nil {
			t.Error(err)
		}
		return strings.Contains(strings.Join(advice, "\n"), about)
	}

	if err := sampleMigrate(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	all := columns()
	run("SELECT canal")
	run("CREATE INDEX")
	run("ALTER TABLE")
	if n := columns(); n != all-6 {
		t.Errorf("back at the old table there are %d columns of %d", n, all)
	}
	run("SELECT estado")
	run("DELETE")
	if err := sampleMigrate(t.Context(), box); err != nil || columns() != all || !advised("DropOldIndex") {
		t.Errorf("after another migration there are %d columns of %d, %v", columns(), all, err)
	}
	run("INSERT")
	if c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute}); err != nil || len(c.Messages) != 1 {
		t.Errorf("of the inserted row %d are claimed, %v", len(c.Messages), err)
	}
	run("DROP INDEX")
	if advised("DropOldIndex") {
		t.Error("the old index is still there")
	}
}

// The columns for drizzle are those of the table.
func TestDrizzleColumns(t *testing.T) {
	ddl, err := sqlstore.Schema(sqlstore.Postgres, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	snippet := between(t, read(t, migrate), "columnasExtra: {\n", "\n  },\n")
	types := strings.NewReplacer("timestamp", "timestamptz")
	found := regexp.MustCompile(`(\w+)\("(\w+)"(?:, \{ withTimezone: true \})?\)(\.notNull\(\)\.default\(0\))?(?:\.generatedAlwaysAs\(\s*sql`+"`([^`]*)`"+`)?`).FindAllStringSubmatch(snippet, -1)
	if len(found) != 6 {
		t.Errorf("there are %d columns", len(found))
	}
	for _, m := range found {
		want := m[2] + " " + types.Replace(m[1])
		if m[3] != "" {
			want += " NOT NULL DEFAULT 0"
		}
		if m[4] != "" {
			want += " GENERATED ALWAYS AS (" + m[4] + ") STORED"
		}
		if !regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(want) + `,?$`).MatchString(ddl) {
			t.Errorf("the table has no column %q", want)
		}
	}
}

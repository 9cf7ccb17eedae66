package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
)

// engine is a dialect through one driver.
type engine struct {
	name         string
	dialect      Dialect
	secondDriver bool // another engine of the list has the same dialect
	open         func(tb testing.TB) *sql.DB
}

// engines are all that this build has; the file with mattn's driver adds one where there is cgo.
var engines = []engine{
	{"postgres/pq", Postgres, false, func(tb testing.TB) *sql.DB { return openDB(tb, "postgres", dbtest.Postgres(tb)) }},
	{"postgres/pgx", Postgres, true, func(tb testing.TB) *sql.DB { return openDB(tb, "pgx", dbtest.Postgres(tb)) }},
	{"mariadb", MySQL, false, func(tb testing.TB) *sql.DB { return openDB(tb, "mysql", dbtest.MariaDB(tb)) }},
	{"sqlite/modernc", SQLite, false, func(tb testing.TB) *sql.DB {
		return openDB(tb, "sqlite", sqliteFile(tb)+"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	}},
}

func sqliteFile(tb testing.TB) string { return "file:" + filepath.Join(tb.TempDir(), "recado.db") }

func openDB(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// onEngines runs f on every engine at once, each with a database of its own.
func onEngines(t *testing.T, f func(t *testing.T, e engine, db *sql.DB)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			f(t, e, e.open(t))
		})
	}
}

// newBox is a migrated store.
func newBox(tb testing.TB, e engine, db *sql.DB, cfg Config) *Store {
	tb.Helper()
	box, err := New(db, e.dialect, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := box.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return box
}

// put writes a whole row past all rules.
func (s *Store) put(ctx context.Context, m store.Message) error {
	d, names := s.dialect, append([]string{columns[0], s.names.tenant}, columns[1:len(columns)-2]...)
	args := make([]any, len(names))
	for i, v := range s.values(m) {
		args[i] = v
	}
	marks, news := make([]string, len(args)), make([]string, len(args))
	for i := range marks {
		if marks[i] = "?"; d == Postgres {
			marks[i] = fmt.Sprintf("$%d", i+1)
		}
		news[i] = names[i] + " = excluded." + names[i]
	}
	write, conflict := "INSERT", "ON CONFLICT (id) DO UPDATE SET "+strings.Join(news, ", ")
	if d == MySQL {
		write, conflict = "REPLACE", ""
	}
	_, err := s.db.ExecContext(ctx, fmt.Sprintf("%s INTO %s (%s) VALUES (%s) %s",
		write, s.names.table, strings.Join(names, ", "), strings.Join(marks, ", "), conflict), args...)
	return err
}

// testClock is a clock that a test sets.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

func (c *testClock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// variants are engines under settings that people have on their handles and servers.
var variants = []engine{
	{"postgres/repeatable_read", Postgres, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "postgres", dbtest.Postgres(tb)+"&default_transaction_isolation=repeatable%20read&TimeZone=Asia/Kathmandu")
	}},
	{"postgres/serializable", Postgres, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "pgx", dbtest.Postgres(tb)+"&default_transaction_isolation=serializable&default_query_exec_mode=simple_protocol")
	}},
	// REPEATABLE READ is the server's default.
	{"mariadb/parseTime", MySQL, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "mysql", dbtest.MariaDB(tb)+"?parseTime=true&loc=Asia%2FKathmandu&clientFoundRows=true&time_zone=%27%2B05:45%27&sql_mode=%27%27")
	}},
	{"mariadb/serializable", MySQL, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "mysql", dbtest.MariaDB(tb)+"?tx_isolation=%27SERIALIZABLE%27&interpolateParams=true&sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH%27")
	}},
}

func TestConformance(t *testing.T) {
	proof.SeedSequences(t)
	for _, e := range slices.Concat(engines, variants) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			for tenant, text := range map[string]bool{"uuid": false, "text": true} {
				if text && (e.secondDriver || e.dialect.tenantType(true) == e.dialect.tenantType(false)) {
					continue // the type of the tenant is the dialect's affair
				}
				t.Run(tenant, func(t *testing.T) {
					var tables atomic.Int64
					storetest.Run(t, func(t *testing.T) storetest.Fixture {
						var clock testClock
						box := newBox(t, e, db, Config{
							Table: fmt.Sprintf("outbox_%s_%d", tenant, tables.Add(1)), TextTenant: text, Clock: clock.get,
						})
						return storetest.Fixture{Store: box, Put: box.put, Get: box.Get, SetClock: clock.set, TextTenant: text}
					})
				})
			}
		})
	}
}

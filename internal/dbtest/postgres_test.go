package dbtest

import (
	"bufio"
	"database/sql"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestPostgresDatabasesAreEmptySeparateAndDropped(t *testing.T) {
	var dropped string
	t.Run("in use", func(t *testing.T) {
		first, second := open(t, Postgres(t)), open(t, Postgres(t))
		dropped = "SELECT count(*) FROM pg_database WHERE datname = '" + currentDatabase(t, first) + "'"
		if _, err := first.ExecContext(t.Context(), "CREATE TABLE mine (id int)"); err != nil {
			t.Fatal(err)
		}
		for db, want := range map[*sql.DB]int{first: 1, second: 0} {
			if got := count(t, db, "SELECT count(*) FROM pg_class WHERE relname = 'mine'"); got != want {
				t.Errorf("%s has %d tables, want %d", currentDatabase(t, db), got, want)
			}
		}
		// A connection left open must not keep the database from being dropped.
		leaked, err := sql.Open("postgres", Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := leaked.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() {
		return
	}
	if got := count(t, open(t, Postgres(t)), dropped); got != 0 {
		t.Error("the database outlived its test")
	}
}

func TestPostgresKeepsConfirmedCommitsThroughAKill(t *testing.T) {
	var sync string
	if err := open(t, Postgres(t)).QueryRowContext(t.Context(), "SHOW synchronous_commit").Scan(&sync); err != nil {
		t.Fatal(err)
	}
	if sync != "on" {
		t.Errorf("synchronous_commit is %s", sync)
	}
}

// childEnv makes the test below run as the process that is killed.
const childEnv = "RECADO_DBTEST_CHILD"

func TestPostgresEndsWithTheProcess(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		dsn := Postgres(t)
		db := open(t, dsn)
		var dir string
		if err := db.QueryRowContext(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("\n" + dsn + "\n" + dir + "\n")
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or until the parent is gone
		return
	}
	if _, err := postgresBinaries(); err != nil {
		unavailable(t, err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childEnv+"=1", postgresEnv+"=")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var dsn, dir string
	for dir == "" && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "postgres://") {
			dsn = lines.Text()
		} else if dsn != "" {
			dir = lines.Text()
		}
	}
	if dir == "" {
		t.Fatal("the child started no server")
	}

	// Listening for a notification that never comes ends when the server does.
	lost := make(chan struct{}, 1)
	l := pq.NewListener(dsn, time.Hour, time.Hour, func(event pq.ListenerEventType, _ error) {
		if event == pq.ListenerEventDisconnected {
			lost <- struct{}{}
		}
	})
	defer func() { _ = l.Close() }()
	if err := l.Listen("nothing"); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // "signal: killed"
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Fatal("the server outlived the process that started it")
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Dir(dir)); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server's directory was left behind")
		}
	}
}

func TestMajorVersionPicksTheNewest(t *testing.T) {
	for path, want := range map[string]int{
		"/usr/lib/postgresql/9/bin/initdb":                9,
		"/usr/lib/postgresql/15/bin/initdb":               15,
		"/usr/pgsql-17/bin/initdb":                        17,
		"/opt/homebrew/opt/postgresql/bin/initdb":         0,
		"/opt/homebrew/opt/postgresql@18/bin/initdb":      18,
		"/usr/local/opt/postgresql@16/bin/versions/9/pgx": 16,
	} {
		if got := majorVersion(path); got != want {
			t.Errorf("majorVersion(%s) = %d, want %d", path, got, want)
		}
	}
}

func TestPostgresEnvironment(t *testing.T) {
	const dsn = "postgres://someone:secret@db.invalid:5433/postgres?sslmode=require"
	t.Setenv(postgresEnv, dsn)
	if u, err := findPostgres(); err != nil || u.String() != dsn {
		t.Errorf("got %v, %v", u, err)
	}
	t.Setenv(postgresEnv, "host=db.invalid password=secret")
	if _, err := findPostgres(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want a refusal that does not repeat the DSN", err)
	}
}

func TestWithoutServer(t *testing.T) {
	for _, tc := range []struct{ strict, want string }{{"", "skipped"}, {"1", "failed"}} {
		t.Run(tc.want, func(t *testing.T) {
			t.Setenv(strictEnv, tc.strict)
			rec := &recorder{TB: t}
			unavailable(rec, os.ErrNotExist)
			if rec.ended != tc.want {
				t.Errorf("the test was %s", rec.ended)
			}
		})
	}
}

// recorder notes how a test would have ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) end(how string) {
	if r.ended == "" { // the real ones do not return
		r.ended = how
	}
}

func (r *recorder) Skipf(string, ...any)  { r.end("skipped") }
func (r *recorder) Fatalf(string, ...any) { r.end("failed") }

func currentDatabase(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

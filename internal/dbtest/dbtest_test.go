package dbtest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// engine is what the tests need to know of a kind of server.
type engine struct {
	name, driver string
	database     func(testing.TB) string
	private      func(testing.TB) *Server
	binaries     func() (string, error)
	environment  string
	// find answers as the server's DSN does.
	find func() (string, error)
	// valid is a DSN in the engine's form, invalid one that is in another.
	valid, invalid string
	// directory asks for the place of the data, sleep for an answer that takes longer than a test.
	directory, sleep string
	// durability is a setting that keeps a confirmed commit through the death of the server, if it has the value durable.
	durability, durable string
}

var engines = []engine{
	{
		name: "PostgreSQL", driver: "postgres",
		database: Postgres, private: PrivatePostgres, binaries: postgresBinaries, environment: postgresEnv,
		find: func() (string, error) {
			u, err := findPostgres()
			if err != nil {
				return "", err
			}
			return u.String(), nil
		},
		valid:      "postgres://someone:secret@db.invalid:5433/postgres?sslmode=require",
		invalid:    "host=db.invalid password=secret",
		directory:  "SHOW data_directory",
		sleep:      "SELECT pg_sleep(3600)",
		durability: "SHOW synchronous_commit", durable: "on",
	},
	{
		name: "MariaDB", driver: "mysql",
		database: MariaDB, private: PrivateMariaDB, binaries: mariadbBinaries, environment: mariadbEnv,
		find: func() (string, error) {
			cfg, err := findMariaDB()
			if err != nil {
				return "", err
			}
			return cfg.FormatDSN(), nil
		},
		valid:      "someone:secret@tcp(db.invalid:3307)/?parseTime=true",
		invalid:    "host=db.invalid password=secret",
		directory:  "SELECT @@datadir",
		sleep:      "SELECT sleep(3600)",
		durability: "SELECT @@innodb_flush_log_at_trx_commit > 0", durable: "1",
	},
}

// eachEngine runs a test on every kind of server.
func eachEngine(t *testing.T, test func(*testing.T, engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { test(t, e) })
	}
}

func (e engine) open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(e.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestDatabasesAreEmptySeparateAndDropped(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		var dropped string
		t.Run("in use", func(t *testing.T) {
			dropped = e.database(t)
			// Each of them has room for the table, and what one holds is not in the other.
			for _, db := range []*sql.DB{e.open(t, dropped), e.open(t, e.database(t))} {
				for _, statement := range []string{"CREATE TABLE mine (id int PRIMARY KEY)", "INSERT INTO mine VALUES (1)"} {
					if _, err := db.ExecContext(t.Context(), statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			}
			// A transaction left open must not keep the database from being dropped.
			leaked, err := sql.Open(e.driver, dropped)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := leaked.BeginTx(context.WithoutCancel(t.Context()), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO mine VALUES (2)"); err != nil {
				t.Fatal(err)
			}
		})
		if t.Failed() {
			return
		}
		if err := e.open(t, e.database(t)).PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.open(t, dropped).PingContext(t.Context()); err == nil {
			t.Error("the database outlived its test")
		}
	})
}

func TestConfirmedCommitsOutliveTheServer(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		var got string
		if err := e.open(t, e.database(t)).QueryRowContext(t.Context(), e.durability).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != e.durable {
			t.Errorf("%s: %s, want %s", e.durability, got, e.durable)
		}
	})
}

// childEnv makes the test below run as the process that is killed.
const childEnv = "RECADO_DBTEST_CHILD"

func TestServerEndsWithTheProcess(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		if os.Getenv(childEnv) != "" {
			dsn := e.database(t)
			var dir string
			if err := e.open(t, dsn).QueryRowContext(t.Context(), e.directory).Scan(&dir); err != nil {
				t.Fatal(err)
			}
			_, _ = os.Stdout.WriteString("\nchild " + dsn + " " + dir + "\n")
			_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or until the parent is gone
			return
		}
		if _, err := e.binaries(); err != nil {
			unavailable(t, err)
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerEndsWithTheProcess$/^"+e.name+"$")
		child.Env = append(os.Environ(), childEnv+"=1", e.environment+"=")
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
		var said []string // "child", the DSN, the directory
		for lines := bufio.NewScanner(out); len(said) == 0 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "child ") {
				said = strings.Fields(lines.Text())
			}
		}
		if len(said) != 3 {
			t.Fatal("the child started no server")
		}

		// A query that does not end by itself ends when the server does.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		db := e.open(t, said[1])
		if err := db.PingContext(ctx); err != nil {
			t.Fatal(err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // "signal: killed"
		if _, err := db.ExecContext(ctx, e.sleep); err == nil || ctx.Err() != nil {
			t.Fatalf("the server outlived the process that started it: %v", err)
		}
		for dir := filepath.Dir(filepath.Clean(said[2])); ; {
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatal("the server's directory was left behind")
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

func TestServerFromTheEnvironment(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		t.Setenv(e.environment, e.valid)
		if dsn, err := e.find(); err != nil || dsn != e.valid {
			t.Errorf("got %s, %v", dsn, err)
		}
		t.Setenv(e.environment, e.invalid)
		if _, err := e.find(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want a refusal that does not repeat the DSN", err)
		}
	})
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

func TestAPrivateServerIsKilledAndStartedAgain(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := e.private(t)
			db := e.open(t, server.DSN)
			for _, statement := range []string{"CREATE TABLE mine (id int PRIMARY KEY)", "INSERT INTO mine VALUES (1)"} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			server.Kill(t)
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("the server answers though it was killed")
			}
			server.Start(t)
			var rows int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM mine").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("what was committed is gone: %d rows, %v", rows, err)
			}
		})
	}
}

package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver that creates and drops databases
)

// postgresEnv names a server to use instead of starting one: a DSN in URL form, for a role that may create databases.
const postgresEnv = "RECADO_TEST_POSTGRES"

const postgresHelp = `no PostgreSQL server to test with.
Install one (Debian: apt-get install postgresql; macOS: brew install postgresql), or start one yourself, such as
	docker run --rm -p 127.0.0.1:5432:5432 -e POSTGRES_PASSWORD=recado postgres:17
and set ` + postgresEnv + `=postgres://postgres:recado@127.0.0.1:5432/postgres?sslmode=disable`

// adminTimeout bounds the creation or the removal of one database.
const adminTimeout = time.Minute

var postgresServer = sync.OnceValues(findPostgres)

// Postgres returns the DSN, in URL form, of an empty database that nobody else uses. It is dropped when the test ends,
// even if connections to it are still open. lib/pq and pgx both take the DSN.
func Postgres(tb testing.TB) string {
	tb.Helper()
	server, err := postgresServer()
	if err != nil {
		unavailable(tb, err)
	}
	name := randomName()
	// template0 never has visitors, so creations need not wait for each other.
	if err := execPostgres(server, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		tb.Fatalf("dbtest: creating a database: %v", err)
	}
	tb.Cleanup(func() {
		if err := execPostgres(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("dbtest: dropping the database: %v", err)
		}
	})
	dsn := *server
	dsn.Path = "/" + name
	return dsn.String()
}

// execPostgres runs one statement on a connection that is gone afterwards, so that leak checks see nothing of it.
func execPostgres(server *url.URL, statement string) error {
	db, err := sql.Open("postgres", server.String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// findPostgres returns the DSN of the server from the environment, or of one that it starts.
func findPostgres() (*url.URL, error) {
	if dsn := os.Getenv(postgresEnv); dsn != "" {
		u, err := url.Parse(dsn)
		if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			return nil, errors.New(postgresEnv + " is not a postgres:// URL")
		}
		return u, nil
	}
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	// The chosen port may be taken between the choice and the start.
	for range 3 {
		var u *url.URL
		if u, err = startPostgres(bin); err == nil {
			return u, nil
		}
	}
	return nil, err
}

// postgresBinaries returns the directory of the server's programs: the one on PATH, else the newest installed one.
func postgresBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin/initdb", // Debian
		"/usr/pgsql-*/bin/initdb",          // Red Hat
		"/opt/homebrew/opt/postgresql*/bin/initdb",
		"/usr/local/opt/postgresql*/bin/initdb",
	} {
		paths, _ := filepath.Glob(pattern) // the patterns are well formed
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return "", errors.New(postgresHelp)
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return majorVersion(a) - majorVersion(b) })
	return filepath.Dir(newest), nil
}

var digits = regexp.MustCompile(`\d+`)

// majorVersion is the first number in a path, 0 where there is none.
func majorVersion(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}

// postgresScript prepares and starts a server in the current directory. $1 holds the programs, $2 is the port.
//
// fsync is off, since no test survives a crash of the operating system. Commits stay synchronous: a server that is
// killed must not have lost one that it confirmed.
var postgresScript = script{
	start: `
"$1/initdb" -D data -U recado --pwfile=password -A scram-sha-256 -E UTF8 --no-locale --no-sync >log 2>&1 &&
cat >>data/postgresql.conf <<END &&
listen_addresses = '127.0.0.1'
port = $2
unix_socket_directories = '$PWD'
max_connections = 200
fsync = off
restart_after_crash = off
END
"$1/pg_ctl" -D data -l log -w -t 60 start >>log 2>&1`,
	stop: `"$1/pg_ctl" -D data -m immediate stop`,
}

func startPostgres(bin string) (*url.URL, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	if err := postgresScript.run("recado-postgres-", map[string]string{"password": password}, bin, port); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("recado", password),
		Host:     net.JoinHostPort("127.0.0.1", port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}, nil
}

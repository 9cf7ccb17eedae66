package dbtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"

	_ "github.com/lib/pq" // the driver that creates and drops databases
)

// postgresEnv names a server to use instead of starting one: a DSN in URL form, for a role that may create databases.
const postgresEnv = "RECADO_TEST_POSTGRES"

const postgresHelp = `no PostgreSQL server to test with.
Install one (Debian: apt-get install postgresql; macOS: brew install postgresql), or start one yourself, such as
	docker run --rm -p 127.0.0.1:5432:5432 -e POSTGRES_PASSWORD=recado postgres:17
and set ` + postgresEnv + `=postgres://postgres:recado@127.0.0.1:5432/postgres?sslmode=disable`

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
	forTest(tb, "postgres", server.String(),
		"CREATE DATABASE "+name+" TEMPLATE template0",
		"DROP DATABASE "+name+" WITH (FORCE)")
	dsn := *server
	dsn.Path = "/" + name
	return dsn.String()
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
	u, started, err := startPostgres(bin)
	keep(started)
	return u, err
}

// postgresBinaries returns the directory of the server's programs.
func postgresBinaries() (string, error) {
	return programs("initdb", postgresHelp,
		"/usr/lib/postgresql/*/bin", // Debian
		"/usr/pgsql-*/bin",          // Red Hat
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin")
}

// postgresScript prepares and starts a server in the current directory. $1 holds the programs, $2 is the port.
//
// fsync is off, since no test survives a crash of the operating system. Commits stay synchronous: a server that is
// killed must not have lost one that it confirmed.
var postgresScript = script{
	prepare: `
"$1/initdb" -D data -U recado --pwfile=password -A scram-sha-256 -E UTF8 --no-locale --no-sync >log 2>&1 &&
cat >>data/postgresql.conf <<END
listen_addresses = '127.0.0.1'
port = $2
unix_socket_directories = '$PWD'
max_connections = 200
fsync = off
restart_after_crash = off
END`,
	serve: `"$1/postgres" -D data`,
	ready: "ready to accept connections",
	stop:  "QUIT", // at once, but unlike KILL it leaves no memory shared
}

func startPostgres(bin string) (*url.URL, *supervisor, error) {
	password := rand.Text()
	port, started, err := startOnFreePort(postgresScript, "recado-postgres-", map[string]string{"password": password}, bin)
	if err != nil {
		return nil, nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("recado", password),
		Host:     net.JoinHostPort("127.0.0.1", port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}, started, nil
}

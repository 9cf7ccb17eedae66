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

	"github.com/go-sql-driver/mysql"
)

// mariadbEnv names a server to use instead of starting one: a DSN of go-sql-driver/mysql, for a user who may do
// everything.
const mariadbEnv = "RECADO_TEST_MARIADB"

const mariadbHelp = `no MariaDB server to test with.
Install one (Debian: apt-get install mariadb-server-core mariadb-client-core; macOS: brew install mariadb), or start one
yourself, such as
	docker run --rm -p 127.0.0.1:3306:3306 -e MARIADB_ROOT_PASSWORD=recado mariadb:11
and set ` + mariadbEnv + `='root:recado@tcp(127.0.0.1:3306)/'`

var mariadbServer = sync.OnceValues(findMariaDB)

// MariaDB returns the DSN, in the form of go-sql-driver/mysql, of an empty database that nobody else uses. It is dropped
// when the test ends, even if connections to it are still open.
func MariaDB(tb testing.TB) string {
	tb.Helper()
	server, err := mariadbServer()
	if err != nil {
		unavailable(tb, err)
	}
	name := randomName()
	// The default collation ignores case: a table that does not name its own shows it. A connection in the middle of a
	// transaction would hold up the drop; one that is gone by itself meanwhile is error 1094.
	forTest(tb, "mysql", server.FormatDSN(), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4", `
BEGIN NOT ATOMIC
	DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
	FOR it IN (SELECT id FROM information_schema.processlist WHERE db = '`+name+`') DO
		KILL it.id;
	END FOR;
	DROP DATABASE `+name+`;
END`)
	dsn := server.Clone()
	dsn.DBName = name
	return dsn.FormatDSN()
}

// MariaDBURL is [MariaDB] with the DSN as a URL, such as mysql://user:password@127.0.0.1:3306/database.
func MariaDBURL(tb testing.TB) string {
	tb.Helper()
	cfg, err := mysql.ParseDSN(MariaDB(tb))
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + cfg.DBName}
	return u.String()
}

// findMariaDB returns the configuration for the server from the environment, or for one that it starts.
func findMariaDB() (*mysql.Config, error) {
	if dsn := os.Getenv(mariadbEnv); dsn != "" {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, errors.New(mariadbEnv + " is not a DSN of go-sql-driver/mysql")
		}
		return cfg, nil
	}
	bin, err := mariadbBinaries()
	if err != nil {
		return nil, err
	}
	cfg, started, err := startMariaDB(bin)
	keep(started)
	return cfg, err
}

// mariadbBinaries returns the directory of mariadb-install-db. The server is there or beside it.
func mariadbBinaries() (string, error) {
	return programs("mariadb-install-db", mariadbHelp, "/opt/homebrew/opt/mariadb*/bin", "/usr/local/opt/mariadb*/bin")
}

// mariadbScript prepares and starts a server in the current directory. $1 holds the programs, $2 is the port.
//
// Nothing is synced to the disk, since no test survives a crash of the operating system. Commits still reach the kernel,
// and pages still go through the doublewrite buffer: a server that is killed must not have lost what it confirmed.
// --force: the host need not have a name that resolves.
var mariadbScript = script{
	prepare: `
cat >my.cnf <<END &&
[mariadbd]
datadir = $PWD/data
tmpdir = $PWD
socket = $PWD/socket
bind-address = 127.0.0.1
port = $2
skip-name-resolve
init-file = $PWD/users.sql
max-connections = 300
innodb-buffer-pool-size = 256M
innodb-log-file-size = 16M
innodb-flush-log-at-trx-commit = 2
debug-no-sync
END
"$1/mariadb-install-db" --defaults-file="$PWD/my.cnf" --skip-test-db --force >log 2>&1`,
	serve: `PATH="$1:${1%/*}/sbin:${1%/*}/libexec" mariadbd --defaults-file="$PWD/my.cnf"`,
	ready: "ready for connections",
	stop:  "KILL",
}

func startMariaDB(bin string) (*mysql.Config, *supervisor, error) {
	password := rand.Text()
	port, started, err := startOnFreePort(mariadbScript, "recado-mariadb-", map[string]string{"users.sql": `
CREATE OR REPLACE USER recado@'127.0.0.1' IDENTIFIED BY '` + password + `';
GRANT ALL ON *.* TO recado@'127.0.0.1' WITH GRANT OPTION;
`}, bin)
	if err != nil {
		return nil, nil, fmt.Errorf("starting MariaDB: %w", err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = "recado", password, "tcp", net.JoinHostPort("127.0.0.1", port)
	return cfg, started, nil
}

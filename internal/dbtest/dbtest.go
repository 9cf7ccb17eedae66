// Package dbtest gives a test a database of its own on a real server.
//
// The server comes from an environment variable, or is started once per test process from the binaries on the machine:
// in a temporary directory, on a free loopback port, as a user other than root. It ends with the test process, however
// that ends, and its directory with it. No setup in TestMain is needed.
//
// Where there is no server to be had the test is skipped with the reason; with RECADO_TEST_STRICT set it fails instead.
package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// strictEnv, when set to anything, turns a missing server from a skip into a failure.
const strictEnv = "RECADO_TEST_STRICT"

// unavailable ends the test because its server cannot be had. err says what to install or set.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv(strictEnv) != "" {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Skipf("dbtest: %v", err)
}

// Env returns the settings with which another test process uses the servers of this one, until the test ends.
func Env(tb testing.TB) []string {
	tb.Helper()
	return []string{postgresEnv + "=" + Postgres(tb), mariadbEnv + "=" + MariaDB(tb)}
}

// adminTimeout bounds the creation or the removal of one database.
const adminTimeout = time.Minute

// forTest creates a database now and drops it when the test ends.
func forTest(tb testing.TB, driver, server, create, drop string) {
	tb.Helper()
	if err := execute(driver, server, create); err != nil {
		tb.Fatalf("dbtest: creating a database: %v", err)
	}
	tb.Cleanup(func() {
		if err := execute(driver, server, drop); err != nil {
			tb.Errorf("dbtest: dropping the database: %v", err)
		}
	})
}

// execute runs one statement on a connection that is gone afterwards, so that leak checks see nothing of it.
func execute(driver, server, statement string) error {
	db, err := sql.Open(driver, server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// randomName returns a database name that no other test, process or run has: it is safe to use unquoted.
func randomName() string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	name := make([]byte, 16)
	_, _ = rand.Read(name) // never fails
	for i := range name {
		name[i] = letters[int(name[i])%len(letters)]
	}
	return "recado_" + string(name)
}

// programs returns the directory that holds the named program: the one on PATH, else the newest that a pattern finds.
// Where there is none the error is help.
func programs(name, help string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	var found []string
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are well formed
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return "", errors.New(help)
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

// shared are the servers that end with this process. The pipe of one that nothing refers to would be closed, and stop it.
var shared struct {
	sync.Mutex
	all []*supervisor
}

func keep(s *supervisor) {
	shared.Lock()
	defer shared.Unlock()
	shared.all = append(shared.all, s)
}

// startOnFreePort runs the script with the programs' directory and a free port, which it returns.
func startOnFreePort(
	s script, prefix string, files map[string]string, bin string,
) (port string, started *supervisor, err error) {
	// The chosen port may be taken between the choice and the start.
	for range 3 {
		if port, err = freePort(); err != nil {
			return "", nil, err
		}
		if started, err = s.run(prefix, files, bin, port); err == nil {
			return port, started, nil
		}
	}
	return "", nil, err
}

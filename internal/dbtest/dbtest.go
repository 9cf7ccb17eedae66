// Package dbtest gives a test a database of its own on a real server.
//
// The server comes from an environment variable, or is started once per test process from the binaries on the machine:
// in a temporary directory, on a free loopback port, as a user other than root. It ends with the test process, however
// that ends, and its directory with it. No setup in TestMain is needed.
//
// Where there is no server to be had the test is skipped with the reason; with RECADO_TEST_STRICT set it fails instead.
package dbtest

import (
	"crypto/rand"
	"os"
	"testing"
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

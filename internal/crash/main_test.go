//go:build unix

package crash

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/proof"
)

// childEnv makes the test binary run as a process that a test may kill; its value is a child as JSON.
const childEnv = "RECADO_CRASH_CHILD"

// child is what such a process is told.
type child struct {
	Name        string
	Driver, DSN string
	Seed        uint64

	Receiver string // where a worker sends its messages

	Ahead int // of the clock of a process that owns a SQLite file, in leases
}

func TestMain(m *testing.M) {
	// Of broken connections there will be many.
	if err := mysql.SetLogger(log.New(io.Discard, "", 0)); err != nil {
		panic(err) // it is not nil
	}
	if told := os.Getenv(childEnv); told != "" {
		if err := runChild(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if !proof.Full() {
		// In short, the tests wait for leases to end more than they work. Who sets the flag is obeyed.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err) // there is no such flag any more
		}
	}
	goleak.VerifyTestMain(m)
}

// runChild works until its standard input ends: when the test says so, and at the latest when the test's process is gone.
func runChild(told string) error {
	var c child
	if err := json.Unmarshal([]byte(told), &c); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if c.Receiver != "" {
		return runWorker(ctx, c)
	}
	return runOwner(ctx, c)
}

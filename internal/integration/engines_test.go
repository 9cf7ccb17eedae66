//go:build unix

package integration

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// engines are what a worker runs on: a driver, and the DSN of an empty database.
var engines = []struct {
	name, driver string
	dialect      sqlstore.Dialect
	dsn          func(testing.TB) string
}{
	{"postgres/pq", "postgres", sqlstore.Postgres, dbtest.Postgres},
	{"postgres/pgx", "pgx", sqlstore.Postgres, dbtest.Postgres},
	{"mariadb", "mysql", sqlstore.MySQL, dbtest.MariaDB},
	{"sqlite/modernc", "sqlite", sqlstore.SQLite, func(tb testing.TB) string {
		return "file:" + filepath.Join(tb.TempDir(), "recado.db") +
			"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
	}},
}

// onEngines runs f on every engine at once, with a handle of at most so many connections (0: any number).
func onEngines(t *testing.T, connections int, f func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store)) {
	on(t, func(string) bool { return true }, connections, f)
}

// onServers runs f on one driver of each kind of server.
func onServers(t *testing.T, f func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store)) {
	on(t, func(name string) bool { return name == "postgres/pq" || name == "mariadb" }, 0, f)
}

func on(t *testing.T, picked func(name string) bool, connections int, f func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store)) {
	for _, e := range engines {
		if !picked(e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(e.driver, e.dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			db.SetMaxOpenConns(connections)
			box, err := sqlstore.New(db, e.dialect, sqlstore.Config{TextTenant: true})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := box.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			f(ctx, t, db, box)
		})
	}
}

// enqueue commits a message.
func enqueue(ctx context.Context, box *sqlstore.Store, key string) (id string, err error) {
	tx, err := box.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	r, err := box.Enqueue(ctx, tx, store.NewMessage{TenantID: "club", Channel: "correo", Destination: "ana", Template: "aviso", IdempotencyKey: key})
	if err != nil {
		return "", err
	}
	return r.ID, tx.Commit()
}

// While a provider is slow, nothing waits for it: the worker holds no connection and no lock, so that, with a single
// connection, another worker claims the other messages and an operator changes the very row that is being sent.
func TestNothingIsHeldWhileAMessageIsSent(t *testing.T) {
	onEngines(t, 1, func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store) {
		id, err := enqueue(ctx, box, "slow")
		if err != nil {
			t.Fatal(err)
		}
		calling, answer := make(chan struct{}), make(chan struct{})
		w, err := dispatch.New(box, dispatch.Config{BatchSize: 1, Transports: dispatch.Transports{
			"correo": transports.Func(func(context.Context, transports.Message) state.Outcome {
				close(calling)
				<-answer
				return state.Outcome{OK: true, ExternalID: "x"}
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan dispatch.Report, 1)
		go func() { done <- w.ProcessBatch(ctx) }()
		<-calling
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use while a message is sent", n)
		}
		quick, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		other, err := enqueue(quick, box, "other")
		if err != nil {
			t.Error(err)
		}
		c, err := box.Claim(quick, store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})
		if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != other {
			t.Errorf("beside it a claim takes %v, %v", c.Messages, err)
		}
		if _, err := db.ExecContext(quick, "UPDATE outbox SET plantilla = 'otra' WHERE id = '"+id+"'"); err != nil {
			t.Errorf("the row that is being sent is locked: %v", err)
		}
		close(answer)
		if r := <-done; r.Sent != 1 || r.Err() != nil {
			t.Errorf("the report is %v", r)
		}
	})
}

// One connection, or two, are enough for a worker with all its slots in use and for those who enqueue beside it.
func TestASmallPool(t *testing.T) {
	const rows = 100
	for _, connections := range []int{1, 2} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			onEngines(t, connections, func(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store) {
				var mu sync.Mutex
				calls := map[string]int{}
				workCtx, stop := context.WithCancel(ctx)
				defer stop()
				w, err := dispatch.New(box, dispatch.Config{
					BatchSize: 20, Concurrency: 5, PollInterval: 20 * time.Millisecond,
					Transports: dispatch.Transports{"correo": transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
						mu.Lock()
						defer mu.Unlock()
						calls[m.ID]++
						return state.Outcome{OK: true, ExternalID: "x"}
					})},
				})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- w.Run(workCtx) }()
				var writers sync.WaitGroup
				for i := range 2 {
					writers.Go(func() {
						for j := range rows / 2 {
							if _, err := enqueue(ctx, box, fmt.Sprintf("k-%d-%d", i, j)); err != nil {
								t.Error(err)
							}
							w.Notify()
						}
					})
				}
				writers.Wait()
				until(ctx, t, "everything is sent", func() bool {
					var n int
					if err := db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE terminado IS NOT NULL").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n == rows
				})
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				for id, n := range calls {
					if n != 1 {
						t.Errorf("%s was sent %d times", id, n)
					}
				}
				if len(calls) != rows {
					t.Errorf("%d messages were sent", len(calls))
				}
			})
		})
	}
}

// migrateEnv makes the test binary apply the schema to what it names: an engine's name, a space and a DSN.
const migrateEnv = "RECADO_INTEGRATION_MIGRATE"

// runMigrate is the child: it is ready, and migrates when it is told to.
func runMigrate(target string) error {
	name, dsn, _ := strings.Cut(target, " ")
	for _, e := range engines {
		if e.name != name {
			continue
		}
		db, err := sql.Open(e.driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		box, err := sqlstore.New(db, e.dialect, sqlstore.Config{TextTenant: true})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		if _, err := io.ReadAll(os.Stdin); err != nil {
			return err
		}
		return box.Migrate(context.Background())
	}
	return fmt.Errorf("no engine is called %q", name)
}

// Ten processes that start together, as replicas do, apply the schema to an empty database: all of them succeed, and
// again when it is there, with a message in it.
func TestTenProcessesMigrate(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dsn := e.dsn(t)
			db, err := sql.Open(e.driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			box, err := sqlstore.New(db, e.dialect, sqlstore.Config{TextTenant: true})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var starts []io.Closer
				var processes []*exec.Cmd
				for range 10 {
					cmd := exec.CommandContext(ctx, exe)
					cmd.Env, cmd.Stderr = append(os.Environ(), migrateEnv+"="+e.name+" "+dsn), os.Stderr
					in, err := cmd.StdinPipe()
					if err != nil {
						t.Fatal(err)
					}
					out, err := cmd.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					starts, processes = append(starts, in), append(processes, cmd)
					if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
						t.Fatalf("a process says %q, %v", line, err)
					}
				}
				for _, start := range starts {
					if err := start.Close(); err != nil {
						t.Error(err)
					}
				}
				for i, cmd := range processes {
					if err := cmd.Wait(); err != nil {
						t.Errorf("process %d: %v", i, err)
					}
				}
				id, err := enqueue(ctx, box, "k")
				if err != nil {
					t.Fatal(err)
				}
				if m, err := box.Get(ctx, id); err != nil || m.State != state.Pending {
					t.Errorf("the message is %s, %v", m.State, err)
				}
			}
		})
	}
}

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
)

// Server is a server that one test has for itself, so that it can be killed and started again: on the same data, the
// same port and for the same users. It ends with the test. It is always started from the binaries on the machine.
type Server struct {
	DSN string // of an empty database, in the form of [Postgres] or [MariaDB]

	supervisor *supervisor
	processes  func() ([]string, error) // the server's own, besides the first
}

// PrivatePostgres starts a PostgreSQL server.
func PrivatePostgres(tb testing.TB) *Server {
	tb.Helper()
	bin, err := postgresBinaries()
	if err != nil {
		unavailable(tb, err)
	}
	u, started, err := startPostgres(bin)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(started.close)
	return &Server{DSN: u.String(), supervisor: started, processes: func() ([]string, error) { return backends(u) }}
}

// PrivateMariaDB starts a MariaDB server.
func PrivateMariaDB(tb testing.TB) *Server {
	tb.Helper()
	bin, err := mariadbBinaries()
	if err != nil {
		unavailable(tb, err)
	}
	cfg, started, err := startMariaDB(bin)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(started.close)
	name := randomName()
	if err := execute("mysql", cfg.FormatDSN(), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		tb.Fatalf("dbtest: creating a database: %v", err)
	}
	cfg.DBName = name
	return &Server{
		DSN: cfg.FormatDSN(), supervisor: started,
		processes: func() ([]string, error) { return nil, nil }, // it has one
	}
}

// backends returns the ids of the processes that a PostgreSQL server has forked.
func backends(u *url.URL) (pids []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		return nil, err
	}
	var all string
	err = db.QueryRowContext(ctx, "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity").Scan(&all)
	return strings.Fields(all), errors.Join(err, db.Close())
}

// Kill ends all processes of the server with SIGKILL, and returns when the server is gone.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	pids, err := s.processes()
	if err != nil {
		tb.Fatalf("dbtest: looking for the server's processes: %v", err)
	}
	if said, err := s.supervisor.order(append([]string{"kill"}, pids...)...); err != nil || said != "killed" {
		tb.Fatalf("dbtest: killing the server: %q, %v", said, err)
	}
}

// Start starts a server that was killed, and returns when it answers.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	said, err := s.supervisor.order("start")
	// PostgreSQL refuses to start beside a process that was forked too late to be killed with the others.
	for tries := 1; said == "failed" && err == nil && tries < 20; tries++ {
		said, err = s.supervisor.order("start")
	}
	if err != nil || said != "ready" {
		tb.Fatalf("dbtest: starting the server again: %q, %v", said, err)
	}
}

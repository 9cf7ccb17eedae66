package faultdriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/recado-dev/recado/internal/faultdriver"
)

// stub is a driver that writes down what reaches it. A bare one has only what every driver has.
type stub struct {
	bare  bool
	log   []string
	stale bool // its connections are not valid any more
}

func (s *stub) did(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

func (s *stub) Open(dsn string) (driver.Conn, error) {
	s.did("open %s", dsn)
	c := stubConn{s}
	if s.bare {
		return c, nil
	}
	return richConn{c}, nil
}

type stubConn struct{ s *stub }

func (c stubConn) Begin() (driver.Tx, error)           { panic("without a context") }
func (c stubConn) Prepare(string) (driver.Stmt, error) { panic("without a context") }

func (c stubConn) Close() error {
	c.s.did("close")
	return nil
}

func (c stubConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.s.did("begin %d %v", o.Isolation, o.ReadOnly)
	return stubTx(c), nil
}

func (c stubConn) PrepareContext(_ context.Context, text string) (driver.Stmt, error) {
	c.s.did("prepare %s", text)
	return stubStmt{c, text}, nil
}

func (c stubConn) ExecContext(_ context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.s.did("exec %s%s", text, values(args))
	return driver.RowsAffected(1), nil
}

func (c stubConn) QueryContext(_ context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.s.did("query %s%s", text, values(args))
	return &stubRows{s: c.s, left: 2}, nil
}

func values(args []driver.NamedValue) (text string) {
	for _, a := range args {
		text += fmt.Sprintf(" %T:%v", a.Value, a.Value)
	}
	return text
}

type stubTx struct{ s *stub }

func (t stubTx) Commit() error {
	t.s.did("commit")
	return nil
}

func (t stubTx) Rollback() error {
	t.s.did("rollback")
	return nil
}

type stubStmt struct {
	c    stubConn
	text string
}

func (st stubStmt) NumInput() int                              { return -1 }
func (st stubStmt) Exec([]driver.Value) (driver.Result, error) { panic("without a context") }
func (st stubStmt) Query([]driver.Value) (driver.Rows, error)  { panic("without a context") }

func (st stubStmt) Close() error {
	st.c.s.did("close statement")
	return nil
}

func (st stubStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return st.c.ExecContext(ctx, st.text, args)
}

func (st stubStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return st.c.QueryContext(ctx, st.text, args)
}

type stubRows struct {
	s    *stub
	left int
}

func (r *stubRows) Columns() []string { return []string{"n"} }

func (r *stubRows) Close() error {
	r.s.did("close rows")
	return nil
}

func (r *stubRows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	r.s.did("row")
	dest[0] = int64(r.left)
	return nil
}

// richConn has all that is optional.
type richConn struct{ stubConn }

// shout is a type that only a rich driver takes.
type shout string

func (c richConn) IsValid() bool { return !c.s.stale }

func (c richConn) Ping(context.Context) error {
	c.s.did("ping")
	return nil
}

func (c richConn) ResetSession(context.Context) error {
	c.s.did("reset")
	return nil
}

func (c richConn) CheckNamedValue(v *driver.NamedValue) error {
	if text, ok := v.Value.(shout); ok {
		v.Value = strings.ToUpper(string(text))
		return nil
	}
	return driver.ErrSkip
}

// pool opens the stub, through the faults or without them.
func pool(t *testing.T, s *stub, inject func(Op) Fault) (*sql.DB, *Connector) {
	t.Helper()
	c, err := Open(s, "dsn", inject)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if left := c.Left(); left != (Left{}) {
			t.Errorf("left open: %+v", left)
		}
	})
	return db, c
}

func fine(Op) Fault { return Fault{} }

// use does with a pool what the optional interfaces show in, and says what it saw.
func use(t *testing.T, db *sql.DB) (seen []string) {
	t.Helper()
	ctx := t.Context()
	note := func(args ...any) { seen = append(seen, fmt.Sprint(args...)) }
	note("ping ", db.PingContext(ctx))
	_, err := db.ExecContext(ctx, "a", shout("loud"))
	note("own type ", err)
	_, err = db.ExecContext(ctx, "b", 7, struct{}{})
	note("no type ", err)
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tx.PrepareContext(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.ExecContext(ctx, 7)
	note("statement ", err)
	_, err = st.ExecContext(ctx, shout("loud"))
	note("own type in a statement ", err)
	note("commit ", tx.Commit())
	rows, err := db.QueryContext(ctx, "d", true)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		note("row ", rows.Scan(&n), n)
	}
	note("rows ", rows.Err())
	return seen
}

// Without a fault nobody can tell the wrapper from the driver, be it one with all optional interfaces or with none.
func TestTheDriverIsAsItWas(t *testing.T) {
	for _, bare := range []bool{true, false} {
		t.Run(fmt.Sprintf("bare %v", bare), func(t *testing.T) {
			direct, wrapped := &stub{bare: bare}, &stub{bare: bare}
			db := sql.OpenDB(connector{direct})
			db.SetMaxOpenConns(1)
			want := use(t, db)
			direct.stale = true
			_, err := db.ExecContext(t.Context(), "e")
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			db, _ = pool(t, wrapped, fine)
			db.SetMaxOpenConns(1)
			got := use(t, db)
			wrapped.stale = true
			_, err = db.ExecContext(t.Context(), "e")
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("database/sql saw\n%q\nwithout the wrapper\n%q", got, want)
			}
			if !slices.Equal(wrapped.log, direct.log) {
				t.Errorf("the driver saw\n%q\nwithout the wrapper\n%q", wrapped.log, direct.log)
			}
		})
	}
}

type connector struct{ s *stub }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.s.Open("dsn") }
func (c connector) Driver() driver.Driver                        { return c.s }

// at injects f into the nth operation.
func at(n int, f Fault) func(Op) Fault {
	return func(op Op) Fault {
		if op.N == n {
			return f
		}
		return Fault{}
	}
}

var errRefused = errors.New("refused")

// One connection is operation 1. In a transaction BEGIN is 2, two statements are 3 and 4 (and a row each of the second 5 and
// 6, their end 7) and COMMIT is 8.
func transaction(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing
	if _, err := tx.ExecContext(ctx, "a"); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, "b")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return tx.Commit()
}

func TestFaults(t *testing.T) {
	lost := Fault{Err: driver.ErrBadConn, Drop: true}
	lostAfter := Fault{Err: driver.ErrBadConn, Drop: true, After: true}
	whole := "open dsn, begin 0 false, exec a, query b, row, row, close rows, commit, close"
	for name, tc := range map[string]struct {
		n     int
		fault Fault
		err   error
		log   string
	}{
		"none":                      {99, lost, nil, whole},
		"no connection":             {1, Fault{Err: errRefused}, errRefused, ""},
		"a connection for nobody":   {1, Fault{Err: errRefused, After: true}, errRefused, "open dsn, close"},
		"begin, tried again":        {2, lost, nil, "open dsn, close, " + whole},
		"begun for nobody":          {2, Fault{Err: errRefused, After: true}, errRefused, "open dsn, begin 0 false, rollback, close"},
		"statement refused":         {3, Fault{Err: errRefused}, errRefused, "open dsn, begin 0 false, rollback, close"},
		"transaction rolled back":   {3, Fault{Err: errRefused, Abort: true}, errRefused, "open dsn, begin 0 false, rollback, close"},
		"statement not sent":        {3, lost, driver.ErrBadConn, "open dsn, begin 0 false, rollback, close"},
		"statement's reply lost":    {3, lostAfter, driver.ErrBadConn, "open dsn, begin 0 false, exec a, rollback, close"},
		"query's reply lost":        {4, lostAfter, driver.ErrBadConn, "open dsn, begin 0 false, exec a, query b, row, row, close rows, rollback, close"},
		"row lost":                  {6, lost, driver.ErrBadConn, "open dsn, begin 0 false, exec a, query b, row, close rows, rollback, close"},
		"refused among the rows":    {6, Fault{Err: errRefused, Abort: true}, errRefused, "open dsn, begin 0 false, exec a, query b, row, close rows, rollback, close"},
		"commit not sent":           {8, lost, driver.ErrBadConn, strings.Replace(whole, "commit", "rollback", 1)},
		"commit refused":            {8, Fault{Err: errRefused}, errRefused, strings.Replace(whole, "commit", "rollback", 1)},
		"commit's reply lost":       {8, lostAfter, driver.ErrBadConn, whole},
		"commit's reply lost, kept": {8, Fault{Err: errRefused, After: true}, errRefused, whole},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{bare: true}
			db, _ := pool(t, s, at(tc.n, tc.fault))
			db.SetMaxOpenConns(1)
			if err := transaction(t.Context(), db); !errors.Is(err, tc.err) {
				t.Errorf("the error is %v, want %v", err, tc.err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if got := strings.Join(s.log, ", "); got != tc.log {
				t.Errorf("the driver saw\n%s, want\n%s", got, tc.log)
			}
		})
	}
}

// What lib/pq does when a connection ends between a statement and its reply, and what database/sql makes of it: outside a
// transaction the statement is executed twice and nobody is told.
func TestReplyLostOutsideATransaction(t *testing.T) {
	s := &stub{}
	db, _ := pool(t, s, at(2, Fault{Err: driver.ErrBadConn, Drop: true, After: true}))
	if _, err := db.ExecContext(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.log, ", "); got != "open dsn, exec a, close, open dsn, exec a" {
		t.Errorf("the driver saw %s", got)
	}
}

func TestStall(t *testing.T) {
	for n := 2; n <= 8; n++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				db, _ := pool(t, &stub{}, func(op Op) Fault {
					if op.N != n {
						return Fault{}
					}
					cancel()
					return Fault{Stall: true, Drop: true, After: after}
				})
				if err := transaction(ctx, db); !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("stalled at %d: %v", n, err)
				}
				synctest.Wait() // database/sql rolls back in its own time
			})
		}
	}
}

func TestOperations(t *testing.T) {
	var seen []string
	db, c := pool(t, &stub{}, func(op Op) Fault {
		seen = append(seen, fmt.Sprintf("%d %s %v %s", op.N, op.Kind, op.InTx, op.Text))
		return Fault{}
	})
	st, err := db.PrepareContext(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.StmtContext(t.Context(), st).QueryContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := c.Left(); left != (Left{Conns: 1, Txs: 1, Stmts: 1, Rows: 1}) {
		t.Errorf("open are %+v", left)
	}
	if !rows.Next() {
		t.Error("no row")
	}
	if err := errors.Join(rows.Close(), tx.Rollback(), st.Close()); err != nil {
		t.Error(err)
	}
	want := []string{"1 connect false ", "2 prepare false p", "3 begin false ", "4 query true p", "5 next true ", "6 rollback true "}
	if !slices.Equal(seen, want) {
		t.Errorf("the operations are %q, want %q", seen, want)
	}
}

// A driver from before contexts is one that database/sql goes other ways with.
func TestOldDriver(t *testing.T) {
	c, err := Open(oldDriver{}, "", fine)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("it is taken for another")
	}
}

type oldDriver struct{}

func (oldDriver) Open(string) (driver.Conn, error) { return oldConn{}, nil }

type oldConn struct{ driver.Conn }

func (oldConn) Close() error { return nil }

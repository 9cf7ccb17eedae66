package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
)

type modernStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stmt is a prepared statement.
type stmt struct {
	conn *conn
	real modernStmt
	text string
}

var (
	_ modernStmt               = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

func newStmt(c *conn, real driver.Stmt, text string) (driver.Stmt, error) {
	modern, ok := real.(modernStmt)
	if !ok {
		return nil, errors.Join(errOld, real.Close())
	}
	c.connector.stmts.Add(1)
	c.stmts[real] = true
	return &stmt{conn: c, real: modern, text: text}, nil
}

func (s *stmt) Close() error {
	s.conn.connector.stmts.Add(-1)
	if s.conn.gone {
		return nil
	}
	delete(s.conn.stmts, driver.Stmt(s.real))
	return s.real.Close()
}

func (s *stmt) NumInput() int { return s.real.NumInput() }

// CheckNamedValue is the statement's, else its connection's: so database/sql looks for it.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.real.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, s.text, func() (driver.Result, error) { return s.real.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, s.text, func() (driver.Rows, error) { return s.real.QueryContext(ctx, args) })
}

// Exec and Query are never called by database/sql, which has the ones with a context.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errOld }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errOld }

// rows are the answer to a query: one set of rows, whose types nobody asks for.
type rows struct {
	conn *conn
	real driver.Rows
	ctx  context.Context
}

func (r *rows) Columns() []string { return r.real.Columns() }

func (r *rows) Next(dest []driver.Value) error {
	return r.conn.run(r.ctx, Next, "", func() error { return r.real.Next(dest) }, nothing)
}

func (r *rows) Close() error {
	r.conn.connector.rows.Add(-1)
	if !r.conn.rows[r.real] {
		return nil
	}
	delete(r.conn.rows, r.real)
	return r.real.Close()
}

package faultdriver

import (
	"context"
	"database/sql/driver"
)

// modernConn is what a driver must have. All else is optional, and answered here as database/sql does where it is missing.
type modernConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// conn is a connection. Like any, it is used by one goroutine at a time.
type conn struct {
	connector *Connector
	real      modernConn
	tx        *tx // nil: none is open
	rows      map[driver.Rows]bool
	stmts     map[driver.Stmt]bool
	gone      bool
}

var (
	_ modernConn               = (*conn)(nil)
	_ driver.Pinger            = (*conn)(nil)
	_ driver.SessionResetter   = (*conn)(nil)
	_ driver.Validator         = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
)

func (c *conn) run(ctx context.Context, kind Kind, text string, do func() error, withhold func()) error {
	if c.gone {
		return driver.ErrBadConn
	}
	return c.connector.run(ctx, Op{Kind: kind, InTx: c.tx != nil, Text: text}, c, do, withhold)
}

// drop closes the connection under the feet of whoever uses it. What was open on it goes first: not every driver bears
// to close that afterwards, or ends what watches over it.
func (c *conn) drop() {
	if c.gone {
		return
	}
	c.closeRows()
	for s := range c.stmts {
		_ = s.Close() // all is lost either way
	}
	if c.tx != nil {
		c.tx.abort()
		c.endTx()
	}
	c.gone = true
	if !c.connector.keep(c.real) {
		_ = c.real.Close()
	}
}

// closeRows ends the answers that are being read, as an error among them does.
func (c *conn) closeRows() {
	for r := range c.rows {
		_ = r.Close() // nobody gets to know
	}
	clear(c.rows)
}

func (c *conn) endTx() {
	if c.tx != nil {
		c.tx = nil
		c.connector.txs.Add(-1)
	}
}

func (c *conn) Close() error {
	c.connector.conns.Add(-1)
	if c.gone {
		return nil
	}
	c.gone = true
	c.endTx()
	return c.real.Close()
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	err := c.run(ctx, Begin, "", func() error {
		real, err := c.real.BeginTx(ctx, opts)
		if err != nil {
			return err
		}
		c.tx = &tx{conn: c, real: real, ctx: ctx}
		c.connector.txs.Add(1)
		return nil
	}, func() {
		c.tx.abort()
		c.endTx()
	})
	if err != nil {
		return nil, err
	}
	return c.tx, nil
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	var real driver.Stmt
	err := c.run(ctx, Prepare, text, func() (err error) {
		real, err = c.real.PrepareContext(ctx, text)
		return err
	}, func() { _ = real.Close() })
	if err != nil {
		return nil, err
	}
	return newStmt(c, real, text)
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, text, func() (driver.Result, error) { return c.real.ExecContext(ctx, text, args) })
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, text, func() (driver.Rows, error) { return c.real.QueryContext(ctx, text, args) })
}

func (c *conn) exec(ctx context.Context, text string, do func() (driver.Result, error)) (driver.Result, error) {
	var result driver.Result
	err := c.run(ctx, Exec, text, func() (err error) {
		result, err = do()
		return err
	}, nothing)
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (c *conn) query(ctx context.Context, text string, do func() (driver.Rows, error)) (driver.Rows, error) {
	var real driver.Rows
	err := c.run(ctx, Query, text, func() (err error) {
		real, err = do()
		return err
	}, func() { exhaust(real) })
	if err != nil {
		return nil, err
	}
	c.connector.rows.Add(1)
	c.rows[real] = true
	return &rows{conn: c, real: real, ctx: ctx}, nil
}

// exhaust reads all rows, since some engines write while their rows are read.
func exhaust(real driver.Rows) {
	dest := make([]driver.Value, len(real.Columns()))
	for real.Next(dest) == nil {
	}
	_ = real.Close() // nobody gets to know
}

func (c *conn) Ping(ctx context.Context) error {
	if c.gone {
		return driver.ErrBadConn
	}
	if p, ok := c.real.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.gone {
		return driver.ErrBadConn
	}
	if r, ok := c.real.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if v, ok := c.real.(driver.Validator); ok && !c.gone {
		return v.IsValid()
	}
	return !c.gone
}

// CheckNamedValue says ErrSkip where the driver checks nothing: then the default conversion is made.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.real.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// Begin and Prepare are never called by database/sql, which has the ones with a context.
func (c *conn) Begin() (driver.Tx, error)           { return nil, errOld }
func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errOld }

// tx is a transaction.
type tx struct {
	conn *conn
	real driver.Tx
	ctx  context.Context
	over bool // the engine has ended it
}

func (t *tx) abort() {
	t.conn.closeRows()
	if !t.over {
		t.over = true
		_ = t.real.Rollback() // a connection that cannot is lost, and its transaction with it
	}
}

func (t *tx) Commit() error   { return t.end(Commit, t.real.Commit) }
func (t *tx) Rollback() error { return t.end(Rollback, t.real.Rollback) }

// end ends the transaction. No answer leaves it open: an engine that refuses a COMMIT has rolled back.
func (t *tx) end(kind Kind, do func() error) error {
	err := t.conn.run(t.ctx, kind, "", func() error {
		if t.over {
			return nil
		}
		t.over = true
		return do()
	}, nothing)
	if t.conn.tx == t {
		t.abort()
		t.conn.endTx()
	}
	return err
}

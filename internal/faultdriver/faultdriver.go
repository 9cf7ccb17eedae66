// Package faultdriver puts faults between database/sql and a real driver: a connection that breaks before a statement is
// sent or when its reply is due, at COMMIT too, a code of the engine instead of a result, an answer that never comes.
//
// Every operation is numbered and shown to a function that says what becomes of it, so that a test can let the first
// fail, then the second, and so on through a whole scenario. What the driver beneath can do, and what it leaves to
// database/sql, stays as it is without this package, so that the pool behaves as in production; only the types of columns
// and further sets of rows, which nobody asks for here, are not passed on.
package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations.
const (
	Connect  Kind = "connect"
	Begin    Kind = "begin"
	Prepare  Kind = "prepare"
	Exec     Kind = "exec"
	Query    Kind = "query"
	Next     Kind = "next" // one row, or the end of the rows
	Commit   Kind = "commit"
	Rollback Kind = "rollback"
)

// Op is an operation that is about to be carried out.
type Op struct {
	N    int // counted over all connections, from 1
	Kind Kind
	InTx bool
	Text string // of the statement, where there is one
}

// Fault is what becomes of an operation. The zero Fault: nothing, it is carried out.
type Fault struct {
	// Err is answered. Whatever database/sql does on an error of this kind, it does: it runs a statement outside a
	// transaction once more on driver.ErrBadConn.
	Err error

	// After has the operation carried out, all of it, and its answer withheld. Otherwise it never reaches the engine.
	After bool

	// Drop closes the connection. A transaction that was open on it is gone.
	Drop bool

	// Abort rolls the open transaction back, as engines do by themselves with a deadlock's victim.
	Abort bool

	// Stall answers only when the context of the operation ends, with its error instead of Err. COMMIT, ROLLBACK and rows
	// have that of their beginning.
	Stall bool
}

func (f Fault) none() bool { return f.Err == nil && !f.After && !f.Drop && !f.Abort && !f.Stall }

// Connector opens connections with faults, for sql.OpenDB.
type Connector struct {
	// Thrifty keeps what is beneath a dropped connection for the next one, if it is sound, as a pooler between the two
	// would: for runs by the thousand, since a server has more work with a new session than with a whole scenario. It is
	// set before the first use.
	Thrifty bool

	real   driver.Connector
	inject func(Op) Fault
	n      atomic.Int64

	mu   sync.Mutex
	kept modernConn // nil: none

	conns, txs, stmts, rows atomic.Int64
}

// Open returns the Connector of a driver and its DSN. inject is called for every operation, from the goroutine that waits
// for it.
func Open(d driver.Driver, dsn string, inject func(Op) Fault) (*Connector, error) {
	real := driver.Connector(plain{d, dsn})
	if d, ok := d.(driver.DriverContext); ok {
		var err error
		if real, err = d.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}
	return &Connector{real: real, inject: inject}, nil
}

// plain is what database/sql makes of a driver without connectors.
type plain struct {
	driver driver.Driver
	dsn    string
}

func (p plain) Connect(context.Context) (driver.Conn, error) { return p.driver.Open(p.dsn) }
func (p plain) Driver() driver.Driver                        { return p.driver }

// Driver returns the driver beneath.
func (c *Connector) Driver() driver.Driver { return c.real.Driver() }

// Close closes what Thrifty kept, and the connector beneath where it can be.
func (c *Connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept != nil {
		_ = c.kept.Close() // nobody has it any more
		c.kept = nil
	}
	if closer, ok := c.real.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Left is what was opened and not closed. What a dropped connection had open counts until it is closed, save its
// transaction.
type Left struct{ Conns, Txs, Stmts, Rows int64 }

// Left counts what is open now.
func (c *Connector) Left() Left {
	return Left{c.conns.Load(), c.txs.Load(), c.stmts.Load(), c.rows.Load()}
}

// Connect opens a connection.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	var opened *conn
	err := c.run(ctx, Op{Kind: Connect}, nil, func() error {
		real, err := c.open(ctx)
		if err != nil {
			return err
		}
		c.conns.Add(1)
		opened = &conn{connector: c, real: real, rows: map[driver.Rows]bool{}, stmts: map[driver.Stmt]bool{}}
		return nil
	}, func() { _ = opened.Close() })
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// open returns a kept connection that is sound, else a new one.
func (c *Connector) open(ctx context.Context) (modernConn, error) {
	c.mu.Lock()
	kept := c.kept
	c.kept = nil
	c.mu.Unlock()
	if kept != nil {
		used := &conn{connector: c, real: kept}
		if used.IsValid() && used.ResetSession(ctx) == nil {
			return kept, nil
		}
		_ = kept.Close() // it was broken
	}
	real, err := c.real.Connect(ctx)
	if err != nil {
		return nil, err
	}
	modern, ok := real.(modernConn)
	if !ok {
		return nil, errors.Join(errOld, real.Close())
	}
	return modern, nil
}

// keep keeps a connection for open, if it is to and has none.
func (c *Connector) keep(real modernConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Thrifty || c.kept != nil {
		return false
	}
	c.kept = real
	return true
}

// run carries out an operation with what is injected into it. on is the connection it is for; withhold puts away an answer
// that nobody is to get.
func (c *Connector) run(ctx context.Context, op Op, on *conn, do func() error, withhold func()) error {
	op.N = int(c.n.Add(1))
	f := c.inject(op)
	if f.none() {
		return do()
	}
	if f.After {
		if err := do(); err != nil && err != io.EOF {
			return err // the engine was faster
		}
		withhold()
	}
	if f.Stall {
		<-ctx.Done()
		f.Err = ctx.Err()
	}
	if f.Abort && on != nil && on.tx != nil {
		on.tx.abort()
	}
	if f.Drop && on != nil {
		on.drop()
	}
	return f.Err
}

// nothing is to be put away.
func nothing() {}

// errOld is for drivers that know no contexts: database/sql has other ways for them.
var errOld = errors.New("faultdriver: the driver lacks ConnBeginTx, ConnPrepareContext, ExecerContext, QueryerContext, StmtExecContext or StmtQueryContext")

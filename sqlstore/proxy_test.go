package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// proxy stands between database/sql and a driver. As a pooler in transaction mode does, it gives a session another
// connection to the server after every transaction, and every statement outside one its own; what was prepared or set on
// the old connection is not to be had there. And it can have a commit go wrong.
type proxy struct {
	inner  driver.Connector
	commit func(commit func() error) error // nil: as it is

	mu   sync.Mutex
	idle []driver.Conn
	all  []driver.Conn
}

// proxied opens a handle through p. The connector comes from a handle on the same driver.
func proxied(tb testing.TB, p *proxy) *sql.DB {
	db := sql.OpenDB(p)
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
		for _, c := range p.all {
			_ = c.Close() // some were broken on purpose
		}
	})
	return db
}

// through gives an engine whose every handle is a proxy's.
func (e engine) through(p *proxy) engine {
	open := e.open
	e.open = func(tb testing.TB) *sql.DB {
		p.inner = connector{open(tb)}
		return proxied(tb, p)
	}
	return e
}

// connector takes connections out of a handle, one by one, with the driver's own settings.
type connector struct{ db *sql.DB }

func (c connector) Driver() driver.Driver { return c.db.Driver() }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var raw driver.Conn
	err = conn.Raw(func(dc any) error { raw = dc.(driver.Conn); return nil })
	return borrowed{raw, conn}, err
}

// borrowed is a driver's connection, and the handle's hold on it.
type borrowed struct {
	driver.Conn
	hold *sql.Conn
}

func (b borrowed) Close() error { return b.hold.Close() }

func (p *proxy) Driver() driver.Driver { return p.inner.Driver() }

func (p *proxy) Connect(context.Context) (driver.Conn, error) { return &session{proxy: p}, nil }

// take gives the connection that has been idle for longest, but never the last one used.
func (p *proxy) take(ctx context.Context) (driver.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 1 {
		c := p.idle[0]
		p.idle = p.idle[1:]
		return c, nil
	}
	c, err := p.inner.Connect(ctx)
	if err == nil {
		p.all = append(p.all, c)
	}
	return c, err
}

func (p *proxy) give(c driver.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// session is what database/sql takes for a connection.
type session struct {
	proxy *proxy
	conn  driver.Conn // nil between transactions
	inTx  bool
	turn  int // how often it was given back
}

var errElsewhere = errors.New("the statement was prepared on another connection")

func (s *session) bind(ctx context.Context) (driver.Conn, error) {
	if s.conn == nil {
		c, err := s.proxy.take(ctx)
		if err != nil {
			return nil, err
		}
		s.conn = c
	}
	return s.conn.(borrowed).Conn, nil
}

// release ends a transaction, or a statement that was one by itself.
func (s *session) release() {
	if s.conn != nil && !s.inTx {
		s.proxy.give(s.conn)
		s.conn = nil
		s.turn++
	}
}

func (s *session) Close() error { s.inTx = false; s.release(); return nil }

func (s *session) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }

func (s *session) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.(driver.ConnBeginTx).BeginTx(ctx, o)
	if s.inTx = err == nil; err != nil {
		s.release()
		return nil, err
	}
	return &sessionTx{s, tx}, nil
}

type sessionTx struct {
	*session
	tx driver.Tx
}

func (t *sessionTx) end(err error) error { t.inTx = false; t.release(); return err }

func (t *sessionTx) Commit() error {
	if t.proxy.commit != nil {
		return t.end(t.proxy.commit(t.tx.Commit))
	}
	return t.end(t.tx.Commit())
}

func (t *sessionTx) Rollback() error { return t.end(t.tx.Rollback()) }

func (s *session) CheckNamedValue(v *driver.NamedValue) error {
	c, err := s.bind(context.Background())
	if err != nil {
		return err
	}
	if checker, ok := c.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	if q, ok := c.(driver.QueryerContext); ok {
		rows, err := q.QueryContext(ctx, query, args)
		switch {
		case err == nil:
			return &sessionRows{rows, s}, nil
		case !errors.Is(err, driver.ErrSkip):
			s.release()
		}
		return nil, err
	}
	return nil, driver.ErrSkip
}

func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	if e, ok := c.(driver.ExecerContext); ok {
		r, err := e.ExecContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			s.release()
		}
		return r, err
	}
	return nil, driver.ErrSkip
}

type sessionRows struct {
	driver.Rows
	s *session
}

func (r *sessionRows) Close() error { err := r.Rows.Close(); r.s.release(); return err }

func (s *session) Prepare(query string) (driver.Stmt, error) {
	return s.PrepareContext(context.Background(), query)
}

func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	stmt, err := c.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		s.release()
		return nil, err
	}
	return &sessionStmt{stmt, s, s.turn}, nil
}

type sessionStmt struct {
	driver.Stmt
	s    *session
	turn int
}

func (st *sessionStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if st.s.turn != st.turn {
		return nil, errElsewhere
	}
	return st.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (st *sessionStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if st.s.turn != st.turn {
		return nil, errElsewhere
	}
	return st.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// Close ends what was one statement by itself.
func (st *sessionStmt) Close() error {
	err := st.Stmt.Close()
	if st.s.turn == st.turn {
		st.s.release()
	}
	return err
}

// Behind a pooler in transaction mode nothing that was prepared or set outlives its transaction: everything works, and
// what Prepare prepares is refused, not run elsewhere.
func TestPooler(t *testing.T) {
	for _, e := range slices.Concat(engines, variants[:1]) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.through(&proxy{}).open(t)
			box := newBox(t, e, db, Config{})
			life(t, box)
			if e.dialect == SQLite {
				return
			}
			db.SetMaxOpenConns(1)
			if err := box.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			enqueue(t, newBox(t, e, db, Config{}), "another transaction")
			tx, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := box.Enqueue(t.Context(), tx, message("prepared")); !errors.Is(err, errElsewhere) {
				t.Errorf("the proxy does not tell connections apart: %v", err)
			}
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The reply to a commit is lost, on a real engine: a claim hands out what it took, and a settlement that is repeated is
// recognised.
func TestLostCommits(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var lose bool
			db := e.through(&proxy{commit: func(commit func() error) error {
				if err := commit(); err != nil || !lose {
					return err
				}
				lose = false
				return errLost
			}}).open(t)
			box := newBox(t, e, db, Config{})
			ids := enqueue(t, box, "a", "b", "c")
			lose = true
			c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})
			if err != nil || len(c.Messages) != 3 || c.Messages[0].ID != ids[0] || c.Messages[2].ID != ids[2] {
				t.Fatalf("the claim took %v, %v", c.Messages, err)
			}
			group := []store.Settlement{sent(c.Messages[0]), sent(c.Messages[2])}
			lose = true
			if _, err := box.Settle(t.Context(), group); !errors.Is(err, errLost) {
				t.Fatalf("the settlement says %v", err)
			}
			for range 2 {
				if v, err := box.Settle(t.Context(), group); err != nil || v[0] != store.Applied || v[1] != store.Applied {
					t.Errorf("repeated: %v, %v", v, err)
				}
			}
			lose = true
			next := func(ctx context.Context, tx store.Tx) error {
				_, err := box.Enqueue(ctx, tx, message("next"))
				return err
			}
			if v, err := box.SettleTx(t.Context(), sent(c.Messages[1]), next); !errors.Is(err, errLost) || v != store.Lost {
				t.Fatalf("the settlement with work says %v, %v", v, err)
			}
			if v, err := box.SettleTx(t.Context(), sent(c.Messages[1]), func(context.Context, store.Tx) error {
				t.Error("the work was done twice")
				return nil
			}); err != nil || v != store.Applied {
				t.Errorf("repeated: %v, %v", v, err)
			}
			if _, err := box.GetByKey(t.Context(), tenant, "next"); err != nil {
				t.Errorf("the work is gone: %v", err)
			}
		})
	}
}

// Every session is ended by the server just before a commit: nothing of the transaction stands, and the next one works.
func TestKilledCommits(t *testing.T) {
	for _, e := range engines {
		if e.dialect == SQLite {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var kill func()
			direct := e.open(t) // the proxy's connections are on its database
			p := &proxy{inner: connector{direct}, commit: func(commit func() error) error {
				if kill != nil {
					kill()
					kill = nil
				}
				return commit()
			}}
			db := proxied(t, p)
			box := newBox(t, e, db, Config{})
			enqueue(t, box, "a", "b")
			killer := func() {
				conn, err := direct.Conn(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				list, end := "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
				if e.dialect == MySQL {
					list, end = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()", "KILL %d"
				}
				rows, err := conn.QueryContext(context.Background(), list)
				if err != nil {
					t.Error(err)
					return
				}
				var ids []int64
				if err := each(rows, func(scan func(...any) error) error {
					var id int64
					err := scan(&id)
					ids = append(ids, id)
					return err
				}); err != nil {
					t.Error(err)
				}
				for _, id := range ids {
					if _, err := conn.ExecContext(context.Background(), fmt.Sprintf(end, id)); err != nil {
						t.Error(err)
					}
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.idle = nil // as a pooler notices
			}
			kill = killer
			if c, err := box.Claim(t.Context(), claimParams()); err == nil && len(c.Messages) > 0 {
				t.Errorf("a claim that was cut off handed out %v", c.Messages)
			}
			c, err := box.Claim(t.Context(), claimParams())
			if err != nil || len(c.Messages) != 2 || c.Messages[0].Attempts != 1 {
				t.Fatalf("the next claim took %v, %v", c.Messages, err)
			}
			kill = killer
			group := []store.Settlement{sent(c.Messages[0]), sent(c.Messages[1])}
			if v, err := box.Settle(t.Context(), group); err == nil {
				t.Errorf("a settlement that was cut off says %v", v)
			}
			if m, err := box.Get(t.Context(), c.Messages[0].ID); err != nil || m.State != state.Processing {
				t.Errorf("after a settlement that was cut off the row is %s, %v", m.State, err)
			}
			if v, err := box.Settle(t.Context(), group); err != nil || v[0] != store.Applied || v[1] != store.Applied {
				t.Errorf("repeated: %v, %v", v, err)
			}
		})
	}
}

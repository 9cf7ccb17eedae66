package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Config says what the table is called and what it accepts. The zero Config is the reference's table: outbox, with an
// organizacion_id of type uuid.
type Config struct {
	Table        string // default "outbox"
	Schema       string // the table's schema (MySQL, SQLite: database); default: whatever the connection resolves
	TenantColumn string // default "organizacion_id"
	TextTenant   bool   // the tenant column is text; otherwise uuid

	// HighVolume makes a table for thousands of messages per second; it is PostgreSQL's alone and changes nothing on other
	// engines. The table's pages keep room (fillfactor 45), so that a claim touches no index: all claims are heap-only
	// updates then, 2 % otherwise, and one writes a third of the WAL, 0.2 KB instead of 0.7. And autovacuum comes after
	// 20,000 deliveries instead of a fifth of the history, and does not pause. The price is a heap about 2.3 times as large
	// as the rows in it. Migrate leaves a table that exists as it is: Check gives the statement.
	HighVolume bool

	DefaultTenant string   // the tenant of messages that name none, for applications that have only one
	Channels      []string // accepted by Enqueue; default: correo, whatsapp
	MaxPayload    int      // bytes of a message's data as JSON; default 256 KiB, at most 16 MiB

	// NewID makes the ids of new messages, as UUID texts. Default: UUIDv7, which keeps new rows together in the indexes.
	NewID func() string

	// Clock, when set, replaces the database's clock everywhere: for tests. SQLite has no clock worth the name, so there
	// the default is time.Now.
	Clock func() time.Time

	// ErrorCode names a driver error's code where this package does not find it itself: "" for unknown. It knows drivers
	// whose errors have SQLState() string (lib/pq, pgx), Code() int (modernc), an unsigned Number (go-sql-driver/mysql) or an
	// integer Code (mattn).
	ErrorCode func(error) string
}

const maxMaxPayload = 16 << 20

// Store is an outbox table. It is safe for concurrent use and has no state of its own besides an optional prepared
// statement.
type Store struct {
	db      *sql.DB
	dialect Dialect
	sql     queries
	names   names
	rules   store.Rules
	newID   func() string
	clock   func() time.Time // nil: the database's
	code    func(error) string
	insert  atomic.Pointer[sql.Stmt] // see Prepare
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.Enqueuer      = (*Store)(nil)
	_ store.TxSettler     = (*Store)(nil)
	_ store.Renewer       = (*Store)(nil)
	_ store.DueTimer      = (*Store)(nil)
	_ store.ChannelLister = (*Store)(nil)
	_ store.Operator      = (*Store)(nil)
)

// New returns the store of one table. It runs no SQL: see [Store.Migrate] and [Store.Check]. A senseless Config is an
// [store.InvalidError].
func New(db *sql.DB, d Dialect, cfg Config) (*Store, error) {
	if db == nil {
		return nil, &store.InvalidError{Field: "db", Reason: "is nil"}
	}
	n, rules, err := cfg.resolve(d)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, dialect: d, names: n, sql: render(d, n), rules: rules, newID: cfg.NewID, clock: cfg.Clock, code: cfg.ErrorCode}
	if s.newID == nil {
		s.newID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if s.clock == nil && !d.hasClock() {
		s.clock = time.Now
	}
	return s, nil
}

// resolve validates a Config against everything that needs no database.
func (cfg Config) resolve(d Dialect) (names, store.Rules, error) {
	rules := store.Rules{
		TextTenant: cfg.TextTenant, DefaultTenant: cfg.DefaultTenant, Channels: cfg.Channels, MaxPayload: cfg.MaxPayload,
	}
	if d == nil {
		return names{}, rules, &store.InvalidError{Field: "Dialect", Reason: "is nil"}
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > maxMaxPayload {
		return names{}, rules, &store.InvalidError{Field: "Config.MaxPayload", Reason: "must be between 0 (the default) and 16 MiB"}
	}
	if cfg.DefaultTenant != "" {
		tenant, err := rules.CheckTenant(cfg.DefaultTenant)
		if err != nil {
			return names{}, rules, fmt.Errorf("Config.DefaultTenant: %w", err)
		}
		rules.DefaultTenant = tenant
	}
	if cfg.Channels != nil && len(cfg.Channels) == 0 {
		return names{}, rules, &store.InvalidError{Field: "Config.Channels", Reason: "is empty"}
	}
	for _, c := range cfg.Channels {
		if !store.ValidChannel(c) {
			return names{}, rules, &store.InvalidError{Field: "Config.Channels", Reason: "has a name that is not of up to 63 lower-case letters, digits, '_', '.' and '-'"}
		}
	}
	n, err := newNames(cfg, d)
	return n, rules, err
}

// now is what statements take as $1: the injected clock's time, or NULL for the database's own.
func (s *Store) now() any {
	if s.clock == nil {
		return nil
	}
	return s.dialect.time(s.clock())
}

// Begin starts a transaction on the store's database, for callers that know it only as a [store.Enqueuer].
func (s *Store) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, s.fail("begin", err)
	}
	return tx, nil
}

// How long a short transaction of ours is tried again.
const (
	maxTries   = 5               // where the engine asks for it
	maxWait    = 2 * time.Second // where a row is locked
	firstPause = 10 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// errCommit marks a COMMIT whose reply was lost: the transaction may have been kept.
var errCommit = errors.New("commit outcome unknown")

// inTx runs fn in a transaction of the store's own: never as a statement on the pool, which database/sql would run
// again by itself when a connection breaks.
func (s *Store) inTx(ctx context.Context, op string, fn func(*sql.Tx) error) error {
	return s.retry(ctx, op, func() error { return s.tryTx(ctx, fn) })
}

// retry runs a transaction, and again after a pause where the engine asks for a repetition (deadlock, serialization
// failure, busy) or another transaction has locked a row.
func (s *Store) retry(ctx context.Context, op string, transaction func() error) error {
	begun, pause := time.Now(), firstPause
	for try := 1; ; try++ {
		err := transaction()
		switch {
		case err == nil:
			return nil
		case try < maxTries && repeatable(s.errorCode(err)):
		case errors.Is(err, errHeld) && time.Since(begun) < maxWait:
		default:
			return s.fail(op, err)
		}
		if wait(ctx, pause) != nil {
			return s.fail(op, err)
		}
		pause = min(2*pause, lastPause)
	}
}

// wait pauses for about d, never for more than half as long again, unless ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d/2 + mathrand.N(d)):
		return nil
	}
}

func (s *Store) tryTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, s.dialect.txOptions())
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		// The transaction is lost either way, and fn's error says why.
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		if s.errorCode(err) == "" { // the server did not say that it rolled back
			return errors.Join(errCommit, err)
		}
		return err
	}
	return nil
}

// quoteStates renders states as a list of literals; see render.
func quoteStates(states []state.State) string {
	list := ""
	for i, st := range states {
		if i > 0 {
			list += ", "
		}
		list += "'" + string(st) + "'"
	}
	return list
}

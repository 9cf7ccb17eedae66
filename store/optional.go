package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/recado-dev/recado/state"
)

// Tx is a transaction of the application. *sql.Tx and types that embed it fit; *sql.DB and *sql.Conn do not compile, so
// that nothing is ever enqueued outside a transaction. Commit and Rollback are never called by this library. On a store
// that is not SQL the two statements return an error that matches errors.ErrUnsupported, as those of [NoSQL] do.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// NoSQL is what a [Tx] embeds on a store that is not SQL: its two statements return errors.ErrUnsupported.
type NoSQL struct{}

// ExecContext returns errors.ErrUnsupported.
func (NoSQL) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.ErrUnsupported
}

// QueryContext returns errors.ErrUnsupported.
func (NoSQL) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.ErrUnsupported
}

// Enqueuer writes messages inside a transaction.
type Enqueuer interface {
	// Begin starts a transaction of this store. On sqlstore its dynamic type is *sql.Tx.
	Begin(ctx context.Context) (Tx, error)

	// Enqueue writes m in tx; the message exists if, and only if, tx commits. A key that the tenant already used gives
	// that row's id, whatever its state, and changes nothing. A refused message is an [InvalidError] and a missing
	// transaction is [ErrTxRequired]; both come before anything is sent, so tx stays usable.
	Enqueue(ctx context.Context, tx Tx, m NewMessage) (EnqueueResult, error)
}

// EnqueueResult is what an enqueue came to.
type EnqueueResult struct {
	ID       string // of the new row, or of the one that holds the key already
	Inserted bool   // false: the key was in use (reference: nuevo)
	Differs  bool   // only when not Inserted: the existing row's channel, destination, template or data is another
}

// TxSettler settles a row together with work of the caller's, in one transaction.
type TxSettler interface {
	// SettleTx begins a transaction, writes the fenced settlement, runs fn in it and commits. The fence is taken first:
	// when it does not hold, fn is not run and the verdict is Lost. When fn fails nothing of either is kept and its error
	// is returned. A repeat of a settlement that was applied before answers Applied and does NOT run fn again.
	SettleTx(ctx context.Context, s Settlement, fn func(context.Context, Tx) error) (Verdict, error)
}

// Renewer prolongs leases.
type Renewer interface {
	// Renew sets each lease to the one in its fence plus d (not: now plus d), behind the fence, so that a repeat is
	// recognised and answers Applied. The new fence is the old one with LeasedUntil + d. A row is with whoever renews it
	// or with whoever settles it, never both. A d of less than 1 µs is an [InvalidError].
	Renew(ctx context.Context, fences []Fence, d time.Duration) ([]Verdict, error)
}

// DueTimer knows when the next row falls due.
type DueTimer interface {
	// NextDue returns how long it is until the next turn that lies in the future, over the given channels, and false
	// when there is none. Rows already due and leases are not considered.
	NextDue(ctx context.Context, channels []string) (time.Duration, bool, error)
}

// ChannelLister knows which channels have work.
type ChannelLister interface {
	// Channels returns the channels that have live rows, sorted. It costs a few index look-ups per channel; callers ask
	// at most once a minute.
	Channels(ctx context.Context) ([]string, error)
}

// Operator is what people and panels need.
//
// An id that is no UUID is the id of no row.
type Operator interface {
	// Get returns a row by id, or [ErrNotFound].
	Get(ctx context.Context, id string) (Message, error)

	// GetByKey returns a row by tenant and idempotency key, or [ErrNotFound].
	GetByKey(ctx context.Context, tenantID, key string) (Message, error)

	// Stats counts, per channel and without scanning the table. Channels are sorted by name. It is no snapshot: a row that
	// ends meanwhile may be counted as live and as ended.
	Stats(ctx context.Context, p StatsParams) ([]ChannelStats, error)

	// Requeue starts closed rows (fallido, descartado) afresh: pendiente, no attempts charged, due now. Any other row
	// answers Lost and is not touched. A deliver-by time stays as it is. Verdicts come in the order of ids.
	Requeue(ctx context.Context, ids []string) ([]Verdict, error)

	// Cancel withdraws waiting rows: pendiente becomes descartado, rechazado/cancelado. Any other row, one in the hands
	// of a worker included, answers Lost and is not touched.
	Cancel(ctx context.Context, ids []string) ([]Verdict, error)
}

// StatsParams bounds the counting.
type StatsParams struct {
	Since time.Time // terminal rows that ended at or after it; zero: the last 24 h by the store's clock
	Cap   int       // most rows looked at for live counts per channel, and for terminal counts in all; 0: 10000
}

// DefaultStatsCap is the Cap of a zero StatsParams.
const DefaultStatsCap = 10_000

// ChannelStats is one channel's state of affairs.
type ChannelStats struct {
	Channel   string
	OldestDue time.Duration         // how long the oldest due row has been waiting; 0: nothing is due
	Live      map[state.State]int64 // pendiente and procesando
	Ended     map[state.State]int64 // enviado, fallido and descartado since StatsParams.Since

	LiveCapped  bool // Live stopped at the cap: there are at least so many
	EndedCapped bool // Ended stopped at the cap, counting from the newest
}

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/recado-dev/recado/state"
)

// InvalidError is a refused option or message: it names the field and the rule, never the content.
type InvalidError = state.InvalidError

// Programming errors, and the answer to a look-up of nothing.
var (
	ErrInvalidOptions = state.ErrInvalidOptions
	ErrTxRequired     = errors.New("a transaction is required")
	ErrNotFound       = errors.New("message not found")
)

// Error is a failure of the database. Its text is the operation and the database's code alone, since a driver's own text
// may quote values; errors.As and errors.Is still reach the driver's error.
type Error struct {
	Op   string // for example "claim"
	Code string // SQLSTATE, or the driver's own code; "" when there is none

	// Refused says that the database understood the statement and will not take it, so that repeating it unchanged is
	// of no use: a violated constraint, a bad value, a missing table or permission.
	Refused bool

	// Locked says that another transaction held a row for too long. The other rows of the same write are not to blame.
	Locked bool

	Err error
}

func (e *Error) Error() string {
	var netErr net.Error
	code := e.Code
	switch {
	case code != "":
	case e.Err == nil:
		return "outbox: " + e.Op
	case errors.Is(e.Err, context.DeadlineExceeded):
		code = "deadline exceeded"
	case errors.Is(e.Err, context.Canceled):
		code = "canceled"
	case errors.Is(e.Err, sql.ErrTxDone):
		code = "the transaction has ended"
	case errors.Is(e.Err, driver.ErrBadConn), errors.Is(e.Err, sql.ErrConnDone), errors.Is(e.Err, io.EOF), errors.Is(e.Err, io.ErrUnexpectedEOF), errors.As(e.Err, &netErr):
		code = "connection failed"
	default:
		code = "failed without a code (errors.Unwrap has the driver's error)"
	}
	if hint := hints[code]; hint != "" {
		code += " (" + hint + ")"
	}
	return "outbox: " + e.Op + ": " + code
}

// GoString keeps %#v from printing the driver's text.
func (e *Error) GoString() string { return e.Error() }

// hints for the codes that a newcomer meets first.
var hints = map[string]string{
	"42P01":        "no such table: run Migrate, or look at Config.Table and Config.Schema",
	"3F000":        "no such schema: look at Config.Schema",
	"42501":        "the role lacks a permission",
	"42601":        "syntax error: is this the engine of the Dialect?",
	"1064":         "syntax error: is this the engine of the Dialect, and MySQL 8.0.16 or MariaDB 10.6 or newer?",
	"1146":         "no such table: run Migrate, or look at Config.Table and Config.Schema",
	"1105":         "often a value over the server's max_allowed_packet",
	"1142":         "the user lacks a permission",
	"1143":         "the user lacks a permission",
	"1153":         "larger than the server's max_allowed_packet",
	"1176":         "an index has another name than ours: run Check",
	"SQLITE_ERROR": "often no such table: run Migrate, or look at Config.Table",
}

// Unwrap returns the driver's error.
func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code of the [Error] in err's tree, or "" when there is none.
func ErrorCode(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Refused reports whether repeating what gave err is of no use: see [Error.Refused]. Invalid options, illegal transitions
// and a missing transaction are refused too.
func Refused(err error) bool {
	var (
		dbErr      *Error
		transition *state.TransitionError
	)
	if errors.As(err, &dbErr) {
		return dbErr.Refused
	}
	return errors.Is(err, ErrInvalidOptions) || errors.Is(err, ErrTxRequired) || errors.As(err, &transition)
}

// Locked reports whether err came from a row that another transaction holds: see [Error.Locked].
func Locked(err error) bool {
	var dbErr *Error
	return errors.As(err, &dbErr) && dbErr.Locked
}

func invalid(field, reason string) error { return &InvalidError{Field: field, Reason: reason} }

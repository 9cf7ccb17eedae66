package faultdriver_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/internal/dbtest"
	. "github.com/recado-dev/recado/internal/faultdriver"
	"github.com/recado-dev/recado/sqlstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is in all that must not get out: what a message holds, and what a driver says.
const canary = "canario-5b1e"

// kind is a way for an operation to fail.
type kind struct {
	name string
	Fault
	applies func(Op) bool
}

// The kinds that every engine has. Their connections break with two faces: as lib/pq shows it, after which database/sql
// runs a statement outside a transaction once more even if it was executed, and as a failure of the network.
var broken = []kind{
	{"cut before", Fault{Err: driver.ErrBadConn, Drop: true}, anyBut()},
	{"cut after", Fault{Err: driver.ErrBadConn, Drop: true, After: true}, anyBut(Connect, Next)},
	{"reset before", Fault{Err: errReset, Drop: true}, anyBut()},
	{"reset after", Fault{Err: errReset, Drop: true, After: true}, anyBut(Connect, Next)},
	// A connection that is being opened may be so for nobody in particular, without a deadline.
	{"stalled before", Fault{Stall: true, Drop: true}, anyBut(Connect)},
	{"stalled after", Fault{Stall: true, Drop: true, After: true}, anyBut(Connect, Next)},
}

var errReset = &net.OpError{Op: "read " + canary, Net: "tcp", Err: syscall.ECONNRESET}

func only(kinds ...Kind) func(Op) bool {
	return func(op Op) bool { return slices.Contains(kinds, op.Kind) }
}

func anyBut(kinds ...Kind) func(Op) bool {
	return func(op Op) bool { return !slices.Contains(kinds, op.Kind) }
}

// statements are operations at which an engine may refuse.
var statements = only(Exec, Query, Next)

func inTx(op Op) bool { return op.InTx && statements(op) }

func postgresKinds(refusal func(code string) error) []kind {
	refused := func(code string, drop bool, applies func(Op) bool) kind {
		return kind{code, Fault{Err: refusal(code), Abort: true, Drop: drop}, applies}
	}
	return append(broken[:len(broken):len(broken)],
		refused("40001", false, func(op Op) bool { return inTx(op) || op.Kind == Commit }), // serialization failure
		refused("40P01", false, inTx),                 // deadlock
		refused("55P03", false, inTx),                 // lock not available
		refused("25006", false, inTx),                 // read-only transaction: a standby
		refused("57P01", true, anyBut(Connect, Next)), // the administrator ends the session
		refused("53300", false, only(Connect)),        // too many connections
	)
}

func mysqlKinds() []kind {
	refused := func(number uint16, abort bool) kind {
		err := &mysql.MySQLError{Number: number, Message: canary}
		return kind{fmt.Sprint(number), Fault{Err: err, Abort: abort}, inTx}
	}
	return append(broken[:len(broken):len(broken)],
		refused(1205, false), // lock wait: only the statement is undone
		refused(1213, true),  // deadlock: the transaction is
		refused(1290, false), // read only
	)
}

// sqliteKinds has a real error of the driver, whose type nobody else can make.
func sqliteKinds(t *testing.T) []kind {
	file := "file:" + filepath.Join(t.TempDir(), "busy.db") + "?_txlock=immediate"
	var open [2]*sql.DB
	for i := range open {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		open[i] = db
	}
	tx, err := open[0].BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has only read
	_, busy := open[1].BeginTx(t.Context(), nil)
	if busy == nil {
		t.Fatal("two write at once")
	}
	applies := func(op Op) bool { return inTx(op) || op.Kind == Begin || op.Kind == Commit }
	local := slices.DeleteFunc(slices.Clone(broken), func(k kind) bool { return k.Err == error(errReset) }) // it has no network
	return append(local, kind{"SQLITE_BUSY", Fault{Err: busy}, applies})
}

// engine is a dialect through one driver.
type engine struct {
	name, driver string
	dialect      sqlstore.Dialect
	dsn          func(testing.TB) string
	kinds        func(*testing.T) []kind
}

var engines = []engine{
	{"postgres/pq", "postgres", sqlstore.Postgres, dbtest.Postgres, func(*testing.T) []kind {
		return postgresKinds(func(code string) error {
			return &pq.Error{Code: pqerror.Code(code), Message: canary, Detail: canary}
		})
	}},
	{"postgres/pgx", "pgx", sqlstore.Postgres, dbtest.Postgres, func(*testing.T) []kind {
		return postgresKinds(func(code string) error { return &pgconn.PgError{Code: code, Message: canary, Detail: canary} })
	}},
	{"mariadb", "mysql", sqlstore.MySQL, func(tb testing.TB) string {
		// Else each statement with arguments is three operations, two of them to no purpose.
		return dbtest.MariaDB(tb) + "?interpolateParams=true"
	}, func(*testing.T) []kind { return mysqlKinds() }},
	{"sqlite", "sqlite", sqlstore.SQLite, func(tb testing.TB) string {
		return "file:" + filepath.Join(tb.TempDir(), "recado.db") +
			"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
	}, sqliteKinds},
}

// Package sqlstoretest helps to unit-test services that enqueue, and workers, with DATA-DOG/go-sqlmock and no database.
//
// It promises that the expectations it sets are the statements that [sqlstore.Store] really sends, so a test does not
// break when their text changes. They work with sqlmock's default matcher and with expectations in order, and look at no
// parameter; end a test with ExpectationsWereMet. What a mock cannot show (uniqueness, rollback, locks) is for a test on
// a database; SQLite in a temporary file is enough for most.
package sqlstoretest

import (
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Result is what an expected enqueue shall come to: [Inserted], [Repeated], [Differing] or [Failing].
type Result struct {
	id       string
	repeated bool
	content  any // of the existing row's text columns; nil: the same as the message's
	err      error
}

// Inserted makes Enqueue return a new row with this id. MySQL gives no id back: there it is the one from Config.NewID, and
// the expectation is that it is this one.
func Inserted(id string) Result { return Result{id: id} }

// Repeated makes Enqueue find the key in use by the row with this id, with the same content.
func Repeated(id string) Result { return Result{id: id, repeated: true} }

// Differing is [Repeated], but the existing row says something else: EnqueueResult.Differs is true.
func Differing(id string) Result { return Result{id: id, repeated: true, content: "otro"} }

// Failing makes Enqueue fail with err from the database. The error that Enqueue returns wraps it.
func Failing(err error) Result { return Result{err: err} }

// ExpectEnqueue expects one Enqueue of box on mock, in the transaction that the test has already expected to begin.
//
//	mock.ExpectBegin()
//	mock.ExpectExec("INSERT INTO pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
//	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Inserted(id))
//	mock.ExpectCommit()
//
// A message that Enqueue refuses sends nothing and needs no expectation. The box must not be prepared (see
// [sqlstore.Store.Prepare]).
func ExpectEnqueue(mock sqlmock.Sqlmock, box *sqlstore.Store, r Result) {
	sql := box.Script()
	if sql.Locking() {
		insert := mock.ExpectExec(exactly(sql.Insert))
		switch {
		case r.err != nil:
			insert.WillReturnError(r.err)
			return
		case !r.repeated:
			args := make([]driver.Value, strings.Count(sql.Insert, "?"))
			for i := range args {
				args[i] = sqlmock.AnyArg()
			}
			args[0] = r.id
			insert.WithArgs(args...).WillReturnResult(sqlmock.NewResult(0, 1))
			return
		}
		insert.WillReturnError(duplicateKey{1062})
	} else {
		insert := mock.ExpectQuery(exactly(sql.Insert))
		switch {
		case r.err != nil:
			insert.WillReturnError(r.err)
			return
		case !r.repeated:
			insert.WillReturnRows(ids(r.id))
			return
		}
		insert.WillReturnRows(ids())
	}
	mock.ExpectQuery(exactly(sql.Find)).WillReturnRows(
		sqlmock.NewRows([]string{"id", "canal", "destino", "plantilla", "datos"}).AddRow(r.id, r.content, r.content, r.content, r.content))
}

// duplicateKey looks to a store like the driver's error.
type duplicateKey struct{ Number uint16 }

func (e duplicateKey) Error() string { return "duplicate key" }

// ExpectClaim expects one Claim of box on mock, its transaction included, that takes these rows; none is a claim that
// finds nothing. What a row leaves zero is filled in: the state procesando, a first attempt of five, now as the time of
// everything, a lease of ten minutes and {} as its data. On MySQL the token and the lease of what Claim returns are of its
// own making. A claim with ReturnExhausted is another one.
func ExpectClaim(mock sqlmock.Sqlmock, box *sqlstore.Store, rows ...store.Message) {
	sql := box.Script()
	mock.ExpectBegin()
	if sql.BeforeClaim != "" {
		mock.ExpectExec(exactly(sql.BeforeClaim)).WillReturnResult(sqlmock.NewResult(0, 1))
	}
	columns := make([]string, len(sql.Row(store.Message{})))
	for i := range columns {
		columns[i] = fmt.Sprint("c", i) // they are read by their place
	}
	result := sqlmock.NewRows(columns)
	for _, m := range rows {
		result.AddRow(sql.Row(filled(m))...)
	}
	if sql.Locking() {
		mock.ExpectQuery(exactly(sql.LockClaim)).WillReturnRows(result)
		if len(rows) > 0 {
			mock.ExpectExec(exactly(sql.Claim)).WillReturnResult(sqlmock.NewResult(0, int64(len(rows))))
		}
	} else {
		mock.ExpectQuery(exactly(sql.Claim)).WillReturnRows(result)
	}
	mock.ExpectCommit()
}

func filled(m store.Message) store.Message {
	now := cmp.Or(m.UpdatedAt, time.Now().UTC())
	m.State = cmp.Or(m.State, state.Processing)
	m.Attempts, m.MaxAttempts = cmp.Or(m.Attempts, 1), cmp.Or(m.MaxAttempts, store.DefaultMaxAttempts)
	m.ScheduledAt, m.CreatedAt, m.UpdatedAt = cmp.Or(m.ScheduledAt, now), cmp.Or(m.CreatedAt, now), now
	m.LeasedUntil = cmp.Or(m.LeasedUntil, now.Add(10*time.Minute))
	m.Token = cmp.Or(m.Token, store.Token{1})
	if m.Data == nil {
		m.Data = json.RawMessage("{}")
	}
	return m
}

// ExpectSettle expects one Settle of box on mock, its transaction included: of up to 1000 rows, whose verdicts these are.
func ExpectSettle(mock sqlmock.Sqlmock, box *sqlstore.Store, verdicts map[string]store.Verdict) {
	mock.ExpectBegin()
	expectSettlement(mock, box, verdicts)
	mock.ExpectCommit()
}

// ExpectSettleTx expects one SettleTx of box on mock, up to where the work begins: the transaction's begin and the
// settlement. What the work sends, and then the commit, or the rollback where the verdict is Lost or the work fails, are
// for the test to expect.
func ExpectSettleTx(mock sqlmock.Sqlmock, box *sqlstore.Store, id string, verdict store.Verdict) {
	mock.ExpectBegin()
	expectSettlement(mock, box, map[string]store.Verdict{id: verdict})
	if after := box.Script().AfterSettle; after != "" && verdict == store.Applied {
		mock.ExpectExec(exactly(after)).WillReturnResult(sqlmock.NewResult(0, 0))
	}
}

func expectSettlement(mock sqlmock.Sqlmock, box *sqlstore.Store, verdicts map[string]store.Verdict) {
	sql := box.Script()
	var applied []string
	for id, verdict := range verdicts {
		if verdict == store.Applied {
			applied = append(applied, id)
		}
	}
	lost := len(applied) < len(verdicts)
	if sql.Locking() {
		mock.ExpectQuery(exactly(sql.LockFenced)).WillReturnRows(ids(applied...))
		if lost {
			mock.ExpectQuery(exactly(sql.Fenced)).WillReturnRows(ids(applied...))
		}
		if len(applied) > 0 {
			mock.ExpectExec(exactly(sql.Settle)).WillReturnResult(sqlmock.NewResult(0, int64(len(applied))))
		}
	} else {
		mock.ExpectQuery(exactly(sql.Settle)).WillReturnRows(ids(applied...))
	}
	if lost {
		mock.ExpectQuery(exactly(sql.Repeated)).WillReturnRows(ids())
	}
}

// ExpectChannels expects the look for channels with live messages, which a worker makes before its first claim and then
// once a minute. It finds these.
func ExpectChannels(mock sqlmock.Sqlmock, box *sqlstore.Store, channels ...string) {
	next := exactly(box.Script().NextChannel)
	columns := []string{"canal", "vivo"}
	for _, channel := range channels {
		mock.ExpectQuery(next).WillReturnRows(sqlmock.NewRows(columns).AddRow(channel, true))
	}
	mock.ExpectQuery(next).WillReturnRows(sqlmock.NewRows(columns))
}

func ids(ids ...string) *sqlmock.Rows {
	rows := sqlmock.NewRows([]string{"id"})
	for _, id := range ids {
		rows.AddRow(id)
	}
	return rows
}

// exactly is a statement as a pattern of sqlmock's default matcher, which folds white space in the statement that it
// compares.
func exactly(statement string) string {
	return "^" + regexp.QuoteMeta(strings.Join(strings.Fields(statement), " ")) + "$"
}

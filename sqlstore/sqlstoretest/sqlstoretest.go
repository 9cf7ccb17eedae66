// Package sqlstoretest helps to unit-test services that enqueue, with DATA-DOG/go-sqlmock and no database.
//
// It promises that the expectations it sets are the statements that [sqlstore.Store.Enqueue] really sends, so a test does
// not break when their text changes. What a mock cannot show (uniqueness, rollback, locks) is for a test on a database;
// SQLite in a temporary file is enough for most.
package sqlstoretest

import (
	"database/sql/driver"
	"regexp"
	"strings"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/recado-dev/recado/sqlstore"
)

// Parameters of the insert statement: the time and eleven values of the row.
const insertParameters = 12

// Result is what an expected enqueue shall come to: [Inserted], [Repeated], [Differing] or [Failing].
type Result struct {
	id       string
	repeated bool
	content  any // of the existing row's text columns; nil: the same as the message's
	err      error
}

// Inserted makes Enqueue return a new row with this id.
func Inserted(id string) Result { return Result{id: id} }

// Repeated makes Enqueue find the key in use by the row with this id, with the same content.
func Repeated(id string) Result { return Result{id: id, repeated: true} }

// Differing is [Repeated], but the existing row says something else: EnqueueResult.Differs is true.
func Differing(id string) Result { return Result{id: id, repeated: true, content: "otro"} }

// Failing makes Enqueue fail with err from the database. The error that Enqueue returns wraps it.
func Failing(err error) Result { return Result{err: err} }

// ExpectEnqueue expects one Enqueue of box on mock, in the transaction that the test has already expected to begin. It
// works with sqlmock's default matcher, and with the expectations in order.
//
//	mock.ExpectBegin()
//	mock.ExpectExec("INSERT INTO pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
//	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Inserted(id))
//	mock.ExpectCommit()
//
// The insert's parameters are not looked at. A message that Enqueue refuses sends nothing and needs no expectation. The
// box must not be prepared (see [sqlstore.Store.Prepare]).
func ExpectEnqueue(mock sqlmock.Sqlmock, box *sqlstore.Store, r Result) {
	insert, find := box.EnqueueSQL()
	args := make([]driver.Value, insertParameters)
	for i := range args {
		args[i] = sqlmock.AnyArg()
	}
	expected := mock.ExpectQuery(exactly(insert)).WithArgs(args...)
	switch {
	case r.err != nil:
		expected.WillReturnError(r.err)
		return
	case !r.repeated:
		expected.WillReturnRows(sqlmock.NewRows([]string{"id"}).AddRow(r.id))
		return
	}
	expected.WillReturnRows(sqlmock.NewRows([]string{"id"}))
	mock.ExpectQuery(exactly(find)).WithArgs(sqlmock.AnyArg(), sqlmock.AnyArg()).WillReturnRows(
		sqlmock.NewRows([]string{"id", "canal", "destino", "plantilla", "datos"}).AddRow(r.id, r.content, r.content, r.content, r.content))
}

// exactly is a statement as a pattern of sqlmock's default matcher, which folds white space in the statement that it
// compares.
func exactly(statement string) string {
	return "^" + regexp.QuoteMeta(strings.Join(strings.Fields(statement), " ")) + "$"
}

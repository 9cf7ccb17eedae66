package sqlstore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/recado-dev/recado/store"
)

// fail wraps a database error so that its text is safe to print. Errors of this library pass as they are.
func (s *Store) fail(op string, err error) error {
	var (
		known  *store.Error
		schema *SchemaError
	)
	if err == nil || errors.As(err, &known) || errors.As(err, &schema) {
		return err
	}
	code := s.errorCode(err)
	if row := (*unreadable)(nil); errors.As(err, &row) && code == "" {
		return &store.Error{Op: op, Code: "unreadable row", Refused: true, Err: err}
	}
	return &store.Error{Op: op, Code: code, Refused: refused(code), Locked: code == lockNotAvailable || errors.Is(err, errHeld), Err: err}
}

// errorCode finds the code that the database gave.
func (s *Store) errorCode(err error) string {
	if s.code != nil {
		if code := s.code(err); code != "" {
			return code
		}
	}
	return driverCode(err)
}

// driverCode finds an SQLSTATE, MySQL's number, or SQLITE_ and the name or number. No driver is imported for it, so it
// goes by what their error types offer.
func driverCode(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) { // lib/pq, pgx
		return e.SQLState()
	}
	if e := (interface{ Code() int })(nil); errors.As(err, &e) { // modernc.org/sqlite
		return sqliteCode(int64(e.Code()))
	}
	for ; err != nil; err = errors.Unwrap(err) { // the others have only fields
		if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
			if number := v.FieldByName("Number"); number.IsValid() && number.CanUint() { // go-sql-driver/mysql
				return fmt.Sprint(number.Uint())
			}
			if code := v.FieldByName("Code"); code.IsValid() && code.CanInt() { // mattn/go-sqlite3
				return sqliteCode(code.Int())
			}
		}
	}
	return ""
}

// sqliteCode names a result code of SQLite, an extended one by its primary code.
func sqliteCode(code int64) string {
	primary := code & 0xff
	if name, ok := sqliteCodes[primary]; ok {
		return "SQLITE_" + name
	}
	return fmt.Sprintf("SQLITE_%d", primary)
}

// From https://www.sqlite.org/rescode.html.
var sqliteCodes = map[int64]string{
	1: "ERROR", 3: "PERM", 5: "BUSY", 6: "LOCKED", 8: "READONLY", 9: "INTERRUPT", 10: "IOERR", 11: "CORRUPT", 13: "FULL",
	14: "CANTOPEN", 17: "SCHEMA", 18: "TOOBIG", 19: "CONSTRAINT", 20: "MISMATCH", 21: "MISUSE", 25: "RANGE", 26: "NOTADB",
}

const lockNotAvailable = "55P03"

// errHeld is a row that another transaction has locked, on an engine that can only pass it over or wait for very long.
var errHeld = errors.New("a row is locked by another transaction")

// repeatable codes ask for the transaction to be run again.
func repeatable(code string) bool {
	switch code {
	case "40001", "40P01", "1020", "1205", "1213", "SQLITE_BUSY", "SQLITE_LOCKED":
		return true
	}
	return false
}

// refused codes say that the same statement will fail again: bad data, constraints, syntax and permissions, program
// limits, an error raised by a trigger.
func refused(code string) bool {
	switch code {
	case "1048", "1054", "1062", "1142", "1143", "1146", "1153", "1264", "1265", "1292", "1305", "1364", "1365", "1366", "1370",
		"1406", "1442", "1449", "1451", "1452", "1644", "1690", "3819", "4025":
		// From https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html, the last is MariaDB's. A syntax error is none: a server
		// that is too old refuses every row.
		return true
	case "SQLITE_ERROR", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE", "SQLITE_MISUSE":
		return true
	}
	if len(code) == 5 {
		for _, class := range []string{"0A", "22", "23", "42", "54", "P0"} {
			if strings.HasPrefix(code, class) {
				return true
			}
		}
	}
	return false
}

// denied codes are permissions that are lacking, for which no row is to blame.
func denied(code string) bool { return code == "42501" || code == "1142" || code == "1143" }

//go:build cgo

package sqlstore

import (
	"database/sql"
	"testing"

	_ "github.com/mattn/go-sqlite3"
)

func init() {
	bulkSQLite = "sqlite3"
	engines = append(engines, engine{"sqlite/mattn", SQLite, true, func(tb testing.TB) *sql.DB {
		return openDB(tb, "sqlite3", sqliteFile(tb)+"?_txlock=immediate&_busy_timeout=30000&_journal_mode=WAL&_synchronous=OFF")
	}})
}

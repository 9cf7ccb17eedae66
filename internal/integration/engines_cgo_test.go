//go:build unix && cgo

package integration

import (
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/recado-dev/recado/sqlstore"
)

func init() {
	mattn := engines[len(engines)-1]
	mattn.name, mattn.driver, mattn.dialect = "sqlite/mattn", "sqlite3", sqlstore.SQLite
	mattn.dsn = func(tb testing.TB) string {
		return "file:" + filepath.Join(tb.TempDir(), "recado.db") + "?_txlock=immediate&_busy_timeout=30000&_journal_mode=WAL&_synchronous=OFF"
	}
	engines = append(engines, mattn)
}

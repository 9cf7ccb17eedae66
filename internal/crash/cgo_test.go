//go:build unix && cgo

package crash

import _ "github.com/mattn/go-sqlite3"

func init() {
	sqliteDSNs["sqlite3"] = "?_txlock=immediate&_busy_timeout=30000&_journal_mode=WAL&_synchronous=NORMAL"
}

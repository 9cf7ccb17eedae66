//go:build !cgo

package sqlstore

import "testing"

// So that a build without cgo says what it leaves out.
func TestConformanceOfMattn(t *testing.T) {
	t.Skip("mattn/go-sqlite3 needs cgo: install a C compiler")
}

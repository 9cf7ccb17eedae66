// Package script tells package sqlstoretest what a store sends, so that no test has to copy its SQL.
package script

import (
	"database/sql/driver"

	"github.com/recado-dev/recado/store"
)

// Script is the SQL of one store, as it is sent. A statement that its engine does without is empty.
type Script struct {
	Insert, Find          string
	BeforeClaim, Claim    string
	Settle, AfterSettle   string
	Repeated, NextChannel string

	// An engine that cannot write rows and return them at once sends these before, and Fenced where the lock gave less
	// than it was asked for.
	LockClaim, LockFenced, Fenced string

	// Row is what a claim's query returns for a row that it takes.
	Row func(store.Message) []driver.Value
}

// Locking reports whether rows are locked and returned by one statement and written by the next.
func (s Script) Locking() bool { return s.LockClaim != "" }

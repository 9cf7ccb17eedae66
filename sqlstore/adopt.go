package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
)

// This file adopts a PostgreSQL table of the TypeScript package's while applications use it. What needs the table's
// exclusive lock is brief or bounded, and never waits in the lock's queue for long, since all who come later wait behind
// it. Nothing of it lives in a session, which a pooler may give to somebody else between two statements.

// additions are the columns of ours that the TypeScript package does not know.
var additions = []string{"reclamo", "cabeceras", "dudas", "vence_en", "turno", "terminado"}

func (s *Store) adopt(ctx context.Context, p MigrateParams) error {
	steps := []func(context.Context, MigrateParams) error{s.alter, s.buildIndexes, s.validateStates}
	if p.DropOldIndex {
		steps = append(steps, func(ctx context.Context, p MigrateParams) error { return s.dropIndexes(ctx, p, index.old) })
	}
	for _, step := range steps {
		if err := step(ctx, p); err != nil {
			return s.fail("migrate", err)
		}
	}
	return nil
}

// alter adds the columns and the CHECK in one statement, so that the table is rewritten once at most.
func (s *Store) alter(ctx context.Context, p MigrateParams) error {
	return s.alone(ctx, p, func(tx *sql.Tx) error {
		c, err := s.dialect.inspect(ctx, tx, s.names)
		if err != nil {
			return err
		}
		missing, problems := c.compareColumns(s.sql.schema[0].text, s.names)
		if slices.ContainsFunc(missing, func(c ddlColumn) bool { return !slices.Contains(additions, c.name) }) {
			problems = append(problems, lacking(missing, s.names)...)
		}
		if len(problems) > 0 {
			return &SchemaError{Problems: problems}
		}
		var changes []string
		for _, c := range missing {
			changes = append(changes, "ADD COLUMN "+c.definition)
		}
		if listed, _ := c.listsStates(); !listed {
			changes = append(changes, fmt.Sprintf("ADD CONSTRAINT %s CHECK (estado IN (%s)) NOT VALID", s.dialect.quote(s.stateCheck()), quoteStates(state.States())))
		}
		if len(changes) == 0 {
			return nil
		}
		if slices.ContainsFunc(missing, func(c ddlColumn) bool { return c.expression != "" }) {
			if err := s.limitRewrite(ctx, tx, p); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, "ALTER TABLE "+s.names.table+"\n\t"+strings.Join(changes, ",\n\t"))
		return err
	})
}

// stateCheck is the name that PostgreSQL gives to the CHECK in our CREATE TABLE.
func (s *Store) stateCheck() string { return derived(s.names.plainTable, "_estado_check") }

// limitRewrite refuses a table with more rows than p allows. It counts no further than that, since an estimate may be
// missing, or from before a purge; the estimate only makes the refusal more telling.
func (s *Store) limitRewrite(ctx context.Context, tx *sql.Tx, p MigrateParams) error {
	if p.MaxRows < 0 {
		return nil
	}
	var more bool
	var estimated int
	var size string
	err := tx.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM `+s.names.table+` OFFSET $2), reltuples::bigint, pg_size_pretty(pg_table_size(oid))
FROM pg_class WHERE oid = to_regclass($1)`, s.names.table, p.MaxRows).Scan(&more, &estimated, &size)
	if err != nil || !more {
		return err
	}
	rows := fmt.Sprintf("more than %d rows", p.MaxRows)
	if estimated > p.MaxRows {
		rows = fmt.Sprintf("about %d rows, more than the %d that are allowed", estimated, p.MaxRows)
	}
	return &SchemaError{Problems: []string{fmt.Sprintf(
		"table %s has %s (%s), and adding its generated columns rewrites it while nobody can use it: purge ended rows first, or allow it in a quiet hour with MigrateParams.MaxRows",
		s.names.table, rows, size)}}
}

// validateStates makes the CHECK hold for the rows that were there before it, unless there are some in unknown states:
// these hurt nobody, so an application may start, and Check counts them.
func (s *Store) validateStates(ctx context.Context, p MigrateParams) error {
	err := s.alone(ctx, p, func(tx *sql.Tx) error {
		var validated bool
		err := tx.QueryRowContext(ctx, `
SELECT convalidated FROM pg_constraint WHERE conrelid = to_regclass($1) AND conname = $2`, s.names.table, s.stateCheck()).Scan(&validated)
		if errors.Is(err, sql.ErrNoRows) || err == nil && validated {
			return nil
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "ALTER TABLE "+s.names.table+" VALIDATE CONSTRAINT "+s.dialect.quote(s.stateCheck()))
		}
		return err
	})
	if s.errorCode(err) == checkViolation {
		return nil
	}
	return err
}

const (
	checkViolation = "23514"
	duplicateTable = "42P07" // or index

	lockTries    = 6
	maxLockPause = 10 * time.Second
	indexTries   = 10
	othersPause  = 100 * time.Millisecond // while another process is at it
)

// TableBusyError says that other sessions kept the table locked until [Store.MigrateWith] gave up. What it was about to
// do is undone.
type TableBusyError struct {
	Table string // as quoted in SQL
	Err   error  // the last refusal, for errors.As
}

func (e *TableBusyError) Error() string {
	return fmt.Sprintf("outbox: migrate: table %s is in use: %d tries for its lock have failed; end the transactions that keep it (pg_locks and pg_stat_activity show them), or migrate in a quiet hour", e.Table, lockTries)
}

// Unwrap returns the last refusal.
func (e *TableBusyError) Unwrap() error { return e.Err }

var errOthers = errors.New("another process migrates the table")

// alone runs fn in a transaction that no other migration of the table runs beside, which waits for no lock longer than p
// allows, and which the server ends when this process freezes in the middle of it. It waits for other migrations as long
// as they take, and between two looks holds nothing that these could wait for: a build of an index waits for everybody
// who has a snapshot.
func (s *Store) alone(ctx context.Context, p MigrateParams, fn func(*sql.Tx) error) error {
	pause := p.LockTimeout
	for try := 1; ; {
		err := s.tryTx(ctx, func(tx *sql.Tx) error {
			var ours bool
			err := tx.QueryRowContext(ctx, `
SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AND (set_config('lock_timeout', $2, true)
	|| set_config('idle_in_transaction_session_timeout', '30s', true)) IS NOT NULL`,
				schemaLock(s.names), fmt.Sprintf("%dms", p.LockTimeout.Milliseconds())).Scan(&ours)
			if err == nil && !ours {
				err = errOthers
			}
			if err != nil {
				return err
			}
			return fn(tx)
		})
		code := s.errorCode(err)
		switch {
		case errors.Is(err, errOthers):
			if err := wait(ctx, othersPause); err != nil {
				return err
			}
			continue
		case code != lockNotAvailable && !repeatable(code):
			return err
		case try == lockTries:
			return &TableBusyError{Table: s.names.table, Err: s.fail("migrate", err)}
		}
		try++
		if wait(ctx, pause) != nil {
			return err
		}
		pause = min(2*pause, maxLockPause)
	}
}

// buildIndexes builds the missing indexes without holding up anybody's writes. That cannot be done in a transaction, so
// a build that is interrupted leaves an index that is not valid, and two builds at once may be a deadlock.
func (s *Store) buildIndexes(ctx context.Context, p MigrateParams) error {
	key, turn, end := catalog{}.wanted(s.names)
	wanted := []index{key, turn, end}
	for try := 1; ; {
		c, err := s.dialect.inspect(ctx, s.db, s.names)
		if err != nil {
			return err
		}
		var builds []string
		for i, want := range wanted {
			if !c.has(want) {
				builds = append(builds, strings.Replace(s.sql.schema[1+i].text, " INDEX ", " INDEX CONCURRENTLY ", 1))
			}
		}
		if len(builds) == 0 {
			return nil
		}
		var others bool
		err = s.db.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = to_regclass($1))`, s.names.table).Scan(&others)
		if err != nil {
			return err
		}
		if others {
			if err := wait(ctx, othersPause); err != nil {
				return err
			}
			continue
		}
		unfinished := func(i index) bool {
			return !i.valid && slices.ContainsFunc(wanted, func(w index) bool { return slices.Equal(i.columns, w.columns) })
		}
		if slices.ContainsFunc(c.indexes, unfinished) {
			if err := s.dropIndexes(ctx, p, unfinished); err != nil {
				return err
			}
		}
		for _, build := range builds {
			if err == nil {
				_, err = s.db.ExecContext(ctx, build)
			}
		}
		switch code := s.errorCode(err); {
		case err != nil && !repeatable(code) && code != lockNotAvailable && code != duplicateTable:
			return err
		case try < indexTries:
			try++
		case err != nil:
			return err
		default: // the name belongs to an index of another table, or to another index
			if problems, _ := c.compareIndexes(s.names); len(problems) > 0 {
				return &SchemaError{Problems: problems}
			}
			return nil // only an index that Check advises
		}
		if err != nil {
			if err := wait(ctx, othersPause); err != nil {
				return err
			}
		}
	}
}

// dropIndexes drops the indexes of the table that pick chooses. The lock that it takes first is the one that every build
// holds, and no reader or writer waits for it: an index that is not valid then is nobody's work in progress. A concurrent
// drop has no such moment, and might hit what another process has rebuilt under the same name.
func (s *Store) dropIndexes(ctx context.Context, p MigrateParams, pick func(index) bool) error {
	return s.alone(ctx, p, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "LOCK TABLE "+s.names.table+" IN SHARE UPDATE EXCLUSIVE MODE"); err != nil {
			return err
		}
		c, err := s.dialect.inspect(ctx, tx, s.names)
		if err != nil {
			return err
		}
		for _, i := range c.indexes {
			if pick(i) {
				if _, err := tx.ExecContext(ctx, "DROP INDEX "+i.name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

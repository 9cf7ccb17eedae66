package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Schema returns the DDL of the table and its indexes for any names, each statement ended by a semicolon: for people who
// apply it with a tool of their own. It is what [Store.Migrate] runs. A senseless Config is an [store.InvalidError].
func Schema(d Dialect, cfg Config) (string, error) {
	n, _, err := cfg.resolve(d)
	if err != nil {
		return "", err
	}
	var ddl strings.Builder
	for i, statement := range render(d, n).schema {
		if i > 0 {
			ddl.WriteString("\n")
		}
		ddl.WriteString(statement.text + ";\n")
	}
	return ddl.String(), nil
}

// Migrate creates the table and its indexes where they do not exist. Any number of processes may call it at once, and it
// changes nothing that exists: a role that may not create anything will do where all is in place. A table of that name
// with other columns is a [SchemaError].
func (s *Store) Migrate(ctx context.Context) error {
	return s.inTx(ctx, "migrate", func(tx *sql.Tx) error {
		if err := s.dialect.lockSchema(ctx, tx, s.sql, s.names); err != nil {
			return err
		}
		c, err := s.dialect.inspect(ctx, tx, s.names)
		if err != nil {
			return err
		}
		if len(c.columns) == 0 {
			if err := s.sql.schema[0].exec(ctx, tx); err != nil {
				return err
			}
			if c, err = s.dialect.inspect(ctx, tx, s.names); err != nil {
				return err
			}
		}
		if problems := c.compareColumns(s.sql.schema[0].text, s.names); len(problems) > 0 {
			return &SchemaError{Problems: problems}
		}
		if key, turn, end := c.lacks(s.names); !key && !turn && !end {
			return nil
		}
		for _, index := range s.sql.schema[1:] {
			if err := index.exec(ctx, tx); err != nil {
				return err
			}
		}
		// An index of that name may exist on another table, such as this one under an earlier name.
		if c, err = s.dialect.inspect(ctx, tx, s.names); err != nil {
			return err
		}
		if problems, _ := c.compareIndexes(s.names); len(problems) > 0 {
			return &SchemaError{Problems: problems}
		}
		return nil
	})
}

// SchemaError says what about the database is not as the store needs it. It holds names and settings, no data.
type SchemaError struct {
	Problems []string // each a sentence with its remedy
}

func (e *SchemaError) Error() string {
	return "outbox: the database is not as it should be: " + strings.Join(e.Problems, "; ")
}

// Check compares the database with what the store needs: columns, indexes, the engine's version and settings. What
// breaks the promise, or the store, is a [SchemaError] that names every problem; what merely costs speed or durability
// is returned as advice, in sentences. Other errors mean that it could not look.
func (s *Store) Check(ctx context.Context) (advice []string, err error) {
	problems, advice, err := s.dialect.settings(ctx, s.db)
	if err != nil {
		return nil, s.fail("check", err)
	}
	c, err := s.dialect.inspect(ctx, s.db, s.names)
	switch {
	case err != nil && len(problems) > 0: // which may be why
		return advice, &SchemaError{Problems: problems}
	case err != nil:
		return nil, s.fail("check", err)
	case len(c.columns) == 0:
		missing := fmt.Sprintf("table %s does not exist: run Migrate, or apply Schema", s.names.table)
		return advice, &SchemaError{Problems: append(problems, missing)}
	}
	problems = append(problems, c.compareColumns(s.sql.schema[0].text, s.names)...)
	missing, slow := c.compareIndexes(s.names)
	problems, advice = append(problems, missing...), append(advice, slow...)
	if !slices.ContainsFunc(c.checks, func(def string) bool { return strings.Contains(def, "estado") }) {
		var unknown int
		if err := s.db.QueryRowContext(ctx, s.sql.unknown.text).Scan(&unknown); err != nil {
			return nil, s.fail("check", err)
		}
		advice = append(advice, fmt.Sprintf("no CHECK constraint lists the states; rows in an unknown state, which no worker ever takes: %d (counted up to 1000)", unknown))
	}
	if len(problems) > 0 {
		return advice, &SchemaError{Problems: problems}
	}
	return advice, nil
}

// catalog is what a database says of the table.
type catalog struct {
	columns map[string]column
	indexes []index
	checks  []string // definitions
	unfit   []string // why it cannot be an outbox at all

	fits func(have, want string) bool // whether another type holds as much; nil: none does

	// The primary key is the end of every index and need not be named in one, and statements name the index they walk.
	clustered bool
}

type column struct {
	kind      string
	notNull   bool
	generated bool
}

type index struct {
	name                   string
	unique, partial, valid bool
	predicate              string
	columns                []string
}

func scanColumns(rows *sql.Rows) (map[string]column, error) {
	all := map[string]column{}
	err := each(rows, func(scan func(...any) error) error {
		var name string
		var c column
		err := scan(&name, &c.kind, &c.notNull, &c.generated)
		all[name] = c
		return err
	})
	return all, err
}

func scanIndexes(rows *sql.Rows) (all []index, err error) {
	err = each(rows, func(scan func(...any) error) error {
		var i index
		var cols string
		err := scan(&i.name, &i.unique, &i.partial, &i.valid, &i.predicate, &cols)
		i.columns = strings.Split(cols, ",")
		all = append(all, i)
		return err
	})
	return all, err
}

// ddlColumn finds the columns in our own CREATE TABLE.
var ddlColumn = regexp.MustCompile(`(?m)^\t["` + "`" + `]?(\w+)["` + "`" + `]? ([a-z]+(?:\(\d+\))?)(.*)$`)

// compareColumns holds the table against our own DDL. Columns of the application's own are fine.
func (c catalog) compareColumns(ddl string, n names) (problems []string) {
	for _, why := range c.unfit {
		problems = append(problems, fmt.Sprintf("table %s must be an ordinary table of its own: %s", n.table, why))
	}
	for _, want := range ddlColumn.FindAllStringSubmatch(ddl, -1) {
		name, kind := want[1], want[2]
		have, ok := c.columns[name]
		switch generated := strings.Contains(want[3], "GENERATED"); {
		case !ok:
			problems = append(problems, fmt.Sprintf("table %s has no column %s (%s)", n.table, name, kind))
		case have.kind != kind && (c.fits == nil || !c.fits(have.kind, kind)):
			problems = append(problems, fmt.Sprintf("column %s of table %s is of type %s, not %s", name, n.table, have.kind, kind))
		case have.generated != generated:
			problems = append(problems, fmt.Sprintf("column %s of table %s must be a stored generated column", name, n.table))
		case strings.Contains(want[3], "NOT NULL") && !have.notNull:
			problems = append(problems, fmt.Sprintf("column %s of table %s must be NOT NULL", name, n.table))
		}
	}
	return problems
}

// lacks looks for the three indexes by what they hold, whatever they are called.
func (c catalog) lacks(n names) (key, turn, end bool) {
	has := func(quotedName string, unique bool, columns ...string) bool {
		return slices.ContainsFunc(c.indexes, func(i index) bool {
			fits := i.valid && (i.unique || !unique) && !(unique && i.partial) && slices.Equal(i.columns, columns)
			return fits && (!c.clustered || strings.Contains(quotedName, i.name))
		})
	}
	turnColumns, endColumns := c.queue()
	return !has(n.keyIndex, true, n.plainTenant, "clave_idempotencia"), !has(n.turnIndex, false, turnColumns...), !has(n.endIndex, false, endColumns...)
}

// queue is what the indexes of the queue and of the history hold.
func (c catalog) queue() (turn, end []string) {
	turn, end = []string{"canal", "turno", "id"}, []string{"terminado", "id"}
	if c.clustered {
		turn, end = turn[:2], end[:1]
	}
	return turn, end
}

// compareIndexes says which are missing, and which slow claims down.
func (c catalog) compareIndexes(n names) (problems, advice []string) {
	noKey, noTurn, noEnd := c.lacks(n)
	turn, end := c.queue()
	called := func(quotedName string) string {
		if c.clustered {
			return " called " + quotedName
		}
		return ""
	}
	if noKey {
		problems = append(problems, fmt.Sprintf("table %s has no unique index on (%s, clave_idempotencia)%s: messages could be enqueued twice", n.table, n.plainTenant, called(n.keyIndex)))
	}
	if noTurn {
		problems = append(problems, fmt.Sprintf("table %s has no index on (%s)%s: every claim would sort the whole backlog", n.table, strings.Join(turn, ", "), called(n.turnIndex)))
	}
	if noEnd {
		slow := fmt.Sprintf("table %s has no index on (%s)%s: purges and operators' lists read the whole table", n.table, strings.Join(end, ", "), called(n.endIndex))
		if c.clustered {
			problems = append(problems, slow)
		} else {
			advice = append(advice, slow)
		}
	}
	if c.clustered { // no update here is heap-only
		return problems, advice
	}
	for _, i := range c.indexes {
		for _, hot := range []string{"estado", "intentos", "bloqueado_hasta", "reclamo", "actualizado_en"} {
			if slices.Contains(i.columns, hot) || strings.Contains(i.predicate, hot) {
				advice = append(advice, fmt.Sprintf("index %s holds %s, which changes at every claim: claims cannot be heap-only updates", i.name, hot))
				break
			}
		}
	}
	return problems, advice
}

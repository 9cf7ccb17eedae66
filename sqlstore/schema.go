package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Schema returns the DDL of the table and its indexes for any names, each statement ended by a semicolon: for people who
// apply it with a tool of their own. It is what [Store.Migrate] runs where there is no table. A senseless Config is an [store.InvalidError].
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

// MigrateParams says how far [Store.MigrateWith] may go on a table that exists. The zero value is what [Store.Migrate]
// does. All of it is for PostgreSQL; elsewhere nothing is added to a table that exists, but indexes on SQLite.
type MigrateParams struct {
	// MaxRows is how large a table may be that has to be rewritten, in rows of any state: adding the two generated columns
	// writes the whole table anew while nobody can read it, some seconds for a million rows. Default 500,000; negative: no
	// limit.
	MaxRows int

	// LockTimeout is how long at most one try waits for the table's lock, and with it all who come later and want the
	// table. Whole milliseconds, at least 1; default 2 s. With no more than the server's deadlock_timeout, which is
	// 1 s, an autovacuum of the table does not give way. There are six tries, with pauses that grow from LockTimeout to 10 s.
	LockTimeout time.Duration

	// DropOldIndex drops the TypeScript package's index on (estado, proximo_intento_en, programado_para), which makes every
	// claim and settlement more expensive. Only its own workers need it.
	DropOldIndex bool
}

const (
	defaultMaxRows     = 500_000
	defaultLockTimeout = 2 * time.Second
)

// Migrate creates the table and its indexes, or adds what a table of the TypeScript package's lacks: it is MigrateWith
// with no more than the defaults allow.
func (s *Store) Migrate(ctx context.Context) error { return s.MigrateWith(ctx, MigrateParams{}) }

// MigrateWith creates the table and its indexes where they do not exist. On PostgreSQL it also adopts a table of the
// TypeScript package's: it adds the columns, the CHECK of the states and the indexes that are missing. It changes no
// value of a column that exists, and any number of processes may call it at once; where all is in place, a role that may not
// create anything will do.
//
// A column of the right name and the wrong definition, a table too large to be rewritten (see MaxRows) and an engine
// that cannot add what is missing are a [SchemaError], and nothing has been changed then. Where others keep the table
// locked for too long, it is a [TableBusyError]. What is done before an error stays; another call goes on from there.
//
// On a table that exists, indexes are built without holding anybody up, which waits for the transactions that are open;
// and the CHECK, which rows in an unknown state would violate, applies at first to what is written from now on alone: see
// [Store.Check]. A senseless MigrateParams is an [store.InvalidError].
func (s *Store) MigrateWith(ctx context.Context, p MigrateParams) error {
	if p.MaxRows == 0 {
		p.MaxRows = defaultMaxRows
	}
	if p.LockTimeout == 0 {
		p.LockTimeout = defaultLockTimeout
	}
	if p.LockTimeout < time.Millisecond {
		return &store.InvalidError{Field: "MigrateParams.LockTimeout", Reason: "must be at least 1 ms"}
	}
	var c catalog
	err := s.retry(ctx, "migrate", func() (err error) {
		c, err = s.dialect.inspect(ctx, s.db, s.names)
		return err
	})
	if err != nil {
		return err
	}
	if len(c.columns) > 0 && s.dialect.adopts() {
		return s.adopt(ctx, p)
	}
	return s.create(ctx)
}

// create makes the table with all that belongs to it, in one transaction.
func (s *Store) create(ctx context.Context) error {
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
		missing, problems := c.compareColumns(s.sql.schema[0].text, s.names)
		if len(missing) > 0 {
			problems = append(problems, lacking(missing, s.names)...)
			problems = append(problems, "they cannot be added to it here: make a table under another name with Schema, copy the rows with INSERT INTO ... SELECT, naming the columns of both, and rename the two")
		}
		if len(problems) > 0 {
			return &SchemaError{Problems: problems}
		}
		if key, turn, end := c.wanted(s.names); c.has(key) && c.has(turn) && c.has(end) {
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
	missing, wrong := c.compareColumns(s.sql.schema[0].text, s.names)
	problems = append(problems, wrong...)
	problems = append(problems, lacking(missing, s.names)...)
	noIndex, slow := c.compareIndexes(s.names)
	problems = append(problems, noIndex...)
	advice = append(advice, slow...)
	if s.names.highVolume && s.sql.storage.text != "" {
		rows, err := s.sql.storageOf.query(ctx, s.db, s.names.table)
		if err != nil {
			return nil, s.fail("check", err)
		}
		have, err := scanStrings(rows)
		if err != nil {
			return nil, s.fail("check", err)
		}
		lacking := slices.DeleteFunc(strings.Split(s.sql.storage.text, ", "), func(p string) bool { return slices.Contains(have, p) })
		if len(lacking) > 0 {
			advice = append(advice, fmt.Sprintf("table %[1]s is not stored as Config.HighVolume has it; for what is written from then on: ALTER TABLE %[1]s SET (%[2]s)",
				s.names.table, strings.Join(lacking, ", ")))
		}
	}
	if listed, valid := c.listsStates(); !valid {
		unknown, err := s.unknownStates(ctx)
		if err != nil {
			return nil, s.fail("check", err)
		}
		what := "no CHECK constraint lists the states"
		if listed {
			what = "the CHECK constraint of the states is NOT VALID yet: correct the rows that violate it, then Migrate again"
		}
		advice = append(advice, fmt.Sprintf("%s; rows in an unknown state, which no worker ever takes: %s", what, unknown))
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
	kind       string
	notNull    bool
	generated  bool
	expression string // that generates it, as normalize leaves it; "" where the dialect does not say
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
		err := scan(&name, &c.kind, &c.notNull, &c.generated, &c.expression)
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

// unknownStates counts the rows in states that are none, by state, up to 1000 rows.
func (s *Store) unknownStates(ctx context.Context) (string, error) {
	rows, err := s.sql.unknown.query(ctx, s.db)
	if err != nil {
		return "", err
	}
	const shown = 5
	total, states := 0, []string{}
	err = each(rows, func(scan func(...any) error) error {
		var name string
		var n int
		err := scan(&name, &n)
		total += n
		if len(states) < shown {
			states = append(states, fmt.Sprintf("%.40q %d", name, n))
		} else if len(states) == shown {
			states = append(states, "and others")
		}
		return err
	})
	if total == 0 {
		return "0", err
	}
	return fmt.Sprintf("%d (%s; counted up to 1000)", total, strings.Join(states, ", ")), err
}

// listsStates reports whether a CHECK knows all states, and whether one of them holds for every row.
func (c catalog) listsStates() (listed, valid bool) {
	for _, def := range c.checks {
		if !slices.ContainsFunc(state.States(), func(st state.State) bool { return !strings.Contains(def, "'"+string(st)+"'") }) {
			listed = true
			valid = valid || !strings.HasSuffix(def, "NOT VALID")
		}
	}
	return listed, valid
}

// ddlColumn is a column of our own CREATE TABLE.
type ddlColumn struct {
	name, kind, definition string
	notNull                bool
	expression             string // "" unless generated
}

var (
	columnLine = regexp.MustCompile(`(?m)^\t(\W?(\w+)\W? ([a-z]+(?:\(\d+\))?).*?),?$`)
	generation = regexp.MustCompile(`GENERATED ALWAYS AS \((.*)\) STORED`)
)

func ddlColumns(ddl string) (all []ddlColumn) {
	for _, m := range columnLine.FindAllStringSubmatch(ddl, -1) {
		c := ddlColumn{name: m[2], kind: m[3], definition: m[1]}
		c.notNull = strings.Contains(c.definition, "NOT NULL") || strings.Contains(c.definition, "PRIMARY KEY")
		if g := generation.FindStringSubmatch(c.definition); g != nil {
			c.expression = g[1]
		}
		all = append(all, c)
	}
	return all
}

// compareColumns holds the table against our own DDL: what it lacks, and what it has otherwise. Columns of the
// application's own are fine.
func (c catalog) compareColumns(ddl string, n names) (missing []ddlColumn, problems []string) {
	for _, why := range c.unfit {
		problems = append(problems, fmt.Sprintf("table %s must be an ordinary table of its own: %s", n.table, why))
	}
	for _, want := range ddlColumns(ddl) {
		have, ok := c.columns[want.name]
		switch generated := want.expression != ""; {
		case !ok:
			missing = append(missing, want)
		case have.kind != want.kind && (c.fits == nil || !c.fits(have.kind, want.kind)):
			problems = append(problems, fmt.Sprintf("column %s of table %s is of type %s, not %s", want.name, n.table, have.kind, want.kind))
		case generated && !have.generated:
			problems = append(problems, fmt.Sprintf("column %s of table %s must be a stored generated column", want.name, n.table))
		case !generated && have.generated:
			problems = append(problems, fmt.Sprintf("column %s of table %s must not be a generated column", want.name, n.table))
		case generated && have.expression != "" && have.expression != normalize(want.expression):
			problems = append(problems, fmt.Sprintf("column %s of table %s is not generated as %s", want.name, n.table, want.expression))
		case want.notNull && !have.notNull:
			problems = append(problems, fmt.Sprintf("column %s of table %s must be NOT NULL", want.name, n.table))
		case !want.notNull && !generated && have.notNull:
			problems = append(problems, fmt.Sprintf("column %s of table %s must not be NOT NULL", want.name, n.table))
		}
	}
	return missing, problems
}

// normalize takes from an expression what one writes this way and another that way: the engines' own spelling of our
// generated columns becomes ours.
func normalize(expression string) string {
	return spelling.Replace(strings.ToLower(expression))
}

var spelling = strings.NewReplacer(
	"= any (array[", "in", "::text", "", "::timestamp with time zone", "", "else null", "",
	"_utf8mb4", "", "`", "", `"`, "", "\\", "", // MySQL's
	"(", "", ")", "", "[", "", "]", "", " ", "", "\n", "", "\t", "")

func lacking(missing []ddlColumn, n names) (problems []string) {
	for _, c := range missing {
		problems = append(problems, fmt.Sprintf("table %s has no column %s (%s)", n.table, c.name, c.kind))
	}
	return problems
}

// wanted are the three indexes that the table needs, in the order of the statements that create them. Where statements
// name the index that they walk, it has to have our name.
func (c catalog) wanted(n names) (key, turn, end index) {
	key = index{unique: true, columns: []string{n.plainTenant, "clave_idempotencia"}}
	turn = index{columns: []string{"canal", "turno", "id"}}
	end = index{columns: []string{"terminado", "id"}}
	if c.clustered {
		turn.columns, end.columns = turn.columns[:2], end.columns[:1]
		key.name, turn.name, end.name = n.keyIndex, n.turnIndex, n.endIndex
	}
	return key, turn, end
}

// has looks for an index by what it holds.
func (c catalog) has(want index) bool {
	return slices.ContainsFunc(c.indexes, func(i index) bool {
		return i.valid && (i.unique && !i.partial || !want.unique) && slices.Equal(i.columns, want.columns) && (want.name == "" || i.name == want.name)
	})
}

func (i index) String() string {
	text := "index on (" + strings.Join(i.columns, ", ") + ")"
	if i.unique {
		text = "unique " + text
	}
	if i.name != "" {
		text += " called " + i.name
	}
	return text
}

// old reports whether it is the TypeScript package's index for its claims.
func (i index) old() bool {
	return !i.unique && slices.Equal(i.columns, []string{"estado", "proximo_intento_en", "programado_para"})
}

// compareIndexes looks for those that the table needs, and for what makes others a burden.
func (c catalog) compareIndexes(n names) (problems, advice []string) {
	key, turn, end := c.wanted(n)
	if !c.has(key) {
		problems = append(problems, fmt.Sprintf("table %s has no %s: messages could be enqueued twice", n.table, key))
	}
	if !c.has(turn) {
		problems = append(problems, fmt.Sprintf("table %s has no %s: every claim would sort the whole backlog", n.table, turn))
	}
	switch slow := fmt.Sprintf("table %s has no %s: purges and operators' lists read the whole table", n.table, end); {
	case c.has(end):
	case c.clustered: // and fail
		problems = append(problems, slow)
	default:
		advice = append(advice, slow)
	}
	if c.clustered { // no update here is heap-only
		return problems, advice
	}
	for _, i := range c.indexes {
		if !i.valid {
			advice = append(advice, fmt.Sprintf("index %s is not valid, as one is that was not built to its end: every write pays for it and no query uses it; Migrate builds those of the table's own anew", i.name))
		}
		for _, hot := range []string{"estado", "intentos", "bloqueado_hasta", "reclamo", "actualizado_en"} {
			if slices.Contains(i.columns, hot) || strings.Contains(i.predicate, hot) {
				what := fmt.Sprintf("index %s holds %s, which changes at every claim: claims cannot be heap-only updates", i.name, hot)
				if i.old() {
					what += "; once no worker of the TypeScript package runs on the table, MigrateWith drops it with DropOldIndex"
				}
				advice = append(advice, what)
				break
			}
		}
	}
	return problems, advice
}

package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	sqlitedriver "modernc.org/sqlite"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// What the statements read of a large table. The words of a plan say which way the engine goes; the number of index
// entries that it read says how far.

const (
	history  = 200_000 // rows
	inFlight = 50_000  // at the head of the queue
	equals   = 100_000 // with one turn
	spread   = 100_000 // one microsecond apart
	future   = 50_000
	batch    = 100
	statsCap = 1000
)

// volume is what an engine adds to be measured.
type volume struct {
	name    string
	dialect Dialect
	open    func(t *testing.T) (db *sql.DB, bulk func(statement string, args ...any))

	// insert writes rows $1 to $2, with channel $3 and state $4. The first one's turn is $5, each further one's $6
	// microseconds later, and so is the last change, from $8 on. The lease ends at $7.
	insert string

	settings  []string                                          // ways to plan, each a statement that chooses one for the transaction
	forbidden []string                                          // words in the plan of what reads too much or sorts
	measure   func(t *testing.T, tx *sql.Tx, s sentSQL) reading // and runs it
}

// reading is what a statement did.
type reading struct {
	plan    string
	entries int // of indexes of the table, read
}

var volumes = []volume{
	{
		name: "postgres/pq", dialect: Postgres,
		open: func(t *testing.T) (*sql.DB, func(string, ...any)) {
			db := openDB(t, "postgres", dbtest.Postgres(t))
			newBox(t, engines[0], db, Config{})
			exec(t, db, "ALTER TABLE outbox SET (autovacuum_enabled = off)") // it would analyze
			return db, func(statement string, args ...any) { execArgs(t, db, statement, args...) }
		},
		insert: `
INSERT INTO outbox (id, organizacion_id, destino, plantilla, clave_idempotencia, canal, estado, programado_para, bloqueado_hasta, actualizado_en)
SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '` + tenant + `', 'ana@club.example', 'aviso', 'k-' || n,
	$3, $4, $5::timestamptz + (n - $1) * $6 * interval '1 microsecond', $7::timestamptz,
	$8::timestamptz + (n - $1) * $6 * interval '1 microsecond'
FROM generate_series($1::bigint, $2::bigint) AS n`,
		// A driver that prepares its statements comes to a generic plan sooner or later.
		settings:  []string{"SET LOCAL plan_cache_mode = force_custom_plan", "SET LOCAL plan_cache_mode = force_generic_plan"},
		forbidden: []string{`"Sort"`, `"Incremental Sort"`, `"Seq Scan"`, `"Bitmap`, `"Hash Join"`, `"Merge Join"`},
		measure:   measurePostgres,
	},
	{
		name: "mariadb", dialect: MySQL,
		open: func(t *testing.T) (*sql.DB, func(string, ...any)) {
			db := openDB(t, "mysql", dbtest.MariaDB(t)+"?interpolateParams=true&max_recursive_iterations=1000000")
			newBox(t, engine{dialect: MySQL}, db, Config{})
			exec(t, db, "ALTER TABLE outbox STATS_AUTO_RECALC = 0") // it would analyze
			return db, func(statement string, args ...any) {
				if statement == "ANALYZE" {
					statement = "ANALYZE TABLE outbox"
				}
				if len(args) > 0 {
					numbered := MySQL.compile(statement)
					statement, args = numbered.text, numbered.arrange(args)
				}
				execArgs(t, db, statement, args...)
			}
		},
		insert: `
INSERT INTO outbox (id, organizacion_id, destino, plantilla, clave_idempotencia, canal, estado, programado_para, bloqueado_hasta, actualizado_en)
WITH RECURSIVE s(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM s WHERE n < ?2)
SELECT concat('00000000-0000-7000-8000-', lpad(n, 12, '0')), '` + tenant + `', 'ana@club.example', 'aviso', concat('k-', n),
	?3, ?4, cast(?5 AS datetime(6)) + INTERVAL (n - ?1) * ?6 MICROSECOND, ?7,
	cast(?8 AS datetime(6)) + INTERVAL (n - ?1) * ?6 MICROSECOND FROM s`,
		settings:  []string{"DO 0"}, // there is one way
		forbidden: []string{"filesort", "temporary", "outbox ALL", "o ALL", "outbox index", "o index"},
		measure:   measureMySQL,
	},
	{
		name: "sqlite/modernc", dialect: SQLite,
		open: func(t *testing.T) (*sql.DB, func(string, ...any)) {
			file := sqliteFile(t)
			db := openDB(t, "sqlite", file+"?_txlock=immediate&_pragma=synchronous(off)")
			newBox(t, engine{dialect: SQLite}, db, Config{})
			return db, func(statement string, args ...any) {
				bulk, err := sql.Open(bulkSQLite, file)
				if err != nil {
					t.Fatal(err)
				}
				defer bulk.Close()
				execArgs(t, bulk, "PRAGMA synchronous = off")
				execArgs(t, bulk, statement, args...)
			}
		},
		insert: `
WITH RECURSIVE s(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM s WHERE n < ?2)
INSERT INTO outbox (id, organizacion_id, destino, plantilla, clave_idempotencia, canal, estado, programado_para, bloqueado_hasta, actualizado_en)
SELECT printf('00000000-0000-7000-8000-%012d', n), '` + tenant + `', 'ana@club.example', 'aviso', 'k-' || n,
	?3, ?4, ?5 + (n - ?1) * ?6, ?7, ?8 + (n - ?1) * ?6 FROM s`,
		settings:  []string{"SELECT 1"}, // there is one way
		forbidden: []string{"TEMP B-TREE", "SCAN o", "SCAN t"},
		measure:   measureSQLite,
	},
}

// bulkSQLite is the driver that fills a SQLite file: one in Go takes minutes under the race detector, so where there is
// cgo it is another one.
var bulkSQLite = "sqlite"

func execArgs(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Neither history nor backlog, neither rows in flight nor those of the future make a statement read more, and statistics
// change nothing: except that what begins at the head of the queue walks over the rows in flight.
func TestPlans(t *testing.T) {
	for _, v := range volumes {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			db, bulk := v.open(t)
			now, rows := time.Now(), 0
			at := func(d time.Duration) any { return v.dialect.time(now.Add(d)) }
			insert := func(n int, channel string, s state.State, turn time.Duration, step int, lease, changed any) {
				bulk(v.insert, rows+1, rows+n, channel, string(s), at(turn), step, lease, changed)
				rows += n
			}
			insert(history, "correo", state.Sent, -24*time.Hour, 1, nil, at(-24*time.Hour))
			insert(inFlight, "correo", state.Processing, -3*time.Hour, 1, at(time.Hour), at(0))
			insert(equals, "correo", state.Pending, -2*time.Hour, 0, nil, at(0))
			amid := store.Mark{Turn: now.Add(-2 * time.Hour), ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", rows-equals/2)}
			insert(spread, "correo", state.Pending, -time.Hour, 1, nil, at(0))
			end := store.Mark{Turn: now.Add(-time.Hour + spread*time.Microsecond)}
			insert(future, "correo", state.Pending, time.Hour, 1, nil, at(0))
			channels := []string{"correo", "a", "b", "y", "z"}
			for _, c := range channels[1:] {
				insert(1, c, state.Pending, -time.Hour, 0, nil, at(0))
			}

			ctx, box := t.Context(), newBox(t, engine{dialect: v.dialect}, db, Config{})
			params := store.ClaimParams{Channel: "correo", Limit: batch, Lease: time.Hour}
			claimed, err := box.Claim(ctx, params)
			if err != nil || len(claimed.Messages) != batch {
				t.Fatalf("claimed %d rows, %v", len(claimed.Messages), err)
			}
			var group []store.Settlement
			var fences []store.Fence
			for _, m := range claimed.Messages {
				group, fences = append(group, sent(m)), append(fences, m.Fence())
			}

			claim := func(from store.Mark, exhausted bool) func(*Store) error {
				return func(box *Store) error {
					p := params
					p.From, p.ReturnExhausted = from, exhausted
					_, err := box.Claim(ctx, p)
					return err
				}
			}
			cases := []planCase{
				{name: "claim from the head", run: claim(store.Mark{}, false), least: inFlight + batch, most: inFlight + 3*batch},
				{name: "claim from its own mark", run: claim(claimed.Mark, false), least: batch, most: 2 * batch},
				{name: "claim amid equal turns", run: claim(amid, false), least: batch, most: batch + 1},
				{name: "claim with the exhausted", run: claim(amid, true), least: batch, most: 3 * batch, loose: true},
				{name: "claim at the end", run: claim(end, false), most: 2},
				{name: "settle, and find it settled", run: func(box *Store) error {
					_, err := box.Settle(ctx, group)
					return err
				}, least: 2 * batch, most: 2 * batch, more: batch},
				{name: "renew", run: func(box *Store) error {
					_, err := box.Renew(ctx, fences, time.Minute)
					return err
				}, least: batch, most: batch, more: batch},
				{name: "purge", run: func(box *Store) error {
					_, err := box.Purge(ctx, store.PurgeParams{Before: now, Batch: batch})
					return err
				}, least: batch, most: batch + 1},
				{name: "next due", run: func(box *Store) error {
					_, _, err := box.NextDue(ctx, channels[:1])
					return err
				}, least: 1, most: 2},
				{name: "channels", run: func(box *Store) error {
					for _, last := range append([]string{""}, channels...) {
						if err := run(ctx, box, box.sql.nextChannel, last); err != nil {
							return err
						}
					}
					return nil
				}, least: len(channels), most: len(channels) + 1, more: len(channels)},
				{name: "oldest due", run: func(box *Store) error {
					return run(ctx, box, box.sql.oldestDue, at(0), "correo")
				}, least: inFlight + batch, most: inFlight + 2*batch},
				{name: "live rows", run: func(box *Store) error {
					return run(ctx, box, box.sql.liveCounts, "correo", statsCap)
				}, least: statsCap, most: statsCap + 1, more: statsCap, loose: true, statistics: true},
				{name: "ended rows", run: func(box *Store) error {
					return run(ctx, box, box.sql.endedCounts, at(-25*time.Hour), statsCap)
				}, least: statsCap, most: statsCap + 1, more: statsCap, loose: true},
			}
			cases = append(cases, writes(v.dialect, at(0), claimed.Messages)...)
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					bulk("ANALYZE")
				}
				for _, setting := range v.settings {
					for _, c := range cases {
						if c.statistics && !analyzed {
							continue
						}
						what := fmt.Sprintf("%s (analyzed: %v, %s)", c.name, analyzed, setting)
						r := v.read(t, db, setting, c.run)
						t.Logf("%s: %d entries", what, r.entries)
						most := c.most
						if v.dialect == MySQL {
							most += c.more
						}
						if r.entries < c.least || r.entries > most {
							t.Errorf("%s reads %d entries, want %d to %d:\n%s", what, r.entries, c.least, most, r.plan)
						}
						for _, word := range v.forbidden {
							if !c.loose && strings.Contains(r.plan, word) {
								t.Errorf("%s has %q in its plan:\n%s", what, word, r.plan)
							}
						}
					}
				}
			}
		})
	}
}

// planCase is something that a store does.
type planCase struct {
	name        string
	run         func(*Store) error
	least, most int  // entries
	more        int  // on an engine that locks before it writes, and then looks again for what it did not find
	loose       bool // it may sort or walk what its limit has cut off
	statistics  bool // it needs them
}

// writes are what an engine sends only where a statement before has found rows.
func writes(d Dialect, now any, rows []store.Message) []planCase {
	if d != MySQL {
		return nil
	}
	var taken [][]any
	var group []store.Settlement
	var ids []string
	for _, m := range rows {
		taken, group, ids = append(taken, []any{m.ID, 1, ""}), append(group, sent(m)), append(ids, m.ID)
	}
	table, _ := settlementTable(d, group)
	one := func(name string, statement func(*Store) statement, args ...any) planCase {
		return planCase{name: name, least: batch, most: batch, run: func(box *Store) error {
			return run(context.Background(), box, statement(box), args...)
		}}
	}
	return []planCase{
		one("write of a claim", func(box *Store) statement { return box.sql.claim }, now, now, tokenText(store.NewToken()), jsonTable(taken)),
		one("write of a settlement", func(box *Store) statement { return box.sql.settle }, now, table),
		one("write of a renewal", func(box *Store) statement { return box.sql.renew }, now, table, 1),
		one("write of a purge", func(box *Store) statement { return box.sql.purge }, nil, d.list(ids)),
		one("requeue", func(box *Store) statement { return box.sql.requeue.write }, now, d.list(ids)),
		one("keys in use", func(box *Store) statement { return box.sql.findMany }, nil, keyTable(newRows(rows))),
	}
}

func newRows(rows []store.Message) (all []newRow) {
	for _, m := range rows {
		r := newRow{id: m.ID}
		r.TenantID, r.IdempotencyKey = m.TenantID, m.IdempotencyKey
		all = append(all, r)
	}
	return all
}

// run sends one of the store's statements.
func run(ctx context.Context, box *Store, statement statement, args ...any) error {
	rows, err := statement.query(ctx, box.db, args...)
	if err != nil {
		return err
	}
	return rows.Close()
}

// read measures what op sends to the database, and rolls it back.
func (v volume) read(t *testing.T, db *sql.DB, setting string, op func(*Store) error) (total reading) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), setting); err != nil {
		t.Fatal(err)
	}
	for _, s := range record(t, v.dialect, op) {
		r := v.measure(t, tx, s)
		total.plan += r.plan
		total.entries += r.entries
	}
	return total
}

// sentSQL is a statement as a store sends it.
type sentSQL struct {
	text string
	args []any
}

// recorder is a database that takes everything, and finds nothing.
type recorder struct{ sent []sentSQL }

// record returns what op sends to a database that finds nothing.
func record(t *testing.T, d Dialect, op func(*Store) error) []sentSQL {
	t.Helper()
	var r recorder
	db := sql.OpenDB(&r)
	defer db.Close()
	box, err := New(db, d, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := op(box); err != nil {
		t.Fatal(err)
	}
	return r.sent
}

func (r *recorder) Connect(context.Context) (driver.Conn, error)                 { return r, nil }
func (r *recorder) Driver() driver.Driver                                        { return nil }
func (r *recorder) Prepare(string) (driver.Stmt, error)                          { return nil, driver.ErrSkip }
func (r *recorder) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return r, nil }
func (r *recorder) Begin() (driver.Tx, error)                                    { return r, nil }
func (r *recorder) Commit() error                                                { return nil }
func (r *recorder) Rollback() error                                              { return nil }
func (r *recorder) Columns() []string                                            { return nil }
func (r *recorder) Next([]driver.Value) error                                    { return io.EOF }
func (r *recorder) Close() error                                                 { return nil }

func (r *recorder) QueryContext(_ context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	r.add(text, args)
	return r, nil
}

func (r *recorder) ExecContext(_ context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	r.add(text, args)
	return driver.RowsAffected(0), nil
}

func (r *recorder) add(text string, named []driver.NamedValue) {
	args := make([]any, len(named))
	for i := range named {
		args[i] = named[i].Value
	}
	r.sent = append(r.sent, sentSQL{text, args})
}

// explained is a node of PostgreSQL's EXPLAIN.
type explained struct {
	Type     string  `json:"Node Type"`
	Rows     float64 `json:"Actual Rows"` // of one loop, as the next
	Filtered float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []explained
}

// entries counts those that the index scans gave.
func (e explained) entries() (n int) {
	if e.Type == "Index Scan" || e.Type == "Index Only Scan" {
		n = int((e.Rows + e.Filtered) * e.Loops)
	}
	for _, p := range e.Plans {
		n += p.entries()
	}
	return n
}

// measurePostgres explains a prepared statement, since another one is never planned for any values but its own.
func measurePostgres(t *testing.T, tx *sql.Tx, s sentSQL) reading {
	t.Helper()
	values := make([]string, len(s.args))
	for i, a := range s.args {
		switch a := a.(type) {
		case nil:
			values[i] = "NULL"
		case time.Time:
			values[i] = pq.QuoteLiteral(a.Format(time.RFC3339Nano))
		default:
			values[i] = pq.QuoteLiteral(fmt.Sprint(a))
		}
	}
	execute := "EXECUTE measured"
	if len(values) > 0 {
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	var plan string
	if _, err := tx.ExecContext(t.Context(), "PREPARE measured AS "+s.text); err != nil {
		t.Fatalf("%s: %v", s.text, err)
	}
	if err := tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+execute).Scan(&plan); err != nil {
		t.Fatalf("%s: %v", s.text, err)
	}
	if _, err := tx.ExecContext(t.Context(), "DEALLOCATE measured"); err != nil {
		t.Fatal(err)
	}
	var roots []struct{ Plan explained }
	if err := json.Unmarshal([]byte(plan), &roots); err != nil {
		t.Fatal(err)
	}
	return reading{plan, roots[0].Plan.entries()}
}

// measureMySQL counts what was read through indexes, whether or not it was of use: not the rows of JSON and derived
// tables, and not those of a scan of the table, which its plan shows.
func measureMySQL(t *testing.T, tx *sql.Tx, s sentSQL) reading {
	t.Helper()
	var before, after int
	const counter = `
SELECT cast(sum(variable_value) AS int) FROM information_schema.session_status
WHERE variable_name IN ('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev')`
	plan := strings.Join(lines(t, tx, "EXPLAIN "+s.text, s.args...), "\n") + "\n"
	if err := tx.QueryRowContext(t.Context(), counter).Scan(&before); err != nil {
		t.Fatal(err)
	}
	lines(t, tx, s.text, s.args...)
	if err := tx.QueryRowContext(t.Context(), counter).Scan(&after); err != nil {
		t.Fatal(err)
	}
	return reading{plan, after - before}
}

// lines reads all that a statement returns.
func lines(t *testing.T, tx *sql.Tx, statement string, args ...any) (all []string) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	err = each(rows, func(scan func(...any) error) error {
		cells, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			dest[i] = &cells[i]
		}
		err := scan(dest...)
		var line strings.Builder
		for _, c := range cells {
			line.WriteString(c.String + " ")
		}
		all = append(all, line.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// entriesRead counts the calls of recado_read, a function of modernc's driver.
var entriesRead atomic.Int64

func init() {
	sqlitedriver.MustRegisterScalarFunction("recado_read", 1, func(*sqlitedriver.FunctionContext, []driver.Value) (driver.Value, error) {
		entriesRead.Add(1)
		return int64(1), nil
	})
}

// condition is the first condition on the entries of an index, in each part of a statement.
var condition = regexp.MustCompile(`WHERE ((\S+) = |(\S*turno|terminado) IS NOT NULL)`)

// measureSQLite lets every entry that is read call a function, as the first of the conditions that are not the index's
// own. That must not change the plan.
func measureSQLite(t *testing.T, tx *sql.Tx, s sentSQL) reading {
	t.Helper()
	counting := condition.ReplaceAllString(s.text, "WHERE recado_read($2$3) AND $1")
	plan := queryPlan(t, tx, s.text, s.args)
	if with := queryPlan(t, tx, counting, s.args); with != plan {
		t.Errorf("counting changes the plan:\n%s%s", plan, with)
	}
	before := entriesRead.Load()
	rows, err := tx.QueryContext(t.Context(), counting, s.args...)
	if err == nil {
		err = each(rows, func(func(...any) error) error { return nil })
	}
	if err != nil {
		t.Fatalf("%s: %v", counting, err)
	}
	return reading{plan, int(entriesRead.Load() - before)}
}

func queryPlan(t *testing.T, tx *sql.Tx, text string, args []any) (plan string) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err == nil {
		err = each(rows, func(scan func(...any) error) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan += detail + "\n"
			return err
		})
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return plan
}

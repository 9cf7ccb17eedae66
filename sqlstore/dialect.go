package sqlstore

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Dialect is an engine: [Postgres], [MySQL] or [SQLite].
type Dialect interface {
	String() string

	// How names and values travel.
	quote(identifier string) string
	indexName(table, suffix string) string
	tenantType(text bool) string
	id(text string) (stored string, ok bool) // an id as it is stored, unless none can be
	time(t time.Time) any                    // the zero time is NULL
	list(items []string) any
	hasClock() bool            // the database's clock can decide
	txOptions() *sql.TxOptions // of transactions of our own

	// The SQL, as templates: see render.
	templates() templates
	compile(sql string) statement

	// The procedures that differ.
	insert(ctx context.Context, tx store.Tx, insert statement, prepared *sql.Stmt, args []any) (insertion, error)
	insertMany(ctx context.Context, tx store.Tx, q queries, now any, rows []newRow) (insertion, error)
	findMany(ctx context.Context, tx store.Tx, q queries, rows []newRow) (*sql.Rows, error)
	claim(ctx context.Context, tx *sql.Tx, q queries, now any, p store.ClaimParams, t store.Token) ([]store.Message, error)
	settle(ctx context.Context, tx *sql.Tx, q queries, now any, group []store.Settlement) (written []bool, err error)
	repeated(ctx context.Context, tx *sql.Tx, q queries, group []store.Settlement) (asLeft []bool, err error)
	renew(ctx context.Context, tx *sql.Tx, q queries, now any, fences []store.Fence, d time.Duration) (renewed []bool, err error)
	purge(ctx context.Context, tx *sql.Tx, q queries, args ...any) (ended []time.Time, err error)
	act(ctx context.Context, tx *sql.Tx, a act[statement], now, ids any) (done []string, err error)

	// What Migrate and Check look at.
	adopts() bool // what a table of the TypeScript package's lacks can be added to it: see Store.adopt
	lockSchema(ctx context.Context, tx *sql.Tx, q queries, n names) error
	inspect(ctx context.Context, q querier, n names) (catalog, error)
	settings(ctx context.Context, db *sql.DB) (problems, advice []string, err error)
}

// statement is SQL as it is sent. Its arguments are given in the order of the template's numbers; an engine whose
// parameters have only a position, and the driver that counts them, are told by order which one stands where.
type statement struct {
	text  string
	order []int // nil: as they are given
}

func (q statement) arrange(args []any) []any {
	if q.order == nil {
		return args
	}
	arranged := make([]any, len(q.order))
	for i, n := range q.order {
		arranged[i] = args[n]
	}
	return arranged
}

func (q statement) query(ctx context.Context, on querier, args ...any) (*sql.Rows, error) {
	return on.QueryContext(ctx, q.text, q.arrange(args)...)
}

func (q statement) exec(ctx context.Context, tx store.Tx, args ...any) error {
	_, err := tx.ExecContext(ctx, q.text, q.arrange(args)...)
	return err
}

// querier is a *sql.DB or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// statements is one engine's SQL, as templates or rendered. The first parameter is the time where a statement has a
// {now}. Those that begin with lock are for engines that cannot write and return rows at once: they lock and return what
// the statement of their name then writes.
type statements[T any] struct {
	schema             []T
	storage, storageOf T // parameters of a table with Config.HighVolume; those of a table

	insert, insertMany, find, findMany          T
	beforeClaim, claim                          T
	closing, lockClaim, peek, readBack          T
	lockFenced, settle, afterSettle             T
	repeated, renew, fenced                     T
	beforePurge, lockPurge, purge               T
	clock, get, getByKey                        T
	nextDue, nextChannel                        T
	oldestDue, liveCounts, endedCounts, unknown T
	requeue, cancel                             act[T]
}

type (
	templates = statements[string]
	queries   = statements[statement]
)

// act is what an operator does to rows.
type act[T any] struct{ lock, write T }

// The claim's own part of the lifecycle, for a row o: that it has come to its end, and state.Closing's code for it.
const (
	atEnd   = "(o.intentos >= o.max_intentos OR coalesce(o.vence_en <= {now}, false))"
	endCode = `CASE WHEN o.intentos >= o.max_intentos
		THEN CASE o.estado WHEN {procesando} THEN {lease_agotado} ELSE {intentos_agotados} END
		WHEN o.vence_en <= {now} THEN {vencido} END`
)

// columns are those of a row that have a fixed name, in the order in which they are read; the tenant's column comes
// second, behind the id.
var columns = []string{
	"id", "canal", "destino", "plantilla", "datos", "clave_idempotencia", "estado", "intentos", "max_intentos",
	"programado_para", "proximo_intento_en", "bloqueado_hasta", "reclamo", "vence_en", "ultimo_error_categoria",
	"ultimo_error_codigo", "dudas", "id_externo", "enviado_en", "creado_en", "actualizado_en", "cabeceras", "turno", "terminado",
}

// render fills the names, the states and the codes into a dialect's templates. States are literals and not parameters,
// since a bound one would lose the partial index; and they come from package state alone.
func render(d Dialect, n names) queries {
	t := d.templates()
	storage := ""
	if n.highVolume && t.storage != "" {
		storage = " WITH (" + t.storage + ")"
	}
	all := append([]string{columns[0], n.tenant}, columns[1:len(columns)-2]...) // without the generated ones
	pairs := []string{
		"{table}", n.table, "{local_table}", n.localTable, "{schema}", n.schema, "{storage}", storage, "{tenant}", n.tenant, "{tenant_type}", n.tenantType,
		"{key_index}", n.keyIndex, "{turn_index}", n.turnIndex, "{end_index}", n.endIndex,
		"{columns}", strings.Join(all, ", "), "{o.columns}", "o." + strings.Join(all, ", o."),
		"{states}", quoteStates(state.States()), "{live}", quoteStates(state.LiveStates()), "{terminal}", quoteStates(state.TerminalStates()),
		"{requeueable}", quoteStates(state.From(state.EventRequeue)), "{cancellable}", quoteStates(state.From(state.EventCancel)),
	}
	for _, st := range state.States() {
		pairs = append(pairs, "{"+string(st)+"}", "'"+string(st)+"'")
	}
	for _, code := range []string{
		state.CategoryNetwork, state.CategoryRejected,
		state.CodeLeaseExhausted, state.CodeAttemptsExhausted, state.CodeExpired, state.CodeCancelled,
	} {
		pairs = append(pairs, "{"+code+"}", "'"+code+"'")
	}
	replacer := strings.NewReplacer(pairs...)
	q := queries{schema: make([]statement, len(t.schema))}
	for i, to := range q.all() {
		sql := replacer.Replace(*t.all()[i])
		if left := unfilled.FindString(sql); left != "" {
			panic("sqlstore: template has an unknown name " + left)
		}
		*to = d.compile(strings.TrimSpace(sql))
	}
	return q
}

// all returns every statement.
func (q *statements[T]) all() []*T {
	all := []*T{
		&q.storage, &q.storageOf, &q.insert, &q.insertMany, &q.find, &q.findMany, &q.beforeClaim, &q.claim, &q.closing, &q.lockClaim, &q.peek, &q.readBack,
		&q.lockFenced, &q.settle, &q.afterSettle, &q.repeated, &q.renew, &q.fenced, &q.beforePurge, &q.lockPurge, &q.purge,
		&q.clock, &q.get, &q.getByKey, &q.nextDue, &q.nextChannel, &q.oldestDue, &q.liveCounts, &q.endedCounts, &q.unknown,
		&q.requeue.lock, &q.requeue.write, &q.cancel.lock, &q.cancel.write,
	}
	for i := range q.schema {
		all = append(all, &q.schema[i])
	}
	return all
}

var unfilled = regexp.MustCompile(`\{[a-z_.]+\}`)

// expand fills a dialect's own abbreviations into its templates, in the order given, so that one may use the next.
func expand(t templates, pairs ...string) templates {
	for _, s := range t.all() {
		for i := 0; i < len(pairs); i += 2 {
			*s = strings.ReplaceAll(*s, pairs[i], pairs[i+1])
		}
	}
	return t
}

// returning is what engines have in common that can write rows and return them at once.
type returning struct{}

func (returning) indexName(table, suffix string) string { return derived(table, suffix) }

func (returning) compile(sql string) statement { return statement{text: sql} }

func (returning) insert(ctx context.Context, tx store.Tx, insert statement, prepared *sql.Stmt, args []any) (insertion, error) {
	var rows *sql.Rows
	var err error
	if prepared != nil {
		rows, err = prepared.QueryContext(ctx, args...)
	} else {
		rows, err = insert.query(ctx, tx, args...)
	}
	if err != nil {
		return insertion{}, err
	}
	ids, err := set(scanStrings(rows))
	return insertion{ids: ids}, err
}

func (returning) purge(ctx context.Context, tx *sql.Tx, q queries, args ...any) ([]time.Time, error) {
	if q.beforePurge.text != "" {
		if err := q.beforePurge.exec(ctx, tx); err != nil {
			return nil, err
		}
	}
	rows, err := q.purge.query(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	return scanTimes(rows)
}

func (returning) act(ctx context.Context, tx *sql.Tx, a act[statement], now, ids any) ([]string, error) {
	rows, err := a.write.query(ctx, tx, now, ids)
	if err != nil {
		return nil, err
	}
	return scanStrings(rows)
}

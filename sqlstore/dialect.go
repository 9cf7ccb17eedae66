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

// Dialect is an engine: [Postgres] or [SQLite].
type Dialect interface {
	String() string

	// How names and values travel.
	quote(identifier string) string
	tenantType(text bool) string
	id(text string) (stored string, ok bool) // an id as it is stored, unless none can be
	time(t time.Time) any                    // the zero time is NULL
	list(items []string) any
	hasClock() bool            // the database's clock can decide
	txOptions() *sql.TxOptions // of transactions of our own

	// The SQL, as templates: see render.
	statements() statements

	// The procedures that differ.
	insertMany(ctx context.Context, tx store.Tx, q statements, now any, rows []newRow) (inserted map[string]bool, err error)
	findMany(ctx context.Context, tx store.Tx, q statements, rows []newRow) (*sql.Rows, error)
	claim(ctx context.Context, tx *sql.Tx, q statements, now any, p store.ClaimParams, t store.Token) ([]store.Message, error)
	settle(ctx context.Context, tx *sql.Tx, q statements, now any, group []store.Settlement) (written []bool, err error)
	repeated(ctx context.Context, tx *sql.Tx, q statements, group []store.Settlement) (asLeft []bool, err error)
	renew(ctx context.Context, tx *sql.Tx, q statements, now any, fences []store.Fence, d time.Duration) (renewed []bool, err error)

	// What Migrate and Check look at.
	adopts() bool // what a table of the TypeScript package's lacks can be added to it: see Store.adopt
	lockSchema(ctx context.Context, tx *sql.Tx, n names) error
	inspect(ctx context.Context, q querier, n names) (catalog, error)
	settings(ctx context.Context, db *sql.DB) (problems, advice []string, err error)
}

// statements is one engine's SQL. The first parameter is the time where a statement has a {now}.
type statements struct {
	schema []string

	insert, insertMany, find, findMany string
	beforeClaim, claim                 string
	closing, peek, readBack            string
	settle, afterSettle                string
	repeated, renew                    string
	purge                              string

	clock, get, getByKey               string
	nextDue, channels                  string
	oldestDue, liveCounts, endedCounts string
	requeue, cancel, unknown           string
}

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
func render(d Dialect, n names) statements {
	all := append([]string{columns[0], n.tenant}, columns[1:len(columns)-2]...) // without the generated ones
	pairs := []string{
		"{table}", n.table, "{local_table}", n.localTable, "{schema}", n.schema, "{tenant}", n.tenant, "{tenant_type}", n.tenantType,
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
	r := func(sql string) string {
		sql = replacer.Replace(sql)
		if left := unfilled.FindString(sql); left != "" {
			panic("sqlstore: template has an unknown name " + left)
		}
		return strings.TrimSpace(sql)
	}
	q := d.statements()
	for _, s := range q.all() {
		*s = r(*s)
	}
	return q
}

// all returns every statement to be rendered.
func (q *statements) all() []*string {
	all := []*string{
		&q.insert, &q.insertMany, &q.find, &q.findMany, &q.beforeClaim, &q.claim, &q.closing, &q.peek, &q.readBack, &q.settle, &q.afterSettle, &q.repeated, &q.renew, &q.purge,
		&q.clock, &q.get, &q.getByKey, &q.nextDue, &q.channels, &q.oldestDue, &q.liveCounts, &q.endedCounts, &q.requeue, &q.cancel, &q.unknown,
	}
	for i := range q.schema {
		all = append(all, &q.schema[i])
	}
	return all
}

var unfilled = regexp.MustCompile(`\{[a-z_.]+\}`)

// expand fills a dialect's own abbreviations into its templates, in the order given, so that one may use the next.
func expand(q statements, pairs ...string) statements {
	for _, s := range q.all() {
		for i := 0; i < len(pairs); i += 2 {
			*s = strings.ReplaceAll(*s, pairs[i], pairs[i+1])
		}
	}
	return q
}

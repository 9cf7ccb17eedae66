package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/recado-dev/recado/store"
)

// SQLite is SQLite 3.37 or newer, through modernc.org/sqlite or mattn/go-sqlite3. Times are integers, microseconds since
// 1970. The clock is the application's: database and application are one process.
//
// Open the handle with _txlock=immediate and a busy_timeout, and in WAL mode: see [Store.Check].
var SQLite Dialect = sqlite{}

type sqlite struct{ returning }

func (sqlite) String() string         { return "sqlite" }
func (sqlite) quote(id string) string { return `"` + id + `"` }
func (sqlite) hasClock() bool         { return false }

func (sqlite) tenantType(bool) string { return "text" }

// A foreign writer's id may be any text.
func (sqlite) id(text string) (string, bool) { return text, text != "" }

func (sqlite) time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return store.Microsecond(t).UnixMicro()
}

func (sqlite) list(items []string) any {
	return jsonTable(items)
}

// A plain BEGIN will do: each transaction of ours begins with its write.
func (sqlite) txOptions() *sql.TxOptions { return nil }

func (sqlite) templates() templates {
	var cells []string // of a row of jsonTable
	for i := range 12 {
		cells = append(cells, fmt.Sprintf("{value %d}", i), fmt.Sprintf("json_extract(value, '$[%d]')", i))
	}
	return expand(expand(templates{
		schema: []string{
			`CREATE TABLE IF NOT EXISTS {table} (
	id text PRIMARY KEY NOT NULL,
	{tenant} {tenant_type} NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos text NOT NULL DEFAULT '{}' CHECK (json_valid(datos)),
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT {pendiente} CHECK (estado IN ({states})),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para integer NOT NULL DEFAULT {default_now},
	proximo_intento_en integer,
	bloqueado_hasta integer,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en integer,
	creado_en integer NOT NULL DEFAULT {default_now},
	actualizado_en integer NOT NULL DEFAULT {default_now},
	reclamo text,
	cabeceras text,
	dudas integer NOT NULL DEFAULT 0,
	vence_en integer,
	turno integer GENERATED ALWAYS AS (CASE WHEN estado IN ({live}) THEN max(programado_para, coalesce(proximo_intento_en, programado_para)) END) STORED,
	terminado integer GENERATED ALWAYS AS (CASE WHEN estado IN ({terminal}) THEN actualizado_en END) STORED
) STRICT`,
			`CREATE UNIQUE INDEX IF NOT EXISTS {schema}{key_index} ON {local_table} ({tenant}, clave_idempotencia)`,
			`CREATE INDEX IF NOT EXISTS {schema}{turn_index} ON {local_table} (canal, turno, id) WHERE turno IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS {schema}{end_index} ON {local_table} (terminado, id) WHERE terminado IS NOT NULL`,
		},

		insert: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, {now}), ?11, ?12, {now}, {now})
ON CONFLICT ({tenant}, clave_idempotencia) DO NOTHING
RETURNING id`,

		insertMany: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT {value 0}, {value 1}, {value 2}, {value 3}, {value 4}, {value 5}, {value 6}, {value 7},
	coalesce({value 8}, {now}), {value 9}, {value 10}, {now}, {now}
FROM json_each(?2) WHERE true
ON CONFLICT ({tenant}, clave_idempotencia) DO NOTHING
RETURNING id`,

		find: `
SELECT id, canal, destino, plantilla, datos FROM {table} WHERE {tenant} = ?1 AND clave_idempotencia = ?2`,

		findMany: `
SELECT o.id, o.{tenant}, o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM (SELECT {value 1} AS tenant, {value 6} AS clave FROM json_each(?1)) AS d
JOIN {table} AS o ON o.{tenant} = d.tenant AND o.clave_idempotencia = d.clave`,

		// A transaction that reads before it writes may find the database changed under it, so it first writes nothing.
		beforeClaim: `DELETE FROM {table} WHERE false`,

		claim: `
UPDATE {table} AS o SET
	estado = CASE WHEN {closed} THEN {fallido} ELSE {procesando} END,
	intentos = o.intentos + CASE WHEN {at_end} THEN 0 ELSE 1 END,
	bloqueado_hasta = CASE WHEN {closed} THEN NULL ELSE {now} + ?6 END,
	reclamo = CASE WHEN {closed} THEN NULL ELSE ?7 END,
	ultimo_error_categoria = CASE WHEN {closed} THEN {red} ELSE o.ultimo_error_categoria END,
	ultimo_error_codigo = CASE WHEN {closed} THEN {end_code} ELSE o.ultimo_error_codigo END,
	actualizado_en = {now}
WHERE o.id IN (SELECT id FROM ({due}))
RETURNING {columns}`,

		// What a claim with ReturnExhausted is about to hand out to be closed, read in the claim's own transaction.
		closing: `SELECT o.id, {end_code} FROM ({due}) AS o WHERE {at_end}`,

		peek: `SELECT turno, id FROM ({first_due})`,

		readBack: `
SELECT {columns} FROM {table}
WHERE canal = ?1 AND turno IS NOT NULL AND estado = {procesando} AND reclamo = ?2
ORDER BY turno, id LIMIT ?3`,

		settle: `
UPDATE {table} AS o SET
	estado = d.estado,
	intentos = o.intentos - d.devuelto,
	proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE {now} + d.espera END,
	bloqueado_hasta = NULL,
	ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	id_externo = CASE WHEN d.estado = {enviado} THEN nullif(d.externo, '') ELSE o.id_externo END,
	enviado_en = CASE WHEN d.estado = {enviado} THEN {now} ELSE o.enviado_en END,
	dudas = min(o.dudas + d.duda, 32767),
	actualizado_en = {now}
FROM (SELECT {value 0} AS id, {value 1} AS reclamo, {value 2} AS lease, {value 3} AS estado, {value 4} AS devuelto,
	{value 6} AS espera, {value 7} AS conserva, {value 8} AS categoria, {value 9} AS codigo, {value 10} AS externo,
	{value 11} AS duda FROM json_each(?2)) AS d
WHERE o.id = d.id AND o.reclamo = d.reclamo AND o.estado = {procesando} AND o.bloqueado_hasta = d.lease
RETURNING id`,

		repeated: `
SELECT o.id
FROM (SELECT {value 0} AS id, {value 1} AS reclamo, {value 3} AS estado, {value 5} AS intentos, {value 6} AS espera,
	{value 7} AS conserva, {value 8} AS categoria, {value 9} AS codigo, {value 10} AS externo FROM json_each(?1)) AS d
JOIN {table} AS o ON o.id = d.id
WHERE o.reclamo = d.reclamo AND o.estado = d.estado AND o.intentos = d.intentos AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + d.espera)
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado <> {enviado} OR coalesce(o.id_externo, '') = d.externo)`,

		renew: `
UPDATE {table} AS o SET bloqueado_hasta = d.lease + ?3, actualizado_en = {now}
FROM (SELECT {value 0} AS id, {value 1} AS reclamo, {value 2} AS lease FROM json_each(?2)) AS d
WHERE o.id = d.id AND o.reclamo = d.reclamo AND o.estado = {procesando} AND o.bloqueado_hasta IN (d.lease, d.lease + ?3)
RETURNING id`,

		purge: `
DELETE FROM {table} WHERE id IN (
	SELECT id FROM {table}
	WHERE terminado IS NOT NULL AND terminado < ?1 AND terminado >= coalesce(?2, {first})
		AND estado IN (SELECT value FROM json_each(?3))
	ORDER BY terminado, id
	LIMIT ?4)
RETURNING terminado`,

		clock:    `SELECT {now}`,
		get:      `SELECT {columns} FROM {table} WHERE id = ?1`,
		getByKey: `SELECT {columns} FROM {table} WHERE {tenant} = ?1 AND clave_idempotencia = ?2`,

		nextDue: `
SELECT turno, {now} FROM {table} WHERE canal = ?2 AND turno IS NOT NULL AND turno > {now} ORDER BY turno LIMIT 1`,

		nextChannel: `SELECT canal, true FROM {table} WHERE turno IS NOT NULL AND canal > ?1 ORDER BY canal LIMIT 1`,

		oldestDue: `
SELECT turno FROM {table} WHERE {is_due} ORDER BY turno, id LIMIT 1`,

		liveCounts: `
SELECT canal, estado, count(*) FROM (SELECT canal, estado FROM {table} WHERE canal = ?1 AND turno IS NOT NULL LIMIT ?2)
GROUP BY canal, estado`,

		endedCounts: `
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM {table} WHERE terminado IS NOT NULL AND terminado >= ?1 ORDER BY terminado DESC LIMIT ?2)
GROUP BY canal, estado`,

		requeue: act[string]{write: `
UPDATE {table} SET estado = {pendiente}, intentos = 0, programado_para = {now}, proximo_intento_en = {now},
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = {now}
WHERE id IN (SELECT value FROM json_each(?2)) AND estado IN ({requeueable})
RETURNING id`},

		cancel: act[string]{write: `
UPDATE {table} SET estado = {descartado}, ultimo_error_categoria = {rechazado}, ultimo_error_codigo = {cancelado},
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = {now}
WHERE id IN (SELECT value FROM json_each(?2)) AND estado IN ({cancellable})
RETURNING id`},

		unknown: `
SELECT estado, count(*) FROM (SELECT estado FROM {table} WHERE estado NOT IN ({states}) LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado`,
	},
		"{closed}", "({at_end} AND NOT ?8)",
		"{due}", "{due_head} LIMIT ?5",
		"{first_due}", "{due_head} LIMIT 1",
		"{due_head}", `
	SELECT * FROM {table}
	WHERE {is_due} AND (turno, id) > (coalesce(?3, {first}), ?4)
	ORDER BY turno, id`,
		"{is_due}", `canal = ?2 AND turno IS NOT NULL AND turno <= {now}
		AND (estado = {pendiente} OR bloqueado_hasta IS NULL OR bloqueado_hasta <= {now})`,
		"{end_code}", endCode,
		"{at_end}", atEnd,
		"{first}", "-9223372036854775807", // before every time
		"{now}", "?1",
		"{default_now}", "(CAST((julianday('now') - 2440587.5) * 86400000000 AS integer))",
	), cells...)
}

func (d sqlite) insertMany(ctx context.Context, tx store.Tx, q queries, now any, rows []newRow) (made insertion, err error) {
	result, err := q.insertMany.query(ctx, tx, now, d.rows(rows))
	if err != nil {
		return made, err
	}
	made.ids, err = set(scanStrings(result))
	return made, err
}

func (d sqlite) findMany(ctx context.Context, tx store.Tx, q queries, rows []newRow) (*sql.Rows, error) {
	return q.findMany.query(ctx, tx, d.rows(rows))
}

func (d sqlite) rows(rows []newRow) string {
	table := make([][]any, len(rows))
	for i, r := range rows {
		table[i] = r.args(d)
	}
	return jsonTable(table)
}

// jsonTable is a list, or one of rows, as JSON, for engines that have no array parameters.
func jsonTable[T string | []any](rows []T) string {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // which would make an e-mail's body much longer
	if err := enc.Encode(rows); err != nil {
		panic(err) // texts, numbers and NULL cannot fail
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func (d sqlite) claim(ctx context.Context, tx *sql.Tx, q queries, now any, p store.ClaimParams, t store.Token) ([]store.Message, error) {
	args := []any{now, p.Channel, d.time(p.From.Turn), markID(p.From), p.Limit, p.Lease.Microseconds(), tokenText(t), p.ReturnExhausted}
	codes := map[string]string{}
	if p.ReturnExhausted {
		if err := q.beforeClaim.exec(ctx, tx); err != nil {
			return nil, err
		}
		rows, err := q.closing.query(ctx, tx, args[:5]...)
		if err != nil {
			return nil, err
		}
		err = each(rows, func(scan func(...any) error) error {
			var id, code string
			err := scan(&id, &code)
			codes[id] = code
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	rows, err := q.claim.query(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	all, err := scanMessages(rows, nil)
	for i := range all {
		all[i].Closing = codes[all[i].ID]
	}
	return all, err
}

func (d sqlite) settle(ctx context.Context, tx *sql.Tx, q queries, now any, group []store.Settlement) ([]bool, error) {
	table, ids := settlementTable(d, group)
	return hits(ctx, tx, ids, q.settle, now, table)
}

func (d sqlite) repeated(ctx context.Context, tx *sql.Tx, q queries, group []store.Settlement) ([]bool, error) {
	table, ids := settlementTable(d, group)
	return hits(ctx, tx, ids, q.repeated, table)
}

func (d sqlite) renew(ctx context.Context, tx *sql.Tx, q queries, now any, fences []store.Fence, by time.Duration) ([]bool, error) {
	group := make([]store.Settlement, len(fences))
	for i, f := range fences {
		group[i].Fence = f
	}
	table, ids := settlementTable(d, group)
	return hits(ctx, tx, ids, q.renew, now, table, by.Microseconds())
}

// settlementTable is a group as a parameter, and its ids.
func settlementTable(d Dialect, group []store.Settlement) (table string, ids []string) {
	rows := make([][]any, len(group))
	ids = make([]string, len(group))
	for i, s := range group {
		w := writeOf(s)
		keep := 0
		if s.KeepsError() {
			keep = 1
		}
		ids[i] = s.ID
		rows[i] = []any{
			s.ID, tokenText(s.Token), d.time(s.LeasedUntil), s.To, w.refund, w.attempts, w.wait, keep,
			s.Category, s.Code, s.ExternalID, w.doubt,
		}
	}
	return jsonTable(rows), ids
}

// hits reports for which of ids a statement gave a row.
func hits(ctx context.Context, tx *sql.Tx, ids []string, query statement, args ...any) ([]bool, error) {
	rows, err := query.query(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	return members(rows, ids)
}

// SQLite cannot add a stored generated column to a table.
func (sqlite) adopts() bool { return false }

// lockSchema creates the table at once: there is one writer at a time, and one that has read first may be told that it is
// too late.
func (sqlite) lockSchema(ctx context.Context, tx *sql.Tx, q queries, _ names) error {
	return q.schema[0].exec(ctx, tx)
}

func (sqlite) inspect(ctx context.Context, q querier, n names) (catalog, error) {
	var c catalog
	schema := cmp.Or(n.plainSchema, "main")
	rows, err := q.QueryContext(ctx, `
SELECT name, lower(type), "notnull", hidden = 3, '' FROM pragma_table_xinfo(?1, ?2)`, n.plainTable, schema)
	if err != nil {
		return c, err
	}
	if c.columns, err = scanColumns(rows); err != nil {
		return c, err
	}
	rows, err = q.QueryContext(ctx, `
SELECT l.name, l."unique", l.partial, 1, '',
	(SELECT group_concat(coalesce(name, ''), ',') FROM (SELECT name FROM pragma_index_info(l.name, ?2) ORDER BY seqno))
FROM pragma_index_list(?1, ?2) AS l ORDER BY l.name`, n.plainTable, schema)
	if err != nil {
		return c, err
	}
	if c.indexes, err = scanIndexes(rows); err != nil {
		return c, err
	}
	master := "main.sqlite_master"
	if n.schema != "" {
		master = n.schema + "sqlite_master"
	}
	rows, err = q.QueryContext(ctx, `SELECT sql FROM `+master+` WHERE type = 'table' AND name = ?1 AND sql LIKE '%CHECK%'`, n.plainTable)
	if err != nil {
		return c, err
	}
	c.checks, err = scanStrings(rows)
	return c, err
}

func (sqlite) settings(ctx context.Context, db *sql.DB) (problems, advice []string, err error) {
	var version, journal, file string
	var major, minor, busy, synchronous int
	for _, q := range []struct {
		sql  string
		dest any
	}{
		{`SELECT sqlite_version()`, &version},
		{`PRAGMA journal_mode`, &journal},
		{`PRAGMA busy_timeout`, &busy},
		{`PRAGMA synchronous`, &synchronous},
		{`SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'`, &file},
	} {
		if err := db.QueryRowContext(ctx, q.sql).Scan(q.dest); err != nil {
			return nil, nil, err
		}
	}
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major < 3 || major == 3 && minor < 37 {
		problems = append(problems, "SQLite 3.37 or newer is needed, this is "+version)
	}
	if file == "" && db.Stats().MaxOpenConnections != 1 {
		problems = append(problems, "an in-memory database is another one on each connection: call SetMaxOpenConns(1), or use a file")
	}
	if busy == 0 {
		problems = append(problems, "busy_timeout is 0, so that concurrent writers fail: open the handle with _pragma=busy_timeout(5000) (modernc) or _busy_timeout=5000 (mattn)")
	}
	if file != "" && journal != "wal" {
		advice = append(advice, "journal_mode is "+journal+": with WAL readers do not wait for writers")
	}
	if synchronous == 0 {
		advice = append(advice, "synchronous is OFF: after a crash of the machine the database may be corrupt")
	}
	if synchronous == 1 && journal == "wal" {
		advice = append(advice, "synchronous is NORMAL: after a loss of power the last committed messages may be gone")
	}
	immediate, err := beginsImmediate(ctx, db)
	if err == nil && !immediate {
		problems = append(problems, "transactions begin deferred, so that one which reads first may fail with SQLITE_BUSY: open the handle with _txlock=immediate")
	}
	return problems, advice, err
}

// beginsImmediate finds out whether a plain BEGIN of this handle takes the write lock: a checkpoint is refused in a
// transaction that has begun to read or write, and harmless otherwise.
func beginsImmediate(ctx context.Context, db *sql.DB) (bool, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // there is nothing to lose in it
	var busy, log, done int
	err = tx.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &log, &done)
	return err != nil, ctx.Err()
}

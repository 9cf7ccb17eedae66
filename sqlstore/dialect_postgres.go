package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recado-dev/recado/store"
)

// Postgres is PostgreSQL 13 or newer, through lib/pq or pgx's stdlib driver. The database's clock decides.
var Postgres Dialect = postgres{}

type postgres struct{ returning }

func (postgres) String() string         { return "postgres" }
func (postgres) quote(id string) string { return pq.QuoteIdentifier(id) }
func (postgres) hasClock() bool         { return true }

func (postgres) tenantType(text bool) string {
	if text {
		return "text"
	}
	return "uuid"
}

func (postgres) id(text string) (string, bool) {
	id, err := uuid.Parse(text)
	return id.String(), err == nil
}

func (postgres) time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return store.Microsecond(t)
}

func (postgres) list(items []string) any { return array(pq.StringArray(items)) }

// array renders an array as its text form, which every driver passes on as it is.
func array(v driver.Valuer) string {
	text, err := v.Value()
	if err != nil {
		panic(err) // the array types of lib/pq that are used here cannot fail
	}
	return text.(string)
}

// Our transactions need no more than READ COMMITTED, whatever the database's default is.
func (postgres) txOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// Two bounds on an index look to the planner like few rows, unless its statistics are fresh: it would read and sort the
// whole backlog, or history. With this, only the walk along the index is left to it.
const alongIndex = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

func (postgres) templates() templates {
	return expand(templates{
		schema: []string{
			`CREATE TABLE IF NOT EXISTS {table} (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	{tenant} {tenant_type} NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos jsonb NOT NULL DEFAULT '{}',
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT {pendiente} CHECK (estado IN ({states})),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para timestamptz NOT NULL DEFAULT now(),
	proximo_intento_en timestamptz,
	bloqueado_hasta timestamptz,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en timestamptz,
	creado_en timestamptz NOT NULL DEFAULT now(),
	actualizado_en timestamptz NOT NULL DEFAULT now(),
	reclamo uuid,
	cabeceras jsonb,
	dudas smallint NOT NULL DEFAULT 0,
	vence_en timestamptz,
	turno timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ({live}) THEN greatest(programado_para, proximo_intento_en) END) STORED,
	terminado timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ({terminal}) THEN actualizado_en END) STORED
){storage}`,
			`CREATE UNIQUE INDEX IF NOT EXISTS {key_index} ON {table} ({tenant}, clave_idempotencia)`,
			`CREATE INDEX IF NOT EXISTS {turn_index} ON {table} (canal, turno, id) WHERE turno IS NOT NULL`,
			`CREATE INDEX IF NOT EXISTS {end_index} ON {table} (terminado, id) WHERE terminado IS NOT NULL`,
		},

		// A page keeps room for every row of it to be written once more, so that a claim stays on it and touches no index; and
		// what a delivery leaves behind is cleared away after as many of them, not after a share of the history.
		storage: `fillfactor=45, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, ` +
			`autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=20000, autovacuum_vacuum_cost_delay=0`,
		storageOf: `SELECT unnest(reloptions) FROM pg_class WHERE oid = to_regclass($1)`,

		insert: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, {now}), $11, $12, {now}, {now})
ON CONFLICT ({tenant}, clave_idempotencia) DO NOTHING
RETURNING id`,

		insertMany: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT d.id, d.tenant, d.canal, d.destino, d.plantilla, d.datos::jsonb, d.clave, d.max,
	coalesce(d.programado, {now}), d.vence, d.cabeceras::jsonb, {now}, {now}
FROM unnest($2::uuid[], $3::{tenant_type}[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[],
	$10::timestamptz[], $11::timestamptz[], $12::text[])
	AS d(id, tenant, canal, destino, plantilla, datos, clave, max, programado, vence, cabeceras)
ON CONFLICT ({tenant}, clave_idempotencia) DO NOTHING
RETURNING id`,

		find: `
SELECT id, canal, destino, plantilla, datos FROM {table} WHERE {tenant} = $1 AND clave_idempotencia = $2`,

		findMany: `
SELECT o.id, o.{tenant}, o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM unnest($1::{tenant_type}[], $2::text[]) AS d(tenant, clave)
JOIN {table} AS o ON o.{tenant} = d.tenant AND o.clave_idempotencia = d.clave`,

		beforeClaim: alongIndex,

		// The rows are found by their place in the heap, so no planner can choose another path. A place is one of one heap,
		// hence ONLY, here and in purge; Check refuses tables of several. A row that moved since
		// the snapshot is not seen and waits for the next claim.
		claim: `
UPDATE ONLY {table} AS o SET
	estado = CASE WHEN {closed} THEN {fallido} ELSE {procesando} END,
	intentos = o.intentos + CASE WHEN {at_end} THEN 0 ELSE 1 END,
	bloqueado_hasta = CASE WHEN {closed} THEN NULL ELSE {now} + $6 * {us} END,
	reclamo = CASE WHEN {closed} THEN NULL ELSE $7::uuid END,
	ultimo_error_categoria = CASE WHEN {closed} THEN {red} ELSE o.ultimo_error_categoria END,
	ultimo_error_codigo = CASE WHEN {closed} THEN {end_code} ELSE o.ultimo_error_codigo END,
	actualizado_en = {now}
WHERE {bounded} AND o.ctid = ANY (ARRAY(
	SELECT s.ctid FROM ONLY {table} AS s
	WHERE {due} AND {behind_mark}
	ORDER BY s.turno, s.id
	LIMIT $5
	FOR UPDATE SKIP LOCKED))
RETURNING {o.columns}, {closing_before}`,

		peek: `
SELECT s.turno, s.id FROM ONLY {table} AS s
WHERE {due} AND {behind_mark}
ORDER BY s.turno, s.id LIMIT 1`,

		readBack: `
SELECT {columns} FROM {table}
WHERE canal = $1 AND turno IS NOT NULL AND estado = {procesando} AND reclamo = $2
ORDER BY turno, id LIMIT $3`,

		// The CASE keeps the planner from starting with the rows in flight.
		settle: `
UPDATE {table} AS o SET
	estado = d.estado,
	intentos = o.intentos - d.devuelto,
	proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE {now} + d.espera * {us} END,
	bloqueado_hasta = NULL,
	ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	id_externo = CASE WHEN d.estado = {enviado} THEN nullif(d.externo, '') ELSE o.id_externo END,
	enviado_en = CASE WHEN d.estado = {enviado} THEN {now} ELSE o.enviado_en END,
	dudas = least(o.dudas + d.duda, 32767),
	actualizado_en = {now}
FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::int[], $7::bigint[], $8::bool[], $9::text[],
	$10::text[], $11::text[], $12::int[])
	AS d(id, reclamo, lease, estado, devuelto, espera, conserva, categoria, codigo, externo, duda)
WHERE {bounded} AND o.id = d.id AND o.reclamo = d.reclamo
	AND (CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) = d.lease
RETURNING o.id`,

		// In SettleTx, the caller's own statements wait for locks as they always do.
		afterSettle: `SET LOCAL lock_timeout TO DEFAULT`,

		repeated: `
SELECT o.id FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::bool[], $7::text[], $8::text[],
	$9::text[])
	AS d(id, reclamo, estado, intentos, espera, conserva, categoria, codigo, externo)
JOIN {table} AS o ON o.id = d.id
WHERE o.reclamo = d.reclamo AND o.estado = d.estado AND o.intentos = d.intentos AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + d.espera * {us})
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado <> {enviado} OR coalesce(o.id_externo, '') = d.externo)`,

		renew: `
UPDATE {table} AS o SET bloqueado_hasta = d.lease + $5 * {us}, actualizado_en = {now}
FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS d(id, reclamo, lease)
WHERE {bounded} AND o.id = d.id AND o.reclamo = d.reclamo
	AND (CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) IN (d.lease, d.lease + $5 * {us})
RETURNING o.id`,

		beforePurge: alongIndex,

		purge: `
DELETE FROM ONLY {table} WHERE {bounded} AND ctid = ANY (ARRAY(
	SELECT s.ctid FROM ONLY {table} AS s
	WHERE s.terminado < $1 AND s.terminado >= coalesce($2::timestamptz, '-infinity') AND s.estado = ANY ($3::text[])
	ORDER BY s.terminado, s.id
	LIMIT $4
	FOR UPDATE SKIP LOCKED))
RETURNING terminado`,

		clock:    `SELECT {now}`,
		get:      `SELECT {columns} FROM {table} WHERE id = $1`,
		getByKey: `SELECT {columns} FROM {table} WHERE {tenant} = $1 AND clave_idempotencia = $2`,

		nextDue: `
SELECT turno, {now} FROM {table} WHERE canal = $2 AND turno > {now} ORDER BY turno LIMIT 1`,

		nextChannel: `
SELECT canal, true FROM (SELECT min(canal) AS canal FROM {table} WHERE turno IS NOT NULL AND canal > $1) AS c WHERE canal IS NOT NULL`,

		oldestDue: `
SELECT s.turno FROM {table} AS s WHERE {due} ORDER BY s.turno, s.id LIMIT 1`,

		liveCounts: `
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM {table} WHERE canal = $1 AND turno IS NOT NULL ORDER BY turno LIMIT $2) AS t
GROUP BY canal, estado`,

		endedCounts: `
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM {table} WHERE terminado >= $1 ORDER BY terminado DESC LIMIT $2) AS t
GROUP BY canal, estado`,

		requeue: act[string]{write: `
UPDATE {table} SET estado = {pendiente}, intentos = 0, programado_para = {now}, proximo_intento_en = {now},
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = {now}
WHERE {bounded} AND id = ANY ($2::uuid[]) AND estado IN ({requeueable})
RETURNING id`},

		cancel: act[string]{write: `
UPDATE {table} SET estado = {descartado}, ultimo_error_categoria = {rechazado}, ultimo_error_codigo = {cancelado},
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = {now}
WHERE {bounded} AND id = ANY ($2::uuid[]) AND estado IN ({cancellable})
RETURNING id`},

		unknown: `
SELECT estado, count(*) FROM (SELECT estado FROM {table} WHERE estado NOT IN ({states}) LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado`,
	},
		"{closed}", "({at_end} AND NOT $8::boolean)",
		// The row as it was: a subquery sees the statement's snapshot.
		"{closing_before}", "CASE WHEN $8::boolean THEN (SELECT coalesce("+strings.ReplaceAll(endCode, "o.", "b.")+", '') FROM {table} AS b WHERE b.id = o.id) ELSE '' END",
		"{due}", "s.canal = $2 AND s.turno <= {now} AND (s.estado = {pendiente} OR s.bloqueado_hasta IS NULL OR s.bloqueado_hasta <= {now})",
		"{behind_mark}", "(s.turno, s.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)",
		"{end_code}", endCode,
		"{at_end}", atEnd,
		// A worker that is frozen in the middle of a transaction would keep its rows locked for ever, and claims would pass
		// over them: the statement that takes the locks also says how long its transaction may idle, and how long it waits
		// for a row that somebody else has locked. A subquery without outer references is evaluated once.
		"{bounded}", "(SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL",
		"{now}", "coalesce($1::timestamptz, statement_timestamp())",
		"{us}", "interval '1 microsecond'",
	)
}

func (postgres) insertMany(ctx context.Context, tx store.Tx, q queries, now any, rows []newRow) (made insertion, err error) {
	n := len(rows)
	ids, tenants, channels, destinations := make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n)
	templates, data, keys, limits := make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n), make(pq.Int64Array, n)
	scheduled, expires, headers := make([]sql.NullString, n), make([]sql.NullString, n), make([]sql.NullString, n)
	for i, r := range rows {
		ids[i], tenants[i], channels[i], destinations[i], templates[i] = r.id, r.TenantID, r.Channel, r.Destination, r.Template
		data[i], keys[i], limits[i] = string(r.DataJSON), r.IdempotencyKey, int64(r.MaxAttempts)
		scheduled[i], expires[i] = timeText(r.ScheduledAt), timeText(r.ExpiresAt)
		headers[i] = sql.NullString{String: string(r.HeaderJSON), Valid: r.HeaderJSON != nil}
	}
	result, err := q.insertMany.query(ctx, tx, now, array(ids), array(tenants), array(channels), array(destinations),
		array(templates), array(data), array(keys), array(limits), array(pq.GenericArray{A: scheduled}),
		array(pq.GenericArray{A: expires}), array(pq.GenericArray{A: headers}))
	if err != nil {
		return made, err
	}
	made.ids, err = set(scanStrings(result))
	return made, err
}

func (postgres) findMany(ctx context.Context, tx store.Tx, q queries, rows []newRow) (*sql.Rows, error) {
	tenants, keys := make(pq.StringArray, len(rows)), make(pq.StringArray, len(rows))
	for i, r := range rows {
		tenants[i], keys[i] = r.TenantID, r.IdempotencyKey
	}
	return q.findMany.query(ctx, tx, array(tenants), array(keys))
}

func (d postgres) claim(ctx context.Context, tx *sql.Tx, q queries, now any, p store.ClaimParams, t store.Token) ([]store.Message, error) {
	if err := q.beforeClaim.exec(ctx, tx); err != nil {
		return nil, err
	}
	rows, err := q.claim.query(ctx, tx, now, p.Channel, d.time(p.From.Turn), markID(p.From), p.Limit,
		p.Lease.Microseconds(), tokenText(t), p.ReturnExhausted)
	if err != nil {
		return nil, err
	}
	return scanMessages(rows, func(m *store.Message) any { return &m.Closing })
}

// settlements are the columns of a group, as arrays.
type settlements struct {
	ids, tokens, leases, states, categories, codes, externalIDs pq.StringArray
	refunds, attempts, waits, doubts                            pq.Int64Array
	keep                                                        pq.BoolArray
}

func columnsOf(group []store.Settlement) (c settlements) {
	n := len(group)
	c.ids, c.tokens, c.leases, c.states = make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n)
	c.categories, c.codes, c.externalIDs = make(pq.StringArray, n), make(pq.StringArray, n), make(pq.StringArray, n)
	c.refunds, c.attempts, c.waits, c.doubts = make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	c.keep = make(pq.BoolArray, n)
	for i, s := range group {
		w := writeOf(s)
		c.ids[i], c.tokens[i], c.leases[i], c.states[i] = s.ID, tokenText(s.Token).(string), timeText(s.LeasedUntil).String, string(s.To)
		c.refunds[i], c.attempts[i], c.waits[i], c.keep[i] = w.refund, w.attempts, w.wait, s.KeepsError()
		c.categories[i], c.codes[i], c.externalIDs[i], c.doubts[i] = s.Category, s.Code, s.ExternalID, w.doubt
	}
	return c
}

func (postgres) settle(ctx context.Context, tx *sql.Tx, q queries, now any, group []store.Settlement) ([]bool, error) {
	c := columnsOf(group)
	rows, err := q.settle.query(ctx, tx, now, array(c.ids), array(c.tokens), array(c.leases), array(c.states),
		array(c.refunds), array(c.waits), array(c.keep), array(c.categories), array(c.codes), array(c.externalIDs), array(c.doubts))
	if err != nil {
		return nil, err
	}
	return members(rows, c.ids)
}

func (postgres) repeated(ctx context.Context, tx *sql.Tx, q queries, group []store.Settlement) ([]bool, error) {
	c := columnsOf(group)
	rows, err := q.repeated.query(ctx, tx, array(c.ids), array(c.tokens), array(c.states), array(c.attempts),
		array(c.waits), array(c.keep), array(c.categories), array(c.codes), array(c.externalIDs))
	if err != nil {
		return nil, err
	}
	return members(rows, c.ids)
}

func (postgres) renew(ctx context.Context, tx *sql.Tx, q queries, now any, fences []store.Fence, d time.Duration) ([]bool, error) {
	ids, tokens, leases := make(pq.StringArray, len(fences)), make(pq.StringArray, len(fences)), make(pq.StringArray, len(fences))
	for i, f := range fences {
		ids[i], tokens[i], leases[i] = f.ID, tokenText(f.Token).(string), timeText(f.LeasedUntil).String
	}
	rows, err := q.renew.query(ctx, tx, now, array(ids), array(tokens), array(leases), d.Microseconds())
	if err != nil {
		return nil, err
	}
	return members(rows, ids)
}

// members reports which of ids are among the rows.
func members(rows *sql.Rows, ids []string) ([]bool, error) {
	found, err := set(scanStrings(rows))
	if err != nil {
		return nil, err
	}
	in := make([]bool, len(ids))
	for i, id := range ids {
		in[i] = found[id]
	}
	return in, nil
}

func set(ids []string, err error) (map[string]bool, error) {
	in := make(map[string]bool, len(ids))
	for _, id := range ids {
		in[id] = true
	}
	return in, err
}

// timeText is a time inside an array.
func timeText(t time.Time) sql.NullString {
	if t.IsZero() {
		return sql.NullString{}
	}
	return sql.NullString{String: store.Microsecond(t).Format(time.RFC3339Nano), Valid: true}
}

func (postgres) adopts() bool { return true }

// lockSchema lets one migration of a table run at a time: CREATE … IF NOT EXISTS is not safe against itself. The lock
// ends with the transaction.
func (postgres) lockSchema(ctx context.Context, tx *sql.Tx, _ queries, n names) error {
	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, schemaLock(n))
	return err
}

// schemaLock is what the lock of a table's migrations is called.
func schemaLock(n names) string { return "recado:" + n.table }

func (postgres) inspect(ctx context.Context, q querier, n names) (catalog, error) {
	var c catalog
	rows, err := q.QueryContext(ctx, `
SELECT attname, format_type(atttypid, atttypmod), attnotnull, attgenerated::text = 's',
	CASE WHEN attgenerated::text = 's' THEN pg_get_expr(adbin, adrelid) ELSE '' END
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, n.table)
	if err != nil {
		return c, err
	}
	if c.columns, err = scanColumns(rows); err != nil {
		return c, err
	}
	for name, col := range c.columns {
		if col.kind == "timestamp with time zone" {
			col.kind = "timestamptz"
		}
		col.expression = normalize(col.expression)
		c.columns[name] = col
	}
	rows, err = q.QueryContext(ctx, `
SELECT x.indexrelid::regclass::text, x.indisunique, x.indpred IS NOT NULL, x.indisvalid, coalesce(pg_get_expr(x.indpred, x.indrelid), ''),
	array_to_string(ARRAY(
		SELECT coalesce(a.attname, '') FROM unnest(x.indkey) WITH ORDINALITY AS k(attnum, n)
		LEFT JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.attnum ORDER BY k.n), ',')
FROM pg_index AS x WHERE x.indrelid = to_regclass($1) ORDER BY 1`, n.table)
	if err != nil {
		return c, err
	}
	if c.indexes, err = scanIndexes(rows); err != nil {
		return c, err
	}
	rows, err = q.QueryContext(ctx, `
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass($1) AND contype = 'c'`, n.table)
	if err != nil {
		return c, err
	}
	if c.checks, err = scanStrings(rows); err != nil {
		return c, err
	}
	rows, err = q.QueryContext(ctx, `
SELECT CASE relkind WHEN 'r' THEN 'it is the parent of other tables' WHEN 'p' THEN 'it is partitioned' ELSE 'it is no table' END
FROM pg_class WHERE oid = to_regclass($1) AND (relkind <> 'r' OR EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = oid))`, n.table)
	if err != nil {
		return c, err
	}
	c.unfit, err = scanStrings(rows)
	return c, err
}

func (postgres) settings(ctx context.Context, db *sql.DB) (problems, advice []string, err error) {
	var version int
	var fsync, syncCommit string
	var readOnly bool
	err = db.QueryRowContext(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('synchronous_commit'),
	pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool`).Scan(&version, &fsync, &syncCommit, &readOnly)
	if version < 130000 {
		problems = append(problems, fmt.Sprintf("PostgreSQL 13 or newer is needed, this is version number %d", version))
	}
	if readOnly {
		problems = append(problems, "the database is read-only here: a standby, or default_transaction_read_only is on")
	}
	if fsync == "off" {
		advice = append(advice, "fsync is off: after a crash of the machine committed messages may be lost")
	}
	if syncCommit == "off" {
		advice = append(advice, "synchronous_commit is off: after a crash of the server the last committed messages may be lost")
	}
	return problems, advice, err
}

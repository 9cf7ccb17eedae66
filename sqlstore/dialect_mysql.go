package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// MySQL is MySQL 8.0.16 or newer and MariaDB 10.6 or newer, through github.com/go-sql-driver/mysql. The database's clock
// decides. Times are DATETIME(6) in UTC and travel as text, so parseTime, loc and time_zone have no say in them.
//
// The server cannot be told, for one transaction, how long that may idle: a process that is frozen in the middle of a
// claim or a settlement keeps its rows locked until its connection ends.
var MySQL Dialect = mysql{}

type mysql struct{}

func (mysql) String() string         { return "mysql" }
func (mysql) quote(id string) string { return "`" + id + "`" }
func (mysql) hasClock() bool         { return true }

// An index belongs to its table, and statements name it: so it has one name, which a renamed table keeps.
func (mysql) indexName(_, suffix string) string { return "outbox" + suffix }

func (mysql) tenantType(text bool) string {
	if text {
		return fmt.Sprintf("varchar(%d)", store.MaxTenantLength)
	}
	return "char(36)"
}

// maxForeignID is how long the ids are that statements can name: of a longer one, which nobody could claim, they would
// see a part.
const maxForeignID = 255

// A foreign writer's id may be any text that the column holds.
func (mysql) id(text string) (string, bool) { return text, text != "" }

// mysqlTime is how a time travels, both ways.
const mysqlTime = "2006-01-02 15:04:05.999999"

func (mysql) time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return store.Microsecond(t).Format("2006-01-02 15:04:05.000000")
}

func (mysql) list(items []string) any {
	return jsonTable(items)
}

// Under REPEATABLE READ, the default, a claim would lock the gaps between rows as well.
func (mysql) txOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

var (
	parameter = regexp.MustCompile(`\?\d+`)
	jsonText  = regexp.MustCompile(`(char\(\d+\)|longtext) PATH`)
)

// compile puts the arguments in the order of their places: here a parameter has no number. And it gives the texts in a
// JSON_TABLE our character set: MariaDB would take the database's, and turn what that lacks into question marks.
func (mysql) compile(sql string) statement {
	sql = jsonText.ReplaceAllString(sql, "$1 CHARACTER SET utf8mb4 PATH")
	order := []int{}
	text := parameter.ReplaceAllStringFunc(sql, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // digits
		order = append(order, n-1)
		return "?"
	})
	return statement{text, order}
}

// Three things work on MariaDB alone. Where a JSON_TABLE is under a locking clause itself, and not in a derived table,
// MySQL refuses the statement (error 3569). Of a NULL in one, MySQL 8.0.16 makes the text null: "" stands for none. And
// newer ones take a parameter of a JSON function to be JSON, not its text.
func (mysql) templates() templates {
	return expand(templates{
		schema: []string{
			`CREATE TABLE IF NOT EXISTS {table} (
	id char(36) NOT NULL DEFAULT (uuid()) PRIMARY KEY,
	{tenant} {tenant_type} NOT NULL,
	canal varchar(63) NOT NULL,
	destino varchar({max_destination}) NOT NULL,
	plantilla varchar({max_template}) NOT NULL,
	datos longtext NOT NULL DEFAULT ('{}') CHECK (json_valid(datos)),
	clave_idempotencia varchar({max_key}) NOT NULL,
	estado varchar(10) NOT NULL DEFAULT {pendiente} CHECK (estado IN ({states})),
	intentos int NOT NULL DEFAULT 0,
	max_intentos int NOT NULL DEFAULT 5,
	programado_para datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	proximo_intento_en datetime(6),
	bloqueado_hasta datetime(6),
	ultimo_error_categoria varchar({max_code}),
	ultimo_error_codigo varchar({max_code}),
	id_externo varchar({max_external_id}),
	enviado_en datetime(6),
	creado_en datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	actualizado_en datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	reclamo char(36),
	cabeceras longtext,
	dudas smallint NOT NULL DEFAULT 0,
	vence_en datetime(6),
	turno datetime(6) GENERATED ALWAYS AS (CASE WHEN estado IN ({live}) THEN greatest(programado_para, coalesce(proximo_intento_en, programado_para)) END) STORED,
	terminado datetime(6) GENERATED ALWAYS AS (CASE WHEN estado IN ({terminal}) THEN actualizado_en END) STORED,
	UNIQUE KEY {key_index} ({tenant}, clave_idempotencia),
	KEY {turn_index} (canal, turno),
	KEY {end_index} (terminado)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`,
		},

		// A key in use is an error here: anything that would pass it over would hide others as well.
		insert: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(cast(?10 AS datetime(6)), {now}), ?11, ?12, {now}, {now})`,

		// MariaDB cuts a bare longtext to what a smaller column holds, in strict mode too, but no result of a function.
		insertMany: `
INSERT INTO {table} (id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT d.uid, d.inquilino, d.canal_, d.destino_, d.plantilla_, concat(d.datos_), d.clave, d.maximo,
	coalesce(cast(nullif(d.programado, '') AS datetime(6)), {now}), cast(nullif(d.vence, '') AS datetime(6)), concat(nullif(d.cabeceras_, '')), {now}, {now}
FROM JSON_TABLE(?2, '$[*]' COLUMNS (uid char(36) PATH '$[0]', inquilino varchar({max_tenant}) PATH '$[1]',
	canal_ varchar(63) PATH '$[2]', destino_ varchar({max_destination}) PATH '$[3]', plantilla_ varchar({max_template}) PATH '$[4]',
	datos_ longtext PATH '$[5]', clave varchar({max_key}) PATH '$[6]', maximo int PATH '$[7]', programado char(26) PATH '$[8]',
	vence char(26) PATH '$[9]', cabeceras_ longtext PATH '$[10]')) AS d`,

		// A locking read sees the row that was in the way, also where the caller's transaction began before it.
		find: `
SELECT id, canal, destino, plantilla, datos FROM {table} WHERE {tenant} = ?1 AND clave_idempotencia = ?2
LOCK IN SHARE MODE`,

		findMany: `
SELECT o.id, o.{tenant}, o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM {keys}
STRAIGHT_JOIN {table} AS o FORCE INDEX ({key_index}) ON o.{tenant} = d.inquilino AND o.clave_idempotencia = d.clave
LOCK IN SHARE MODE`,

		lockClaim: `
SELECT {columns}, {text {now}} FROM {table} FORCE INDEX ({turn_index})
WHERE {due} AND {behind_mark}
ORDER BY turno, id LIMIT ?5
FOR UPDATE SKIP LOCKED`,

		claim: `
UPDATE JSON_TABLE(?4, '$[*]' COLUMNS (uid varchar({max_id}) PATH '$[0]', cargo int PATH '$[1]', fin varchar({max_code}) PATH '$[2]')) AS d
{by_id} SET
	o.estado = CASE WHEN d.fin = '' THEN {procesando} ELSE {fallido} END,
	o.intentos = o.intentos + d.cargo,
	o.bloqueado_hasta = CASE WHEN d.fin = '' THEN cast(?2 AS datetime(6)) END,
	o.reclamo = CASE WHEN d.fin = '' THEN ?3 END,
	o.ultimo_error_categoria = CASE WHEN d.fin = '' THEN o.ultimo_error_categoria ELSE {red} END,
	o.ultimo_error_codigo = CASE WHEN d.fin = '' THEN o.ultimo_error_codigo ELSE d.fin END,
	o.actualizado_en = {now}`,

		peek: `
SELECT {text turno}, id FROM {table} FORCE INDEX ({turn_index})
WHERE {due} AND {behind_mark}
ORDER BY turno, id LIMIT 1`,

		readBack: `
SELECT {columns} FROM {table} FORCE INDEX ({turn_index})
WHERE canal = ?1 AND turno IS NOT NULL AND estado = {procesando} AND reclamo = ?2
ORDER BY turno, id LIMIT ?3`,

		lockFenced: `
SELECT o.id FROM {fenced}
FOR UPDATE SKIP LOCKED`,

		fenced: `SELECT o.id FROM {fenced}`,

		settle: `
UPDATE {settlements} AS d {by_id} SET
	o.estado = d.estado_,
	o.intentos = o.intentos - d.devuelto,
	o.proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE {now} + INTERVAL d.espera MICROSECOND END,
	o.bloqueado_hasta = NULL,
	o.ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	o.ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	o.id_externo = CASE WHEN d.estado_ = {enviado} THEN nullif(d.externo, '') ELSE o.id_externo END,
	o.enviado_en = CASE WHEN d.estado_ = {enviado} THEN {now} ELSE o.enviado_en END,
	o.dudas = least(o.dudas + d.duda, 32767),
	o.actualizado_en = {now}`,

		repeated: `
SELECT o.id FROM {settlements} AS d {by_id}
WHERE o.reclamo = d.token AND o.estado = d.estado_ AND o.intentos = d.cuenta AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + INTERVAL d.espera MICROSECOND)
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado_ <> {enviado} OR coalesce(o.id_externo, '') = d.externo)`,

		renew: `
UPDATE {settlements} AS d {by_id} SET
	o.bloqueado_hasta = cast(d.plazo AS datetime(6)) + INTERVAL ?3 MICROSECOND, o.actualizado_en = {now}`,

		lockPurge: `
SELECT id, {text terminado} FROM {table} FORCE INDEX ({end_index})
WHERE terminado < ?1 AND terminado >= coalesce(?2, {first}) AND locate(json_quote(estado), ?3)
ORDER BY terminado, id LIMIT ?4
FOR UPDATE SKIP LOCKED`,

		purge: `DELETE o FROM {ids} AS d {by_id}`,

		clock:    `SELECT {text {now}}`,
		get:      `SELECT {columns} FROM {table} WHERE id = ?1`,
		getByKey: `SELECT {columns} FROM {table} WHERE {tenant} = ?1 AND clave_idempotencia = ?2`,

		nextDue: `
SELECT {text turno}, {text {now}} FROM {table} FORCE INDEX ({turn_index})
WHERE canal = ?2 AND turno > {now} ORDER BY turno LIMIT 1`,

		// The index holds ended rows too, without a turn, before the live ones of their channel.
		nextChannel: `
SELECT c.canal, (
	SELECT t.turno FROM {table} AS t FORCE INDEX ({turn_index}) WHERE t.canal = c.canal ORDER BY t.turno DESC LIMIT 1
) IS NOT NULL
FROM (SELECT min(canal) AS canal FROM {table} FORCE INDEX ({turn_index}) WHERE canal > ?1) AS c WHERE c.canal IS NOT NULL`,

		oldestDue: `
SELECT {text turno} FROM {table} FORCE INDEX ({turn_index}) WHERE {due} ORDER BY turno, id LIMIT 1`,

		liveCounts: `
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM {table} FORCE INDEX ({turn_index}) WHERE canal = ?1 AND turno IS NOT NULL LIMIT ?2) AS t
GROUP BY canal, estado`,

		endedCounts: `
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM {table} FORCE INDEX ({end_index}) WHERE terminado >= ?1 ORDER BY terminado DESC LIMIT ?2) AS t
GROUP BY canal, estado`,

		unknown: `
SELECT estado, count(*) FROM (SELECT estado FROM {table} WHERE estado NOT IN ({states}) LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado`,

		requeue: act[string]{
			lock: `
SELECT o.id FROM {act_locks} WHERE o.estado IN ({requeueable})
FOR UPDATE`,
			write: `
UPDATE {act_rows} SET
	o.estado = {pendiente}, o.intentos = 0, o.programado_para = {now}, o.proximo_intento_en = {now},
	o.bloqueado_hasta = NULL, o.reclamo = NULL, o.actualizado_en = {now}`,
		},

		cancel: act[string]{
			lock: `
SELECT o.id FROM {act_locks} WHERE o.estado IN ({cancellable})
FOR UPDATE`,
			write: `
UPDATE {act_rows} SET
	o.estado = {descartado}, o.ultimo_error_categoria = {rechazado}, o.ultimo_error_codigo = {cancelado},
	o.bloqueado_hasta = NULL, o.reclamo = NULL, o.actualizado_en = {now}`,
		},
	},
		"{columns}", `id, {tenant}, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos,
	{text programado_para}, {text proximo_intento_en}, {text bloqueado_hasta}, reclamo, {text vence_en},
	ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo,
	{text enviado_en}, {text creado_en}, {text actualizado_en}, cabeceras`,
		"{text {now}}", "cast({now} AS char)",
		"{text programado_para}", "cast(programado_para AS char)",
		"{text proximo_intento_en}", "cast(proximo_intento_en AS char)",
		"{text bloqueado_hasta}", "cast(bloqueado_hasta AS char)",
		"{text vence_en}", "cast(vence_en AS char)",
		"{text enviado_en}", "cast(enviado_en AS char)",
		"{text creado_en}", "cast(creado_en AS char)",
		"{text actualizado_en}", "cast(actualizado_en AS char)",
		"{text terminado}", "cast(terminado AS char)",
		"{text turno}", "cast(turno AS char)",

		"{due}", "canal = ?2 AND turno <= {now} AND (estado = {pendiente} OR bloqueado_hasta IS NULL OR bloqueado_hasta <= {now})",
		// The row form, (turno, id) > (…), would be no range of the index.
		"{behind_mark}", "(turno > coalesce(?3, {first}) OR (turno = coalesce(?3, {first}) AND id > ?4))",
		"{first}", "'1000-01-01 00:00:00'", // before every time
		"{act_rows}", "{ids} AS d {by_id}",
		"{act_locks}", "(SELECT * FROM {ids} AS j) AS d {by_id}",
		"{ids}", "JSON_TABLE(?2, '$[*]' COLUMNS (uid varchar({max_id}) PATH '$'))",
		"{fenced}", `(SELECT * FROM {settlements} AS j) AS d {by_id}
WHERE o.reclamo = d.token AND o.estado = {procesando}
	AND o.bloqueado_hasta IN (cast(d.plazo AS datetime(6)), cast(d.plazo AS datetime(6)) + INTERVAL ?3 MICROSECOND)`,
		"{settlements}", `JSON_TABLE(?2, '$[*]' COLUMNS (uid varchar({max_id}) PATH '$[0]', token char(36) PATH '$[1]',
	plazo char(26) PATH '$[2]', estado_ varchar(10) PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar({max_code}) PATH '$[8]',
	codigo varchar({max_code}) PATH '$[9]', externo varchar({max_external_id}) PATH '$[10]', duda int PATH '$[11]'))`,
		"{keys}", `(SELECT * FROM JSON_TABLE(?2, '$[*]' COLUMNS (inquilino varchar({max_tenant}) PATH '$[0]', clave varchar({max_key}) PATH '$[1]')) AS j) AS d`,
		"{by_id}", "STRAIGHT_JOIN {table} AS o FORCE INDEX (PRIMARY) ON o.id = d.uid",
		"{max_id}", strconv.Itoa(maxForeignID),
		"{max_tenant}", strconv.Itoa(store.MaxTenantLength),
		"{max_destination}", strconv.Itoa(store.MaxDestinationLength),
		"{max_template}", strconv.Itoa(store.MaxTemplateLength),
		"{max_key}", strconv.Itoa(store.MaxKeyLength),
		"{max_code}", strconv.Itoa(state.MaxCodeLength),
		"{max_external_id}", strconv.Itoa(state.MaxExternalIDLength),
		"{now}", "coalesce(cast(?1 AS datetime(6)), utc_timestamp(6))",
	)
}

// duplicateKey is what a value that is in use gives, whichever unique index it is in.
const duplicateKey = "1062"

func (mysql) insert(ctx context.Context, tx store.Tx, insert statement, prepared *sql.Stmt, args []any) (insertion, error) {
	args = insert.arrange(args)
	var err error
	if prepared != nil {
		_, err = prepared.ExecContext(ctx, args...)
	} else {
		_, err = tx.ExecContext(ctx, insert.text, args...)
	}
	switch {
	case err == nil:
		return insertion{ids: map[string]bool{args[0].(string): true}}, nil
	case driverCode(err) == duplicateKey:
		return insertion{conflict: err}, nil
	}
	return insertion{}, err
}

// maxStatement is about how many bytes of rows go into one statement: servers refuse those over max_allowed_packet,
// which may be 4 MiB.
const maxStatement = 1 << 20

func (d mysql) insertMany(ctx context.Context, tx store.Tx, q queries, now any, rows []newRow) (insertion, error) {
	made := insertion{ids: make(map[string]bool, len(rows))}
	for len(rows) > 0 {
		n := 0
		var table strings.Builder
		for separator := "["; n < len(rows) && table.Len() < maxStatement; n++ {
			cells := rows[n].args(d)
			for i, v := range cells {
				if v == nil {
					cells[i] = ""
				}
			}
			row := jsonTable([][]any{cells})
			table.WriteString(separator + row[1:len(row)-1])
			separator = ","
		}
		table.WriteString("]")
		switch err := q.insertMany.exec(ctx, tx, now, table.String()); {
		case err == nil:
			for _, r := range rows[:n] {
				made.ids[r.id] = true
			}
		case driverCode(err) == duplicateKey: // nothing of this part is in
			made.conflict = err
		default:
			return made, err
		}
		rows = rows[n:]
	}
	return made, nil
}

func (mysql) findMany(ctx context.Context, tx store.Tx, q queries, rows []newRow) (*sql.Rows, error) {
	return q.findMany.query(ctx, tx, nil, keyTable(rows))
}

// keyTable is what tells rows from one another, as a parameter.
func keyTable(rows []newRow) string {
	cells := make([][]any, len(rows))
	for i, r := range rows {
		cells[i] = []any{r.TenantID, r.IdempotencyKey}
	}
	return jsonTable(cells)
}

// claim locks and reads the rows, has the contract say what becomes of them, and writes.
func (d mysql) claim(ctx context.Context, tx *sql.Tx, q queries, now any, p store.ClaimParams, t store.Token) ([]store.Message, error) {
	rows, err := q.lockClaim.query(ctx, tx, now, p.Channel, d.time(p.From.Turn), markID(p.From), p.Limit)
	if err != nil {
		return nil, err
	}
	var at time.Time
	all, err := scanMessages(rows, func(*store.Message) any { return dbTime{&at} })
	if err != nil || len(all) == 0 {
		return nil, err
	}
	due, charges := make([]*store.Message, len(all)), make([]int, len(all))
	for i := range all {
		due[i], charges[i] = &all[i], -all[i].Attempts
	}
	taken, err := p.Take(due, t, at)
	if err != nil {
		return nil, err
	}
	writes := make([][]any, len(all))
	for i, m := range all {
		end := ""
		if m.State.Terminal() {
			end = m.LastErrorCode
			taken.Messages = append(taken.Messages, m)
		}
		writes[i] = []any{m.ID, charges[i] + m.Attempts, end}
	}
	slices.SortFunc(writes, func(a, b []any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	return taken.Messages, q.claim.exec(ctx, tx, d.time(at), d.time(at.Add(p.Lease)), tokenText(t), jsonTable(writes))
}

// settle locks the rows whose fence holds, and writes them. It does not wait for a lock: the server would for 50 s.
func (d mysql) settle(ctx context.Context, tx *sql.Tx, q queries, now any, group []store.Settlement) ([]bool, error) {
	return d.fenced(ctx, tx, q, group, 0, func(table string) error { return q.settle.exec(ctx, tx, now, table) })
}

func (d mysql) renew(ctx context.Context, tx *sql.Tx, q queries, now any, fences []store.Fence, by time.Duration) ([]bool, error) {
	group := make([]store.Settlement, len(fences))
	for i, f := range fences {
		group[i].Fence = f
	}
	return d.fenced(ctx, tx, q, group, by, func(table string) error {
		return q.renew.exec(ctx, tx, now, table, by.Microseconds())
	})
}

// fenced locks those of group whose fence holds, or held before a renewal by that much, and writes them. A row that
// somebody else has locked is an error.
func (d mysql) fenced(ctx context.Context, tx *sql.Tx, q queries, group []store.Settlement, renewed time.Duration, write func(table string) error) ([]bool, error) {
	table, ids := settlementTable(d, group)
	holds, err := hits(ctx, tx, ids, q.lockFenced, nil, table, renewed.Microseconds())
	if err != nil {
		return nil, err
	}
	if slices.Contains(holds, false) {
		seen, err := hits(ctx, tx, ids, q.fenced, nil, table, renewed.Microseconds())
		if err != nil {
			return nil, err
		}
		if !slices.Equal(seen, holds) {
			return nil, errHeld
		}
		var left []store.Settlement
		for i, s := range group {
			if holds[i] {
				left = append(left, s)
			}
		}
		if len(left) == 0 {
			return holds, nil
		}
		table, _ = settlementTable(d, left)
	}
	return holds, write(table)
}

func (d mysql) repeated(ctx context.Context, tx *sql.Tx, q queries, group []store.Settlement) ([]bool, error) {
	table, ids := settlementTable(d, group)
	return hits(ctx, tx, ids, q.repeated, nil, table)
}

func (d mysql) purge(ctx context.Context, tx *sql.Tx, q queries, args ...any) (ended []time.Time, err error) {
	rows, err := q.lockPurge.query(ctx, tx, args...)
	if err != nil {
		return nil, err
	}
	var ids []string
	err = each(rows, func(scan func(...any) error) error {
		var id string
		var t time.Time
		err := scan(&id, dbTime{&t})
		ids, ended = append(ids, id), append(ended, t)
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	slices.Sort(ids)
	return ended, q.purge.exec(ctx, tx, nil, d.list(ids))
}

func (d mysql) act(ctx context.Context, tx *sql.Tx, a act[statement], now, ids any) ([]string, error) {
	rows, err := a.lock.query(ctx, tx, now, ids)
	if err != nil {
		return nil, err
	}
	done, err := scanStrings(rows)
	if err != nil || len(done) == 0 {
		return nil, err
	}
	return done, a.write.exec(ctx, tx, now, d.list(done))
}

// A table that exists would have to be rewritten while its writes wait.
func (mysql) adopts() bool { return false }

// lockSchema has nothing to do: the server lets one CREATE TABLE IF NOT EXISTS of a table run at a time, and no
// transaction holds one.
func (mysql) lockSchema(context.Context, *sql.Tx, queries, names) error { return nil }

func (d mysql) inspect(ctx context.Context, q querier, n names) (catalog, error) {
	c := catalog{fits: mysqlFits, clustered: true}
	// The server's own comparison ignores case, its table names may not.
	const ofTable = `
WHERE table_schema = coalesce(?, database()) AND table_name = ?
	AND (@@lower_case_table_names > 0 OR cast(table_name AS binary) = cast(? AS binary))`
	args := []any{null(n.plainSchema), n.plainTable, n.plainTable}
	rows, err := q.QueryContext(ctx, `
SELECT column_name, CASE WHEN column_type LIKE 'int(%' THEN 'int' WHEN column_type LIKE 'smallint(%' THEN 'smallint' ELSE column_type END,
	is_nullable = 'NO', extra LIKE '%STORED GENERATED%', coalesce(generation_expression, '')
FROM information_schema.columns`+ofTable, args...)
	if err != nil {
		return c, err
	}
	if c.columns, err = scanColumns(rows); err != nil || len(c.columns) == 0 {
		return c, err
	}
	for name, col := range c.columns {
		col.expression = normalize(col.expression)
		c.columns[name] = col
	}
	rows, err = q.QueryContext(ctx, `
SELECT index_name, min(non_unique) = 0, false, true, '',
	group_concat(coalesce(CASE WHEN sub_part IS NULL THEN column_name END, '(a prefix or an expression)') ORDER BY seq_in_index)
FROM information_schema.statistics`+ofTable+`
GROUP BY index_name ORDER BY index_name`, args...)
	if err != nil {
		return c, err
	}
	if c.indexes, err = scanIndexes(rows); err != nil {
		return c, err
	}
	for i := range c.indexes {
		c.indexes[i].name = d.quote(c.indexes[i].name)
	}
	rows, err = q.QueryContext(ctx, `
SELECT concat('column ', column_name, ' has the collation ', collation_name, ', not utf8mb4_bin, so that texts which differ would be equal or could not be stored')
FROM information_schema.columns`+ofTable+`
	AND collation_name <> 'utf8mb4_bin' AND column_name IN ('`+strings.Join(append(columns, n.plainTenant), "', '")+`')
UNION ALL
SELECT concat('its engine is ', engine, ', not InnoDB') FROM information_schema.tables`+ofTable+` AND engine <> 'InnoDB'
UNION ALL
SELECT 'lower_case_table_names is set, so that its name is not told from another in lower case'
FROM dual WHERE @@lower_case_table_names > 0 AND ? <> lower(?)`, append(append(args, args...), n.plainTable, n.plainTable)...)
	if err != nil {
		return c, err
	}
	if c.unfit, err = scanStrings(rows); err != nil {
		return c, err
	}
	rows, err = q.QueryContext(ctx, "SHOW CREATE TABLE "+n.table)
	if err != nil {
		return c, err
	}
	err = each(rows, func(scan func(...any) error) error {
		var name, ddl string
		err := scan(&name, &ddl)
		for line := range strings.Lines(ddl) {
			if strings.Contains(line, "CHECK") {
				c.checks = append(c.checks, line)
			}
		}
		return err
	})
	return c, err
}

var varchar = regexp.MustCompile(`^varchar\((\d+)\)$`)

// mysqlFits reports whether a column holds all that one of ours does.
func mysqlFits(have, want string) bool {
	w, h, wide := varchar.FindStringSubmatch(want), varchar.FindStringSubmatch(have), 0
	if h != nil {
		wide, _ = strconv.Atoi(h[1]) // digits
	}
	switch {
	case w == nil:
		return want == "char(36)" && (have == "uuid" || wide >= 36 && wide <= maxForeignID)
	case h == nil:
		return have == "text" || have == "mediumtext" || have == "longtext"
	default:
		needed, _ := strconv.Atoi(w[1]) // digits
		return wide >= needed
	}
}

func (mysql) settings(ctx context.Context, db *sql.DB) (problems, advice []string, err error) {
	rows, err := db.QueryContext(ctx, `
SHOW VARIABLES WHERE variable_name IN ('version', 'sql_mode', 'character_set_client', 'read_only', 'log_bin', 'binlog_format',
	'innodb_flush_log_at_trx_commit', 'autocommit', 'completion_type', 'tx_read_only', 'transaction_read_only', 'sql_safe_updates',
	'unique_checks')`)
	if err != nil {
		return nil, nil, err
	}
	set := map[string]string{}
	err = each(rows, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		set[strings.ToLower(name)] = value
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var v [3]int
	_, err = fmt.Sscanf(set["version"], "%d.%d.%d", &v[0], &v[1], &v[2])
	oldest, name := [3]int{8, 0, 16}, "MySQL 8.0.16"
	if strings.Contains(set["version"], "MariaDB") {
		oldest, name = [3]int{10, 6, 0}, "MariaDB 10.6"
	}
	if err != nil || slices.Compare(v[:], oldest[:]) < 0 {
		problems = append(problems, name+" or newer is needed, this is "+set["version"])
	}
	if cs := set["character_set_client"]; cs != "utf8mb4" {
		problems = append(problems, "the connection's character set is "+cs+", so that texts would be changed on their way: open the handle with charset=utf8mb4")
	}
	if mode := set["sql_mode"]; strings.Contains(mode, "EMPTY_STRING_IS_NULL") || strings.Contains(mode, "ORACLE") {
		problems = append(problems, "sql_mode has EMPTY_STRING_IS_NULL or ORACLE, with which statements mean something else")
	}
	if set["read_only"] == "ON" || set["tx_read_only"] == "ON" || set["transaction_read_only"] == "ON" {
		problems = append(problems, "the server is read-only here: a replica, or read_only or transaction_read_only is on")
	}
	if set["autocommit"] == "OFF" || set["completion_type"] != "NO_CHAIN" {
		problems = append(problems, "autocommit is off or completion_type is not NO_CHAIN, so that idle connections stay in a transaction and read what is old")
	}
	if set["sql_safe_updates"] == "ON" {
		problems = append(problems, "sql_safe_updates is on, with which the server refuses to write a list of rows")
	}
	if set["unique_checks"] == "OFF" {
		problems = append(problems, "unique_checks is off: messages could be enqueued twice")
	}
	if set["log_bin"] == "ON" && set["binlog_format"] == "STATEMENT" {
		problems = append(problems, "binlog_format is STATEMENT, with which the server refuses writes in READ COMMITTED: set it to ROW or MIXED")
	}
	if flush := set["innodb_flush_log_at_trx_commit"]; flush != "1" {
		advice = append(advice, "innodb_flush_log_at_trx_commit is "+flush+": after a crash of the machine the last committed messages may be lost")
	}
	return problems, advice, nil
}

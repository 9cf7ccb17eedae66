package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// oldColumns are those of a table of the TypeScript package's, behind the id and the tenant, and two of an application's.
const oldColumns = `
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos jsonb NOT NULL DEFAULT '{}',
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT 'pendiente',
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
	prioridad integer DEFAULT 3,
	"Nota interna" text`

// oldTable makes the table that the TypeScript package makes.
func oldTable(tb testing.TB, db *sql.DB, table, tenant, kind string) {
	tb.Helper()
	exec(tb, db,
		fmt.Sprintf("CREATE TABLE %q (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), %q %s NOT NULL, %s)", table, tenant, kind, oldColumns),
		fmt.Sprintf("CREATE UNIQUE INDEX %q ON %q (%q, clave_idempotencia)", table+"_tenant_clave_idem_key", table, tenant),
		fmt.Sprintf("CREATE INDEX %q ON %q (estado, proximo_intento_en, programado_para) WHERE estado IN ('pendiente', 'procesando')", table+"_activos_idx", table))
}

// oldRows fills every column of n rows, in turn one of each state. A third of the live ones is not due.
func oldRows(tb testing.TB, db *sql.DB, table, tenant string, n int) {
	tb.Helper()
	exec(tb, db, fmt.Sprintf(`
INSERT INTO %q (%q, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para,
	proximo_intento_en, bloqueado_hasta, ultimo_error_categoria, ultimo_error_codigo, id_externo, enviado_en, creado_en,
	actualizado_en, prioridad, "Nota interna")
SELECT '7e000000-0000-4000-8000-00000000000' || i %% 7, 'correo', 'ana-' || i, 'aviso', jsonb_build_object('n', i), 'k-' || i,
	('{pendiente,procesando,enviado,fallido,descartado}'::text[])[1 + i %% 5], i %% 3, 3 + i %% 4,
	now() - i * interval '1 ms', now() + ((i / 5) %% 3 - 1.5) * interval '1 hour',
	now() - interval '1 minute', 'red', 'http_50' || i %% 4, 'x-' || i,
	now() - i * interval '1 second', now() - i * interval '2 seconds', now() - i * interval '3 seconds', i, 'nota ' || i
FROM generate_series(1, %d) AS i`, table, tenant, n))
}

// tableSum is what is in the columns that a table of the TypeScript package's has.
func tableSum(tb testing.TB, db *sql.DB, table, tenant string) (sum string) {
	tb.Helper()
	var list []string
	for _, line := range strings.Split(strings.TrimSpace(oldColumns), "\n") {
		list = append(list, line[:strings.Index(line, " ")])
	}
	list = slices.DeleteFunc(list, func(c string) bool { return strings.HasPrefix(strings.TrimSpace(c), `"Nota`) })
	err := db.QueryRowContext(tb.Context(), fmt.Sprintf(`SELECT count(*) || ' ' || md5(string_agg(t::text, '|' ORDER BY t.id)) FROM (SELECT id, %q, "Nota interna", %s FROM %q) AS t`,
		tenant, strings.Join(list, ","), table)).Scan(&sum)
	if err != nil {
		tb.Fatal(err)
	}
	return sum
}

// layout is what the catalogue says of a table, its indexes and its constraints.
func layout(tb testing.TB, db *sql.DB, table string) (text string) {
	tb.Helper()
	err := db.QueryRowContext(tb.Context(), `
SELECT concat_ws(E'\n',
	(SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attgenerated), E'\n' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped),
	(SELECT string_agg(pg_get_indexdef(indexrelid) || ' ' || indisvalid, E'\n' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = $1::regclass),
	(SELECT string_agg(pg_get_constraintdef(oid), E'\n' ORDER BY conname) FROM pg_constraint WHERE conrelid = $1::regclass))`, `"`+table+`"`).Scan(&text)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func postgresDB(t *testing.T) *sql.DB { return openDB(t, "postgres", dbtest.Postgres(t)) }

// advice is what Check says, without what it says of the test's server.
func advice(ctx context.Context, box *Store) ([]string, error) {
	all, err := box.Check(ctx)
	return slices.DeleteFunc(all, func(a string) bool { return strings.Contains(a, "fsync") }), err
}

func newPostgres(t *testing.T, db *sql.DB, cfg Config) *Store {
	t.Helper()
	box, err := New(db, Postgres, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func TestAdopt(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg                 Config
		table, tenant, kind string
		connections         int
		driver              string
	}{
		"the defaults":             {Config{}, "outbox", "organizacion_id", "uuid", 0, "postgres"},
		"names of one's own":       {Config{Table: "Avisos", TenantColumn: "club_id", TextTenant: true}, "Avisos", "club_id", "text", 0, "pgx"},
		"a pool of one connection": {Config{}, "outbox", "organizacion_id", "uuid", 1, "postgres"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, tc.driver, dbtest.Postgres(t))
			db.SetMaxOpenConns(tc.connections)
			oldTable(t, db, tc.table, tc.tenant, "text")
			oldRows(t, db, tc.table, tc.tenant, 500)
			if tc.kind != "text" {
				exec(t, db, fmt.Sprintf("ALTER TABLE %q ALTER %q TYPE uuid USING %q::uuid", tc.table, tc.tenant, tc.tenant))
			}
			before := tableSum(t, db, tc.table, tc.tenant)
			box := newPostgres(t, db, tc.cfg)
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := tableSum(t, db, tc.table, tc.tenant); after != before {
				t.Errorf("the old columns were %s and are %s", before, after)
			}
			adopted := layout(t, db, tc.table)
			if err := box.Migrate(t.Context()); err != nil || layout(t, db, tc.table) != adopted {
				t.Errorf("another Migrate changes something, or fails: %v", err)
			}
			if said, err := advice(t.Context(), box); err != nil || len(said) != 1 || !strings.Contains(said[0], "DropOldIndex") {
				t.Errorf("Check says %q, %v; want a word on the old index alone", said, err)
			}
			if err := box.MigrateWith(t.Context(), MigrateParams{DropOldIndex: true}); err != nil {
				t.Fatal(err)
			}
			if said, err := advice(t.Context(), box); err != nil || len(said) != 0 {
				t.Errorf("without the old index Check says %q, %v", said, err)
			}
			compareGenerated(t, db, box)
			claimAll(t, db, box)
		})
	}
}

// compareGenerated holds the generated columns against package state.
func compareGenerated(t *testing.T, db *sql.DB, box *Store) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id, turno, terminado FROM "+box.names.table)
	if err != nil {
		t.Fatal(err)
	}
	generated := map[string][2]sql.NullTime{}
	if err := each(rows, func(scan func(...any) error) error {
		var id string
		var at [2]sql.NullTime
		err := scan(&id, &at[0], &at[1])
		generated[id] = at
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for id, at := range generated {
		m, err := box.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if ended := m.State.Terminal(); ended == at[0].Valid || ended != at[1].Valid ||
			!ended && !at[0].Time.Equal(m.Row().Turn()) || ended && !at[1].Time.Equal(m.UpdatedAt) {
			t.Errorf("turno and terminado are %v in %v", at, m)
		}
	}
}

// claimAll takes all that is due, once, and leaves the rest.
func claimAll(t *testing.T, db *sql.DB, box *Store) {
	t.Helper()
	count := func(where string) (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+box.names.table+" WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	due, ended := count("turno <= now()"), count("terminado IS NOT NULL")
	if due == 0 || count("turno > now()") == 0 {
		t.Fatal("the test has no due rows, or no others")
	}
	ids, err := drain(t.Context(), box, 7)
	slices.Sort(ids)
	if err != nil || len(slices.Compact(ids)) != due || count("turno <= now()") != 0 || count("terminado IS NOT NULL") != ended+due {
		t.Errorf("of %d due rows %d were claimed, %v; %d have ended", due, len(ids), err, count("terminado IS NOT NULL"))
	}
}

// A table that has grown is not rewritten unless somebody says so.
func TestAdoptLargeTable(t *testing.T) {
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "text")
	oldRows(t, db, "outbox", "organizacion_id", 40)
	box, before := newPostgres(t, db, Config{TextTenant: true}), layout(t, db, "outbox")
	refused := func(limit int, parts ...string) {
		t.Helper()
		var schema *SchemaError
		err := box.MigrateWith(t.Context(), MigrateParams{MaxRows: limit})
		if !errors.As(err, &schema) || layout(t, db, "outbox") != before {
			t.Fatalf("the error is %v, or the table has changed", err)
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	}
	refused(39, "more than 39 rows (", "kB)", "purge", "MaxRows")
	exec(t, db, "ANALYZE outbox")
	refused(39, "about 40 rows, more than the 39")
	exec(t, db, "DELETE FROM outbox WHERE estado = '"+string(state.Sent)+"'") // the estimate still says 40
	if err := box.MigrateWith(t.Context(), MigrateParams{MaxRows: 32}); err != nil {
		t.Error(err)
	}
	for _, limit := range []int{1, -1} { // nothing is rewritten any more; and the limit lifted
		if err := box.MigrateWith(t.Context(), MigrateParams{MaxRows: limit}); err != nil {
			t.Error(err)
		}
		exec(t, db, "ALTER TABLE outbox DROP COLUMN turno")
	}
	if err := box.MigrateWith(t.Context(), MigrateParams{LockTimeout: time.Microsecond}); !errors.Is(err, store.ErrInvalidOptions) {
		t.Errorf("a lock timeout of 1 µs: %v", err)
	}
}

// Somebody reads for long: those who write are held up for no longer than the lock timeout, and Migrate gives up, or goes
// on when the reader has ended.
func TestAdoptTableInUse(t *testing.T) {
	const timeout = 50 * time.Millisecond
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "text")
	box, before := newPostgres(t, db, Config{TextTenant: true}), layout(t, db, "outbox")
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback() //nolint:errcheck // after the first it does nothing
	if _, err := reader.ExecContext(t.Context(), "SELECT FROM outbox"); err != nil {
		t.Fatal(err)
	}
	migrate := func() chan error {
		done := make(chan error, 1)
		go func() { done <- box.MigrateWith(t.Context(), MigrateParams{LockTimeout: timeout}) }()
		return done
	}
	writes := 0
	write := func() {
		t.Helper()
		writes++
		began := time.Now()
		exec(t, db, fmt.Sprintf("INSERT INTO outbox (organizacion_id, canal, destino, plantilla, clave_idempotencia) VALUES ('club', 'correo', 'a', 'b', 'k-%d')", writes))
		if took := time.Since(began); took > timeout+2*time.Second { // and the machine's own delays
			t.Errorf("an insert took %s", took)
		}
	}
	for done := migrate(); ; write() {
		select {
		case err := <-done:
			var busy *TableBusyError
			if !errors.As(err, &busy) || !store.Locked(err) || !strings.Contains(err.Error(), `"outbox"`) || layout(t, db, "outbox") != before {
				t.Errorf("the error is %v, or the table has changed", err)
			}
		default:
			continue
		}
		break
	}
	done := migrate()
	for range 3 {
		write()
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d inserts went on meanwhile", writes)
}

// Only the table that Config names is touched, though another of that name comes first on the search path.
func TestAdoptInAnotherSchema(t *testing.T) {
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "text")
	exec(t, db, "CREATE SCHEMA avisos", "ALTER TABLE outbox SET SCHEMA avisos")
	oldTable(t, db, "outbox", "organizacion_id", "text")
	box, before := newPostgres(t, db, Config{Schema: "avisos", TextTenant: true}), layout(t, db, "outbox")
	if err := box.MigrateWith(t.Context(), MigrateParams{DropOldIndex: true}); err != nil {
		t.Fatal(err)
	}
	if said, err := advice(t.Context(), box); err != nil || len(said) != 0 {
		t.Errorf("Check says %q, %v", said, err)
	}
	if layout(t, db, "outbox") != before {
		t.Error("the other table has changed")
	}
}

// A process that freezes in the middle of a change keeps nobody out for longer than the server lets it idle.
func TestAdoptFrozen(t *testing.T) {
	box := newBox(t, engines[0], postgresDB(t), Config{})
	var idle, lock string
	err := box.alone(t.Context(), MigrateParams{LockTimeout: 1500 * time.Millisecond}, func(tx *sql.Tx) error {
		return tx.QueryRowContext(t.Context(), "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')").Scan(&idle, &lock)
	})
	if err != nil || idle != "30s" || lock != "1500ms" {
		t.Errorf("its transaction may idle for %s and wait for a lock for %s, %v", idle, lock, err)
	}
}

// Ten processes that start at once adopt a table once.
func TestAdoptAtOnce(t *testing.T) {
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "text")
	oldRows(t, db, "outbox", "organizacion_id", 50_000)
	before := tableSum(t, db, "outbox", "organizacion_id")
	start, errs := make(chan struct{}), make([]error, 10)
	var wg sync.WaitGroup
	for i := range errs {
		box := newPostgres(t, db, Config{TextTenant: true})
		wg.Go(func() {
			<-start
			errs[i] = box.MigrateWith(t.Context(), MigrateParams{LockTimeout: 100 * time.Millisecond})
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if said, err := advice(t.Context(), newPostgres(t, db, Config{TextTenant: true})); err != nil || len(said) != 1 {
		t.Errorf("Check says %q, %v", said, err)
	}
	if after := tableSum(t, db, "outbox", "organizacion_id"); after != before {
		t.Errorf("the old columns were %s and are %s", before, after)
	}
}

// A build of an index that is cut off leaves one that is not valid. The next Migrates, ten at once, build it anew.
func TestInterruptedBuild(t *testing.T) {
	db := postgresDB(t)
	box := newBox(t, engines[0], db, Config{})
	enqueue(t, box, "a", "b", "c")
	whole := layout(t, db, "outbox")
	exec(t, db, "DROP INDEX outbox_turno_idx")
	writer, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback() //nolint:errcheck // after the first it does nothing
	if _, err := writer.ExecContext(t.Context(), "UPDATE outbox SET destino = destino"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- box.Migrate(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for building := false; !building; <-tick.C { // which waits for the writer
		if err := db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE index_relid <> 0)").Scan(&building); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Fatal("a Migrate that was cancelled says nothing")
	}
	if said, err := advice(t.Context(), box); err == nil || !strings.Contains(strings.Join(said, "\n"), "index outbox_turno_idx is not valid") {
		t.Errorf("Check says %q, %v", said, err)
	}
	if err := writer.Rollback(); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 10)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = box.Migrate(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if got := layout(t, db, "outbox"); got != whole {
		t.Errorf("the table was\n%s\nand is\n%s", whole, got)
	}
}

// The name of an index may be taken: without the queue's there is no working, without the history's there is advice.
func TestAdoptTakenIndexNames(t *testing.T) {
	for name, problem := range map[string]string{"outbox_turno_idx": "(canal, turno, id)", "outbox_terminado_idx": ""} {
		t.Run(name, func(t *testing.T) {
			db := postgresDB(t)
			oldTable(t, db, "outbox", "organizacion_id", "text")
			exec(t, db, "CREATE TABLE other (n integer)", "CREATE INDEX "+name+" ON other (n)")
			box := newPostgres(t, db, Config{TextTenant: true})
			if err := box.Migrate(t.Context()); (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
				t.Errorf("Migrate says %v, want %q", err, problem)
			}
		})
	}
}

// Rows in states that are none do not keep an application from starting. They are counted, and no more come.
func TestAdoptUnknownStates(t *testing.T) {
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "text")
	insert := "INSERT INTO outbox (organizacion_id, canal, destino, plantilla, clave_idempotencia, estado) SELECT 'club', 'correo', 'a', 'b', '%s-' || i, '%[1]s' FROM generate_series(1, %d) AS i"
	for name, n := range map[string]int{"borrador": 3, "raro": 2, "a": 1, "b": 1, "c": 1, "d": 1, string(state.Sent): 4} {
		exec(t, db, fmt.Sprintf(insert, name, n))
	}
	box := newPostgres(t, db, Config{TextTenant: true})
	for range 2 {
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		said, err := advice(t.Context(), box)
		if said := strings.Join(said, "\n"); err != nil || !strings.Contains(said, `NOT VALID`) ||
			!strings.Contains(said, `9 ("borrador" 3, "raro" 2, "a" 1, "b" 1, "c" 1, and others; `) {
			t.Errorf("Check says %q, %v", said, err)
		}
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf(insert, "nuevo", 1)); err == nil {
		t.Error("a row in an unknown state was written after the CHECK was added")
	}
	exec(t, db, "UPDATE outbox SET estado = '"+string(state.Discarded)+"' WHERE estado NOT IN ("+quoteStates(state.States())+")")
	if err := box.MigrateWith(t.Context(), MigrateParams{DropOldIndex: true}); err != nil {
		t.Fatal(err)
	}
	if said, err := advice(t.Context(), box); err != nil || len(said) != 0 {
		t.Errorf("with the rows corrected Check says %q, %v", said, err)
	}
}

// A column of the right name that is another: nothing is changed, and Check says the same.
func TestAdoptRefusesOtherColumns(t *testing.T) {
	const turn = "CASE WHEN estado IN ('pendiente', 'procesando') THEN greatest(programado_para, proximo_intento_en) END"
	for name, tc := range map[string]struct{ change, problem string }{
		"a token of another type":     {"ADD reclamo text", "column reclamo of table \"outbox\" is of type text, not uuid"},
		"a wider dudas":               {"ADD dudas integer NOT NULL DEFAULT 0", "dudas of table \"outbox\" is of type integer"},
		"dudas that may be NULL":      {"ADD dudas smallint DEFAULT 0", "dudas of table \"outbox\" must be NOT NULL"},
		"a deadline that is needed":   {"ADD vence_en timestamptz NOT NULL DEFAULT now()", "vence_en of table \"outbox\" must not be NOT NULL"},
		"a plain turno":               {"ADD turno timestamptz", "turno of table \"outbox\" must be a stored generated column"},
		"another turno":               {"ADD turno timestamptz GENERATED ALWAYS AS (programado_para) STORED", "turno of table \"outbox\" is not generated as CASE"},
		"almost our turno":            {"ADD turno timestamptz GENERATED ALWAYS AS (coalesce(" + turn + ", 'infinity')) STORED", "turno of table \"outbox\" is not generated as CASE"},
		"a turno of other states":     {"ADD turno timestamptz GENERATED ALWAYS AS (" + strings.Replace(turn, "procesando", "borrador", 1) + ") STORED", "turno of table \"outbox\" is not generated as CASE"},
		"the wrong one of two dates":  {"ADD terminado timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN enviado_en END) STORED", "terminado of table \"outbox\" is not generated as CASE"},
		"generated headers":           {"ADD cabeceras jsonb GENERATED ALWAYS AS (datos) STORED", "cabeceras of table \"outbox\" must not be a generated column"},
		"no destino":                  {"DROP destino", "has no column destino"},
		"a lease that is needed":      {"ALTER bloqueado_hasta SET NOT NULL", "bloqueado_hasta of table \"outbox\" must not be NOT NULL"},
		"times without a zone":        {"ALTER creado_en TYPE timestamp", "creado_en of table \"outbox\" is of type timestamp without time zone"},
		"a tenant of the other type":  {"ALTER organizacion_id TYPE uuid USING gen_random_uuid()", "organizacion_id of table \"outbox\" is of type uuid, not text"},
		"a tenant column not its own": {"RENAME organizacion_id TO club_id", "has no column organizacion_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := postgresDB(t)
			oldTable(t, db, "outbox", "organizacion_id", "text")
			exec(t, db, "ALTER TABLE outbox "+tc.change)
			box, before := newPostgres(t, db, Config{TextTenant: true}), layout(t, db, "outbox")
			var schema *SchemaError
			if err := box.Migrate(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("Migrate says %v, want %q", err, tc.problem)
			}
			if after := layout(t, db, "outbox"); after != before {
				t.Errorf("the table was\n%s\nand is\n%s", before, after)
			}
			if _, err := box.Check(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("Check says %v, want %q", err, tc.problem)
			}
		})
	}
}

// Where the columns cannot be added, the refusal says how to come by a table that has them, and that works.
func TestRebuild(t *testing.T) {
	for _, e := range engines {
		if e.dialect.adopts() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t)
			old := newBox(t, e, db, Config{})
			enqueue(t, old, "a", "b")
			if e.dialect == SQLite {
				exec(t, db, "DROP INDEX outbox_turno_idx")
			}
			exec(t, db, "ALTER TABLE outbox DROP COLUMN turno")
			var schema *SchemaError
			if err := old.Migrate(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), "no column turno") || !strings.Contains(err.Error(), "under another name with Schema") {
				t.Fatalf("Migrate says %v", err)
			}
			ddl, err := Schema(e.dialect, Config{Table: "outbox_2"})
			if err != nil {
				t.Fatal(err)
			}
			list := "id, organizacion_id, " + strings.Join(columns[1:len(columns)-2], ", ")
			exec(t, db, append(strings.Split(strings.TrimSuffix(ddl, ";\n"), ";\n\n"),
				"INSERT INTO outbox_2 ("+list+") SELECT "+list+" FROM outbox", "DROP TABLE outbox", "ALTER TABLE outbox_2 RENAME TO outbox")...)
			if err := old.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
			if ids, err := drain(t.Context(), old, 5); err != nil || len(ids) != 2 {
				t.Errorf("drained %v, %v", ids, err)
			}
		})
	}
}

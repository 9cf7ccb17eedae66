package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

const tenant = "7e000000-0000-4000-8000-000000000001"

func message(key string) store.NewMessage {
	return store.NewMessage{
		TenantID: tenant, Channel: "correo", Destination: "ana@club.example", Template: "aviso",
		Data: map[string]any{"n": 1}, IdempotencyKey: key,
	}
}

// enqueue commits one message per key.
func enqueue(tb testing.TB, box *Store, keys ...string) (ids []string) {
	tb.Helper()
	tx, err := box.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, key := range keys {
		r, err := box.Enqueue(tb.Context(), tx, message(key))
		if err != nil {
			tb.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	return ids
}

func sent(m store.Message) store.Settlement {
	return store.Settlement{Fence: m.Fence(), Attempts: m.Attempts, Transition: state.Transition{Event: state.EventSend, To: state.Sent, ExternalID: "x-" + m.ID}}
}

// drain claims and settles until nothing is due, and returns what it claimed.
func drain(ctx context.Context, box *Store, limit int) (ids []string, err error) {
	for {
		c, err := box.Claim(ctx, store.ClaimParams{Channel: "correo", Limit: limit, Lease: time.Minute})
		if err != nil || len(c.Messages) == 0 {
			return ids, err
		}
		var group []store.Settlement
		for _, m := range c.Messages {
			ids = append(ids, m.ID)
			group = append(group, sent(m))
		}
		verdicts, err := box.Settle(ctx, group)
		if err != nil {
			return ids, err
		}
		if slices.Contains(verdicts, store.Lost) {
			return ids, errors.New("a settlement within its lease was lost")
		}
	}
}

func TestNewRunsNoSQLAndRefuses(t *testing.T) {
	box, _ := mockStore(t) // the mock expects nothing
	db := box.db
	for name, tc := range map[string]struct {
		cfg   Config
		field string
	}{
		"quote":             {Config{Table: `out"box`}, "Config.Table"},
		"semicolon":         {Config{Table: "outbox;drop"}, "Config.Table"},
		"NUL":               {Config{Table: "out\x00box"}, "Config.Table"},
		"dash":              {Config{Table: "outbox-2"}, "Config.Table"},
		"dot":               {Config{Table: "public.outbox"}, "Config.Table"},
		"digit first":       {Config{Table: "2outbox"}, "Config.Table"},
		"accent":            {Config{Table: "avisós"}, "Config.Table"},
		"64 characters":     {Config{Table: strings.Repeat("a", 64)}, "Config.Table"},
		"schema with blank": {Config{Schema: "Mi Esquema"}, "Config.Schema"},
		"tenant column":     {Config{TenantColumn: "club id"}, "Config.TenantColumn"},
		"taken column":      {Config{TenantColumn: "Estado"}, "Config.TenantColumn"},
		"payload":           {Config{MaxPayload: -1}, "Config.MaxPayload"},
		"huge payload":      {Config{MaxPayload: 17 << 20}, "Config.MaxPayload"},
		"no channels":       {Config{Channels: []string{}}, "Config.Channels"},
		"odd channel":       {Config{Channels: []string{"correo", "Whats App"}}, "Config.Channels"},
		"default tenant":    {Config{DefaultTenant: "club"}, "TenantID"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(db, Postgres, tc.cfg)
			var invalid *store.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != tc.field {
				t.Errorf("the error is %v, want a refusal of %s", err, tc.field)
			}
			if _, err := Schema(Postgres, tc.cfg); err == nil {
				t.Error("Schema takes what New refuses")
			}
		})
	}
	if _, err := New(nil, Postgres, Config{}); !errors.Is(err, store.ErrInvalidOptions) {
		t.Errorf("a nil *sql.DB: %v", err)
	}
	if _, err := New(db, nil, Config{}); !errors.Is(err, store.ErrInvalidOptions) {
		t.Errorf("a nil dialect: %v", err)
	}
}

// Names that differ in case, or only in their last characters, or are reserved words, are tables of their own.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 62)
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		tables := []string{"order", "select", long + "b", long + "c"}
		if e.dialect != SQLite { // whose names ignore case
			tables = append(tables, "Avisos", "avisos")
		}
		boxes := map[string]*Store{}
		for _, table := range tables {
			box := newBox(t, e, db, Config{Table: table, TenantColumn: "group"})
			if advice, err := box.Check(t.Context()); err != nil {
				t.Errorf("%s: %v %v", table, advice, err)
			}
			enqueue(t, box, "k-"+table)
			boxes[table] = box
		}
		for table, box := range boxes {
			ids, err := drain(t.Context(), box, 10)
			if err != nil || len(ids) != 1 {
				t.Errorf("table %s hands out %v, %v", table, ids, err)
			}
		}
	})
}

func TestMigrateAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		start := make(chan struct{})
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				box, err := New(db, e.dialect, Config{})
				<-start
				errs[i] = errors.Join(err, box.Migrate(t.Context()))
			})
		}
		close(start)
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		box := newBox(t, e, db, Config{})
		id := enqueue(t, box, "k")[0]
		if err := box.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := box.Get(t.Context(), id); err != nil {
			t.Errorf("after another Migrate the row is gone: %v", err)
		}
	})
}

func TestMigrateRefusesAnotherTable(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box, err := New(db, e.dialect, Config{})
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, "CREATE TABLE outbox (id varchar(36) PRIMARY KEY, destino integer)")
		var schema *SchemaError
		if err := box.Migrate(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), "turno") || !strings.Contains(err.Error(), "destino") {
			t.Errorf("the error is %v, want one that names the columns", err)
		}
	})
}

func exec(tb testing.TB, db *sql.DB, statements ...string) {
	tb.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(tb.Context(), s); err != nil {
			tb.Fatalf("%s: %v", s, err)
		}
	}
}

func TestCheck(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box, err := New(db, e.dialect, Config{})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(what, problem, hint string) {
			t.Helper()
			advice, err := box.Check(t.Context())
			if (problem == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: the error is %v, want %q", what, err, problem)
			}
			if hint != "" && !strings.Contains(strings.Join(advice, "\n"), hint) {
				t.Errorf("%s: the advice is %q, want %q", what, advice, hint)
			}
		}
		expect("no table", "does not exist", "")
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("all in place", "", "")
		drop := func(index string) {
			t.Helper()
			if e.dialect == MySQL {
				index += " ON outbox"
			}
			exec(t, db, "DROP INDEX "+index)
		}
		exec(t, db, "CREATE INDEX mine ON outbox (estado, proximo_intento_en)")
		if e.dialect != MySQL {
			expect("an index on estado", "", "heap-only")
		}
		drop("mine")
		drop("outbox_terminado_idx")
		if e.dialect == MySQL {
			expect("no index for the history", "(terminado) called", "")
		} else {
			expect("no index for the history", "", "terminado")
		}
		drop("outbox_turno_idx")
		expect("no queue index", "(canal, turno", "")
		drop("outbox_tenant_clave_idem_key")
		expect("no unique index", "unique", "")
		if e.dialect == Postgres {
			exec(t, db, "ALTER TABLE outbox DROP CONSTRAINT outbox_estado_check",
				"INSERT INTO outbox (organizacion_id, canal, destino, plantilla, clave_idempotencia, estado) VALUES ('"+tenant+"', 'correo', 'a', 'b', 'c', 'raro')")
			expect("no list of states", "unique", "no worker ever takes: 1")
			exec(t, db, "ALTER TABLE outbox DROP COLUMN dudas", "ALTER TABLE outbox ALTER COLUMN cabeceras TYPE text")
			expect("another column", "no column dudas", "")
			expect("another type", "column cabeceras of table \"outbox\" is of type text, not jsonb", "")
		}
		if e.dialect == MySQL {
			for alteration, problem := range map[string]string{
				"MODIFY destino varchar(100) COLLATE utf8mb4_bin NOT NULL":                       "column destino of table `outbox` is of type varchar(100), not varchar(320)",
				"MODIFY destino varchar(400) COLLATE utf8mb4_bin NOT NULL":                       "",
				"MODIFY plantilla text COLLATE utf8mb4_bin NOT NULL":                             "",
				"MODIFY clave_idempotencia varchar(200) COLLATE utf8mb4_general_ci NOT NULL":     "column clave_idempotencia has the collation utf8mb4_general_ci",
				"MODIFY plantilla varchar(200) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL": "column plantilla has the collation latin1_bin",
				"MODIFY destino varchar(320) COLLATE utf8mb4_bin":                                "column destino of table `outbox` must be NOT NULL",
				"MODIFY id varchar(255) COLLATE utf8mb4_bin NOT NULL":                            "",
				"MODIFY id varchar(256) COLLATE utf8mb4_bin NOT NULL":                            "column id of table `outbox` is of type varchar(256), not char(36)",
				"DROP COLUMN dudas": "no column dudas",
				"ENGINE = MyISAM":   "its engine is MyISAM",
			} {
				exec(t, db, "DROP TABLE outbox", box.sql.schema[0].text, "ALTER TABLE outbox "+alteration)
				expect(alteration, problem, "")
			}
		}
	})
}

func TestCheckSettings(t *testing.T) {
	for name, tc := range map[string]struct{ dsn, problem, hint string }{
		"deferred":     {sqliteFile(t) + "?_pragma=busy_timeout(1000)", "_txlock=immediate", "WAL"},
		"no timeout":   {sqliteFile(t) + "?_txlock=immediate&_pragma=journal_mode(wal)", "busy_timeout", ""},
		"memory":       {"file::memory:?_txlock=immediate&_pragma=busy_timeout(1000)", "in-memory", ""},
		"not synced":   {sqliteFile(t) + "?_txlock=immediate&_pragma=busy_timeout(1000)&_pragma=synchronous(off)", "", "synchronous is OFF"},
		"without sync": {sqliteFile(t) + "?_txlock=immediate&_pragma=busy_timeout(1000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)", "", "NORMAL"},
	} {
		t.Run("sqlite/"+name, func(t *testing.T) {
			problems, advice, err := SQLite.settings(t.Context(), openDB(t, "sqlite", tc.dsn))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(problems, "\n"), tc.problem) || (tc.problem == "") != (len(problems) == 0) {
				t.Errorf("the problems are %q, want %q", problems, tc.problem)
			}
			if !strings.Contains(strings.Join(advice, "\n"), tc.hint) {
				t.Errorf("the advice is %q, want %q", advice, tc.hint)
			}
		})
	}
	t.Run("postgres/read-only", func(t *testing.T) {
		db := openDB(t, "postgres", dbtest.Postgres(t)+"&default_transaction_read_only=on&synchronous_commit=off")
		problems, advice, err := Postgres.settings(t.Context(), db)
		if err != nil || !strings.Contains(strings.Join(problems, "\n"), "read-only") || !strings.Contains(strings.Join(advice, "\n"), "synchronous_commit") {
			t.Errorf("%q %q %v", problems, advice, err)
		}
	})
}

// The conformance kit stops the clock. Here it runs, and it is the database's own where there is one.
func TestRunningClock(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		before, err := box.readClock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id := enqueue(t, box, "k")[0]
		c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 5, Lease: time.Minute})
		if err != nil || len(c.Messages) != 1 {
			t.Fatalf("the claim is %+v, %v", c, err)
		}
		m := c.Messages[0]
		if m.CreatedAt.Before(before) || m.ScheduledAt != m.CreatedAt || c.Now.Before(m.CreatedAt) || m.LeasedUntil != c.Now.Add(time.Minute) {
			t.Errorf("created %v, scheduled %v, claimed %v, leased until %v", m.CreatedAt, m.ScheduledAt, c.Now, m.LeasedUntil)
		}
		retry := store.Settlement{Fence: m.Fence(), Attempts: m.Attempts, Transition: state.Transition{
			Event: state.EventRetry, To: state.Pending, Wait: time.Hour, Category: state.CategoryNetwork, Code: "http_503",
		}}
		for range 2 { // the repeat as well
			verdicts, err := box.Settle(t.Context(), []store.Settlement{retry})
			if err != nil || verdicts[0] != store.Applied {
				t.Fatalf("the verdicts are %v, %v", verdicts, err)
			}
		}
		got, err := box.Get(t.Context(), id)
		if err != nil || got.NextAttemptAt != got.UpdatedAt.Add(time.Hour) || got.UpdatedAt.Before(c.Now) {
			t.Errorf("settled at %v, next attempt at %v, %v", got.UpdatedAt, got.NextAttemptAt, err)
		}
		wait, ok, err := box.NextDue(t.Context(), []string{"whatsapp", "correo"})
		if err != nil || !ok || wait > time.Hour || wait < time.Hour-time.Minute {
			t.Errorf("the next is due in %v, %v, %v", wait, ok, err)
		}
	})
}

func enqueueAll(tb testing.TB, box *Store, ms []store.NewMessage) []store.EnqueueResult {
	tb.Helper()
	tx, err := box.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	results, err := box.EnqueueAll(tb.Context(), tx, ms)
	if err != nil {
		tb.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	return results
}

func TestEnqueueAll(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		old := enqueue(t, box, "k-00007", "k-05000")
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		messages := make([]store.NewMessage, 10_000)
		for i := range messages {
			m := message(fmt.Sprintf("k-%05d", len(messages)-1-i)) // against the order of the keys
			m.Data = map[string]any{"ñ": `"comillas", \barra\, {llaves}, NULL, 🎉`, "i": i}
			if m.Destination = fmt.Sprintf(`"%d, o'hara\" <x{y}>`, i); i%3 == 0 {
				m.ScheduledAt, m.ExpiresAt, m.MaxAttempts = later, later.Add(time.Hour), 7
				m.Headers = map[string]string{"traceparent": "NULL"}
			}
			messages[i] = m
		}
		again := messages[17]
		messages = append(messages, again)
		again.Template = "otra"
		messages = append(messages, again)

		results := enqueueAll(t, box, messages)
		seen := map[string]bool{}
		for i, r := range results[:10_000] {
			switch messages[i].IdempotencyKey {
			case "k-00007", "k-05000":
				if r.Inserted || !r.Differs || !slices.Contains(old, r.ID) {
					t.Errorf("the message whose key is in use: %+v", r)
				}
			default:
				if !r.Inserted || r.Differs || seen[r.ID] {
					t.Fatalf("message %d: %+v", i, r)
				}
			}
			seen[r.ID] = true
		}
		if first := results[17].ID; results[10_000] != (store.EnqueueResult{ID: first}) || results[10_001] != (store.EnqueueResult{ID: first, Differs: true}) {
			t.Errorf("the key used again in one call: %+v, %+v, want the id %s", results[10_000], results[10_001], first)
		}
		for _, i := range []int{0, 1, 9_998} { // what is stored is what was given
			want := messages[i]
			got, err := box.Get(t.Context(), results[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := box.rules.Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			if !encoded.SameContent(got.Channel, got.Destination, got.Template, got.Data) || got.IdempotencyKey != want.IdempotencyKey ||
				got.MaxAttempts != encoded.MaxAttempts || !got.ExpiresAt.Equal(want.ExpiresAt) || got.Headers["traceparent"] != want.Headers["traceparent"] ||
				(!want.ScheduledAt.IsZero() && !got.ScheduledAt.Equal(want.ScheduledAt)) || got.State != state.Pending {
				t.Errorf("message %d came back as %#v", i, got)
			}
		}
		if again := enqueueAll(t, box, messages[:2500]); slices.ContainsFunc(again, func(r store.EnqueueResult) bool { return r.Inserted }) {
			t.Error("a second call inserted messages again")
		}

		// One refused message refuses the call, before any SQL, and says which one.
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		bad := slices.Clone(messages[:3])
		bad[2].IdempotencyKey = ""
		if _, err := box.EnqueueAll(t.Context(), tx, bad); !errors.Is(err, store.ErrInvalidOptions) || !strings.HasPrefix(err.Error(), "message 2: ") {
			t.Errorf("the error is %v", err)
		}
		if _, err := box.EnqueueAll(t.Context(), (*sql.Tx)(nil), messages[:1]); !errors.Is(err, store.ErrTxRequired) {
			t.Errorf("without a transaction the error is %v", err)
		}
		if r, err := box.EnqueueAll(t.Context(), tx, nil); err != nil || len(r) != 0 {
			t.Errorf("nothing to enqueue gives %v, %v", r, err)
		}
	})
}

// Calls that enqueue the same keys in opposite orders do not deadlock, since each sorts them.
func TestEnqueueAllAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		var inserted atomic.Int64
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				messages := make([]store.NewMessage, 200)
				for j := range messages {
					messages[j] = message(fmt.Sprintf("k-%d", j))
				}
				if i%2 == 1 {
					slices.Reverse(messages)
				}
				tx, err := box.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer tx.Rollback()
				results, err := box.EnqueueAll(t.Context(), tx, messages)
				if err == nil {
					err = tx.Commit()
				}
				if err != nil {
					t.Error(err)
				}
				for _, r := range results {
					if r.Inserted {
						inserted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if inserted.Load() != 200 {
			t.Errorf("%d messages are new, want 200", inserted.Load())
		}
	})
}

func TestPrepare(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		if err := box.Close(); err != nil {
			t.Errorf("closing what was never prepared: %v", err)
		}
		for range 2 { // preparing again replaces the statement
			if err := box.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ids := enqueue(t, box, "a", "b", "a")
		if ids[0] == ids[1] || ids[0] != ids[2] {
			t.Errorf("the ids are %v", ids)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
		enqueue(t, box, "c")
	})
}

// wrapped is a transaction type of an application.
type wrapped struct{ *sql.Tx }

// What is no transaction does not fit, so that the compiler refuses it.
func TestOnlyTransactionsAreTransactions(t *testing.T) {
	for _, tx := range []any{(*sql.Tx)(nil), wrapped{}} {
		if _, ok := tx.(store.Tx); !ok {
			t.Errorf("%T does not fit", tx)
		}
	}
	for _, handle := range []any{(*sql.DB)(nil), (*sql.Conn)(nil), (*Store)(nil)} {
		if _, ok := handle.(store.Tx); ok {
			t.Errorf("%T passes for a transaction", handle)
		}
	}
}

func TestEnqueueTransactions(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		for name, tx := range map[string]store.Tx{"nil": nil, "typed nil": (*sql.Tx)(nil)} {
			if _, err := box.Enqueue(t.Context(), tx, message("k")); !errors.Is(err, store.ErrTxRequired) {
				t.Errorf("%s: %v", name, err)
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := box.Enqueue(t.Context(), wrapped{tx}, message("k")); err != nil || !r.Inserted {
			t.Errorf("in a type that embeds *sql.Tx: %+v, %v", r, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := box.Enqueue(t.Context(), tx, message("k")); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("in a transaction that has ended: %v", err)
		}
		if _, err := box.GetByKey(t.Context(), tenant, "k"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after the rollback: %v", err)
		}
	})
}

// One connection is enough: nothing asks for a second while it holds the first.
func TestOneConnection(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		db.SetMaxOpenConns(1)
		box := newBox(t, e, db, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		enqueue(t, box, "a", "b", "c", "a")
		ids, err := drain(ctx, box, 2)
		if err != nil || len(ids) != 3 {
			t.Errorf("drained %v, %v", ids, err)
		}
		if _, err := box.Check(ctx); err != nil {
			t.Error(err)
		}
		if _, err := box.Stats(ctx, store.StatsParams{}); err != nil {
			t.Error(err)
		}
		if n, err := box.Purge(ctx, store.PurgeParams{Before: time.Now().Add(time.Hour), Batch: 2}); err != nil || n != 3 {
			t.Errorf("purged %d, %v", n, err)
		}
	})
}

// Rows that only a foreign writer makes do not keep the others from being claimed.
func TestForeignRows(t *testing.T) {
	for _, e := range engines {
		if e.dialect != Postgres {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			insert := func(key, names, values string) {
				t.Helper()
				exec(t, db, fmt.Sprintf(`INSERT INTO outbox (organizacion_id, canal, destino, plantilla, clave_idempotencia, %s)
					VALUES ('%s', 'correo', 'ana@club.example', 'aviso', '%s', %s)`, names, tenant, key, values))
			}
			insert("since ever", "programado_para", "'-infinity'")
			insert("never", "programado_para", "'infinity'")
			insert("before Christ", "programado_para", "'0044-03-15 BC'")
			insert("no end", "vence_en", "'infinity'")
			insert("ended ever", "vence_en", "'-infinity'")
			insert("leased for ever", "estado, bloqueado_hasta", "'"+string(state.Processing)+"', 'infinity'")
			insert("leased since ever", "estado, bloqueado_hasta", "'"+string(state.Processing)+"', '-infinity'")
			insert("no attempts", "max_intentos", "-1")
			insert("many attempts", "intentos", "2147483647")
			insert("headers", "cabeceras, datos", `'[1, {"a": null}]', 'null'`)
			enqueue(t, box, "usual")

			c, err := box.Claim(t.Context(), claimParams())
			for err == nil && len(c.Messages)+len(c.Closed) > 0 {
				var group []store.Settlement
				for _, m := range c.Messages {
					group = append(group, sent(m))
				}
				var verdicts []store.Verdict
				if verdicts, err = box.Settle(t.Context(), group); slices.Contains(verdicts, store.Lost) {
					t.Errorf("a settlement was lost: %v", verdicts)
				}
				if err == nil {
					c, err = box.Claim(t.Context(), claimParams())
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]state.State{
				"since ever": state.Sent, "never": state.Pending, "before Christ": state.Sent, "no end": state.Sent,
				"ended ever": state.Failed, "leased for ever": state.Processing, "leased since ever": state.Sent,
				"no attempts": state.Failed, "many attempts": state.Failed, "headers": state.Sent, "usual": state.Sent,
			} {
				if m, err := box.GetByKey(t.Context(), tenant, key); err != nil || m.State != want {
					t.Errorf("%s: %s, %v, want %s", key, m.State, err, want)
				}
			}
			if _, err := box.Stats(t.Context(), store.StatsParams{}); err != nil {
				t.Error(err)
			}
			if _, _, err := box.NextDue(t.Context(), []string{"correo"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A worker that is frozen in the middle of a transaction of ours keeps its rows for no longer than the server lets that
// transaction idle: no application has to set anything.
func TestFrozenTransaction(t *testing.T) {
	db := openDB(t, "postgres", dbtest.Postgres(t))
	box := newBox(t, engines[0], db, Config{})
	enqueue(t, box, "k")
	setting := func(q interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	},
	) (value string) {
		t.Helper()
		if err := q.QueryRowContext(t.Context(), "SELECT current_setting('idle_in_transaction_session_timeout')").Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	usual := setting(db)
	var claimed []store.Message
	if err := box.inTx(t.Context(), "claim", func(tx *sql.Tx) (err error) {
		claimed, err = Postgres.claim(t.Context(), tx, box.sql, box.now(), claimParams(), store.NewToken())
		if got := setting(tx); got != "30s" {
			t.Errorf("after a claim its transaction may idle for %s", got)
		}
		return err
	}); err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	if err := box.inTx(t.Context(), "settle", func(tx *sql.Tx) error {
		written, err := Postgres.settle(t.Context(), tx, box.sql, box.now(), []store.Settlement{sent(claimed[0])})
		if got := setting(tx); got != "30s" || len(written) != 1 || !written[0] {
			t.Errorf("after a settlement (%v) its transaction may idle for %s", written, got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := setting(db); got != usual {
		t.Errorf("the setting outlived its transaction: %s", got)
	}
}

// Whatever a database's default isolation is, four workers hand out every row once, and none of them fails.
func TestIsolation(t *testing.T) {
	for _, e := range slices.Concat(variants, isolations) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			box := newBox(t, e, e.open(t), Config{})
			keys := make([]string, 200)
			for i := range keys {
				keys[i] = fmt.Sprint("k-", i)
			}
			enqueue(t, box, keys...)
			var mu sync.Mutex
			times := map[string]int{}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					ids, err := drain(t.Context(), box, 7)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, id := range ids {
						times[id]++
					}
				})
			}
			wg.Wait()
			for id, n := range times {
				if n != 1 {
					t.Errorf("%s was handed out %d times", id, n)
				}
			}
			if len(times) != 200 {
				t.Errorf("%d rows were handed out", len(times))
			}
		})
	}
}

// The zone of a session or of a caller's time changes nothing.
func TestTimeZones(t *testing.T) {
	at := time.Date(2124, 3, 10, 2, 30, 0, 123_456_000, time.UTC)
	zones := []*time.Location{time.UTC, time.FixedZone("Kathmandu", 5*3600+45*60), time.FixedZone("Los Angeles", -8*3600)}
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		if e.dialect == Postgres {
			var name string
			if err := db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			exec(t, db, "ALTER DATABASE "+name+" SET timezone = 'Asia/Tokyo'")
			db.SetMaxIdleConns(0) // a new session has the new zone
		}
		var clock testClock
		clock.set(at.Add(-time.Hour).In(zones[1]))
		box := newBox(t, e, db, Config{Clock: clock.get})
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, zone := range zones {
			m := message(fmt.Sprint("k-", i))
			m.ScheduledAt = at.In(zone)
			if _, err := box.Enqueue(t.Context(), tx, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			now  time.Time
			want int
		}{{at.Add(-time.Microsecond), 0}, {at, 3}} {
			clock.set(step.now)
			c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})
			if err != nil || len(c.Messages) != step.want {
				t.Errorf("at %v the claim takes %d rows, want %d, %v", step.now, len(c.Messages), step.want, err)
			}
			for _, m := range c.Messages {
				if !m.ScheduledAt.Equal(at) || !m.LeasedUntil.Equal(step.now.Add(time.Minute)) {
					t.Errorf("scheduled %v, leased until %v", m.ScheduledAt, m.LeasedUntil)
				}
			}
		}
	})
}

// A database that is read-only, or has no table, says so with its code, and nothing of a message's content.
func TestErrorCodes(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box, err := New(db, e.dialect, Config{Table: "nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		want := map[Dialect]string{Postgres: "42P01", MySQL: "1146", SQLite: "SQLITE_ERROR"}[e.dialect]
		_, err = box.Enqueue(t.Context(), tx, message("k"))
		if store.ErrorCode(err) != want || !store.Refused(err) || strings.Contains(err.Error(), "nowhere") {
			t.Errorf("the error is %v, want code %s", err, want)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		dsn := dbtest.Postgres(t)
		newBox(t, engines[0], openDB(t, "postgres", dsn), Config{})
		// lib/pq begins with READ WRITE, which overrides the setting (though no standby).
		box, err := New(openDB(t, "pgx", dsn+"&default_transaction_read_only=on"), Postgres, Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 1, Lease: time.Minute})
		if store.ErrorCode(err) != "25006" || store.Refused(err) {
			t.Errorf("the error is %v, want 25006, to be tried again", err)
		}
	})
	t.Run("constraint", func(t *testing.T) {
		onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
			box := newBox(t, e, db, Config{NewID: func() string { return tenant }})
			enqueue(t, box, "a")
			tx, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			_, err = box.Enqueue(t.Context(), tx, message("b")) // the same id again: no duplicate of a key may hide that
			want := map[Dialect]string{Postgres: "23505", MySQL: "1062", SQLite: "SQLITE_CONSTRAINT"}[e.dialect]
			if store.ErrorCode(err) != want || !store.Refused(err) {
				t.Errorf("the error is %v, want code %s", err, want)
			}
		})
	})
}

// A transaction that waits for the lock of a short one waits, and does not fail.
func TestBusy(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		var claimed atomic.Int64
		var writers, readers sync.WaitGroup
		committed := make(chan struct{}, 200) // as Notify would tell
		for w := range 4 {
			writers.Go(func() {
				for i := range 50 {
					tx, err := box.Begin(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					_, err = box.Enqueue(t.Context(), tx, message(fmt.Sprintf("k-%d-%d", w, i)))
					if err == nil {
						err = tx.Commit()
					}
					if err != nil {
						t.Error(err, errors.Unwrap(err))
					}
					committed <- struct{}{}
				}
			})
		}
		for range 4 {
			readers.Go(func() {
				for range committed {
					ids, err := drain(t.Context(), box, 5)
					if err != nil {
						t.Error(err, errors.Unwrap(err))
						return
					}
					claimed.Add(int64(len(ids)))
				}
			})
		}
		writers.Wait()
		close(committed)
		readers.Wait()
		if claimed.Load() != 200 {
			t.Errorf("%d rows were handed out, want each of the 200 once", claimed.Load())
		}
	})
}

package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
)

var quotedNames = map[Dialect]*regexp.Regexp{
	Postgres: regexp.MustCompile(`"(?:[^"]|"")*"`),
	MySQL:    regexp.MustCompile("`(?:[^`]|``)*`"),
	SQLite:   regexp.MustCompile(`"(?:[^"]|"")*"`),
}

var sqlText = regexp.MustCompile(`'(?:[^']|'')*'`)

// unquoted reads the identifiers in a statement as the engine does.
func unquoted(d Dialect, sql string) (names []string) {
	for _, q := range quotedNames[d].FindAllString(sqlText.ReplaceAllString(sql, ""), -1) {
		names = append(names, strings.ReplaceAll(q[1:len(q)-1], q[:1]+q[:1], q[:1]))
	}
	return names
}

// A name either is refused, without being repeated, or stands in the SQL as itself, in quotes that nothing ends. Names that
// are derived from different tables are different, and none is so long that an engine would cut it.
func FuzzNames(f *testing.F) {
	f.Add("outbox", "", "organizacion_id", "outbox2")
	f.Add("order", "public", "group", "Order")
	f.Add(`out"box`, "a`b", "x'", "x;--")
	f.Add(`out"box`, "", "club", "x")
	f.Add("outbox", "mi`esquema", "club", "x")
	f.Add("outbox", "", `club"_id`, "x")
	f.Add("outbox\n", "", "club", "x")
	f.Add("out\x00box", "esquema.", "ñ", "a\n")
	f.Add(strings.Repeat("a", 62)+"b", "_", "estado", strings.Repeat("a", 62)+"c")
	f.Add("{table}", "{schema}", "Estado", "$1")
	f.Fuzz(func(t *testing.T, table, schema, tenantColumn, other string) {
		const limit = 63
		for d := range quotedNames {
			cfg := Config{Table: table, Schema: schema, TenantColumn: tenantColumn}
			n, _, err := cfg.resolve(d)
			if err != nil {
				var invalid *store.InvalidError
				if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "Config.") {
					t.Errorf("%s: %v", d, err)
				}
				for _, name := range []string{table, schema, tenantColumn} {
					if len(name) > 20 && strings.Contains(err.Error(), name) {
						t.Errorf("%s: the error repeats %q", d, name)
					}
				}
				continue
			}
			allowed := []string{n.plainTable, n.plainTenant, n.plainSchema}
			for _, index := range []string{n.keyIndex, n.turnIndex, n.endIndex} {
				names := unquoted(d, index)
				if len(names) != 1 || len(names[0]) > limit || d.quote(names[0]) != index {
					t.Fatalf("%s: %s is not one name", d, index)
				}
				allowed = append(allowed, names[0])
			}
			if table != "" && n.plainTable != table || tenantColumn != "" && n.plainTenant != tenantColumn || n.plainSchema != schema {
				t.Errorf("%s: %q, %q, %q became %q, %q, %q", d, table, schema, tenantColumn, n.plainTable, n.plainSchema, n.plainTenant)
			}
			q := render(d, n)
			for _, statement := range q.all() {
				for _, name := range unquoted(d, statement.text) {
					if !slices.Contains(allowed, name) {
						t.Errorf("%s: the name %q stands in %s", d, name, statement.text)
					}
				}
				if strings.Count(statement.text, d.quote("x")[:1])%2 != 0 {
					t.Errorf("%s: a quote is left open in %s", d, statement.text)
				}
			}
			if names := unquoted(d, q.get.text); !slices.Contains(names, n.plainTable) || !slices.Contains(names, n.plainTenant) {
				t.Errorf("%s: %s reads neither table nor tenant", d, q.get.text)
			}
		}
		if !identifier.MatchString(table) || !identifier.MatchString(other) || table == other {
			return
		}
		for _, suffix := range []string{"_tenant_clave_idem_key", "_turno_idx", "_terminado_idx"} {
			if a, b := derived(table, suffix), derived(other, suffix); a == b {
				t.Errorf("%q and %q share the name %q", table, other, a)
			}
		}
	})
}

// Bytes that are given as data are refused, or are JSON that comes back as the same value from memory and from SQLite,
// under which enqueueing it again is no difference.
func FuzzPayload(f *testing.F) {
	for _, text := range []string{
		``, `{}`, `null`, `"\ud83d\udce8"`, `"\ud83d"`, `"\u0000"`, `{"a":1,"a":2}`, `[9007199254740993,1.0,1e400,-0]`, `{"":[[]]}`, "\xff", `1 2`,
		strings.Repeat("[", 30) + strings.Repeat("]", 30), strings.Repeat("9", 1001), "\"\u2028<&>\x7f\"", "\ufeff{}",
	} {
		f.Add([]byte(text))
	}
	db := openDB(f, "sqlite", sqliteFile(f)+"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(memory)&_pragma=synchronous(off)")
	table := newBox(f, engine{dialect: SQLite}, db, Config{})
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		_, encodeErr := (store.Rules{}).Encode(func() store.NewMessage { m := message("k"); m.Data = json.RawMessage(text); return m }())
		for name, box := range map[string]store.Enqueuer{"memory": memstore.New(memstore.Config{}), "SQLite": table} {
			tx, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m := message("k")
			m.Data = json.RawMessage(text)
			res, err := box.Enqueue(t.Context(), tx, m)
			if !bytes.Equal(text, given) {
				t.Errorf("%s changed the caller's data", name)
			}
			if err != nil {
				var invalid *store.InvalidError
				if !errors.As(err, &invalid) || invalid.Field != "Data" || encodeErr == nil || len(text) > 8 && strings.Contains(err.Error(), string(text)) {
					t.Errorf("%s refuses %q: %v", name, text, err)
				}
			} else {
				if again, err := box.Enqueue(t.Context(), tx, m); err != nil || again != (store.EnqueueResult{ID: res.ID}) {
					t.Errorf("%s, %q again: %+v, %v", name, text, again, err)
				}
				if got := stored(t, box, tx, res.ID); !bytes.Equal(got, given) {
					t.Errorf("%s gives %q back as %q", name, text, got)
				}
			}
			if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
				t.Fatal(err)
			}
		}
	})
}

// stored reads a row's data: in tx where there is SQL, after its commit where there is none.
func stored(t *testing.T, box store.Enqueuer, tx store.Tx, id string) (data []byte) {
	t.Helper()
	if memory, ok := box.(*memstore.Store); ok {
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		m, err := memory.Get(context.WithoutCancel(t.Context()), id)
		if err != nil {
			t.Fatal(err)
		}
		return m.Data
	}
	err := tx.(*sql.Tx).QueryRowContext(t.Context(), "SELECT datos FROM outbox WHERE id = ?", id).Scan(&data)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

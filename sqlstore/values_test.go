package sqlstore

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// Values that a server would rather cut, pad or replace than refuse. Those that every engine has to bear are in the
// conformance kit.

// tooMuch enqueues m, alone and among others, and fails unless both give an error with this code and leave nothing.
func tooMuch(t *testing.T, box *Store, m store.NewMessage, code string) {
	t.Helper()
	before := count(t, box)
	first, last := message("first of all"), message("z, the last of all")
	first.Destination, last.Destination = "first", "last"
	for name, enqueue := range map[string]func(store.Tx) error{
		"Enqueue": func(tx store.Tx) error { _, err := box.Enqueue(t.Context(), tx, m); return err },
		"EnqueueAll": func(tx store.Tx) error {
			_, err := box.EnqueueAll(t.Context(), tx, []store.NewMessage{last, m, first})
			return err
		},
	} {
		tx, err := box.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err = enqueue(tx); err == nil || store.ErrorCode(err) != code {
			t.Errorf("%s: the error is %v, want code %q", name, err, code)
		}
		if code != "" && !store.Refused(err) {
			t.Errorf("%s: error %s is worth repeating", name, code)
		}
		end := tx.Rollback
		if code == "" { // refused before any SQL
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := count(t, box); n != before {
			t.Errorf("%s: %d rows are left of what was refused", name, n-before)
		}
	}
}

func count(t *testing.T, box *Store) (n int) {
	t.Helper()
	if err := box.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+box.names.table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A server that is told to store what fits, and one that is not: what is too long is refused, all else is stored byte for
// byte. Where the application has made a column narrower, a strict server refuses what does not fit, and for one that
// would cut it Check names the column.
func TestNothingIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   string
		strict bool
	}{"strict": {"STRICT_TRANS_TABLES", true}, "lenient": {"", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "mysql", dbtest.MariaDB(t)+"?sql_mode=%27"+tc.mode+"%27")
			box := newBox(t, engine{dialect: MySQL}, db, Config{})
			for _, change := range []func(*store.NewMessage){
				func(m *store.NewMessage) { m.Destination = strings.Repeat("a", 10_000) },
				func(m *store.NewMessage) { m.Template = strings.Repeat("ñ", store.MaxTemplateLength) },
				func(m *store.NewMessage) { m.IdempotencyKey = strings.Repeat("k", store.MaxKeyLength+1) },
				func(m *store.NewMessage) { m.Data = strings.Repeat("x", store.DefaultMaxPayload) },
			} {
				m := message("k")
				change(&m)
				tooMuch(t, box, m, "")
			}

			full := func(key string) store.NewMessage {
				m := message(key + strings.Repeat("k", store.MaxKeyLength-len(key)-2) + `\"`)
				m.Destination, m.Template = strings.Repeat("ñ", store.MaxDestinationLength/2), strings.Repeat("\U0001F4E8", store.MaxTemplateLength/4)
				m.Data = json.RawMessage("{ \"b\" : 1.50, \"a\":\"\\u00f1 <&>\u2028 \\\\ ' \", \"b\":9007199254740993 }")
				m.Headers = map[string]string{"nota": strings.Repeat("\U0001F4E8", 1000)}
				return m
			}
			one, many := full("one"), full("many")
			tx, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := box.Enqueue(t.Context(), tx, one)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			all := enqueueAll(t, box, []store.NewMessage{many, one})
			if !r.Inserted || !all[0].Inserted || all[1] != (store.EnqueueResult{ID: r.ID}) {
				t.Fatalf("%+v, %+v", r, all)
			}
			for id, want := range map[string]store.NewMessage{r.ID: one, all[0].ID: many} {
				got, err := box.Get(t.Context(), id)
				if err != nil || got.Destination != want.Destination || got.Template != want.Template || got.IdempotencyKey != want.IdempotencyKey ||
					string(got.Data) != string(want.Data.(json.RawMessage)) || got.Headers["nota"] != want.Headers["nota"] {
					t.Errorf("%+v, %v", got, err)
				}
			}

			for _, narrow := range []struct {
				column, as, code string
				m                func(*store.NewMessage)
			}{
				{"destino", "varchar(30)", "1406", func(m *store.NewMessage) { m.Destination = strings.Repeat("a", 31) }},
				{"plantilla", "varchar(200) CHARACTER SET latin1", "1366", func(m *store.NewMessage) { m.Template = "\U0001F4E8" }},
				{"destino", "varchar(320) CHARACTER SET utf8mb3", "1366", func(m *store.NewMessage) { m.Destination = "𠀀" }},
				{"datos", "text", "1406", func(m *store.NewMessage) { m.Data = strings.Repeat("x", 66_000) }},
				{"clave_idempotencia", "varchar(20)", "1406", func(m *store.NewMessage) { m.IdempotencyKey = strings.Repeat("k", 21) }},
			} {
				exec(t, db, "DROP TABLE outbox", box.sql.schema[0].text, "ALTER TABLE outbox MODIFY "+narrow.column+" "+narrow.as+" NOT NULL")
				m := message("k")
				if narrow.m(&m); tc.strict {
					tooMuch(t, box, m, narrow.code)
				}
				var schema *SchemaError
				if _, err := box.Check(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), "column "+narrow.column) {
					t.Errorf("%s as %s: Check says %v", narrow.column, narrow.as, err)
				}
			}
		})
	}
}

// The table brings its own character set, whatever the database's is.
func TestDatabaseCharsets(t *testing.T) {
	texts := []string{
		"👨‍👩‍👧‍👦 familia", "🇨🇱🇦🇷", "𠀀𠮷 野家", "cafe\u0301 café", "Ñandú", "العربية",
	}
	for _, charset := range []string{"latin1", "utf8mb3", "utf16", "utf8mb4 COLLATE utf8mb4_unicode_520_ci"} {
		t.Run(charset, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.MariaDB(t)
			admin := openDB(t, "mysql", dsn)
			var name string
			if err := admin.QueryRowContext(t.Context(), "SELECT database()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			exec(t, admin, "ALTER DATABASE "+name+" CHARACTER SET "+charset)
			db := openDB(t, "mysql", dsn)
			box := newBox(t, engine{dialect: MySQL}, db, Config{TextTenant: true})
			if _, err := box.Check(t.Context()); err != nil {
				t.Error(err)
			}
			var many []store.NewMessage
			for i, text := range texts {
				for _, key := range []string{"k", "K"} {
					m := message(fmt.Sprint(key, i))
					m.Destination, m.Template, m.Data, m.Headers = text, text, map[string]string{text: text}, map[string]string{"nota": text}
					many = append(many, m)
				}
			}
			first := many[0]
			tx, err := box.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := box.Enqueue(t.Context(), tx, first)
			if err != nil || !r.Inserted {
				t.Fatal(r, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			results := enqueueAll(t, box, many)
			for i, again := range enqueueAll(t, box, many) {
				if again != (store.EnqueueResult{ID: results[i].ID}) || (i == 0) == results[i].Inserted {
					t.Errorf("%s: first %+v, then %+v", many[i].IdempotencyKey, results[i], again)
				}
				got, err := box.Get(t.Context(), results[i].ID)
				want := many[i].Destination
				if err != nil || got.Destination != want || got.Template != want || got.Headers["nota"] != want || !strings.Contains(string(got.Data), want) {
					t.Errorf("%q came back as %q, %q, %s, %v", want, got.Destination, got.Template, got.Data, err)
				}
			}
			if ids, err := drain(t.Context(), box, 5); err != nil || len(ids) != len(many) {
				t.Errorf("drained %d, %v", len(ids), err)
			}
		})
	}
}

// A unique index, a foreign key or a column of the application's own is no key in use: what violates it is an error, and
// no message of the call is kept. A key in use stays one, even where the other index is violated as well.
func TestOnlyTheKeyIsADuplicate(t *testing.T) {
	type own struct {
		name, code string
		ddl        []string
	}
	cases := map[Dialect][]own{
		Postgres: {
			{"unique", "23505", []string{"CREATE UNIQUE INDEX propio ON outbox (destino)"}},
			{"foreign key", "23503", []string{"CREATE TABLE sedes (id integer PRIMARY KEY)", "ALTER TABLE outbox ADD COLUMN sede integer DEFAULT 7", "UPDATE outbox SET sede = NULL", "ALTER TABLE outbox ADD FOREIGN KEY (sede) REFERENCES sedes"}},
			{"not null", "23502", []string{"ALTER TABLE outbox ADD COLUMN propio integer NOT NULL DEFAULT 7", "ALTER TABLE outbox ALTER COLUMN propio DROP DEFAULT"}},
			{"check", "23514", []string{"ALTER TABLE outbox ADD CHECK (clave_idempotencia <> 'bad')"}},
		},
		MySQL: {
			{"unique", "1062", []string{"CREATE UNIQUE INDEX propio ON outbox (destino)"}},
			{"foreign key", "1452", []string{"CREATE TABLE sedes (id int PRIMARY KEY)", "ALTER TABLE outbox ADD COLUMN sede int DEFAULT 7", "UPDATE outbox SET sede = NULL", "ALTER TABLE outbox ADD FOREIGN KEY (sede) REFERENCES sedes (id)"}},
			{"not null", "1364", []string{"ALTER TABLE outbox ADD COLUMN propio int NOT NULL DEFAULT 7", "ALTER TABLE outbox ALTER COLUMN propio DROP DEFAULT"}},
			{"check", "4025", []string{"ALTER TABLE outbox ADD CHECK (clave_idempotencia <> 'bad')"}},
			{"trigger", "1644", []string{"CREATE TRIGGER propio BEFORE INSERT ON outbox FOR EACH ROW IF new.clave_idempotencia = 'bad' THEN SIGNAL SQLSTATE '23000'; END IF"}},
		},
		SQLite: {
			{"unique", "SQLITE_CONSTRAINT", []string{"CREATE UNIQUE INDEX propio ON outbox (destino)"}},
			{"trigger", "SQLITE_CONSTRAINT", []string{"CREATE TRIGGER propio BEFORE INSERT ON outbox WHEN new.clave_idempotencia = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"}},
		},
	}
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		for _, c := range cases[e.dialect] {
			t.Run(c.name, func(t *testing.T) {
				exec(t, db, "DROP TABLE outbox")
				box = newBox(t, e, db, Config{})
				id := enqueue(t, box, "a")[0]
				exec(t, db, c.ddl...)
				tooMuch(t, box, message("bad"), c.code) // to the same destination
				tx, err := box.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if c.name == "not null" && e.dialect == Postgres { // which looks at the values first
					return
				}
				if r, err := box.Enqueue(t.Context(), tx, message("a")); (err != nil || r != store.EnqueueResult{ID: id}) && c.name != "not null" {
					t.Errorf("the key in use: %+v, %v", r, err)
				}
			})
		}
	})
}

package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// What other people do to the table: a row, a trigger or a table layout of theirs must neither stop a channel nor touch
// a message that it should not.

// Where one row cannot be claimed, or closed, or read, the others are, and it is reported.
func TestRefusedRows(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		ids := enqueue(t, box, "a", "b", "bad", "c", "worse", "d", "e")
		exec(t, db, map[Dialect][]string{
			Postgres: {
				`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'canario'; END $$`,
				`CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW WHEN (old.clave_idempotencia IN ('bad', 'worse')) EXECUTE FUNCTION no()`,
			},
			MySQL: {`CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW
				BEGIN IF old.clave_idempotencia IN ('bad', 'worse') THEN SIGNAL SQLSTATE '45000' SET message_text = 'canario'; END IF; END`},
			SQLite: {`CREATE TRIGGER no BEFORE UPDATE ON outbox WHEN old.clave_idempotencia IN ('bad', 'worse') BEGIN SELECT RAISE(ABORT, 'canario'); END`},
		}[e.dialect]...)
		c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 4, Lease: time.Minute})
		if err != nil || len(c.Messages) != 4 || len(c.Refused) != 2 || c.Refused[0].ID != ids[2] || c.Refused[1].ID != ids[4] {
			t.Fatalf("the claim took %d rows, refused were %v, %v", len(c.Messages), c.Refused, err)
		}
		for i, want := range []int{0, 1, 3, 5} {
			if c.Messages[i].ID != ids[want] || c.Messages[i].Token != c.Messages[0].Token {
				t.Errorf("row %d of the claim is %v", i, c.Messages[i])
			}
		}
		group := []store.Settlement{sent(c.Messages[0]), sent(c.Messages[3])}
		if v, err := box.Settle(t.Context(), group); err != nil || v[0] != store.Applied || v[1] != store.Applied {
			t.Errorf("settled %v, %v", v, err)
		}
		// A last row, and then nothing but the two.
		for _, want := range []int{1, 0} {
			c, err = box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 4, Lease: time.Minute})
			if err != nil || len(c.Messages) != want || len(c.Refused) != 2 {
				t.Errorf("the claim took %d rows, refused were %v, %v", len(c.Messages), c.Refused, err)
			}
		}
	})
}

// An id as long as a table's column can have it is found again by all that writes its row.
func TestLongIDs(t *testing.T) {
	for _, e := range engines {
		if e.dialect != MySQL {
			continue // ids are UUIDs, or texts of any length
		}
		db := e.open(t)
		box := newBox(t, e, db, Config{})
		id := strings.Repeat("i", maxForeignID)
		exec(t, db, fmt.Sprintf("ALTER TABLE outbox MODIFY id varchar(%d) COLLATE utf8mb4_bin NOT NULL", maxForeignID),
			"INSERT INTO outbox (id, organizacion_id, canal, destino, plantilla, clave_idempotencia) VALUES ('"+id+"', '"+tenant+"', 'correo', 'a', 'b', 'c')")
		if _, err := box.Check(t.Context()); err != nil {
			t.Error(err)
		}
		c, err := box.Claim(t.Context(), claimParams())
		if err != nil || len(c.Messages) != 1 {
			t.Fatalf("claimed %v, %v", c.Messages, err)
		}
		if again, err := box.Claim(t.Context(), claimParams()); err != nil || len(again.Messages) != 0 {
			t.Errorf("claimed again: %v, %v", again.Messages, err)
		}
		if v, err := box.Settle(t.Context(), []store.Settlement{sent(c.Messages[0])}); err != nil || v[0] != store.Applied {
			t.Errorf("settled %v, %v", v, err)
		}
		if n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)}); err != nil || n != 1 {
			t.Errorf("purged %d, %v", n, err)
		}
	}
}

// A database that refuses every row is an error of the claim.
func TestRefusedTable(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		messages := make([]store.NewMessage, maxRefused+1)
		for i := range messages {
			messages[i] = message(fmt.Sprint("k-", i))
		}
		enqueueAll(t, box, messages)
		if e.dialect == SQLite {
			exec(t, db, "CREATE TRIGGER never BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'canario'); END")
		} else {
			exec(t, db, "ALTER TABLE outbox ADD CONSTRAINT never CHECK (intentos = 0)")
		}
		c, err := box.Claim(t.Context(), claimParams())
		if !store.Refused(err) || len(c.Messages)+len(c.Refused) != 0 {
			t.Errorf("the claim is %+v, %v", c, err)
		}
	})
}

// A value that cannot be NULL in our table may be in one that somebody altered: Check says so, and the row goes out.
func TestNullNumbers(t *testing.T) {
	for _, e := range engines {
		if e.dialect != Postgres {
			continue // SQLite cannot drop a NOT NULL
		}
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			enqueue(t, box, "a", "b")
			exec(t, db, "ALTER TABLE outbox ALTER COLUMN dudas DROP NOT NULL", "UPDATE outbox SET dudas = NULL WHERE clave_idempotencia = 'a'")
			if _, err := box.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "column dudas") {
				t.Errorf("Check says %v", err)
			}
			if ids, err := drain(t.Context(), box, 10); err != nil || len(ids) != 2 {
				t.Errorf("drained %v, %v", ids, err)
			}
		})
	}
}

// A place in the heap is one of one heap: tables of several are refused, and even then nothing of another is touched.
func TestTablesOfSeveralHeaps(t *testing.T) {
	for _, e := range engines {
		if e.dialect != Postgres {
			continue
		}
		t.Run(e.name+"/inherited", func(t *testing.T) {
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			exec(t, db, "CREATE TABLE outbox_archivo () INHERITS (outbox)")
			insert := "INSERT INTO %s (organizacion_id, canal, destino, plantilla, clave_idempotencia, estado, actualizado_en) VALUES ('%s', 'correo', 'a', 'b', 'k-%d', '%s', now() - interval '1 day')"
			for i := range 5 { // rows at the same places of both heaps
				exec(t, db, fmt.Sprintf(insert, "outbox", tenant, i, state.Pending), fmt.Sprintf(insert, "outbox_archivo", tenant, i, state.Sent))
			}
			for name, check := range map[string]func() error{
				"Check":   func() error { _, err := box.Check(t.Context()); return err },
				"Migrate": func() error { return box.Migrate(t.Context()) },
			} {
				if err := check(); err == nil || !strings.Contains(err.Error(), "parent of other tables") {
					t.Errorf("%s says %v", name, err)
				}
			}
			if n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now()}); err != nil || n != 0 {
				t.Errorf("purged %d, %v", n, err)
			}
			c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})
			if err != nil || len(c.Messages) != 5 {
				t.Errorf("claimed %d, %v", len(c.Messages), err)
			}
		})
		t.Run(e.name+"/partitioned", func(t *testing.T) {
			db := e.open(t)
			box, err := New(db, e.dialect, Config{})
			if err != nil {
				t.Fatal(err)
			}
			ddl := strings.NewReplacer("PRIMARY KEY", "NOT NULL").Replace(box.sql.schema[0].text)
			exec(t, db, strings.TrimSuffix(ddl, ")")+") PARTITION BY LIST (canal)")
			var schema *SchemaError
			if err := box.Migrate(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), "partitioned") {
				t.Errorf("Migrate says %v", err)
			}
		})
	}
}

// A table under an earlier name may keep the names of its indexes.
func TestMigrateAfterARename(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		box := newBox(t, e, db, Config{})
		exec(t, db, "ALTER TABLE outbox RENAME TO outbox_2025")
		var schema *SchemaError
		err := box.Migrate(t.Context())
		if e.dialect == MySQL { // where an index belongs to its table
			if err != nil {
				t.Error(err)
			}
		} else if !errors.As(err, &schema) || !strings.Contains(err.Error(), "no unique index") {
			t.Errorf("Migrate says %v", err)
		}
	})
}

// SQLite takes any text for an id, and any number for a time.
func TestForeignRowsOfSQLite(t *testing.T) {
	for _, e := range engines {
		if e.dialect != SQLite {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			for _, id := range []string{"order-17", "01900000-0000-7000-8000-00000000000A", "ñ", " "} {
				exec(t, db, fmt.Sprintf(`INSERT INTO outbox (id, organizacion_id, canal, destino, plantilla, clave_idempotencia, programado_para)
					VALUES ('%s', '%s', 'correo', 'a', 'b', 'k-%s', -62135596800000000)`, id, tenant, id))
			}
			ids, err := drain(t.Context(), box, 10)
			if err != nil || len(ids) != 4 {
				t.Fatalf("drained %q, %v", ids, err)
			}
			for _, id := range ids {
				if m, err := box.Get(t.Context(), id); err != nil || m.State != state.Sent {
					t.Errorf("%s: %s, %v", id, m.State, err)
				}
			}
			exec(t, db, fmt.Sprintf("UPDATE outbox SET estado = '%s'", state.Failed))
			if v, err := box.Requeue(t.Context(), ids); err != nil || v[0] != store.Applied || v[3] != store.Applied {
				t.Errorf("requeued %v, %v", v, err)
			}
		})
	}
}

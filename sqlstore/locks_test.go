package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// A row that another client holds, as an open console does after an UPDATE, is a locked row to whoever writes it, after
// about two seconds and not after the server's fifty. Claims and the rows beside it do not wait at all.
func TestARowThatIsHeld(t *testing.T) {
	for _, e := range slices.Concat(engines, isolations[:1]) {
		if e.dialect == SQLite {
			continue // which locks the whole database
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			ids := enqueue(t, box, "a", "b", "c", "d")
			p := store.ClaimParams{Channel: "correo", Limit: 3, Lease: time.Minute}
			c, err := box.Claim(t.Context(), p)
			if err != nil || len(c.Messages) != 3 {
				t.Fatal(c, err)
			}
			held, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Rollback()
			if _, err := held.ExecContext(t.Context(), fmt.Sprintf("UPDATE outbox SET destino = 'otro' WHERE id IN ('%s', '%s')", ids[1], ids[3])); err != nil {
				t.Fatal(err)
			}
			quickly := func(what string, f func(ctx context.Context) error) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := f(ctx); err != nil {
					t.Errorf("%s waits for the row: %v", what, err)
				}
			}
			quickly("a claim", func(ctx context.Context) error {
				c, err := box.Claim(ctx, p)
				if len(c.Messages) != 0 {
					t.Errorf("claimed %v", c.Messages)
				}
				return err
			})
			quickly("an enqueue", func(ctx context.Context) error { enqueue(t, box, "e"); return nil })
			quickly("a purge", func(ctx context.Context) error {
				_, err := box.Purge(ctx, store.PurgeParams{Before: time.Now()})
				return err
			})
			group := []store.Settlement{sent(c.Messages[0]), sent(c.Messages[1]), sent(c.Messages[2])}
			renewed := []store.Fence{c.Messages[0].Fence(), c.Messages[1].Fence()}
			var wg sync.WaitGroup
			for what, write := range map[string]func(ctx context.Context) error{
				"Settle": func(ctx context.Context) error { _, err := box.Settle(ctx, group); return err },
				"Renew":  func(ctx context.Context) error { _, err := box.Renew(ctx, renewed, time.Hour); return err },
				"SettleTx": func(ctx context.Context) error {
					_, err := box.SettleTx(ctx, group[1], func(context.Context, store.Tx) error {
						t.Error("the work was done without the row")
						return nil
					})
					return err
				},
			} {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					if err := write(ctx); !store.Locked(err) || store.Refused(err) || ctx.Err() != nil {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
			wg.Wait()
			quickly("the rest of the group", func(ctx context.Context) error {
				v, err := box.Settle(ctx, []store.Settlement{group[0], group[2]})
				if err == nil && slices.Contains(v, store.Lost) {
					t.Errorf("the rest of the group: %v", v)
				}
				return err
			})
			if err := held.Commit(); err != nil {
				t.Fatal(err)
			}
			if v, err := box.Settle(t.Context(), group); err != nil || slices.Contains(v, store.Lost) {
				t.Errorf("once the row is let go: %v, %v", v, err)
			}
		})
	}
}

// A claim locks its rows and not the gaps between them, whatever the database's default isolation is: nobody who enqueues
// waits for it.
func TestAClaimHoldsUpNoEnqueue(t *testing.T) {
	for _, e := range slices.Concat(engines, variants) {
		if e.dialect == SQLite {
			continue // which locks the whole database
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			box := newBox(t, e, e.open(t), Config{})
			enqueue(t, box, "a")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := box.inTx(ctx, "claim", func(claiming *sql.Tx) error {
				rows, err := e.dialect.claim(ctx, claiming, box.sql, box.now(), claimParams(), store.NewToken())
				if err != nil || len(rows) != 1 {
					t.Errorf("claimed %v", rows)
					return err
				}
				tx, err := box.Begin(ctx)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if _, err := box.Enqueue(ctx, tx, message("b")); err != nil {
					t.Errorf("an enqueue waits for the claim: %v", err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// An application updates outbox rows in its own transactions, in an order against ours: deadlocks are ours to repeat, or
// its own, and no settlement is lost.
func TestUpdatesOfTheApplication(t *testing.T) {
	for _, e := range engines {
		if e.dialect == SQLite {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			var keys []string
			for i := range 30 {
				keys = append(keys, fmt.Sprintf("k-%02d", i))
			}
			ids := enqueue(t, box, keys...)
			slices.Reverse(ids)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for range 5 {
						tx, err := db.BeginTx(t.Context(), nil)
						if err != nil {
							t.Error(err)
							return
						}
						for _, id := range ids {
							if _, err := tx.ExecContext(t.Context(), "UPDATE outbox SET plantilla = 'otra' WHERE id = '"+id+"'"); err != nil {
								if code := box.errorCode(err); !repeatable(code) {
									t.Errorf("the application: %v", err)
								}
								break
							}
						}
						if err := tx.Rollback(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			again := func(err error) bool { return store.Locked(err) || repeatable(store.ErrorCode(err)) }
			for settled := 0; settled < len(ids) && !t.Failed(); {
				c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 7, Lease: time.Hour})
				if err != nil && !again(err) {
					t.Fatal(err)
				}
				var group []store.Settlement
				for _, m := range c.Messages {
					group = append(group, sent(m))
				}
				v, err := box.Settle(t.Context(), group)
				for again(err) {
					v, err = box.Settle(t.Context(), group)
				}
				if err != nil || slices.Contains(v, store.Lost) {
					t.Fatal(v, err)
				}
				settled += len(v)
			}
			wg.Wait()
			if n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)}); err != nil || n != int64(len(ids)) {
				t.Errorf("%d rows have ended, %v", n, err)
			}
		})
	}
}

// A table that another client has locked holds up a claim for no longer than its context, and nothing is broken
// afterwards.
func TestALockedTable(t *testing.T) {
	for _, e := range engines {
		if e.dialect == SQLite {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			box := newBox(t, e, db, Config{})
			enqueue(t, box, "a")
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lock, unlock := []string{"BEGIN", "LOCK TABLE outbox IN EXCLUSIVE MODE"}, "ROLLBACK"
			if e.dialect == MySQL {
				lock, unlock = []string{"LOCK TABLES outbox READ"}, "UNLOCK TABLES"
			}
			for _, s := range lock {
				if _, err := conn.ExecContext(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if c, err := box.Claim(ctx, claimParams()); err == nil {
				t.Errorf("claimed %v from a locked table", c.Messages)
			}
			if _, err := conn.ExecContext(t.Context(), unlock); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			// The server may run the claim that was given up once more before it notices, and has the row locked meanwhile.
			var ids []string
			for until := time.Now().Add(10 * time.Second); len(ids) == 0 && err == nil && time.Now().Before(until); {
				ids, err = drain(t.Context(), box, 10)
			}
			if err != nil || len(ids) != 1 {
				t.Errorf("drained %v, %v", ids, err)
			}
		})
	}
}

// A server without SKIP LOCKED takes it for a syntax error: one error says what is needed, at once, for it is neither
// worth a repetition nor a row's fault.
func TestAServerWithoutSkipLocked(t *testing.T) {
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box, err := New(db, MySQL, Config{})
	if err != nil {
		t.Fatal(err)
	}
	syntax := &mysqldriver.MySQLError{Number: 1064, Message: "You have an error in your SQL syntax near 'SKIP LOCKED' " + secret}
	s := sent(store.Message{ID: tenant, Attempts: 1, LeasedUntil: time.Now(), Token: store.Token{1}})
	for name, tc := range map[string]struct {
		sql  string
		args int
		run  func() error
	}{
		"claim": {box.sql.lockClaim.text, len(box.sql.lockClaim.order), func() error {
			c, err := box.Claim(t.Context(), claimParams())
			if len(c.Refused) != 0 {
				t.Error("rows are to blame")
			}
			return err
		}},
		"settle": {box.sql.lockFenced.text, len(box.sql.lockFenced.order), func() error {
			_, err := box.Settle(t.Context(), []store.Settlement{s})
			return err
		}},
		"purge": {box.sql.lockPurge.text, len(box.sql.lockPurge.order), func() error {
			_, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now()})
			return err
		}},
	} {
		mock.ExpectBegin()
		mock.ExpectQuery(tc.sql).WithArgs(anyArgs(tc.args)...).WillReturnError(syntax)
		mock.ExpectRollback()
		err := tc.run()
		checkError(t, err, syntax, "1064")
		if store.Refused(err) || !strings.Contains(err.Error(), "MySQL 8.0.16 or MariaDB 10.6") {
			t.Errorf("%s: %v", name, err)
		}
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(name, err)
		}
	}
}

// Whatever a trigger of the application's does wrong with one row, the others are claimed.
func TestWhatATriggerDoesWrong(t *testing.T) {
	dsn := dbtest.MariaDB(t)
	for code, body := range map[string]string{
		"1062": "INSERT INTO bitacora VALUES (1, 'a'), (1, 'b')",
		"1146": "INSERT INTO nowhere VALUES (1)",
		"1264": "SET new.intentos = 99999999999",
		"1292": "SET new.enviado_en = 'ayer'",
		"1305": "SET new.destino = nothing(1)",
		"1364": "INSERT INTO bitacora (texto) VALUES ('a')",
		"1365": "INSERT INTO bitacora VALUES (1 / 0, 'a')",
		"1406": "INSERT INTO bitacora VALUES (1, 'abcd')",
		"1442": "UPDATE outbox SET destino = 'a'",
		"1452": "INSERT INTO hijos VALUES (7)",
		"1644": "SIGNAL SQLSTATE '45000'",
		"1690": "SET new.max_intentos = 18446744073709551615 + 1",
		"4025": "SET new.datos = '{'",
	} {
		t.Run(code, func(t *testing.T) {
			db := openDB(t, "mysql", dsn)
			exec(t, db, "DROP TABLE IF EXISTS outbox, hijos, bitacora", "CREATE TABLE bitacora (n int NOT NULL PRIMARY KEY, texto varchar(3))",
				"CREATE TABLE hijos (n int REFERENCES bitacora (n))")
			box := newBox(t, engine{dialect: MySQL}, db, Config{})
			ids := enqueue(t, box, "a", "bad", "c")
			exec(t, db, "CREATE TRIGGER propio BEFORE UPDATE ON outbox FOR EACH ROW BEGIN IF old.clave_idempotencia = 'bad' THEN "+body+"; END IF; END")
			c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute})
			if err != nil || len(c.Messages) != 2 || len(c.Refused) != 1 || c.Refused[0] != (store.Closed{ID: ids[1], Code: code}) {
				t.Errorf("claimed %v, refused %v, %v", c.Messages, c.Refused, err)
			}
		})
	}
}

// A trigger that keeps actualizado_en, as many tables have one, stops nothing.
func TestATriggerThatKeepsTheTime(t *testing.T) {
	db := openDB(t, "mysql", dbtest.MariaDB(t)+mysqlSettings("time_zone", "'+00:00'"))
	box := newBox(t, engine{dialect: MySQL}, db, Config{})
	exec(t, db, "CREATE TRIGGER propio BEFORE UPDATE ON outbox FOR EACH ROW SET new.actualizado_en = now()")
	enqueue(t, box, "a", "b", "c")
	if ids, err := drain(t.Context(), box, 2); err != nil || len(ids) != 3 {
		t.Errorf("drained %v, %v", ids, err)
	}
	if n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)}); err != nil || n != 3 {
		t.Errorf("purged %d, %v", n, err)
	}
}

// Rows as only a foreign writer makes them go out like others.
func TestForeignRowsOfMySQL(t *testing.T) {
	for name, settings := range map[string]string{"text": "", "times": mysqlSettings("parseTime", "true", "sql_mode", "''")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "mysql", dbtest.MariaDB(t)+settings)
			box := newBox(t, engine{dialect: MySQL}, db, Config{TextTenant: true})
			want := map[string]state.State{}
			insert := func(key string, to state.State, names, values string) {
				t.Helper()
				want[key] = to
				exec(t, db, fmt.Sprintf("INSERT INTO outbox (organizacion_id, destino, plantilla, clave_idempotencia, %s) VALUES ('club', 'a', 'b', '%s', %s)", names, key, values))
			}
			insert("upper case", state.Sent, "canal, id", "'correo', '01900000-0000-7000-8000-00000000000A'")
			insert("lower case", state.Sent, "canal, id", "'correo', '01900000-0000-7000-8000-00000000000a'")
			insert("no UUID", state.Sent, "canal, id", `'correo', 'pedido "17" ñ 🎉 \\'`)
			insert("number", state.Sent, "canal, id", "'correo', '17'")
			insert("blanks behind the id", state.Sent, "canal, id", "'correo', 'x  '")
			insert("blank before the id", state.Sent, "canal, id", "'correo', ' x'")
			insert("blanks behind the channel", state.Sent, "canal", "'correo  '")
			insert("another channel", state.Pending, "canal", "'Correo'")
			insert("JSON", state.Sent, "canal, datos", `'correo', '{"a": 1.0, "b": 1e400, "c": 18446744073709551615, "a": "\\u0000"}'`)
			insert("JSON null", state.Sent, "canal, datos", "'correo', 'null'")
			insert("headers", state.Sent, "canal, cabeceras", "'correo', '[1, no JSON'")
			insert("long ago", state.Sent, "canal, programado_para", "'correo', '1000-01-01 00:00:00.000001'")
			insert("never", state.Pending, "canal, programado_para", "'correo', '9999-12-31 23:59:59.999999'")
			insert("leased for ever", state.Processing, "canal, estado, bloqueado_hasta", "'correo', '"+string(state.Processing)+"', '9999-12-31 23:59:59.999999'")
			insert("a token that is none", state.Sent, "canal, estado, reclamo", "'correo', '"+string(state.Processing)+"', 'x'")
			insert("no attempts", state.Failed, "canal, max_intentos", "'correo', -1")
			insert("many attempts", state.Failed, "canal, intentos, max_intentos", "'correo', 2147483647, 2147483647")
			insert("many doubts", state.Sent, "canal, dudas", "'correo', 32767")
			if _, err := drain(t.Context(), box, 4); err != nil {
				t.Fatal(err)
			}
			for key, to := range want {
				if m, err := box.GetByKey(t.Context(), "club", key); err != nil || m.State != to {
					t.Errorf("%s: %s, %v, want %s", key, m.State, err, to)
				}
			}
			if c, err := box.Channels(t.Context()); err != nil || !slices.Equal(c, []string{"Correo", "correo"}) {
				t.Errorf("channels %q, %v", c, err)
			}
			if _, err := box.Stats(t.Context(), store.StatsParams{}); err != nil {
				t.Error(err)
			}
			exec(t, db, "UPDATE outbox SET estado = '"+string(state.Failed)+"'")
			ids := []string{`pedido "17" ñ 🎉 \`, "01900000-0000-7000-8000-00000000000A", " x", "17"}
			if v, err := box.Requeue(t.Context(), ids); err != nil || slices.Contains(v, store.Lost) {
				t.Errorf("requeued %v, %v", v, err)
			}
			if v, err := box.Cancel(t.Context(), ids); err != nil || slices.Contains(v, store.Lost) {
				t.Errorf("cancelled %v, %v", v, err)
			}
			if n, err := box.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour), Batch: 5}); err != nil || n != int64(len(want)) {
				t.Errorf("purged %d of %d, %v", n, len(want), err)
			}
		})
	}
}

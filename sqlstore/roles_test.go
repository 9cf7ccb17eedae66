package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// The schema's files make a table that the store finds in order, and the example's roles can do what they are for, and no
// more.
func TestRoles(t *testing.T) {
	// Roles belong to the server, not to the database.
	prefix := fmt.Sprintf("r%d_", time.Now().UnixNano())
	file := func(name string) string {
		text, err := os.ReadFile("schema/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "recado_", prefix)
	}
	for _, server := range []struct {
		dialect Dialect
		driver  string
		dsn     string
		as      func(t *testing.T, db *sql.DB, dsn, role string) string // a DSN for somebody who has the role
	}{
		{Postgres, "postgres", dbtest.Postgres(t), func(_ *testing.T, _ *sql.DB, dsn, role string) string {
			return dsn + "&role=" + url.QueryEscape(role)
		}},
		{MySQL, "mysql", dbtest.MariaDB(t) + "?multiStatements=true", func(t *testing.T, db *sql.DB, dsn, role string) string {
			user := role + "_user"
			exec(t, db, fmt.Sprintf("CREATE USER %s IDENTIFIED BY 'clave'; GRANT %s TO %s; SET DEFAULT ROLE %s FOR %s", user, role, user, role, user))
			t.Cleanup(func() {
				if _, err := db.ExecContext(context.Background(), "DROP USER "+user); err != nil {
					t.Error(err)
				}
			})
			cfg, err := mysqldriver.ParseDSN(dsn)
			if err != nil {
				t.Fatal(err)
			}
			cfg.User, cfg.Passwd = user, "clave"
			return cfg.FormatDSN()
		}},
	} {
		t.Run(server.dialect.String(), func(t *testing.T) {
			owner := openDB(t, server.driver, server.dsn)
			exec(t, owner, file(server.dialect.String()+".up.sql"), file(server.dialect.String()+".roles.sql"))
			roles := []string{prefix + "enqueue", prefix + "worker", prefix + "purge"}
			t.Cleanup(func() {
				exec := func(statement string) {
					if _, err := owner.ExecContext(context.Background(), statement); err != nil {
						t.Errorf("%s: %v", statement, err)
					}
				}
				exec(file(server.dialect.String() + ".down.sql"))
				for _, role := range roles {
					exec("DROP ROLE " + role)
				}
			})
			boxes := make([]*Store, len(roles))
			for i, role := range roles {
				box, err := New(openDB(t, server.driver, server.as(t, owner, server.dsn, role)), server.dialect, Config{})
				if err != nil {
					t.Fatal(err)
				}
				boxes[i] = box
				if _, err := box.Check(t.Context()); err != nil {
					t.Errorf("%s: Check says %v", role, err)
				}
			}
			enqueuer, worker, purger := boxes[0], boxes[1], boxes[2]

			enqueue(t, enqueuer, "a", "b", "a")
			enqueueAll(t, enqueuer, []store.NewMessage{message("b"), message("c"), message("d")})
			c, err := worker.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 2, Lease: time.Minute})
			if err != nil || len(c.Messages) != 2 {
				t.Fatalf("claimed %+v, %v", c, err)
			}
			group := []store.Settlement{sent(c.Messages[0]), sent(c.Messages[1])}
			for range 2 {
				if _, err := worker.Settle(t.Context(), group); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
			_, claimErr := enqueuer.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 2, Lease: time.Minute})
			_, purgeErr := worker.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)})
			tx, err := worker.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, enqueueErr := worker.Enqueue(t.Context(), tx, message("e"))
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
			refused := map[string]error{"a claim by the enqueuer": claimErr, "a purge by the worker": purgeErr, "an enqueue by the worker": enqueueErr}
			_, refused["a purge by the enqueuer"] = enqueuer.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)})
			tx, err = purger.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, refused["an enqueue by the purger"] = purger.Enqueue(t.Context(), tx, message("e"))
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
			for i, box := range boxes { // nor can any of them change the table, so nothing of ours does at run time
				for _, statement := range []string{"DROP TABLE outbox", "TRUNCATE TABLE outbox", "ALTER TABLE outbox ADD otra int"} {
					_, err := box.db.ExecContext(t.Context(), statement)
					refused[roles[i]+": "+statement] = box.fail("change", err)
				}
			}
			for what, err := range refused {
				if code := store.ErrorCode(err); code != "42501" && code != "1142" || !strings.Contains(err.Error(), "lacks a permission") {
					t.Errorf("%s: %v, want a refusal that says why", what, err)
				}
			}

			if ids, err := drain(t.Context(), worker, 10); err != nil || len(ids) != 2 {
				t.Errorf("drained %v, %v", ids, err)
			}
			_, _, dueErr := worker.NextDue(t.Context(), []string{"correo"})
			_, statsErr := worker.Stats(t.Context(), store.StatsParams{})
			_, requeueErr := worker.Requeue(t.Context(), []string{c.Messages[0].ID})
			_, cancelErr := worker.Cancel(t.Context(), []string{c.Messages[0].ID})
			for what, err := range map[string]error{"next due": dueErr, "stats": statsErr, "requeue": requeueErr, "cancel": cancelErr} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if n, err := purger.Purge(t.Context(), store.PurgeParams{Before: time.Now().Add(time.Hour)}); err != nil || n != 4 {
				t.Errorf("purged %d, %v", n, err)
			}
		})
	}
}

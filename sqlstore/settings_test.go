package sqlstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/store"
)

// mysqlSettings are parameters of a DSN.
func mysqlSettings(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

// Settings under which everything works.
func TestSettingsOfMySQL(t *testing.T) {
	modes := `'REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION,NO_DIR_IN_CREATE,` +
		`NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,` +
		`HIGH_NOT_PRECEDENCE,NO_ENGINE_SUBSTITUTION,PAD_CHAR_TO_FULL_LENGTH,TIME_ROUND_FRACTIONAL,SIMULTANEOUS_ASSIGNMENT'`
	for name, settings := range map[string]string{
		"modes":              mysqlSettings("sql_mode", modes),
		"modes, in the text": mysqlSettings("sql_mode", modes, "interpolateParams", "true"),
		"other databases":    mysqlSettings("sql_mode", "'MSSQL'"),
		"time":               mysqlSettings("time_zone", "'-11:00'", "parseTime", "true", "loc", "America/Los_Angeles"),
		"time as text":       mysqlSettings("time_zone", "'+13:00'", "loc", "America/Los_Angeles", "interpolateParams", "true"),
		"rows found":         mysqlSettings("clientFoundRows", "true", "columnsWithAlias", "true"),
		"collation":          mysqlSettings("collation", "utf8mb4_turkish_ci"),
		"compressed":         mysqlSettings("compress", "true", "multiStatements", "true"),
		"null":               mysqlSettings("sql_auto_is_null", "1", "group_concat_max_len", "1024", "div_precision_increment", "0"),
		"join":               mysqlSettings("optimizer_switch", "'derived_merge=off,materialization=off,index_condition_pushdown=off,mrr=on'", "join_cache_level", "8"),
		"old":                mysqlSettings("old_mode", "'NO_PROGRESS_INFO,ZERO_DATE_TIME_CAST,UTF8_IS_UTF8MB3'"),
		"checks":             mysqlSettings("innodb_strict_mode", "0", "foreign_key_checks", "0"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newBox(t, engine{dialect: MySQL}, openDB(t, "mysql", dbtest.MariaDB(t)+settings), Config{})
			if _, err := box.Check(t.Context()); err != nil {
				t.Error(err)
			}
			life(t, box)
		})
	}
}

// Settings under which something would go wrong are named.
func TestRefusedSettingsOfMySQL(t *testing.T) {
	for settings, want := range map[string]string{
		mysqlSettings("charset", "latin1"):                           "character set is latin1",
		mysqlSettings("charset", "utf8mb3"):                          "character set is utf8mb3",
		mysqlSettings("sql_mode", "'ORACLE'"):                        "EMPTY_STRING_IS_NULL or ORACLE",
		mysqlSettings("sql_mode", "'ANSI,EMPTY_STRING_IS_NULL'"):     "EMPTY_STRING_IS_NULL or ORACLE",
		mysqlSettings("autocommit", "0"):                             "autocommit is off",
		mysqlSettings("tx_read_only", "1"):                           "read-only",
		mysqlSettings("sql_safe_updates", "1"):                       "sql_safe_updates is on",
		mysqlSettings("unique_checks", "0"):                          "unique_checks is off",
		mysqlSettings("completion_type", "'CHAIN'"):                  "completion_type",
		mysqlSettings("sql_mode", "'TRADITIONAL'", "charset", "gbk"): "character set is gbk",
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.MariaDB(t)
			newBox(t, engine{dialect: MySQL}, openDB(t, "mysql", dsn), Config{})
			box, err := New(openDB(t, "mysql", dsn+settings), MySQL, Config{})
			if err != nil {
				t.Fatal(err)
			}
			var schema *SchemaError
			if _, err := box.Check(t.Context()); !errors.As(err, &schema) || !strings.Contains(err.Error(), want) {
				t.Errorf("Check says %v, want %q", err, want)
			}
		})
	}
}

// A table in a schema of its own, with a name that keeps its case.
func TestSchemas(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db := e.open(t)
			schema := "Esquema"
			switch e.dialect {
			case SQLite:
				db.SetMaxOpenConns(1) // a database is attached to a connection
				exec(t, db, `ATTACH ':memory:' AS "Esquema"`)
			case Postgres:
				exec(t, db, `CREATE SCHEMA "Esquema"`, `CREATE SCHEMA esquema`)
			case MySQL:
				if err := db.QueryRowContext(t.Context(), "SELECT database()").Scan(&schema); err != nil {
					t.Fatal(err)
				}
				other := openDB(t, "mysql", dbtest.MariaDB(t)) // is in another one
				db = other
			}
			here := newBox(t, e, db, Config{Table: "order"})
			there := newBox(t, e, db, Config{Schema: schema, Table: "order"})
			enqueue(t, here, "only here")
			life(t, there)
			if advice, err := there.Check(t.Context()); err != nil {
				t.Error(advice, err)
			}
			if ids, err := drain(t.Context(), here, 10); err != nil || len(ids) != 1 {
				t.Errorf("the table of the same name hands out %v, %v", ids, err)
			}
			nowhere, err := New(db, e.dialect, Config{Schema: "nowhere", Table: "order"})
			if err != nil {
				t.Fatal(err)
			}
			if err := nowhere.Migrate(t.Context()); store.ErrorCode(err) == "" || strings.Contains(err.Error(), "nowhere") {
				t.Errorf("a schema that does not exist: %v", err)
			}
		})
	}
}

// A role that may read and write the table, but create nothing, finds it in place.
func TestRestrictedRoles(t *testing.T) {
	for _, e := range engines {
		if e.dialect == SQLite {
			continue // which has no roles
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			admin := e.open(t)
			newBox(t, e, admin, Config{})
			var name string
			query := map[Dialect]string{Postgres: "SELECT current_database()", MySQL: "SELECT database()"}[e.dialect]
			if err := admin.QueryRowContext(t.Context(), query).Scan(&name); err != nil {
				t.Fatal(err)
			}
			role := strings.Replace(name, "recado_", "rol_", 1)
			db := admin
			if e.dialect == Postgres {
				exec(t, admin, "CREATE ROLE "+role, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox TO "+role)
				t.Cleanup(func() {
					if _, err := admin.Exec("RESET ROLE; DROP OWNED BY " + role + "; DROP ROLE " + role); err != nil {
						t.Error(err)
					}
				})
				admin.SetMaxOpenConns(1)
				exec(t, admin, "SET ROLE "+role)
			} else {
				exec(t, admin, "CREATE USER "+role+"@'127.0.0.1' IDENTIFIED BY 'x'", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".outbox TO "+role+"@'127.0.0.1'")
				t.Cleanup(func() {
					if _, err := admin.Exec("DROP USER " + role + "@'127.0.0.1'"); err != nil {
						t.Error(err)
					}
				})
				var port int
				if err := admin.QueryRowContext(t.Context(), "SELECT @@port").Scan(&port); err != nil {
					t.Fatal(err)
				}
				db = openDB(t, "mysql", fmt.Sprintf("%s:x@tcp(127.0.0.1:%d)/%s", role, port, name))
			}
			box := newBox(t, e, db, Config{})
			if advice, err := box.Check(t.Context()); err != nil {
				t.Error(advice, err)
			}
			life(t, box)
			other, err := New(db, e.dialect, Config{Table: "otra"})
			if err != nil {
				t.Fatal(err)
			}
			err = other.Migrate(t.Context())
			want := map[Dialect]string{Postgres: "42501", MySQL: "1142"}[e.dialect]
			if store.ErrorCode(err) != want || !store.Refused(err) || !strings.Contains(err.Error(), "permission") {
				t.Errorf("a table that is not there: %v", err)
			}
		})
	}
}

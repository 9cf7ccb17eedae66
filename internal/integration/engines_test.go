package integration

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
)

// onServers runs f on each kind of server at once, with a database of its own and a table whose tenants are texts.
func onServers(t *testing.T, f func(t *testing.T, db *sql.DB, box *sqlstore.Store)) {
	for _, server := range []struct {
		name, driver string
		dialect      sqlstore.Dialect
		database     func(testing.TB) string
	}{
		{"postgres", "postgres", sqlstore.Postgres, dbtest.Postgres},
		{"mariadb", "mysql", sqlstore.MySQL, dbtest.MariaDB},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(server.driver, server.database(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			box, err := sqlstore.New(db, server.dialect, sqlstore.Config{TextTenant: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			f(t, db, box)
		})
	}
}

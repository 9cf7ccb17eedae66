//go:build unix

package crash

import (
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
)

// Every connection to the database breaks sooner or later, in the middle of something: clients that enqueue and workers
// that deliver lose requests and replies, wait, and hear half of it. All that is promised holds.
func TestNetworkBroken(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, driver string
		database     func(testing.TB) string
	}{
		{"postgres", "postgres", dbtest.Postgres},
		{"pgx", "pgx", dbtest.Postgres},
		{"mariadb", "mysql", dbtest.MariaDB},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seed := proof.Seed(t)
			tally := proof.New(t, "network of "+s.driver, breaks...)
			dsn := s.database(t)
			db := open(t, s.driver, dsn)
			prepare(t, db, s.driver)
			address, through := detour(t, s.driver, dsn)
			proxy := startProxy(t, address, seed, tally)
			broken := open(t, s.driver, through(proxy.address()))
			traffic := startTraffic(t, seed, s.driver, broken, broken)
			proxy.awaitBreaks(t, proof.Size(4, 50))
			proxy.calm.Store(true)
			traffic.settle(t, tally, db)
		})
	}
}

// detour returns the address in a DSN, and the DSN with another.
func detour(t *testing.T, driver, dsn string) (address string, through func(string) string) {
	t.Helper()
	if driver == "mysql" {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Addr, func(a string) string {
			c := cfg.Clone()
			c.Addr = a
			return c.FormatDSN()
		}
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host, func(a string) string {
		c := *u
		c.Host = a
		return c.String()
	}
}

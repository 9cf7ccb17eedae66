//go:build unix

package crash

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
)

// The database server is killed, all its processes at once, and started again while clients enqueue and workers deliver.
// What was acknowledged is there afterwards, what was not is there as a whole or not at all, and every message ends as if
// nothing had happened.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, driver string
		start        func(testing.TB) *dbtest.Server
	}{
		{"postgres", "postgres", dbtest.PrivatePostgres},
		{"mariadb", "mysql", dbtest.PrivateMariaDB},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seed := proof.Seed(t)
			random := rand.New(rand.NewPCG(seed, 0))
			tally := proof.New(t, "server of "+s.driver, "server kill")
			server := s.start(t)
			db := open(t, s.driver, server.DSN)
			prepare(t, db, s.driver)
			traffic := startTraffic(t, seed, s.driver, db, db)
			for range proof.Size(2, 12) {
				select {
				case <-traffic.book.watch(10 + random.IntN(proof.Size(40, 400))):
				case <-time.After(settleIn):
					t.Fatal("nobody works")
				}
				server.Kill(t)
				tally.Fault("server kill")
				<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
				server.Start(t)
			}
			traffic.settle(t, tally, db)
		})
	}
}

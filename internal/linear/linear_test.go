package linear

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// channels are one for each history of a store.
func channels(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return names
}

func inMemory(_ *testing.T, c *clock, channels []string) storetest.Complete {
	return memstore.New(memstore.Config{Rules: store.Rules{TextTenant: true, Channels: channels}, Clock: c.now})
}

func inDatabase(d sqlstore.Dialect, driver string, dsn func(testing.TB) string) func(*testing.T, *clock, []string) storetest.Complete {
	return func(t *testing.T, c *clock, channels []string) storetest.Complete {
		db, err := sql.Open(driver, dsn(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		box, err := sqlstore.New(db, d, sqlstore.Config{TextTenant: true, Channels: channels, Clock: c.now})
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return box
	}
}

func sqliteFile(tb testing.TB) string {
	return "file:" + filepath.Join(tb.TempDir(), "recado.db") + "?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
}

// Whatever goroutines do to the same rows at once, lost replies included, what they see of a row could have come from a
// store that does one thing after the other: no row is handed out before its time or to two at once, a settlement is
// written if, and only if, its fence holds, and only once, and an answer that was lost is found out by a repetition.
func TestHistories(t *testing.T) {
	for _, s := range []struct {
		name        string
		short, full int
		open        func(*testing.T, *clock, []string) storetest.Complete
	}{
		{"memstore", 30, 1000, inMemory},
		{"sqlite", 4, 100, inDatabase(sqlstore.SQLite, "sqlite", sqliteFile)},
		{"postgres", 4, 100, inDatabase(sqlstore.Postgres, "postgres", dbtest.Postgres)},
		{"mariadb", 4, 100, inDatabase(sqlstore.MySQL, "mysql", dbtest.MariaDB)},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seed, tally := proof.Seed(t), proof.New(t, "histories of "+s.name, lostRequest, lostReply)
			clock, channels := newClock(), channels(proof.Size(s.short, s.full))
			box := losing(s.open(t, clock, channels), tally)
			for i, channel := range channels {
				h := record(t, box, channel, clock, seed+uint64(i), goroutines)
				if t.Failed() {
					return
				}
				if bad := h.impossible(); bad != "" {
					tally.Violation(t, "history %d: %s", i, bad)
					return
				}
				tally.Schedule()
				tally.Checked(rows)
			}
		})
	}
}

// flawed is a store with one flaw.
type flawed struct {
	*memstore.Store
	hidden bool // from a goroutine alone
	claim  func(context.Context, *memstore.Store, store.ClaimParams) (store.Claim, error)
	settle func(context.Context, *memstore.Store, []store.Settlement) ([]store.Verdict, error)
}

func (f flawed) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if f.claim != nil {
		return f.claim(ctx, f.Store, p)
	}
	return f.Store.Claim(ctx, p)
}

func (f flawed) Settle(ctx context.Context, group []store.Settlement) ([]store.Verdict, error) {
	if f.settle != nil {
		return f.settle(ctx, f.Store, group)
	}
	return f.Store.Settle(ctx, group)
}

// forging changes the settlements of a group, knowing their rows.
func forging(edit func(*store.Settlement, store.Message)) flawed {
	return flawed{settle: func(ctx context.Context, s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
		group = slices.Clone(group)
		for i := range group {
			m, err := s.Get(ctx, group[i].ID)
			if err != nil {
				return nil, err
			}
			edit(&group[i], m)
		}
		return s.Settle(ctx, group)
	}}
}

// yield lets the others have a turn, so that those who do one thing in two steps are found out.
func yield() {
	for range 20 {
		runtime.Gosched()
	}
}

func flaws(c *clock) map[string]flawed {
	return map[string]flawed{
		"there is no fence":          forging(func(s *store.Settlement, m store.Message) { s.Fence = m.Fence() }),
		"the lease alone is a fence": forging(func(s *store.Settlement, m store.Message) { s.Token = m.Token }),
		"the token alone is a fence": forging(func(s *store.Settlement, m store.Message) { s.LeasedUntil = m.LeasedUntil }),
		"repeats are not recognised": forging(func(s *store.Settlement, m store.Message) {
			if m.State != state.Processing {
				s.Token = store.Token{}
			}
		}),
		// The two below do the right thing, but not in one step: only who works at the same time can tell.
		"the fence is looked at, then the row is written": {
			hidden: true,
			settle: func(ctx context.Context, s *memstore.Store, group []store.Settlement) ([]store.Verdict, error) {
				var verdicts []store.Verdict
				for _, one := range group {
					m, err := s.Get(ctx, one.ID)
					if err != nil {
						return nil, err
					}
					verdict, written, err := m.Settle(one, c.now())
					if err != nil {
						return nil, err
					}
					if yield(); written {
						if err := s.Put(ctx, m); err != nil {
							return nil, err
						}
					}
					verdicts = append(verdicts, verdict)
				}
				return verdicts, nil
			},
		},
		"a row is found, then it is claimed": {
			hidden: true,
			claim: func(ctx context.Context, s *memstore.Store, p store.ClaimParams) (store.Claim, error) {
				var due []*store.Message
				now := c.now()
				for i := range rows {
					m, err := s.GetByKey(ctx, tenant, key(p.Channel, i))
					if err != nil {
						return store.Claim{}, err
					}
					switch row := m.Row(); state.Decide(row, now) {
					case state.DecisionSend, state.DecisionReclaim, state.DecisionDiscard:
						if !row.State.Terminal() && !row.Turn().After(now) && len(due) < p.Limit {
							due = append(due, &m)
						}
					}
				}
				claim, err := p.Take(due, store.NewToken(), now)
				yield()
				for _, m := range due {
					err = errors.Join(err, s.Put(ctx, *m))
				}
				return claim, err
			},
		},
	}
}

// The check is worth something: of a store with a flaw it finds a history that no order explains. What only who works at
// the same time can tell it does not find when nobody does.
func TestFlawsAreFound(t *testing.T) {
	const alone, together = 20, 500
	for name, flaw := range flaws(nil) {
		t.Run(name, func(t *testing.T) {
			seed, clock, channels := proof.Seed(t), newClock(), channels(alone+together)
			flawed := flaws(clock)[name]
			flawed.Store = inMemory(t, clock, channels).(*memstore.Store)
			for i, channel := range channels {
				n := goroutines
				if flaw.hidden && i < alone {
					n = 1
				}
				h := record(t, flawed, channel, clock, seed+uint64(i), n)
				if t.Failed() {
					return
				}
				switch bad := h.impossible(); {
				case bad != "" && n == 1:
					t.Fatalf("history %d, of one goroutine: %s", i, bad)
				case bad != "":
					t.Logf("found by history %d", i)
					return
				}
			}
			t.Errorf("%d histories were all possible", together)
		})
	}
}

package sqlstore

import (
	"database/sql"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that TZ means the same on every machine

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Two workers whose clocks differ by more than a lease: the fast one takes the row over early, the slow one's result is
// lost, and what is stored is the fast one's.
func TestClocksThatDiffer(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // the server's own clock is years ahead
		slow := newBox(t, e, db, Config{Clock: func() time.Time { return at }})
		fast := newBox(t, e, db, Config{Clock: func() time.Time { return at.Add(20 * time.Minute) }})
		id := enqueue(t, slow, "k")[0]
		p := store.ClaimParams{Channel: "correo", Limit: 10, Lease: 10 * time.Minute}
		first, err := slow.Claim(t.Context(), p)
		if err != nil || len(first.Messages) != 1 {
			t.Fatal(first, err)
		}
		second, err := fast.Claim(t.Context(), p)
		if err != nil || len(second.Messages) != 1 || second.Messages[0].Attempts != 2 {
			t.Fatalf("the fast one took %v, %v", second.Messages, err)
		}
		for _, step := range []struct {
			box  *Store
			m    store.Message
			want store.Verdict
		}{{slow, first.Messages[0], store.Lost}, {fast, second.Messages[0], store.Applied}, {slow, first.Messages[0], store.Lost}} {
			s := sent(step.m)
			s.ExternalID = fmt.Sprint("attempt-", step.m.Attempts)
			if v, err := step.box.Settle(t.Context(), []store.Settlement{s}); err != nil || v[0] != step.want {
				t.Errorf("attempt %d: %v, %v, want %v", step.m.Attempts, v, err, step.want)
			}
		}
		m, err := slow.Get(t.Context(), id)
		now := at.Add(20 * time.Minute)
		if err != nil || m.State != state.Sent || m.ExternalID != "attempt-2" || !m.SentAt.Equal(now) || !m.UpdatedAt.Equal(now) || !m.CreatedAt.Equal(at) {
			t.Errorf("stored is %s by %s, sent %v, updated %v, created %v, %v", m.State, m.ExternalID, m.SentAt, m.UpdatedAt, m.CreatedAt, err)
		}
		if c, err := fast.Claim(t.Context(), p); err != nil || len(c.Messages) != 0 {
			t.Errorf("claimed again: %v, %v", c.Messages, err)
		}
	})
}

// The process's time zone changes nothing: the tests about times run again in processes of other zones, on the same
// servers.
func TestProcessZones(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{"RECADO_TEST_POSTGRES=" + dbtest.Postgres(t), "RECADO_TEST_MARIADB=" + dbtest.MariaDB(t)}
	for _, zone := range []string{"America/Los_Angeles", "Asia/Kathmandu"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			cmd := osexec.CommandContext(t.Context(), exe, "-test.run=^(TestTimeZones|TestRunningClock|TestClocksThatDiffer)$", "-test.v")
			cmd.Env = append(append(os.Environ(), servers...), "TZ="+zone)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "--- PASS") < 3*len(engines) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A table that was restored from a dump, into another database or under another name, goes on where the dump was taken:
// what is due depends on states and times alone, and what has ended stays ended.
func TestARestoredTable(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine, db *sql.DB) {
		var clock testClock
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		clock.set(at)
		box := newBox(t, e, db, Config{Clock: clock.get})
		ids := enqueue(t, box, "sent", "in flight", "waiting", "pending")
		c, err := box.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 3, Lease: time.Minute})
		if err != nil || len(c.Messages) != 3 {
			t.Fatal(c, err)
		}
		retry := sent(c.Messages[2])
		retry.Transition = state.Transition{Event: state.EventRetry, To: state.Pending, Wait: time.Hour, Category: state.CategoryNetwork, Code: "http_503"}
		if _, err := box.Settle(t.Context(), []store.Settlement{sent(c.Messages[0]), retry}); err != nil {
			t.Fatal(err)
		}

		restored := newBox(t, e, db, Config{Table: "restored", Clock: clock.get})
		all := strings.Join(append([]string{"organizacion_id"}, columns[:len(columns)-2]...), ", ")
		exec(t, db, "INSERT INTO restored ("+all+") SELECT "+all+" FROM outbox")
		for _, step := range []struct {
			after time.Duration
			want  []string
		}{{0, ids[3:]}, {time.Minute, ids[1:2]}, {time.Hour, ids[2:3]}} {
			clock.set(at.Add(step.after))
			if got, err := drain(t.Context(), restored, 10); err != nil || !slices.Equal(got, step.want) {
				t.Errorf("after %s it hands out %v, %v, want %v", step.after, got, err, step.want)
			}
		}
		// The process that had it when the dump was taken is refused by the table that went on.
		if v, err := restored.Settle(t.Context(), []store.Settlement{sent(c.Messages[1])}); err != nil || v[0] != store.Lost {
			t.Errorf("the holder from before the dump: %v, %v", v, err)
		}
	})
}

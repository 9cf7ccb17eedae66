//go:build unix

package crash

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/state"
)

// row is a message as it stands in the end.
type row struct {
	id, key, external string
	state             state.State
	tries, maxTries   int
	doubts            int
	stuck             bool // neither ended nor ever due
}

func readRows(db *sql.DB) ([]row, error) {
	rows, err := db.Query(`
SELECT id, clave_idempotencia, coalesce(id_externo, ''), estado, intentos, max_intentos, dudas,
	CASE WHEN terminado IS NULL AND turno IS NULL THEN 1 ELSE 0 END
FROM outbox`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.key, &r.external, &r.state, &r.tries, &r.maxTries, &r.doubts, &r.stuck); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// verifyHistories checks that each message has lived as the lifecycle says, and returns messages and lives.
func verifyHistories(t *testing.T, tally *proof.Tally, db *sql.DB) ([]row, map[string]life) {
	t.Helper()
	rows, err := readRows(db)
	if err != nil {
		t.Fatal(err)
	}
	histories, err := readHistory(db)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(histories) {
		tally.Violation(t, "there are %d messages, and %d have begun", len(rows), len(histories))
	}
	lives := make(map[string]life, len(rows))
	for _, r := range rows {
		l, err := replay(histories[r.id], r.maxTries)
		if err == nil && (l.state != r.state || l.tries != r.tries || l.doubts != r.doubts) {
			err = errors.New("the history does not lead to what is stored")
		}
		if err == nil && r.stuck {
			err = errors.New("it has not ended, and its turn will never come")
		}
		if err != nil {
			tally.Violation(t, "message %s: %v", r.id, err)
		}
		lives[r.id] = l
	}
	return rows, lives
}

// verify checks, when all has come to rest, what is promised of every message: it has ended; it was called at most once
// per attempt; it was accepted at most once, and once more for each attempt in doubt and for each claim that was not
// settled by the one who had it; if it counts as sent, it is by the result of its last claim, and a receiver that honours
// keys has seen it exactly once; and no result was called lost but those of claims that others followed.
func verify(t *testing.T, tally *proof.Tally, db *sql.DB, book *ledger) {
	t.Helper()
	book.mu.Lock()
	defer book.mu.Unlock()
	rows, lives := verifyHistories(t, tally, db)
	sum := map[state.State]int{}
	accepted, doubts, takeovers, refunds := 0, 0, 0, 0
	for _, r := range rows {
		l := lives[r.id]
		n, err := r.judge(l, book)
		if err != nil {
			tally.Violation(t, "message %s (%v, %+v): %v", r.id, r.state, l, err)
		}
		accepted += n
		sum[r.state]++
		doubts, takeovers, refunds = doubts+l.doubts, takeovers+l.takeover, refunds+l.refunds
		delete(book.calls, r.id)
	}
	for id := range book.calls {
		tally.Violation(t, "message %s was called and does not exist", id)
	}
	for _, key := range book.changed {
		tally.Violation(t, "key %s came back with another body", key)
	}
	tally.Checked(len(rows))
	for range takeovers {
		tally.Fault("takeover")
	}
	for _, n := range book.lost {
		for range n {
			tally.Fault("lost result")
		}
	}
	t.Logf("%d messages %v; accepted %d times, in doubt %d, taken over %d, given back %d",
		len(rows), sum, accepted, doubts, takeovers, refunds)
}

func (r row) judge(l life, book *ledger) (accepted int, err error) {
	attempts, last := map[int]bool{}, false
	for _, c := range book.calls[r.id] {
		switch {
		case c.key != tenant+":"+r.key:
			return accepted, fmt.Errorf("it was called under another key, %s", c.key)
		case c.attempt < 1 || c.attempt > r.maxTries:
			return accepted, fmt.Errorf("it was called for attempt %d of %d", c.attempt, r.maxTries)
		case attempts[c.attempt]:
			return accepted, fmt.Errorf("attempt %d was called twice", c.attempt)
		}
		attempts[c.attempt] = true
		if c.accepted {
			accepted++
			last = last || c.attempt == r.tries
		}
	}
	effects := book.effects[tenant+":"+r.key]
	switch {
	case !r.state.Terminal():
		return accepted, errors.New("it has not ended")
	case l.settled+l.takeover != l.claims:
		return accepted, errors.New("its claims do not add up")
	case accepted > 1+l.doubts+l.takeover:
		return accepted, fmt.Errorf("it was accepted %d times", accepted)
	case r.state == state.Sent && (!last || r.external != external(r.id, r.tries)):
		return accepted, fmt.Errorf("it counts as sent, but not by its last claim: as %s", r.external)
	case r.state != state.Sent && r.external != "":
		return accepted, errors.New("it does not count as sent, but has a receiver's id")
	case book.lost[r.id] > l.followed:
		return accepted, fmt.Errorf("%d results were called lost, and %d claims were followed by others", book.lost[r.id], l.followed)
	case r.state == state.Sent && effects != 1, effects > 1:
		return accepted, fmt.Errorf("it had %d effects on a receiver that honours keys", effects)
	}
	return accepted, nil
}

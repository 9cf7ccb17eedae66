package faultdriver_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/internal/faultdriver"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
)

// site is a database that runs take place on, one after the other. Triggers write down every change of a row that was
// committed, so that a run is judged by what the database kept and not by what anybody was told.
type site struct {
	engine engine
	dsn    string
	clean  *sql.DB // without faults

	// Of the runs: one connection, so that a leak is a standstill, and operations have one order. Runs take it over from
	// each other, since opening one is much of what a run costs.
	pool       *sql.DB
	connector  *faultdriver.Connector
	world      *world
	operations int // so far
}

func newSite(t *testing.T, e engine) *site {
	s := &site{engine: e, dsn: e.dsn(t)}
	var err error
	if s.clean, err = sql.Open(e.driver, s.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.clean.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.connector, err = faultdriver.Open(s.clean.Driver(), s.dsn, s.operation); err != nil {
		t.Fatal(err)
	}
	s.connector.Thrifty = true
	s.pool = sql.OpenDB(s.connector)
	s.pool.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := s.pool.Close(); err != nil {
			t.Error(err)
		}
		if left := s.connector.Left(); left != (faultdriver.Left{}) {
			t.Errorf("left open: %+v", left)
		}
	})
	box, err := sqlstore.New(s.clean, e.dialect, sqlstore.Config{TextTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "CREATE TABLE pedidos (id varchar(40) PRIMARY KEY)")
	s.exec(t, "CREATE TABLE efectos (id varchar(40))")
	number := map[sqlstore.Dialect]string{
		sqlstore.Postgres: "bigserial", sqlstore.MySQL: "bigint AUTO_INCREMENT", sqlstore.SQLite: "integer",
	}[e.dialect]
	s.exec(t, `CREATE TABLE historia (n `+number+` PRIMARY KEY, id varchar(40), clave varchar(200),
	antes varchar(40), despues varchar(40), reclamo_antes varchar(40), reclamo varchar(40), dudas int, max_intentos int)`)
	for event, names := range map[string][2]string{"INSERT": {"NEW", "NULL"}, "UPDATE": {"NEW", "OLD"}, "DELETE": {"OLD", "OLD"}} {
		some, before := names[0], names[1]
		column := func(row, name string) string {
			if row == "NULL" || event == "DELETE" && row == "NEW" {
				return "NULL"
			}
			return row + "." + name
		}
		doubts := "0"
		if event == "UPDATE" {
			doubts = "NEW.dudas - OLD.dudas"
		}
		note := "INSERT INTO historia (id, clave, antes, despues, reclamo_antes, reclamo, dudas, max_intentos) VALUES (" + strings.Join([]string{
			some + ".id", some + ".clave_idempotencia", column(before, "estado"), column("NEW", "estado"),
			column(before, "reclamo"), column("NEW", "reclamo"), doubts, some + ".max_intentos",
		}, ", ") + ");"
		switch e.dialect {
		case sqlstore.Postgres:
			s.exec(t, "CREATE FUNCTION anota_"+event+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+note+" RETURN NULL; END $$")
			s.exec(t, "CREATE TRIGGER anota_"+event+" AFTER "+event+" ON outbox FOR EACH ROW EXECUTE FUNCTION anota_"+event+"()")
		default:
			s.exec(t, "CREATE TRIGGER anota_"+event+" AFTER "+event+" ON outbox FOR EACH ROW BEGIN "+note+" END")
		}
	}
	return s
}

func (s *site) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.clean.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// settleDown waits until the server has rolled back what dropped connections had begun.
func (s *site) settleDown(t *testing.T) {
	t.Helper()
	if s.engine.dialect != sqlstore.SQLite { // whose connections end where they are closed
		s.texts(t, "SELECT id FROM outbox FOR UPDATE")
		s.texts(t, "SELECT id FROM pedidos FOR UPDATE")
	}
}

// clear makes room for the next run.
func (s *site) clear(t *testing.T) {
	t.Helper()
	for _, table := range []string{"outbox", "historia", "pedidos", "efectos"} {
		s.exec(t, "DELETE FROM "+table)
	}
}

// texts are the first column of a query's rows.
func (s *site) texts(t *testing.T, query string) (all []string) {
	t.Helper()
	s.rows(t, query, func(scan func(...any) error) error {
		var one sql.NullString
		err := scan(&one)
		all = append(all, one.String)
		return err
	})
	return all
}

func (s *site) rows(t *testing.T, query string, each func(scan func(...any) error) error) {
	t.Helper()
	rows, err := s.clean.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
}

func (s *site) live(t *testing.T) int {
	return len(s.texts(t, "SELECT id FROM outbox WHERE turno IS NOT NULL"))
}

// change is a line of the history.
type change struct {
	id, key              string
	before, after        state.State // "": none
	tokenBefore, token   string
	doubts, mostAttempts int
}

func (s *site) history(t *testing.T) (all []change) {
	t.Helper()
	s.rows(t, "SELECT id, clave, coalesce(antes, ''), coalesce(despues, ''), coalesce(reclamo_antes, ''), coalesce(reclamo, ''), dudas, max_intentos FROM historia ORDER BY n",
		func(scan func(...any) error) error {
			var c change
			err := scan(&c.id, &c.key, &c.before, &c.after, &c.tokenBefore, &c.token, &c.doubts, &c.mostAttempts)
			c.key = strings.TrimPrefix(c.key, canary+" ")
			all = append(all, c)
			return err
		})
	return all
}

// checkAtomic wants that a message is there if, and only if, its business row is: what the application knows for sure
// beside, and one or the other where it does not.
func (w *world) checkAtomic() {
	enqueued := map[string][]string{} // ids by key
	for _, c := range w.site.history(w.t) {
		if c.before == "" {
			enqueued[c.key] = append(enqueued[c.key], c.id)
		}
	}
	orders := w.site.texts(w.t, "SELECT id FROM pedidos")
	for _, o := range w.orders {
		there := slices.Contains(orders, o.id)
		switch {
		case o.committed && !there:
			w.violation("order %s was committed and is not there", o.id)
		case !o.committed && !o.uncertain && there:
			w.violation("order %s was not committed and is there", o.id)
		}
		for i, key := range o.keys {
			ids := enqueued[key]
			if len(ids) > 1 {
				w.violation("key %q has %d messages", key, len(ids))
			}
			shared := slices.ContainsFunc(w.orders, func(other *order) bool {
				return other.id != o.id && slices.Contains(other.keys, key) && slices.Contains(orders, other.id)
			})
			if (len(ids) == 1) != (there || shared) {
				w.violation("order %s: there %v, its message %q: %v", o.id, there, key, ids)
			}
			if there && len(ids) == 1 && o.results[i].ID != ids[0] {
				w.violation("the id of %q was told as another", key)
			}
			if there && o.results[i].Inserted == shared && o.id == "again" || o.results != nil && o.results[i].Differs {
				w.violation("the result of %q is %+v", key, o.results[i])
			}
		}
	}
}

// life is what became of one message.
type life struct {
	key          string
	state        state.State // "": purged
	claims       int
	settled      map[string]int // by token
	unsettled    int            // claims whose result never came in
	ambiguous    int
	sent         int
	requeues     int
	mostAttempts int
}

// lives follows the history of each message by its id, which may only have the moves of the lifecycle.
func (w *world) lives() map[string]*life {
	all := map[string]*life{}
	for _, c := range w.site.history(w.t) {
		l := all[c.id]
		if l == nil {
			l = &life{key: c.key, settled: map[string]int{}}
			all[c.id] = l
		}
		switch {
		case c.before == "":
			if c.after != state.Pending || l.mostAttempts > 0 {
				w.violation("message %q begins as %q", c.key, c.after)
			}
			l.mostAttempts = c.mostAttempts
		case c.before != l.state || c.key != l.key:
			w.violation("message %q was %q and changes from %q", c.key, l.state, c.before)
		case c.after == "":
			if !c.before.Terminal() {
				w.violation("message %q is purged as %q", c.key, c.before)
			}
		case c.after == state.Processing && c.token == c.tokenBefore && c.before == state.Processing: // renewed
		case !legal(c.before, c.after):
			w.violation("message %q goes from %q to %q", c.key, c.before, c.after)
		case c.after == state.Processing:
			if _, again := l.settled[c.token]; again || c.token == "" {
				w.violation("message %q is claimed under a token that is not new", c.key)
			}
			l.settled[c.token] = 0
			l.claims++
		case c.before == state.Processing && c.token != "":
			if c.token != c.tokenBefore {
				w.violation("message %q is settled under another token", c.key)
			}
			l.settled[c.token]++
			l.ambiguous += c.doubts
			if c.after == state.Sent {
				l.sent++
			}
		case c.before.Terminal():
			l.requeues++
		}
		l.state = c.after
	}
	for _, l := range all {
		for _, n := range l.settled {
			if n == 0 {
				l.unsettled++
			} else if n > 1 {
				w.violation("message %q: %d settlements of one claim", l.key, n)
			}
		}
	}
	return all
}

func legal(from, to state.State) bool {
	return slices.ContainsFunc(state.Events(), func(e state.Event) bool {
		next, err := state.Next(from, e)
		return err == nil && next == to
	})
}

// checkAll wants that every message came to its end, within its bounds, and that everybody was told the truth of it.
func (w *world) checkAll() {
	all := w.lives()
	if n := w.site.live(w.t); n > 0 {
		w.violation("%d messages are stuck", n)
	}
	effects := len(w.site.texts(w.t, "SELECT id FROM efectos"))
	sent, purged := 0, int64(0)
	keys := map[string]int{}
	for _, l := range all {
		keys[l.key]++
	}
	for id, l := range all {
		key, calls, accepted := l.key, w.calls[id], 0
		for _, o := range calls {
			if o.OK {
				accepted++
			}
		}
		byHand := l.settled[uuid.UUID(w.direct).String()] // without a call
		switch {
		case len(calls)+byHand > l.claims:
			w.violation("message %q: %d calls and %d claims", key, len(calls), l.claims)
		case len(calls) > l.mostAttempts*(1+l.requeues):
			w.violation("message %q: %d calls of %d attempts", key, len(calls), l.mostAttempts)
		case accepted+byHand > 1+l.ambiguous+l.unsettled:
			w.violation("message %q: accepted %d times, with %d ambiguous attempts and %d results that never came in",
				key, accepted+byHand, l.ambiguous, l.unsettled)
		case l.requeues > w.requeues || l.requeues > 0 && key != "refused":
			w.violation("message %q: requeued %d times, asked for %d times", key, l.requeues, w.requeues)
		}
		switch {
		case key == "undone":
			w.violation("the message of a transaction that was rolled back exists")
		case key == "cancelled":
			if len(calls) > 0 || l.sent > 0 {
				w.violation("a cancelled message was sent")
			}
		case l.sent != 1 || accepted+byHand == 0:
			w.violation("message %q: settled as sent %d times, accepted %d times", key, l.sent, accepted+byHand)
		}
		if key == "with work" && effects != byHand {
			w.violation("%d effects of %d settlements", effects, byHand)
		}
		if key == "with work" && keys["next"] != byHand {
			w.violation("%d further messages of %d settlements", keys["next"], byHand)
		}
		sent += l.sent - byHand
		if l.state == "" {
			purged++
		}
	}
	for _, o := range w.orders {
		for _, key := range o.keys {
			if keys[key] == 0 && !o.undo {
				w.violation("message %q is lost", key)
			}
		}
	}
	told, untold := 0, 0
	for _, r := range w.reports {
		told += r.Sent
		untold += r.Errors
	}
	if sent < told || sent > told+untold {
		w.violation("the reports tell of %d sent messages and %d of unknown fate, the history of %d", told, untold, sent)
	}
	if w.purged > purged {
		w.violation("%d messages were told to be purged, %d were", w.purged, purged)
	}
	w.tally.Checked(len(all))

	for _, e := range w.logs.All() {
		if line := logLine(e); strings.Contains(line, canary) {
			w.violation("the log shows: %s", line)
		}
	}
	stored := w.site.texts(w.t, "SELECT id FROM outbox WHERE ultimo_error_categoria LIKE '%"+canary+"%' OR ultimo_error_codigo LIKE '%"+canary+"%'")
	if len(stored) > 0 {
		w.violation("%d rows hold what must not be stored with an error", len(stored))
	}
}

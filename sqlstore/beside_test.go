package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// A worker of the TypeScript package's, on the same table: its claim and its settlements restated. It goes by a clock of
// its own, in milliseconds, and its only fence is the lease.

const (
	foreignClaim = `
WITH debidas AS (
	SELECT id FROM outbox
	WHERE estado = 'pendiente' AND programado_para <= $1 AND (proximo_intento_en IS NULL OR proximo_intento_en <= $1)
		OR estado = 'procesando' AND bloqueado_hasta IS NOT NULL AND bloqueado_hasta <= $1
	ORDER BY coalesce(proximo_intento_en, programado_para)
	LIMIT $2 FOR UPDATE SKIP LOCKED)
UPDATE outbox AS o SET
	estado = CASE WHEN o.intentos >= o.max_intentos THEN 'fallido' ELSE 'procesando' END,
	intentos = CASE WHEN o.intentos >= o.max_intentos THEN o.intentos ELSE o.intentos + 1 END,
	bloqueado_hasta = CASE WHEN o.intentos >= o.max_intentos THEN NULL ELSE $3::timestamptz END,
	ultimo_error_categoria = CASE WHEN o.intentos >= o.max_intentos THEN 'red' ELSE o.ultimo_error_categoria END,
	ultimo_error_codigo = CASE WHEN o.intentos < o.max_intentos THEN o.ultimo_error_codigo
		WHEN o.estado = 'procesando' THEN 'lease_agotado' ELSE 'intentos_agotados' END,
	actualizado_en = now()
FROM debidas WHERE o.id = debidas.id
RETURNING o.id, o.estado, o.intentos, o.max_intentos, o.bloqueado_hasta`

	foreignFence   = ` WHERE id = $1 AND estado = 'procesando' AND bloqueado_hasta = $2`
	foreignSent    = `UPDATE outbox SET estado = 'enviado', id_externo = 'ajeno', enviado_en = $3, ultimo_error_categoria = NULL, ultimo_error_codigo = NULL, bloqueado_hasta = NULL, actualizado_en = now()` + foreignFence
	foreignEnded   = `UPDATE outbox SET estado = $3, ultimo_error_categoria = $4, ultimo_error_codigo = $4, bloqueado_hasta = NULL, actualizado_en = now()` + foreignFence
	foreignRetry   = `UPDATE outbox SET estado = 'pendiente', proximo_intento_en = $3, ultimo_error_categoria = 'red', ultimo_error_codigo = 'red', bloqueado_hasta = NULL, actualizado_en = now()` + foreignFence
	foreignRelease = `UPDATE outbox SET estado = 'pendiente', bloqueado_hasta = NULL, intentos = intentos - 1, proximo_intento_en = least(coalesce(proximo_intento_en, programado_para), $3), actualizado_en = now()` + foreignFence
)

// held is a claimed row in the hands of a worker.
type held struct {
	message  store.Message
	foreign  bool
	claimed  time.Time // by the claimer's clock
	settleAt time.Time // a worker that freezes for a while comes back later than its lease allows
}

// contender is a worker of either kind.
type contender struct {
	db     *sql.DB
	box    *Store // nil: a foreign worker
	clock  func() time.Time
	lease  time.Duration
	random *rand.Rand
}

func (c contender) claim(ctx context.Context, limit int) (taken []held, closed int, err error) {
	now := c.clock()
	if c.box != nil {
		claim, err := c.box.Claim(ctx, store.ClaimParams{Channel: "correo", Limit: limit, Lease: c.lease})
		for _, m := range claim.Messages {
			taken = append(taken, held{message: m, claimed: now})
		}
		return taken, len(claim.Closed), err
	}
	err = c.tx(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, foreignClaim, now, limit, now.Add(c.lease))
		if err != nil {
			return err
		}
		return each(rows, func(scan func(...any) error) error {
			h := held{foreign: true, claimed: now}
			var lease sql.NullTime
			err := scan(&h.message.ID, &h.message.State, &h.message.Attempts, &h.message.MaxAttempts, &lease)
			if h.message.LeasedUntil = lease.Time; lease.Valid {
				taken = append(taken, h)
			} else {
				closed++
			}
			return err
		})
	})
	return taken, closed, err
}

func (c contender) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err // the test fails, and its database goes
	}
	return tx.Commit()
}

// settle writes a random outcome of each row, and answers which were written and which ended their row.
func (c contender) settle(ctx context.Context, rows []held) (written, ended []bool, err error) {
	written, ended = make([]bool, len(rows)), make([]bool, len(rows))
	var group []store.Settlement
	for i, h := range rows {
		dice, last := c.random.IntN(10), h.message.Attempts >= h.message.MaxAttempts
		retry := dice == 1 && !last
		ended[i] = dice > 0 && !retry
		if c.box != nil {
			s := sent(h.message)
			switch {
			case dice == 0:
				s.Transition = state.ReleaseTransition()
			case retry:
				s.Transition = state.Transition{Event: state.EventRetry, To: state.Pending, Wait: 20 * time.Millisecond, Category: state.CategoryNetwork}
			case dice == 1:
				s.Transition = state.Transition{Event: state.EventFail, To: state.Failed, Category: state.CategoryNetwork}
			}
			group = append(group, s)
			continue
		}
		query, args := foreignSent, []any{h.message.ID, h.message.LeasedUntil, c.clock()}
		switch {
		case dice == 0:
			query, args[2] = foreignRelease, h.claimed
		case retry:
			query, args[2] = foreignRetry, c.clock().Add(20*time.Millisecond)
		case dice == 1:
			query, args = foreignEnded, append(args[:2], state.Failed, state.CategoryNetwork)
		case dice == 2:
			query, args = foreignEnded, append(args[:2], state.Discarded, state.CategoryNumber)
		}
		result, err := c.db.ExecContext(ctx, query, args...)
		if err != nil {
			return nil, nil, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return nil, nil, err
		}
		written[i] = n == 1
	}
	if len(group) > 0 {
		verdicts, err := c.box.Settle(ctx, group)
		if err != nil {
			return nil, nil, err
		}
		for i, v := range verdicts {
			written[i] = v == store.Applied
		}
	}
	return written, ended, nil
}

// Workers of both kinds drain one adopted table, and freeze again and again for longer than their leases. A log that the
// database writes says what happened to each row.
func TestBesideAForeignWorker(t *testing.T) {
	const rows = 5000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	db := postgresDB(t)
	oldTable(t, db, "outbox", "organizacion_id", "uuid")
	start := time.Now().Truncate(time.Millisecond)
	var elapsed atomic.Int64 // of the common clock, in ms; every step of a worker takes some
	// A worker's clock is off by some µs more than the one before it: no two claims have the same lease, so that the log
	// can tell them apart.
	clock := func(worker int, ahead time.Duration) func() time.Time {
		return func() time.Time {
			return start.Add(time.Duration(elapsed.Load())*time.Millisecond + time.Duration(worker)*time.Microsecond + ahead)
		}
	}
	box := newPostgres(t, db, Config{Clock: clock(0, 0)})
	if err := box.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	exec(t, db,
		"CREATE TABLE bitacora (id uuid, antes text, despues text, lease_antes timestamptz, lease_despues timestamptz)",
		`CREATE FUNCTION anotar() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO bitacora VALUES (old.id, old.estado, new.estado, old.bloqueado_hasta, new.bloqueado_hasta); RETURN NULL;
		END $$`,
		"CREATE TRIGGER anotar AFTER UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION anotar()")
	// Half of the rows are ours, the others are as their producers write them.
	messages := make([]store.NewMessage, rows/2)
	for i := range messages {
		messages[i] = message(fmt.Sprint("k-", i))
	}
	enqueueAll(t, box, messages)
	if _, err := db.ExecContext(ctx, `
INSERT INTO outbox (organizacion_id, canal, destino, plantilla, datos, clave_idempotencia, max_intentos, programado_para)
SELECT $1, 'correo', 'ana', 'aviso', '{}', 'a-' || i, 5, $2 FROM generate_series(1, $3::int) AS i`, tenant, start, rows-len(messages)); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "ANALYZE outbox")

	type claim struct {
		id    string
		lease int64 // in µs
	}
	var (
		mu      sync.Mutex
		foreign = map[claim]bool{} // whose claim it was
		verdict = map[claim]bool{} // whether its settlement was written
		left    atomic.Int64
		wg      sync.WaitGroup
	)
	left.Store(rows)
	work := func(c contender) error {
		var hands []held
		for left.Load() > 0 && ctx.Err() == nil {
			elapsed.Add(1 + c.random.Int64N(3))
			if len(hands) < 60 {
				taken, closed, err := c.claim(ctx, 1+c.random.IntN(20))
				if err != nil {
					return err
				}
				left.Add(int64(-closed))
				freeze := time.Duration(0)
				if c.random.IntN(5) == 0 {
					freeze = time.Duration(c.random.Int64N(3 * c.lease.Milliseconds()))
				}
				mu.Lock()
				for _, h := range taken {
					h.settleAt = h.claimed.Add(freeze * time.Millisecond)
					hands = append(hands, h)
					foreign[claim{h.message.ID, h.message.LeasedUntil.UnixMicro()}] = h.foreign
				}
				mu.Unlock()
			}
			var now, later []held
			for _, h := range hands {
				if len(now) < 15 && !h.settleAt.After(c.clock()) {
					now = append(now, h)
				} else {
					later = append(later, h)
				}
			}
			hands = later
			written, ended, err := c.settle(ctx, now)
			if err != nil {
				return err
			}
			mu.Lock()
			for i, h := range now {
				verdict[claim{h.message.ID, h.message.LeasedUntil.UnixMicro()}] = written[i]
				if written[i] && ended[i] {
					left.Add(-1)
				}
			}
			mu.Unlock()
		}
		return ctx.Err()
	}
	for i := range 4 {
		c := contender{db: db, lease: 100 * time.Millisecond, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		switch i {
		case 0, 1:
			c.clock, c.lease = clock(i, 0), 80*time.Millisecond
			c.box = newPostgres(t, db, Config{Clock: c.clock})
		case 2:
			c.clock = clock(i, 0)
		case 3:
			c.clock = clock(i, 30*time.Millisecond) // takes rows of others too early
		}
		wg.Go(func() {
			if err := work(c); err != nil {
				t.Errorf("worker %d: %v; %d rows are left", i, err, left.Load())
				cancel()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}

	// What the log says of each claim that ended, and by whom each was taken over.
	log, err := db.QueryContext(ctx, "SELECT id, antes, despues, lease_antes, lease_despues FROM bitacora")
	if err != nil {
		t.Fatal(err)
	}
	var (
		endings = map[string]int{} // of rows
		settled = map[claim]int{}  // of claims
		stolen  = map[string]int{} // takeovers, by whom from whom
		late    = map[string]int{} // and settlements that came after them
		whose   = map[bool]string{true: "theirs", false: "ours"}
		closed  int
	)
	if err := each(log, func(scan func(...any) error) error {
		var id string
		var before, after state.State
		var leases [2]sql.NullTime
		if err := scan(&id, &before, &after, &leases[0], &leases[1]); err != nil {
			return err
		}
		old, next := claim{id, leases[0].Time.UnixMicro()}, claim{id, leases[1].Time.UnixMicro()}
		if after.Terminal() {
			endings[id]++
		}
		switch {
		case before.Terminal():
			t.Errorf("row %s went from %s to %s", id, before, after)
		case before == state.Processing && after == state.Processing:
			what := whose[foreign[old]] + " by " + whose[foreign[next]]
			stolen[what]++
			if written, tried := verdict[old]; tried && written {
				t.Errorf("the settlement of a claim that was taken over (%s) was written", what)
			} else if tried {
				late[what]++
			}
		case before == state.Processing && after == state.Failed && !verdict[old]:
			closed++ // by a claim, since its attempts were used up
		case before == state.Processing:
			settled[old]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for c, written := range verdict {
		if n := settled[c]; written && n != 1 || !written && n != 0 {
			t.Errorf("a claim of row %s was settled %d times; its worker was told: %v", c.id, n, written)
		}
	}
	for c := range settled {
		if !verdict[c] {
			t.Errorf("a claim of row %s was settled by nobody", c.id)
		}
	}
	for id, n := range endings {
		if n != 1 {
			t.Errorf("row %s ended %d times", id, n)
		}
	}
	var live int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE terminado IS NULL").Scan(&live); err != nil || live != 0 || len(endings) != rows {
		t.Errorf("%d rows have ended and %d are stuck, %v", len(endings), live, err)
	}
	for _, what := range []string{"ours by theirs", "theirs by ours"} {
		if stolen[what] == 0 || late[what] == 0 {
			t.Errorf("%s: %d claims were taken over and %d settled late; the test shows nothing", what, stolen[what], late[what])
		}
	}
	t.Logf("taken over: %v; settled too late: %v; closed by a claim: %d; claims: %d", stolen, late, closed, len(foreign))
}

//go:build unix

package crash

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/recado-dev/recado/state"
)

// historyOf returns the statements that make the history: one line per change of a message, written by the server itself
// in the transaction that makes the change. Changes of one message are in order, since each of them holds its row's lock.
func historyOf(driver string) []string {
	const table = `CREATE TABLE historia (n %s, mensaje varchar(36), antes varchar(10), despues varchar(10),
	reclamo_antes varchar(36), reclamo varchar(36), intentos_antes integer, intentos integer,
	dudas_antes integer, dudas integer, vencido integer)`
	const insert = `INSERT INTO historia (mensaje, antes, despues, reclamo_antes, reclamo, intentos_antes, intentos,
		dudas_antes, dudas, vencido)
	VALUES (NEW.id, OLD.estado, NEW.estado, OLD.reclamo, NEW.reclamo, OLD.intentos, NEW.intentos, OLD.dudas, NEW.dudas,
		CASE WHEN OLD.bloqueado_hasta <= {now} THEN 1 ELSE 0 END);`
	first := strings.NewReplacer("OLD.estado", "NULL", "OLD.reclamo", "NULL", "OLD.intentos", "0", "OLD.dudas", "0",
		"CASE WHEN OLD.bloqueado_hasta <= {now} THEN 1 ELSE 0 END", "0").Replace(insert)
	const index = `CREATE INDEX historia_mensaje ON historia (mensaje)`
	switch driver {
	case "mysql":
		return []string{
			fmt.Sprintf(table, "bigint AUTO_INCREMENT PRIMARY KEY"), index,
			"CREATE TRIGGER alta AFTER INSERT ON outbox FOR EACH ROW " + first,
			"CREATE TRIGGER cambio AFTER UPDATE ON outbox FOR EACH ROW " + strings.ReplaceAll(insert, "{now}", "utc_timestamp(6)"),
		}
	case "sqlite", "sqlite3": // the clock is the application's
		return []string{
			fmt.Sprintf(table, "integer PRIMARY KEY AUTOINCREMENT"), index,
			"CREATE TRIGGER alta AFTER INSERT ON outbox BEGIN " + first + " END",
			"CREATE TRIGGER cambio AFTER UPDATE ON outbox BEGIN " + strings.ReplaceAll(insert, "{now}", "NEW.actualizado_en") + " END",
		}
	}
	function := func(name, body string) string {
		return "CREATE FUNCTION " + name + "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + body + " RETURN NULL; END $$"
	}
	return []string{
		fmt.Sprintf(table, "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"), index,
		function("alta", first), "CREATE TRIGGER alta AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION alta()",
		function("cambio", strings.ReplaceAll(insert, "{now}", "statement_timestamp()")),
		"CREATE TRIGGER cambio AFTER UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION cambio()",
	}
}

// change is a line of the history. A token is "" where there is none.
type change struct {
	from, to             state.State // from is "" for a new message
	fromToken, toToken   string
	fromTries, toTries   int
	fromDoubts, toDoubts int
	leaseOver            bool // by the server's clock
}

func readHistory(db *sql.DB) (map[string][]change, error) {
	rows, err := db.Query(`
SELECT mensaje, coalesce(antes, ''), despues, coalesce(reclamo_antes, ''), coalesce(reclamo, ''), intentos_antes, intentos,
	dudas_antes, dudas, vencido
FROM historia ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	history := map[string][]change{}
	for rows.Next() {
		var id string
		var c change
		if err := rows.Scan(&id, &c.from, &c.to, &c.fromToken, &c.toToken, &c.fromTries, &c.toTries, &c.fromDoubts, &c.toDoubts,
			&c.leaseOver); err != nil {
			return nil, err
		}
		history[id] = append(history[id], c)
	}
	return history, rows.Err()
}

// life is what a message's history adds up to.
type life struct {
	state    state.State
	tries    int
	doubts   int
	claims   int
	settled  int // claims whose holder's result was written
	takeover int // claims that ended because another took the message over, or closed it
	refunds  int // settlements that gave the attempt back: it was not called
	followed int // claims after which another claim took the message, or closed it: their results may be called lost
}

// replay follows a history, and says where it does what no message may.
func replay(changes []change, maxTries int) (l life, err error) {
	used, written := map[string]bool{}, map[string]bool{}
	token := ""
	for i, c := range changes {
		if c.from != l.state || c.fromToken != token || c.fromTries != l.tries || c.fromDoubts != l.doubts {
			return l, fmt.Errorf("change %d does not begin where the last one ended", i)
		}
		charge, doubt := c.toTries-c.fromTries, c.toDoubts-c.fromDoubts
		claimed := c.to == state.Processing && c.toToken != "" && !used[c.toToken] &&
			charge == 1 && doubt == 0 && c.toTries <= maxTries
		closed := c.to == state.Failed && c.toToken == "" && charge == 0 && doubt == 0 && c.toTries == maxTries
		settled := c.to != state.Processing && c.toToken == c.fromToken && !written[c.toToken] && (doubt == 0 || doubt == 1)
		switch {
		case i == 0:
			if c.from != "" || c.to != state.Pending || c.toToken != "" || c.toTries != 0 || c.toDoubts != 0 {
				return l, fmt.Errorf("it begins as %+v", c)
			}
		case c.from == state.Pending && claimed:
			l.followed = l.claims
			l.claims++
		case c.from == state.Processing && claimed && c.leaseOver:
			l.followed = l.claims
			l.claims++
			l.takeover++
		case c.from == state.Processing && closed && c.leaseOver:
			l.followed = l.claims
			l.takeover++ // closed, since no attempt was left
		case c.from == state.Processing && settled:
			written[c.toToken] = true
			l.settled++
			switch {
			case charge == 0:
			case charge == -1 && c.to == state.Pending && doubt == 0:
				l.refunds++
			default:
				return l, fmt.Errorf("change %d, a settlement, changes the attempts by %d", i, charge)
			}
		default:
			return l, fmt.Errorf("change %d is none of the lifecycle: %+v", i, c)
		}
		used[c.toToken] = true
		l.state, token, l.tries, l.doubts = c.to, c.toToken, c.toTries, c.toDoubts
	}
	if l.claims-l.refunds != l.tries {
		return l, fmt.Errorf("%d claims with %d refunds are charged as %d attempts", l.claims, l.refunds, l.tries)
	}
	return l, nil
}

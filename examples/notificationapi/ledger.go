package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// outcome is what a ledger says beside the users.
type outcome struct {
	accepted int
	lost     []string // users that can never activate their account
	wrong    []string // what the service has and should not, or has otherwise
}

// check holds a ledger against the users: the service has to have one job for each, with what belongs to that user, and
// nothing else.
func (l ledger) check(users []user) outcome {
	var o outcome
	rest := maps.Clone(l.queue)
	for _, u := range users {
		key := club + ":" + u.key()
		j, ok := rest[key]
		delete(rest, key)
		switch {
		case !ok:
			o.lost = append(o.lost, u.id)
		case j.Code != activation || j.Recipient != u.email || !maps.Equal(j.Variables, u.variables()):
			o.wrong = append(o.wrong, u.id)
		default:
			o.accepted++
		}
	}
	for range rest {
		o.wrong = append(o.wrong, "nadie")
	}
	return o
}

// verdict prints both ledgers beside the users. It is an error when the outbox lost a job, and also when best effort lost
// none: then nothing was shown.
func verdict(out io.Writer, users []user, direct, outbox ledger) error {
	best, sure := direct.check(users), outbox.check(users)
	header := fmt.Sprintf("%-16s%8s%11s%10s%10s%12s", "", "altas", "aceptados", "perdidos", "llamadas", "repetidas")
	_, _ = fmt.Fprintf(out, "\nLo que tiene el servicio en su cola, contra los usuarios confirmados:\n%s\n%s\n", header, strings.Repeat("─", len(header)))
	for _, row := range []struct {
		name string
		ledger
		outcome
	}{{"mejor esfuerzo", direct, best}, {"outbox", outbox, sure}} {
		_, _ = fmt.Fprintf(out, "%-16s%8d%11d%10d%10d%12d\n", row.name, len(users), row.accepted, len(row.lost), row.calls, row.repeats)
	}
	_, _ = fmt.Fprintln(out, "\nUn perdido es una cuenta que nadie puede activar. Las repetidas son llamadas cuya respuesta se había\n"+
		"perdido: el servicio las reconoció por la clave, y no encoló nada otra vez.")
	switch {
	case len(best.wrong)+len(sure.wrong) > 0:
		return fmt.Errorf("el servicio tiene avisos que no son de ningún usuario: %s", some(append(best.wrong, sure.wrong...)))
	case len(sure.lost) > 0:
		return fmt.Errorf("el outbox perdió %d avisos: %s", len(sure.lost), some(sure.lost))
	case len(best.lost) == 0:
		return errors.New("el mejor esfuerzo no perdió ningún aviso: no se vio nada")
	}
	_, _ = fmt.Fprintf(out, "notificationapi: ok altas=%d perdidos_mejor_esfuerzo=%d perdidos_outbox=0\n", len(users), len(best.lost))
	return nil
}

// some names the first few.
func some(ids []string) string { return strings.Join(ids[:min(len(ids), 10)], ", ") }

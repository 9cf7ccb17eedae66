package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
)

// audit is what a provider's record says beside the application's tables.
type audit struct {
	expected int // messages of committed orders
	accepted int // of these, by the provider; copies aside
	refused  int // for good, because the provider does not take the address
	copies   int // beyond the first, each because an answer was lost
	repeats  int // answered by the provider without sending again
	problems []string
}

func (a *audit) problem(o string, format string, args ...any) {
	a.problems = append(a.problems, "pedido "+o+": "+fmt.Sprintf(format, args...))
}

// check holds the provider's record, the outbox and the committed orders against each other. Each of a channel's messages
// must have been accepted, or refused for good where the provider does not take the address, with its row saying the
// same; nothing else may have been accepted. Copies are the price of at least once: after a lost answer, sending again is
// the only way to be sure. Resend recognises the key of an e-mail, so that there may be none; of a WhatsApp there may be
// only as many as answers were lost.
//
// Without a record, at a real provider, there is the outbox alone to ask: every message must have been accepted.
func check(ctx context.Context, d *double, box store.Operator, channel string, committed []Order) (audit, error) {
	var (
		a        audit
		r        fakes.Record
		accepted = map[string][]fakes.Delivery{}
	)
	if d != nil {
		r = d.record()
	}
	for _, d := range r.Accepted {
		number := orderIn(channel, d.Text)
		accepted[number] = append(accepted[number], d)
	}
	for _, n := range r.Repeated {
		a.repeats += n
	}
	for _, o := range committed {
		to := o.destination(channel)
		if to == "" {
			continue
		}
		a.expected++
		got := accepted[o.ID]
		delete(accepted, o.ID)
		row, err := box.GetByKey(ctx, o.ClubID, o.key(channel))
		switch {
		case errors.Is(err, store.ErrNotFound):
			a.problem(o.ID, "no tiene mensaje en el outbox")
		case err != nil:
			return a, err
		case d != nil && strings.HasSuffix(to, nowhere):
			a.refused++
			if len(got) > 0 || r.Refused[to] == 0 || row.State != state.Discarded || row.LastErrorCategory != state.CategoryRejected {
				a.problem(o.ID, "su dirección no existe, y el mensaje quedó en %s", row.State)
			}
		case d != nil && len(got) == 0, d == nil && row.State != state.Sent:
			a.problem(o.ID, "el mensaje no llegó y quedó en %s (%s/%s)", row.State, row.LastErrorCategory, row.LastErrorCode)
		case row.State != state.Sent:
			a.problem(o.ID, "el mensaje llegó y quedó en %s", row.State)
		default:
			a.accepted++
			if d != nil {
				a.copies += len(got) - 1
				a.checkCopies(r, channel, o, to, got)
			}
		}
	}
	for number := range accepted {
		a.problem(number, "salió un mensaje, y el pedido no está confirmado")
	}
	return a, nil
}

// checkCopies checks what arrived for one order.
func (a *audit) checkCopies(r fakes.Record, channel string, o Order, to string, got []fakes.Delivery) {
	for _, d := range got {
		switch {
		case d.Key != o.ClubID+":"+o.key(channel):
			a.problem(o.ID, "no se reconoce por su clave")
		case d.To != to || !strings.Contains(d.Text, o.Product):
			a.problem(o.ID, "el mensaje llegó cambiado")
		}
	}
	lost := r.Lost[got[0].Key]
	if channel == email.Channel {
		lost = 0 // the repeat was recognised
	}
	if len(got) != 1+lost {
		a.problem(o.ID, "llegó %d veces, con %d respuestas perdidas sin remedio", len(got), lost)
	}
}

// orderForms find the order in a subject such as "Pedido UG-0001: Bolso", and in a WhatsApp's parameters.
var orderForms = map[bool]*regexp.Regexp{
	true:  regexp.MustCompile(`^Pedido (\S+):`),
	false: regexp.MustCompile(`^.+? · (\S+) · `),
}

func orderIn(channel, text string) string {
	if m := orderForms[channel == email.Channel].FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "desconocido"
}

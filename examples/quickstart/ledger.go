package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// delivery is a message as a server accepted it.
type delivery struct {
	key   string // what the server tells copies by: the Message-ID, or the application's key
	order string // read from the content
	to    string
	text  string
}

// ledger is a server's own record, to hold against the application's tables afterwards.
type ledger struct {
	mu        sync.Mutex
	attempts  map[string]int // by key
	accepted  []delivery
	lost      map[string]int // by key: accepted, and the answer was cut off on purpose
	refusals  int            // for the time being
	cuts      int            // of either kind
	forbidden map[string]int // by recipient: refused for good
}

func newLedger() *ledger {
	return &ledger{attempts: map[string]int{}, lost: map[string]int{}, forbidden: map[string]int{}}
}

// attempt records one and decides what becomes of it.
func (l *ledger) attempt(d delivery) fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[d.key]++
	f := plan(d.key, l.attempts[d.key])
	switch f {
	case refuse:
		l.refusals++
	case cutBefore:
		l.cuts++
	case cutAfter:
		l.cuts++
		l.lost[d.key]++
	}
	if f == none || f == cutAfter {
		l.accepted = append(l.accepted, d)
	}
	return f
}

// forbid records a recipient that does not exist.
func (l *ledger) forbid(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forbidden[to]++
}

// audit is what a channel's ledger says beside the application's tables.
type audit struct {
	expected int // messages of committed orders
	accepted int // of these, by the server; copies aside
	refused  int // for good, because the address does not exist
	copies   int // beyond the first, each because an answer was lost
	problems []string
}

func (a *audit) problem(o string, format string, args ...any) {
	a.problems = append(a.problems, "pedido "+o+": "+fmt.Sprintf(format, args...))
}

// check holds the ledger, the outbox and the committed orders against each other. Each of a channel's messages must
// have been accepted, or refused for good where its address does not exist, with its row saying the same; nothing else
// may have been accepted; and there may be only as many copies as answers were lost. Those are the price of at least
// once: after a lost answer, sending again is the only way to be sure.
func (l *ledger) check(ctx context.Context, box store.Operator, channel string, committed []Order) (audit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var a audit
	accepted := map[string][]delivery{}
	for _, d := range l.accepted {
		accepted[d.order] = append(accepted[d.order], d)
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
		case strings.HasSuffix(to, nowhere):
			a.refused++
			if len(got) > 0 || l.forbidden[to] == 0 || row.State != state.Discarded || row.LastErrorCategory != state.CategoryNumber {
				a.problem(o.ID, "su dirección no existe, y el mensaje quedó en %s", row.State)
			}
		case len(got) == 0:
			a.problem(o.ID, "el mensaje no llegó y quedó en %s (%s/%s)", row.State, row.LastErrorCategory, row.LastErrorCode)
		case row.State != state.Sent:
			a.problem(o.ID, "el mensaje llegó y quedó en %s", row.State)
		default:
			a.accepted++
			a.copies += len(got) - 1
			l.checkCopies(&a, o, to, got)
		}
	}
	for number := range accepted {
		a.problem(number, "salió un mensaje, y el pedido no está confirmado")
	}
	return a, nil
}

// checkCopies checks what arrived for one order.
func (l *ledger) checkCopies(a *audit, o Order, to string, got []delivery) {
	for _, d := range got {
		switch {
		case d.key != got[0].key:
			a.problem(o.ID, "sus copias no se reconocen como tales")
		case d.to != to || !strings.Contains(d.text, o.Product):
			a.problem(o.ID, "el mensaje llegó cambiado")
		}
	}
	if lost := l.lost[got[0].key]; len(got) != 1+lost {
		a.problem(o.ID, "llegó %d veces, con %d respuestas perdidas", len(got), lost)
	}
}

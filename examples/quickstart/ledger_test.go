package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/transports/email"
)

// settledBox returns a box in which every order's e-mail has ended: discarded where the address does not exist.
func settledBox(t *testing.T, orders []Order) *memstore.Store {
	t.Helper()
	ctx := t.Context()
	box := memstore.New(memstore.Config{})
	tx, err := box.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range orders {
		for _, m := range o.notices() {
			if _, err := box.Enqueue(ctx, tx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	claim, err := box.Claim(ctx, store.ClaimParams{Channel: email.Channel, Limit: len(orders), Lease: time.Minute})
	if err != nil || len(claim.Messages) != len(orders) {
		t.Fatal(len(claim.Messages), err)
	}
	for _, m := range claim.Messages {
		tr := state.Transition{Event: state.EventSend, To: state.Sent}
		if m.Destination == orders[2].Email {
			tr = state.Transition{Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryNumber, Code: "smtp_550_5.1.1"}
		}
		if _, err := box.Settle(ctx, []store.Settlement{{Fence: m.Fence(), Attempts: m.Attempts, Transition: tr}}); err != nil {
			t.Fatal(err)
		}
	}
	return box
}

// A check that cannot fail proves nothing: each kind of mischief must be found.
func TestCheck(t *testing.T) {
	order := func(n int, to string) Order {
		return Order{
			ID: fmt.Sprintf("X-%d", n), ClubID: "0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001", Customer: "Zoë", Email: to, Product: "Bolso 🎒",
		}
	}
	orders := []Order{order(0, "a@correo.example"), order(1, "b@correo.example"), order(2, "c"+nowhere)}
	box := settledBox(t, orders)
	arrived := func(o Order) delivery {
		return delivery{key: "<" + o.ID + ">", order: o.ID, to: o.Email, text: "Pedido " + o.ID + ": " + o.Product}
	}
	tests := []struct {
		name      string
		edit      func(*ledger)
		committed []Order
		problems  int
		copies    int
	}{
		{name: "good"},
		{name: "an honest copy", copies: 1, edit: func(l *ledger) {
			l.accepted = append(l.accepted, l.accepted[0])
			l.lost[l.accepted[0].key]++
		}},
		{name: "a copy for no reason", problems: 1, copies: 1, edit: func(l *ledger) { l.accepted = append(l.accepted, l.accepted[0]) }},
		{name: "a copy under another id", problems: 1, copies: 1, edit: func(l *ledger) {
			l.accepted = append(l.accepted, l.accepted[0])
			l.accepted[2].key = "<other>"
			l.lost[l.accepted[0].key]++
		}},
		{name: "a message that got lost", problems: 1, edit: func(l *ledger) { l.accepted = slices.Delete(l.accepted, 0, 1) }},
		{name: "somebody else's message", problems: 1, edit: func(l *ledger) { l.accepted[0].to = "b@correo.example" }},
		{name: "a product that lost its emoji", problems: 1, edit: func(l *ledger) { l.accepted[0].text = "Pedido X-0: Bolso ?" }},
		{name: "a message of a rolled-back order", problems: 1, edit: func(l *ledger) { l.accepted = append(l.accepted, arrived(order(9, "d@correo.example"))) }},
		{name: "a message to nobody", problems: 1, edit: func(l *ledger) { l.accepted = append(l.accepted, arrived(orders[2])) }},
		{name: "a refusal that never happened", problems: 1, edit: func(l *ledger) { clear(l.forbidden) }},
		{name: "an order without a message", problems: 1, committed: append(slices.Clone(orders), order(3, "d@correo.example"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger()
			l.accepted = []delivery{arrived(orders[0]), arrived(orders[1])}
			l.forbid(orders[2].Email)
			if tt.edit != nil {
				tt.edit(l)
			}
			committed := orders
			if tt.committed != nil {
				committed = tt.committed
			}
			a, err := l.check(t.Context(), box, email.Channel, committed)
			if err != nil || len(a.problems) != tt.problems || a.copies != tt.copies || a.expected != len(committed) {
				t.Errorf("%+v, %v", a, err)
			}
			if tt.problems == 0 && (a.accepted != 2 || a.refused != 1) {
				t.Errorf("%+v", a)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newLedger().check(ctx, box, email.Channel, orders); err == nil {
		t.Error("a database that cannot be asked went unnoticed")
	}
}

// Every kind of fault happens, the same in every run, and no message meets more than two.
func TestPlan(t *testing.T) {
	count := map[fault]int{}
	for n := range 500 {
		key := fmt.Sprint("clave-", n)
		for attempt := 1; attempt <= 3; attempt++ {
			f := plan(key, attempt)
			if f != plan(key, attempt) || attempt == 3 && f != none {
				t.Errorf("%s, attempt %d: %q", key, attempt, f)
			}
			count[f]++
		}
	}
	for _, f := range []fault{refuse, cutBefore, cutAfter} {
		if count[f] < 10 {
			t.Errorf("%q happened %d times", f, count[f])
		}
	}
}

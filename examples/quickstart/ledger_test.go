package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// settledBox returns a box in which every order's messages have ended: discarded where the address does not exist.
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
	for _, channel := range []string{email.Channel, whatsapp.Channel} {
		claim, err := box.Claim(ctx, store.ClaimParams{Channel: channel, Limit: len(orders), Lease: time.Minute})
		if err != nil || len(claim.Messages) != len(orders) {
			t.Fatal(len(claim.Messages), err)
		}
		for _, m := range claim.Messages {
			tr := state.Transition{Event: state.EventSend, To: state.Sent}
			if m.Destination == orders[2].Email {
				tr = state.Transition{Event: state.EventDiscard, To: state.Discarded, Category: state.CategoryRejected, Code: "http_422"}
			}
			if _, err := box.Settle(ctx, []store.Settlement{{Fence: m.Fence(), Attempts: m.Attempts, Transition: tr}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return box
}

// A check that cannot fail proves nothing: each kind of mischief must be found.
func TestCheck(t *testing.T) {
	order := func(n int, to string) Order {
		return Order{
			ID: fmt.Sprintf("X-%d", n), ClubID: "0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001", Customer: "Zoë", Email: to, Product: "Bolso 🎒",
			WhatsApp: "+5491155510117",
		}
	}
	orders := []Order{order(0, "a@correo.example"), order(1, "b@correo.example"), order(2, "c"+nowhere)}
	box := settledBox(t, orders)
	arrived := func(o Order) fakes.Delivery {
		return fakes.Delivery{Key: o.ClubID + ":" + o.key(email.Channel), To: o.Email, Text: "Pedido " + o.ID + ": " + o.Product}
	}
	chat := func(o Order) fakes.Delivery {
		return fakes.Delivery{Key: o.ClubID + ":" + o.key(whatsapp.Channel), To: o.WhatsApp, Text: "Zoë · " + o.ID + " · " + o.Product}
	}
	again := func(r *fakes.Record) { r.Accepted = append(r.Accepted, r.Accepted[0]) }
	lose := func(r *fakes.Record) { r.Lost[r.Accepted[0].Key]++ }
	tests := []struct {
		name      string
		edit      func(*fakes.Record)
		committed []Order
		whatsapp  bool
		problems  int
		copies    int
	}{
		{name: "good"},
		{name: "an answer that was lost", edit: lose},
		{name: "a copy in spite of the key", problems: 1, copies: 1, edit: func(r *fakes.Record) { again(r); lose(r) }},
		{name: "a copy for no reason", problems: 1, copies: 1, edit: again},
		{name: "a copy under another key", problems: 2, copies: 1, edit: func(r *fakes.Record) {
			again(r)
			r.Accepted[2].Key = "other"
		}},
		{name: "a message that got lost", problems: 1, edit: func(r *fakes.Record) { r.Accepted = slices.Delete(r.Accepted, 0, 1) }},
		{name: "somebody else's message", problems: 1, edit: func(r *fakes.Record) { r.Accepted[0].To = "b@correo.example" }},
		{name: "a product that lost its emoji", problems: 1, edit: func(r *fakes.Record) { r.Accepted[0].Text = "Pedido X-0: Bolso ?" }},
		{name: "a message of a rolled-back order", problems: 1, edit: func(r *fakes.Record) {
			r.Accepted = append(r.Accepted, arrived(order(9, "d@correo.example")))
		}},
		{name: "a message of no order", problems: 1, edit: func(r *fakes.Record) { r.Accepted = append(r.Accepted, fakes.Delivery{Text: "Hola"}) }},
		{name: "a message to nobody", problems: 1, edit: func(r *fakes.Record) { r.Accepted = append(r.Accepted, arrived(orders[2])) }},
		{name: "a refusal that never happened", problems: 1, edit: func(r *fakes.Record) { clear(r.Refused) }},
		{name: "an order without a message", problems: 1, committed: append(slices.Clone(orders), order(3, "d@correo.example"))},
		{name: "WhatsApp, good", whatsapp: true},
		{name: "WhatsApp, an honest copy", whatsapp: true, copies: 1, edit: func(r *fakes.Record) { again(r); lose(r) }},
		{name: "WhatsApp, a copy for no reason", whatsapp: true, problems: 1, copies: 1, edit: again},
		{name: "WhatsApp, a copy too few", whatsapp: true, problems: 1, edit: lose},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := fakes.Record{
				Accepted: []fakes.Delivery{arrived(orders[0]), arrived(orders[1])},
				Lost:     map[string]int{}, Refused: map[string]int{orders[2].Email: 1},
			}
			channel, accepted, refused := email.Channel, 2, 1
			if tt.whatsapp {
				channel, accepted, refused = whatsapp.Channel, 3, 0
				r.Accepted = []fakes.Delivery{chat(orders[0]), chat(orders[1]), chat(orders[2])}
			}
			if tt.edit != nil {
				tt.edit(&r)
			}
			committed := orders
			if tt.committed != nil {
				committed = tt.committed
			}
			a, err := check(t.Context(), &double{record: func() fakes.Record { return r }}, box, channel, committed)
			if err != nil || len(a.problems) != tt.problems || a.copies != tt.copies || a.expected != len(committed) {
				t.Errorf("%+v, %v", a, err)
			}
			if tt.problems == 0 && (a.accepted != accepted || a.refused != refused) {
				t.Errorf("%+v", a)
			}
		})
	}
	// Without a record it is the row that says so, and nobody's address is known to be none.
	if a, err := check(t.Context(), nil, box, email.Channel, orders); err != nil || len(a.problems) != 1 || a.accepted != 2 || a.refused != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := check(ctx, nil, box, email.Channel, orders); err == nil {
		t.Error("a database that cannot be asked went unnoticed")
	}
}

// A run shows every kind of fault, and each channel loses answers.
func TestFaults(t *testing.T) {
	orders, err := readOrders(options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{fewOrders, len(orders)} {
		for _, channel := range []string{email.Channel, whatsapp.Channel} {
			count := map[fakes.Fault]int{}
			for _, o := range orders[:n] {
				for attempt := 1; attempt <= 3 && o.destination(channel) != ""; attempt++ {
					count[faults(o.ClubID+":"+o.key(channel), attempt)]++
				}
			}
			for _, f := range []fakes.Fault{fakes.TooMany, fakes.Unavailable, fakes.CutBefore, fakes.CutAfter} {
				if count[f] == 0 {
					t.Errorf("%d orders, %s: no %q", n, channel, f)
				}
			}
		}
	}
}

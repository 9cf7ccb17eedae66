// Package storetest holds a [store.Store] to its contract. Anybody who writes one runs it in a few lines:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture(t) })
//	}
//
// One file holds one guarantee: what a claim takes and closes (claim.go), what a settlement writes and when it is
// refused or recognised (settle.go), work in the settling transaction (transactional.go), enqueueing (enqueue.go), values
// that engines like to change (text.go), purging, operators' acts, leases and look-ups, races (concurrency.go), and the
// claim against state.Decide over a grid of boundaries (agreement.go). Random sequences of all of it, compared step by step
// with a small model of a store (model.go), look for what nobody thought of (random.go).
//
// The random sequences are pgregory.net/rapid's. One that fails is made shorter, and is printed together with the flag that
// repeats it. The kit tries a dozen; -rapid.checks (or RAPID_CHECKS) asks for another number, and -rapid.seed for those of
// a certain seed.
//
// It shows what one process can see. That a store survives a crash, or a lost reply, is for its own tests to show;
// [Faulty] helps with the latter.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Fixture is a store under test, and what the tests need beside the contract. A nil member is a declared absence, as is
// an optional interface that Store lacks: the tests that need it are skipped, and say "absent: " and what.
type Fixture struct {
	// Store stands on an empty table that no other test uses. It follows the zero [store.Rules], TextTenant aside.
	Store store.Store

	// Put writes a whole row, in any state and past all rules, in place of the row with the same id if there is one.
	// Zero times and empty optional texts are NULL; times are cut to the microsecond.
	Put func(ctx context.Context, m store.Message) error

	// Get reads a row by id, or returns [store.ErrNotFound].
	Get func(ctx context.Context, id string) (store.Message, error)

	// SetClock sets the store's one clock, which then stands still.
	SetClock func(now time.Time)

	TextTenant bool // tenants are texts; otherwise UUIDs
}

// Run runs the whole kit as subtests of t. Each of them asks newFixture for a store of its own; t.Cleanup is the place to
// take it down.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	t.Helper()
	for _, g := range []struct {
		name  string
		cases []testCase
	}{
		{"Claim", claimCases},
		{"Settle", settleCases},
		{"SettleTx", transactionalCases},
		{"Enqueue", enqueueCases},
		{"Text", textCases},
		{"Purge", purgeCases},
		{"Operate", operateCases},
		{"Renew", renewCases},
		{"Lookup", lookupCases},
		{"Concurrency", concurrencyCases},
		{"Agreement", agreementCases},
		{"Model", modelCases},
	} {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					k := newKit(t, newFixture(t))
					k.another = func() Fixture { return newFixture(t) }
					c.run(k)
				})
			}
		})
	}
}

type testCase struct {
	name string
	run  func(k *kit)
}

// t0 is far from the machine's own time, so that a store that mixes in another clock is found out. The clock is always
// set to a moment past a whole microsecond, which the store has to cut off.
var t0 = time.Date(2020, 2, 29, 12, 34, 56, 789_012_000, time.UTC)

const (
	subMicrosecond = 932 * time.Nanosecond

	channel      = "correo"
	otherChannel = "whatsapp"
	lease        = 10 * time.Minute
)

// reporter is what the kit needs of a *testing.T; a *rapid.T has it too.
type reporter interface {
	rapid.TB
	Cleanup(func())
	Context() context.Context
}

// kit is one subtest's store, clock and rows.
type kit struct {
	reporter
	Fixture
	another func() Fixture // a fresh one
	now     time.Time
	made    int
}

func newKit(t reporter, f Fixture) *kit {
	k := &kit{reporter: t, Fixture: f, now: t0}
	if k.SetClock != nil {
		k.tick(0)
	}
	return k
}

func (k *kit) need(present bool, what string) {
	k.Helper()
	if !present {
		k.Skip("absent: " + what)
	}
}

// ability is the store as one of its optional interfaces.
func ability[A any](k *kit) A {
	k.Helper()
	a, ok := k.Store.(A)
	k.need(ok, reflect.TypeFor[A]().String())
	return a
}

func (k *kit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// tick moves the clock on, or back.
func (k *kit) tick(d time.Duration) {
	k.Helper()
	k.need(k.SetClock != nil, "Fixture.SetClock")
	k.now = k.now.Add(d)
	k.SetClock(k.now.Add(subMicrosecond))
}

// tenant is the n-th tenant, as the store keeps it.
func (k *kit) tenant(n int) string {
	if k.TextTenant {
		return fmt.Sprintf("club-%d", n)
	}
	return fmt.Sprintf("7e000000-0000-4000-8000-%012x", n)
}

func rowID(n int) string { return fmt.Sprintf("01900000-0000-7000-8000-%012x", n) }

// row is a pending row that fell due a minute ago and has failed once before. Rows come with ascending ids.
func (k *kit) row(changes ...func(*store.Message)) store.Message {
	k.made++
	m := store.Message{
		ID: rowID(k.made), TenantID: k.tenant(1), Channel: channel,
		Destination: "ana@club.example", Template: "aviso", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, k.made)),
		IdempotencyKey: fmt.Sprintf("aviso-%d", k.made),
		State:          state.Pending, Attempts: 1, MaxAttempts: 5,
		ScheduledAt: k.now.Add(-2 * time.Minute), NextAttemptAt: k.now.Add(-time.Minute),
		LastErrorCategory: state.CategoryRateLimit, LastErrorCode: "http_429", Doubts: 1,
		CreatedAt: k.now.Add(-time.Hour), UpdatedAt: k.now.Add(-3 * time.Minute),
		Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

// put is row, written.
func (k *kit) put(changes ...func(*store.Message)) store.Message {
	k.Helper()
	m := k.row(changes...)
	k.overwrite(m)
	return m
}

func (k *kit) overwrite(m store.Message) {
	k.Helper()
	k.need(k.Put != nil, "Fixture.Put")
	k.need(k.SetClock != nil, "Fixture.SetClock")
	k.ok(k.Put(k.Context(), m))
}

func (k *kit) get(id string) store.Message {
	k.Helper()
	k.need(k.Get != nil, "Fixture.Get")
	m, err := k.Get(k.Context(), id)
	k.ok(err)
	return m
}

// gone fails unless no row has the id.
func (k *kit) gone(id string) {
	k.Helper()
	k.need(k.Get != nil, "Fixture.Get")
	if _, err := k.Get(k.Context(), id); !errors.Is(err, store.ErrNotFound) {
		k.Errorf("the row is still there, or cannot be read: %v", err)
	}
}

// remove deletes a row as if by hand, whatever its state.
func (k *kit) remove(m store.Message) {
	k.Helper()
	m.State, m.UpdatedAt = state.Discarded, k.now.Add(-1000*time.Hour)
	k.overwrite(m)
	n, err := k.Store.Purge(k.Context(), store.PurgeParams{Before: k.now.Add(-999 * time.Hour)})
	k.ok(err)
	if n != 1 {
		k.Fatalf("%d rows were purged, want 1", n)
	}
}

// stored fails unless the row with want's id is want in every column.
func (k *kit) stored(want store.Message) {
	k.Helper()
	want.Closing = ""
	if d := diff(k.get(want.ID), want); d != "" {
		k.Errorf("stored row:%s", d)
	}
}

// claim takes from the channel, under the usual lease unless changed.
func (k *kit) claim(changes ...func(*store.ClaimParams)) store.Claim {
	k.Helper()
	p := store.ClaimParams{Channel: channel, Limit: 1000, Lease: lease}
	for _, change := range changes {
		change(&p)
	}
	c, err := k.Store.Claim(k.Context(), p)
	k.ok(err)
	return c
}

// take is put, claimed. No other row may be due.
func (k *kit) take(changes ...func(*store.Message)) store.Message {
	k.Helper()
	m := k.put(changes...)
	return k.retake(m.ID)
}

// retake claims the one row that is due.
func (k *kit) retake(id string) store.Message {
	k.Helper()
	c := k.claim()
	k.claimed(c, id)
	if k.Failed() {
		k.FailNow()
	}
	return c.Messages[0]
}

// claimed fails unless exactly these rows were handed out, in this order, and none was closed.
func (k *kit) claimed(c store.Claim, ids ...string) {
	k.Helper()
	if got := messageIDs(c); !reflect.DeepEqual(got, ids) || len(c.Closed) != 0 {
		k.Errorf("claimed %v and closed %v, want %v and none", got, c.Closed, ids)
	}
}

func messageIDs(c store.Claim) []string {
	var ids []string
	for _, m := range c.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// settle writes a group and fails unless these are the verdicts.
func (k *kit) settle(want []store.Verdict, group ...store.Settlement) {
	k.Helper()
	got, err := k.Store.Settle(k.Context(), group)
	k.ok(err)
	k.verdicts(got, want...)
}

func (k *kit) applied(s store.Settlement) {
	k.Helper()
	k.settle([]store.Verdict{store.Applied}, s)
}

func (k *kit) lost(s store.Settlement) {
	k.Helper()
	k.settle([]store.Verdict{store.Lost}, s)
}

func (k *kit) verdicts(got []store.Verdict, want ...store.Verdict) {
	k.Helper()
	if len(got) != len(want) {
		k.Fatalf("%d verdicts %v, want %v", len(got), got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			k.Errorf("verdict %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// invalid fails unless err is an InvalidError, and for that field where one is named.
func (k *kit) invalid(err error, field string) {
	k.Helper()
	var invalid *store.InvalidError
	switch {
	case !errors.As(err, &invalid) || !errors.Is(err, store.ErrInvalidOptions):
		k.Errorf("got %v, want an InvalidError for %s", err, field)
	case invalid.Field != field:
		k.Errorf("the error names %s, want %s", invalid.Field, field)
	}
}

// The settlements that the tests are written with, one for each event. The waits are not whole microseconds.
var (
	send  = transition(state.Transition{Event: state.EventSend, ExternalID: "wamid.HBg=="})
	retry = transition(state.Transition{
		Event: state.EventRetry, Wait: 90*time.Second + 1234,
		Category: state.CategoryNetwork, Code: "http_503", Ambiguous: true,
	})
	fail = transition(state.Transition{
		Event: state.EventFail, Category: state.CategoryNetwork, Code: "http_500", Ambiguous: true,
	})
	discard = transition(state.Transition{
		Event: state.EventDiscard, Category: state.CategoryNumber, Code: "http_400",
	})
	release  = state.ReleaseTransition()
	deferral = transition(state.Transition{
		Event: state.EventDefer, Wait: 45*time.Second + 1234, Category: state.CategoryNetwork, Code: state.CodeUnreachable + ":dns",
	})
)

func transition(t state.Transition) state.Transition {
	to, err := state.Next(state.Processing, t.Event)
	if err != nil {
		panic(err) // the table above names an event that settles nothing
	}
	t.To = to
	return t
}

// with settles the claimed row m by t.
func with(m store.Message, t state.Transition) store.Settlement {
	return store.Settlement{Fence: m.Fence(), Attempts: m.Attempts, Transition: t}
}

// diff lists the columns in which two rows differ. Data is compared as a JSON value.
func diff(got, want store.Message) string {
	if sameJSON(got.Data, want.Data) {
		got.Data = want.Data
	}
	var b strings.Builder
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if x, y := plain(g.Field(i).Interface()), plain(w.Field(i).Interface()); !reflect.DeepEqual(x, y) {
			fmt.Fprintf(&b, "\n\t%s is %v, want %v", g.Type().Field(i).Name, x, y)
		}
	}
	return b.String()
}

// plain brings equal values into equal form.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.Round(0).UTC()
	case json.RawMessage:
		return string(v)
	case map[string]string:
		if len(v) == 0 {
			return map[string]string(nil)
		}
	}
	return v
}

func sameJSON(a, b json.RawMessage) bool {
	return store.Encoded{DataJSON: a}.SameContent("", "", "", b)
}

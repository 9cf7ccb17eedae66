package storetest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var enqueueCases = []testCase{
	{"what a new row has", enqueueWrites},
	{"what the caller sets", enqueueOptions},
	{"it is claimed when its time comes", enqueueClaimed},
	{"the same key again", enqueueAgain},
	{"the same key in one transaction", enqueueTwiceInTx},
	{"content that differs", enqueueDiffers},
	{"a closed row keeps its key", enqueueClosed},
	{"the same key of another tenant", enqueueOtherTenant},
	{"a rollback leaves nothing", enqueueRollback},
	{"the first of two rolls back", enqueueFirstRollsBack},
	{"twenty at once", enqueueTwenty},
	{"refused messages leave the transaction usable", enqueueInvalid},
	{"a transaction is required", enqueueTxRequired},
	{"a finished transaction", enqueueTxDone},
	{"ended context", enqueueCancelled},
}

// message is a valid new message, another one at each call.
func (k *kit) message(changes ...func(*store.NewMessage)) store.NewMessage {
	k.made++
	m := store.NewMessage{
		TenantID: k.tenant(1), Channel: channel, Destination: "ana@club.example", Template: "confirmacion",
		Data: map[string]any{"pedido": k.made}, IdempotencyKey: rowID(k.made),
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

// begin starts a transaction that is rolled back at the end of the test, if nothing else ended it.
func (k *kit) begin() store.Tx {
	k.Helper()
	tx, err := ability[store.Enqueuer](k).Begin(k.Context())
	k.ok(err)
	k.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// enqueue writes messages in a transaction of their own and returns the last one's result.
func (k *kit) enqueue(messages ...store.NewMessage) (res store.EnqueueResult) {
	k.Helper()
	enqueuer, tx := ability[store.Enqueuer](k), k.begin()
	for _, m := range messages {
		var err error
		res, err = enqueuer.Enqueue(k.Context(), tx, m)
		k.ok(err)
	}
	k.ok(tx.Commit())
	return res
}

func enqueueWrites(k *kit) {
	k.tick(0)
	m := k.message()
	res := k.enqueue(m)
	if id, err := uuid.Parse(res.ID); err != nil || id.String() != res.ID {
		k.Errorf("the id %q is not a UUID in lower case", res.ID)
	}
	if !res.Inserted || res.Differs {
		k.Errorf("a new row came back as %+v", res)
	}
	data, err := json.Marshal(m.Data)
	k.ok(err)
	k.stored(store.Message{
		ID: res.ID, TenantID: m.TenantID, Channel: m.Channel, Destination: m.Destination, Template: m.Template,
		Data: data, IdempotencyKey: m.IdempotencyKey, State: state.Pending, MaxAttempts: store.DefaultMaxAttempts,
		ScheduledAt: k.now, CreatedAt: k.now, UpdatedAt: k.now,
	})
}

func enqueueOptions(k *kit) {
	kathmandu := time.FixedZone("", 5*3600+45*60)
	m := k.message(func(m *store.NewMessage) {
		m.ScheduledAt = t0.Add(time.Hour + 1999).In(kathmandu)
		m.ExpiresAt = t0.Add(2*time.Hour + 999).In(kathmandu)
		m.MaxAttempts, m.Data = store.MaxMaxAttempts, []int{}
		m.Headers = map[string]string{"traceparent": "00-1-2-01", "nota": "año \u2603 \U0001F4E8 \"'\\", "vacia": ""}
	})
	k.tick(time.Second)
	k.stored(store.Message{
		ID: k.enqueue(m).ID, TenantID: m.TenantID, Channel: m.Channel, Destination: m.Destination, Template: m.Template,
		Data: json.RawMessage(`[]`), IdempotencyKey: m.IdempotencyKey, Headers: m.Headers,
		State: state.Pending, MaxAttempts: m.MaxAttempts, CreatedAt: k.now, UpdatedAt: k.now,
		ScheduledAt: t0.Add(time.Hour + time.Microsecond), ExpiresAt: t0.Add(2 * time.Hour),
	})
}

func enqueueClaimed(k *kit) {
	k.tick(0)
	now := k.message()
	later := k.message(func(m *store.NewMessage) { m.ScheduledAt = k.now.Add(time.Hour) })
	past := k.message(func(m *store.NewMessage) { m.ScheduledAt = k.now.Add(-time.Hour) })
	var ids []string
	for _, m := range []store.NewMessage{now, later, past} {
		ids = append(ids, k.enqueue(m).ID)
	}
	c := k.claim()
	k.claimed(c, ids[2], ids[0])
	m, key := c.Messages[0], past.TenantID+":"+past.IdempotencyKey
	if m.Destination != past.Destination || m.Template != past.Template || m.ProviderKey() != key {
		k.Errorf("claimed %s", plainText(m))
	}
	k.tick(time.Hour - time.Microsecond)
	k.claim() // takes the first two over
	k.tick(time.Microsecond)
	k.claimed(k.claim(), ids[1])
}

func enqueueAgain(k *kit) {
	m := k.message()
	first := k.enqueue(m)
	before := k.get(first.ID)
	for range 2 {
		if got, want := k.enqueue(m), (store.EnqueueResult{ID: first.ID}); got != want {
			k.Errorf("the same message again: %+v, want %+v", got, want)
		}
	}
	k.stored(before)
}

func enqueueTwiceInTx(k *kit) {
	m := k.message()
	other := m
	other.Template = "otra"
	enqueuer, tx := ability[store.Enqueuer](k), k.begin()
	first, err := enqueuer.Enqueue(k.Context(), tx, m)
	k.ok(err)
	same, err := enqueuer.Enqueue(k.Context(), tx, m)
	k.ok(err)
	differs, err := enqueuer.Enqueue(k.Context(), tx, other)
	k.ok(err)
	k.ok(tx.Commit())
	if !first.Inserted || same != (store.EnqueueResult{ID: first.ID}) || differs != (store.EnqueueResult{ID: first.ID, Differs: true}) {
		k.Errorf("got %+v, %+v and %+v", first, same, differs)
	}
	if got := k.get(first.ID).Template; got != m.Template {
		k.Errorf("the row says %q", got)
	}
}

func enqueueDiffers(k *kit) {
	m := k.message(func(m *store.NewMessage) {
		m.Data = json.RawMessage(`{"a":1,"b":[1.50,"ñ",null,{"x":true}],"n":9007199254740993}`)
	})
	first := k.enqueue(m)
	before := k.get(first.ID)
	data := func(text string) func(*store.NewMessage) {
		return func(m *store.NewMessage) { m.Data = json.RawMessage(text) }
	}
	for _, c := range []struct {
		name    string
		change  func(*store.NewMessage)
		differs bool
	}{
		{"the same", func(*store.NewMessage) {}, false},
		{"channel", func(m *store.NewMessage) { m.Channel = otherChannel }, true},
		{"destination", func(m *store.NewMessage) { m.Destination = "Ana@club.example" }, true},
		{"template", func(m *store.NewMessage) { m.Template = "confirmación" }, true},
		{"a value", data(`{"a":2,"b":[1.50,"ñ",null,{"x":true}],"n":9007199254740993}`), true},
		{"a name", data(`{"A":1,"b":[1.50,"ñ",null,{"x":true}],"n":9007199254740993}`), true},
		{"a member more", data(`{"a":1,"b":[1.50,"ñ",null,{"x":true}],"n":9007199254740993,"z":null}`), true},
		{"the order of a list", data(`{"a":1,"b":["ñ",1.50,null,{"x":true}],"n":9007199254740993}`), true},
		{"a digit beyond a float", data(`{"a":1,"b":[1.50,"ñ",null,{"x":true}],"n":9007199254740992}`), true},
		{"a number as text", data(`{"a":"1","b":[1.50,"ñ",null,{"x":true}],"n":9007199254740993}`), true},
		{"nothing", data(`{}`), true},
		{"the order of names", data(`{"n":9007199254740993,"b":[1.50,"ñ",null,{"x":true}],"a":1}`), false},
		{"white space", data("{ \"a\" : 1,\n\"b\":[1.50, \"ñ\", null, {\"x\":true}],\t\"n\":9007199254740993}"), false},
		{"the spelling of numbers", data(`{"a":1.0,"b":[15e-1,"ñ",null,{"x":true}],"n":9007199254740993}`), false},
		{"the spelling of texts", data(`{"\u0061":1,"b":[1.50,"\u00f1",null,{"x":true}],"n":9007199254740993}`), false},
		{"schedule, limit and headers", func(m *store.NewMessage) {
			m.ScheduledAt, m.ExpiresAt = t0.Add(time.Hour), t0.Add(2*time.Hour)
			m.MaxAttempts, m.Headers = 9, map[string]string{"a": "b"}
		}, false},
	} {
		again := m
		c.change(&again)
		if got, want := k.enqueue(again), (store.EnqueueResult{ID: first.ID, Differs: c.differs}); got != want {
			k.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
	k.stored(before)
}

func enqueueClosed(k *kit) {
	for _, s := range state.States() {
		row := k.put(func(m *store.Message) { m.State = s })
		m := store.NewMessage{
			TenantID: row.TenantID, Channel: row.Channel, Destination: row.Destination, Template: row.Template,
			Data: row.Data, IdempotencyKey: row.IdempotencyKey,
		}
		if got, want := k.enqueue(m), (store.EnqueueResult{ID: row.ID}); got != want {
			k.Errorf("%s: %+v, want %+v", s, got, want)
		}
		k.stored(row)
	}
}

func enqueueOtherTenant(k *kit) {
	m := k.message()
	first := k.enqueue(m)
	m.TenantID = k.tenant(2)
	if second := k.enqueue(m); !second.Inserted || second.ID == first.ID {
		k.Errorf("another tenant's message came back as %+v", second)
	}
}

func enqueueRollback(k *kit) {
	enqueuer, m := ability[store.Enqueuer](k), k.message()
	tx := k.begin()
	res, err := enqueuer.Enqueue(k.Context(), tx, m)
	k.ok(err)
	k.ok(tx.Rollback())
	k.gone(res.ID)
	if again := k.enqueue(m); !again.Inserted {
		k.Errorf("after a rollback: %+v", again)
	}
}

func enqueueFirstRollsBack(k *kit) {
	enqueuer, m := ability[store.Enqueuer](k), k.message()
	tx := k.begin()
	first, err := enqueuer.Enqueue(k.Context(), tx, m)
	k.ok(err)
	second := make(chan store.EnqueueResult)
	go func() {
		defer close(second)
		res, err := enqueueAlone(k, m) // waits for the first, wherever it stands by then
		if err != nil {
			k.Error(err)
			return
		}
		second <- res
	}()
	k.ok(tx.Rollback())
	if res := <-second; !res.Inserted {
		k.Errorf("after the first one's rollback: %+v", res)
	}
	k.gone(first.ID)
}

// enqueueAlone is enqueue for a goroutine that is not the test's own. It does what an application has to: where the
// engine asks for it, the whole transaction is run again. Any other error is the test's.
func enqueueAlone(k *kit, m store.NewMessage) (res store.EnqueueResult, err error) {
	for range maxTries {
		if res, err = enqueueOnce(k, m); !toBeRepeated(err) {
			break
		}
	}
	return res, err
}

const maxTries = 50

func enqueueOnce(k *kit, m store.NewMessage) (store.EnqueueResult, error) {
	enqueuer := k.Store.(store.Enqueuer)
	tx, err := enqueuer.Begin(k.Context())
	if err != nil {
		return store.EnqueueResult{}, err
	}
	res, err := enqueuer.Enqueue(k.Context(), tx, m)
	if err != nil {
		_ = tx.Rollback()
		return store.EnqueueResult{}, err
	}
	runtime.Gosched() // let the others meet an open transaction
	return res, tx.Commit()
}

// toBeRepeated reports a deadlock, a lock that could not be had or a serialization failure, which are handed up to the
// caller of an enqueue as they are: no one but he can run the transaction again.
func toBeRepeated(err error) bool {
	code := store.ErrorCode(err)
	if e := (interface{ SQLState() string })(nil); code == "" && errors.As(err, &e) { // of the commit
		code = e.SQLState()
	}
	return slices.Contains([]string{"40001", "40P01", "1020", "1205", "1213"}, code)
}

func enqueueTwenty(k *kit) {
	ability[store.Enqueuer](k)
	m := k.message()
	results := make([]store.EnqueueResult, 20)
	k.race(len(results), func(i int) (err error) {
		results[i], err = enqueueAlone(k, m)
		return err
	})
	inserted := 0
	for _, res := range results {
		if res.ID == "" || res.ID != results[0].ID || res.Differs {
			k.Errorf("got %+v, and elsewhere %+v", res, results[0])
		}
		if res.Inserted {
			inserted++
		}
	}
	if inserted != 1 {
		k.Errorf("%d of 20 were new", inserted)
	}
}

func enqueueInvalid(k *kit) {
	enqueuer, tx := ability[store.Enqueuer](k), k.begin()
	const canary = "secreto-4711"
	broken := canary + "\xf4\x8d\x61\x24"
	type change = func(*store.NewMessage)
	tenant := func(s string) change { return func(m *store.NewMessage) { m.TenantID = s } }
	to := func(s string) change { return func(m *store.NewMessage) { m.Destination = s } }
	template := func(s string) change { return func(m *store.NewMessage) { m.Template = s } }
	key := func(s string) change { return func(m *store.NewMessage) { m.IdempotencyKey = s } }
	data := func(v any) change { return func(m *store.NewMessage) { m.Data = v } }
	headers := func(name, value string) change {
		return func(m *store.NewMessage) { m.Headers = map[string]string{name: value} }
	}
	cases := []struct {
		field  string
		change change
	}{
		{"TenantID", tenant("")},
		{"TenantID", tenant(" " + k.tenant(1))},
		{"TenantID", tenant(canary + "\x00")},
		{"TenantID", tenant(broken)},
		{"TenantID", tenant(canary + ":a")},
		{"TenantID", tenant(canary + "ñ")},
		{"TenantID", tenant(canary + strings.Repeat("a", store.MaxTenantLength))},
		{"Channel", func(m *store.NewMessage) { m.Channel = "" }},
		{"Channel", func(m *store.NewMessage) { m.Channel = canary }},
		{"Channel", func(m *store.NewMessage) { m.Channel = "Correo" }},
		{"Destination", to("")},
		{"Destination", to(" \t")},
		{"Destination", to(canary + " ")},
		{"Destination", to(canary + "\r\nBcc: x")},
		{"Destination", to(canary + "\x00")},
		{"Destination", to(broken)},
		{"Destination", to(canary + strings.Repeat("a", store.MaxDestinationLength))},
		{"Template", template("")},
		{"Template", template("\u00a0" + canary)},
		{"Template", template(canary + "\x00")},
		{"Template", template(broken)},
		{"Template", template(canary + strings.Repeat("a", store.MaxTemplateLength))},
		{"IdempotencyKey", key("")},
		{"IdempotencyKey", key(canary + " ")},
		{"IdempotencyKey", key(canary + "\n")},
		{"IdempotencyKey", key(canary + "\x00")},
		{"IdempotencyKey", key(canary + "\x7f")},
		{"IdempotencyKey", key(canary + "ñ")},
		{"IdempotencyKey", key(broken)},
		{"IdempotencyKey", key(strings.Repeat("k", store.MaxKeyLength+1))},
		{"MaxAttempts", func(m *store.NewMessage) { m.MaxAttempts = -1 }},
		{"MaxAttempts", func(m *store.NewMessage) { m.MaxAttempts = store.MaxMaxAttempts + 1 }},
		{"ScheduledAt", func(m *store.NewMessage) { m.ScheduledAt = time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC) }},
		{"ScheduledAt", func(m *store.NewMessage) { m.ScheduledAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"ExpiresAt", func(m *store.NewMessage) { m.ExpiresAt = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"Data", data(func() {})},
		{"Data", data(map[string]any{canary: make(chan int)})},
		{"Data", data(json.RawMessage(`{"` + canary + `":`))},
		{"Data", data(json.RawMessage(``))},
		{"Data", data(json.RawMessage(`"` + broken + `"`))},
		{"Data", data(map[string]string{"a": canary + "\x00"})},
		{"Data", data(map[string]any{"a": []any{map[string]int{canary + "\x00": 1}}})},
		{"Data", data(json.RawMessage(`"` + canary + `\ud800"`))},
		{"Data", data(json.RawMessage(`[1e99999]`))},
		{"Data", data(json.RawMessage(strings.Repeat("[", 31) + strings.Repeat("]", 31)))},
		{"Data", data(strings.Repeat("x", store.DefaultMaxPayload-1))},
		{"Headers", headers("", "a")},
		{"Headers", headers(canary+"ñ", "a")},
		{"Headers", headers("a", canary+"\n")},
		{"Headers", headers("a", broken)},
		{"Headers", headers("a", canary+strings.Repeat("x", store.MaxHeadersSize))},
	}
	for i, c := range cases {
		m := k.message(c.change)
		res, err := enqueuer.Enqueue(k.Context(), tx, m)
		if err == nil || res != (store.EnqueueResult{}) {
			k.Errorf("case %d: %+v was given for a bad %s", i, res, c.field)
			continue
		}
		k.invalid(err, c.field)
		if strings.Contains(err.Error(), canary) {
			k.Errorf("case %d: the error repeats the content", i)
		}
	}
	res, err := enqueuer.Enqueue(k.Context(), tx, k.message())
	k.ok(err)
	k.ok(tx.Commit())
	k.get(res.ID)
}

func enqueueTxRequired(k *kit) {
	enqueuer, tx := ability[store.Enqueuer](k), k.begin()
	k.ok(tx.Rollback())
	typedNil := []store.Tx{nil, (*sql.Tx)(nil)}
	if own := reflect.TypeOf(tx); own.Kind() == reflect.Pointer {
		typedNil = append(typedNil, reflect.Zero(own).Interface().(store.Tx))
	}
	for _, tx := range typedNil {
		if _, err := enqueuer.Enqueue(k.Context(), tx, k.message()); !errors.Is(err, store.ErrTxRequired) {
			k.Errorf("%T: got %v, want ErrTxRequired", tx, err)
		}
		_, err := enqueuer.Enqueue(k.Context(), tx, k.message(func(m *store.NewMessage) { m.Channel = "" }))
		k.invalid(err, "Channel") // the message is judged first
	}
}

func enqueueTxDone(k *kit) {
	enqueuer := ability[store.Enqueuer](k)
	for _, end := range []func(store.Tx) error{store.Tx.Commit, store.Tx.Rollback} {
		tx, m := k.begin(), k.message()
		k.ok(end(tx))
		if res, err := enqueuer.Enqueue(k.Context(), tx, m); err == nil {
			k.Errorf("a finished transaction gave %+v", res)
		}
		if res := k.enqueue(m); !res.Inserted {
			k.Error("what was enqueued in a finished transaction is there")
		}
	}
}

func enqueueCancelled(k *kit) {
	enqueuer, m := ability[store.Enqueuer](k), k.message()
	tx := k.begin()
	if res, err := enqueuer.Enqueue(cancelled(k), tx, m); err == nil {
		k.Errorf("enqueueing under an ended context gave %+v", res)
	}
	_ = tx.Rollback() // the engine decides whether it is still usable
	if res := k.enqueue(m); !res.Inserted {
		k.Error("what was enqueued under an ended context is there")
	}
	if tx, err := enqueuer.Begin(cancelled(k)); err == nil {
		k.Errorf("beginning under an ended context gave a %T", tx)
	}
}

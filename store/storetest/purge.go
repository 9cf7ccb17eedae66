package storetest

import (
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var purgeCases = []testCase{
	{"strictly before", purgeBefore},
	{"only closed rows", purgeStates},
	{"states to choose", purgeChosen},
	{"in batches", purgeBatches},
	{"the key is free again", purgeKey},
	{"invalid params", purgeInvalid},
	{"ended context", purgeCancelled},
}

// purge fails unless so many rows went.
func (k *kit) purge(want int64, p store.PurgeParams) {
	k.Helper()
	n, err := k.Store.Purge(k.Context(), p)
	k.ok(err)
	if n != want {
		k.Errorf("%d rows were purged, want %d", n, want)
	}
}

func closed(at time.Time) func(*store.Message) {
	return func(m *store.Message) { m.State, m.UpdatedAt = state.Sent, at }
}

func purgeBefore(k *kit) {
	before := k.now.Add(-time.Hour)
	gone := k.put(closed(before.Add(-time.Microsecond)))
	equal, later := k.put(closed(before)), k.put(closed(k.now))
	future := k.put(closed(k.now.Add(time.Hour)))
	zone := time.FixedZone("", -7*3600)
	k.purge(1, store.PurgeParams{Before: before.Add(999).In(zone)}) // cut to the microsecond
	k.gone(gone.ID)
	for _, m := range []store.Message{equal, later, future} {
		k.stored(m)
	}
	k.purge(0, store.PurgeParams{Before: before})
	k.purge(2, store.PurgeParams{Before: k.now.Add(time.Microsecond)})
	k.stored(future)
}

func purgeStates(k *kit) {
	rows := map[state.State]store.Message{}
	for _, s := range state.States() {
		rows[s] = k.put(closed(k.now.Add(-time.Hour)), func(m *store.Message) { m.State = s })
	}
	k.purge(int64(len(state.TerminalStates())), store.PurgeParams{Before: k.now})
	for s, m := range rows {
		if s.Terminal() {
			k.gone(m.ID)
		} else {
			k.stored(m)
		}
	}
	// A row counts from its last change.
	m := k.claim().Messages[0]
	k.applied(with(m, send))
	k.purge(0, store.PurgeParams{Before: k.now})
	k.tick(time.Microsecond)
	k.purge(1, store.PurgeParams{Before: k.now})
}

func purgeChosen(k *kit) {
	rows := map[state.State]store.Message{}
	for _, s := range state.TerminalStates() {
		rows[s] = k.put(closed(k.now.Add(-time.Hour)), func(m *store.Message) { m.State = s })
	}
	k.purge(2, store.PurgeParams{Before: k.now, States: []state.State{state.Sent, state.Failed}})
	k.gone(rows[state.Sent].ID)
	k.gone(rows[state.Failed].ID)
	k.stored(rows[state.Discarded])
	k.purge(1, store.PurgeParams{Before: k.now, States: []state.State{state.Discarded}})
}

func purgeBatches(k *kit) {
	for _, batch := range []int{1, 2, 5, 6} {
		for range 5 {
			k.put(closed(k.now.Add(-time.Hour)))
		}
		kept := k.put(closed(k.now))
		k.purge(5, store.PurgeParams{Before: k.now, Batch: batch})
		k.stored(kept)
		k.remove(kept)
	}
}

func purgeKey(k *kit) {
	m := k.message()
	first := k.enqueue(m)
	k.applied(with(k.retake(first.ID), send))
	k.tick(time.Second)
	k.purge(1, store.PurgeParams{Before: k.now})
	if again := k.enqueue(m); !again.Inserted || again.ID == first.ID {
		k.Errorf("after a purge: %+v", again)
	}
}

func purgeInvalid(k *kit) {
	m := k.put(closed(k.now.Add(-time.Hour)))
	for _, c := range []struct {
		field string
		p     store.PurgeParams
	}{
		{"Before", store.PurgeParams{}},
		{"States", store.PurgeParams{Before: k.now, States: []state.State{}}},
		{"States", store.PurgeParams{Before: k.now, States: []state.State{state.Pending}}},
		{"States", store.PurgeParams{Before: k.now, States: []state.State{state.Sent, state.Processing}}},
		{"States", store.PurgeParams{Before: k.now, States: []state.State{state.Sent, "borrado"}}},
		{"Batch", store.PurgeParams{Before: k.now, Batch: -1}},
		{"Batch", store.PurgeParams{Before: k.now, Batch: store.MaxClaim + 1}},
	} {
		n, err := k.Store.Purge(k.Context(), c.p)
		k.invalid(err, c.field)
		if n != 0 {
			k.Errorf("%d rows were purged", n)
		}
	}
	k.stored(m)
}

func purgeCancelled(k *kit) {
	m := k.put(closed(k.now.Add(-time.Hour)))
	if n, err := k.Store.Purge(cancelled(k), store.PurgeParams{Before: k.now}); err == nil || n != 0 {
		k.Errorf("a purge under an ended context: %d rows, %v", n, err)
	}
	k.stored(m)
}

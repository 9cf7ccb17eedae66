package storetest

import (
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var renewCases = []testCase{
	{"the lease grows from its end", renewLease},
	{"a repeat is recognised", renewRepeat},
	{"a fence that does not hold", renewLost},
	{"settled with the new fence only", renewSettle},
	{"claimed again after the new lease only", renewClaim},
	{"a group is judged row by row", renewGroup},
}

var lookupCases = []testCase{
	{"next due", lookupNextDue},
	{"channels", lookupChannels},
}

// renew fails unless these are the verdicts, and returns the new fences.
func (k *kit) renew(want []store.Verdict, d time.Duration, fences ...store.Fence) []store.Fence {
	k.Helper()
	got, err := ability[store.Renewer](k).Renew(k.Context(), fences, d)
	k.ok(err)
	k.verdicts(got, want...)
	renewed := slices.Clone(fences)
	for i := range renewed {
		renewed[i].LeasedUntil = renewed[i].LeasedUntil.Add(d)
	}
	return renewed
}

var (
	oneApplied = []store.Verdict{store.Applied}
	oneLost    = []store.Verdict{store.Lost}
)

func renewLease(k *kit) {
	m := k.take()
	k.tick(time.Minute)
	k.renew(oneApplied, time.Hour, m.Fence())
	got := k.get(m.ID)
	if want := m.LeasedUntil.Add(time.Hour); !got.LeasedUntil.Equal(want) {
		k.Errorf("leased until %v, want %v", got.LeasedUntil, want)
	}
	m.LeasedUntil, m.UpdatedAt = got.LeasedUntil, got.UpdatedAt
	k.stored(m)
}

func renewRepeat(k *kit) {
	m := k.take()
	first := m.Fence()
	second := k.renew(oneApplied, time.Minute, first)[0]
	want := k.get(m.ID)
	k.renew(oneApplied, time.Minute, first)
	if got := k.get(m.ID); !got.LeasedUntil.Equal(want.LeasedUntil) {
		k.Errorf("a repeat moved the lease to %v", got.LeasedUntil)
	}
	third := k.renew(oneApplied, time.Minute, second)[0]
	k.renew(oneLost, time.Minute, first) // two behind
	m.LeasedUntil = third.LeasedUntil
	k.applied(with(m, send))
	k.renew(oneLost, time.Minute, third)
	k.renew(oneLost, time.Minute, second)
}

func renewLost(k *kit) {
	m := k.take()
	for name, change := range map[string]func(*store.Fence){
		"another token":       func(f *store.Fence) { f.Token[0] ^= 1 },
		"no token":            func(f *store.Fence) { f.Token = store.Token{} },
		"a longer lease":      func(f *store.Fence) { f.LeasedUntil = f.LeasedUntil.Add(time.Microsecond) },
		"a lease too short":   func(f *store.Fence) { f.LeasedUntil = f.LeasedUntil.Add(-time.Microsecond) },
		"another row's lease": func(f *store.Fence) { f.ID = rowID(999) },
	} {
		f := m.Fence()
		change(&f)
		got, err := ability[store.Renewer](k).Renew(k.Context(), []store.Fence{f}, time.Minute)
		k.ok(err)
		if len(got) != 1 || got[0] != store.Lost {
			k.Errorf("%s: verdicts %v", name, got)
		}
	}
	k.stored(m)
	k.applied(with(m, release))
	k.renew(oneLost, time.Minute, m.Fence())
	again := k.retake(m.ID)
	k.renew(oneLost, time.Minute, m.Fence())
	k.stored(again)
	k.tick(2 * lease) // ended, but nobody came
	k.renew(oneApplied, lease, again.Fence())
}

func renewSettle(k *kit) {
	m := k.take()
	renewed := m
	renewed.LeasedUntil = k.renew(oneApplied, time.Minute, m.Fence())[0].LeasedUntil
	for _, s := range settlements(k.now) {
		k.lost(with(m, s.transition))
	}
	for _, s := range settlements(k.now) {
		if s.transition != send {
			k.applied(with(renewed, s.transition))
			k.stored(settled(renewed, s.transition, k.now))
			k.overwrite(renewed)
		}
	}
	k.applied(with(renewed, send))
	k.applied(with(renewed, send))
}

func renewClaim(k *kit) {
	m := k.take()
	k.renew(oneApplied, lease, m.Fence())
	k.tick(2*lease - time.Microsecond)
	k.claimed(k.claim())
	k.tick(time.Microsecond)
	k.claimed(k.claim(), m.ID)
	k.renew(oneLost, lease, m.Fence())
}

func renewGroup(k *kit) {
	for range 4 {
		k.put()
	}
	m := k.claim().Messages
	k.applied(with(m[1], send))
	k.remove(m[3])
	k.renew([]store.Verdict{store.Lost, store.Applied, store.Lost, store.Applied}, time.Minute,
		m[3].Fence(), m[2].Fence(), m[1].Fence(), m[0].Fence())
	k.stored(settled(m[1], send, k.now))
	k.renew(nil, time.Minute)
}

func lookupNextDue(k *kit) {
	timer := ability[store.DueTimer](k)
	check := func(want time.Duration, channels ...string) {
		k.Helper()
		got, found, err := timer.NextDue(k.Context(), channels)
		k.ok(err)
		if found != (want > 0) || got != want {
			k.Errorf("next due in %v (%v), want %v", got, found, want)
		}
	}
	in := func(scheduled, next time.Duration, changes ...func(*store.Message)) {
		k.Helper()
		k.put(append(changes, func(m *store.Message) {
			m.ScheduledAt, m.NextAttemptAt = k.now.Add(scheduled), k.now.Add(next)
		})...)
	}
	other := func(m *store.Message) { m.Channel = otherChannel }
	check(0, channel, otherChannel)
	in(0, -time.Hour) // due by now
	in(-time.Minute, -time.Hour, func(m *store.Message) { m.State, m.LeasedUntil = state.Processing, k.now.Add(time.Second) })
	in(time.Second, time.Second, func(m *store.Message) { m.State = state.Sent })
	check(0, channel, otherChannel)
	in(time.Hour, time.Minute) // the later of the two
	check(time.Hour, channel)
	in(-time.Hour, 20*time.Minute, other)
	check(20*time.Minute, channel, otherChannel)
	check(time.Hour, channel)
	check(20*time.Minute, otherChannel)
	check(0)
	check(0, "otro")
	k.tick(20*time.Minute - time.Microsecond)
	check(time.Microsecond, channel, otherChannel)
	k.tick(time.Microsecond)
	check(40*time.Minute, channel, otherChannel)
	in(time.Microsecond, -time.Hour)
	check(time.Microsecond, channel, otherChannel)
}

func lookupChannels(k *kit) {
	lister := ability[store.ChannelLister](k)
	check := func(want ...string) {
		k.Helper()
		got, err := lister.Channels(k.Context())
		k.ok(err)
		if !slices.Equal(got, want) {
			k.Errorf("channels %q, want %q", got, want)
		}
	}
	check()
	for i, s := range state.TerminalStates() {
		k.put(func(m *store.Message) { m.State, m.Channel = s, []string{"a", "b", "c"}[i] })
	}
	check()
	k.put(func(m *store.Message) { m.Channel = "whatsapp" })
	k.put(func(m *store.Message) { m.Channel = "Correo" })
	k.put(func(m *store.Message) { m.Channel, m.ScheduledAt = "correo", k.now.Add(time.Hour) })
	k.put(func(m *store.Message) { m.Channel = "correo" })
	k.put(func(m *store.Message) { m.Channel, m.State = "ñandú", state.Processing })
	check("Correo", "correo", "whatsapp", "ñandú")
}

package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var operateCases = []testCase{
	{"look-ups", operateGet},
	{"requeue", operateRequeue},
	{"a requeued row starts afresh", operateRequeuedRuns},
	{"a requeued row keeps its deliver-by time", operateRequeuedExpires},
	{"cancel", operateCancel},
	{"a cancelled row stays", operateCancelledStays},
	{"verdicts come in the order of ids", operateOrder},
	{"stats", operateStats},
	{"stats that stop at the cap", operateStatsCap},
}

func operateGet(k *kit) {
	operator := ability[store.Operator](k)
	m := k.put(func(m *store.Message) {
		m.State, m.Token, m.ExternalID, m.SentAt, m.ExpiresAt = state.Sent, store.Token{1, 2, 3}, "wamid.1", k.now, k.now
	})
	got, err := operator.Get(k.Context(), m.ID)
	k.ok(err)
	if d := diff(got, m); d != "" {
		k.Errorf("by id:%s", d)
	}
	got, err = operator.GetByKey(k.Context(), m.TenantID, m.IdempotencyKey)
	k.ok(err)
	if d := diff(got, m); d != "" {
		k.Errorf("by key:%s", d)
	}
	for name, look := range map[string]func() (store.Message, error){
		"another id":     func() (store.Message, error) { return operator.Get(k.Context(), rowID(999)) },
		"another tenant": func() (store.Message, error) { return operator.GetByKey(k.Context(), k.tenant(2), m.IdempotencyKey) },
		"another key":    func() (store.Message, error) { return operator.GetByKey(k.Context(), m.TenantID, m.IdempotencyKey+"x") },
	} {
		if got, err := look(); !errors.Is(err, store.ErrNotFound) {
			k.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// everyState puts one row in each state, as it looks there.
func everyState(k *kit) map[state.State]store.Message {
	rows := map[state.State]store.Message{}
	for _, s := range state.States() {
		rows[s] = k.put(func(m *store.Message) {
			m.State, m.Token, m.ExternalID = s, store.Token{7}, "wamid.7"
			if s == state.Processing {
				m.LeasedUntil = k.now.Add(time.Minute)
			}
			m.ExpiresAt = k.now.Add(time.Hour)
		})
	}
	return rows
}

func operateRequeue(k *kit) {
	operator := ability[store.Operator](k)
	for s, m := range everyState(k) {
		k.tick(time.Second)
		got, err := operator.Requeue(k.Context(), []string{m.ID})
		k.ok(err)
		if !slices.Contains(state.From(state.EventRequeue), s) {
			k.verdicts(got, store.Lost)
			k.stored(m)
			continue
		}
		k.verdicts(got, store.Applied)
		m.State, m.Attempts, m.Token = state.Pending, 0, store.Token{}
		m.ScheduledAt, m.NextAttemptAt, m.UpdatedAt = k.now, k.now, k.now
		k.stored(m)
	}
}

func operateRequeuedRuns(k *kit) {
	operator := ability[store.Operator](k)
	first := k.take()
	k.applied(with(first, fail))
	got, err := operator.Requeue(k.Context(), []string{first.ID})
	k.ok(err)
	k.verdicts(got, store.Applied)
	second := k.retake(first.ID)
	if second.Attempts != 1 || second.Token == first.Token {
		k.Errorf("the row came back with %d attempts", second.Attempts)
	}
	k.lost(with(first, send))
	k.applied(with(second, send))
}

func operateRequeuedExpires(k *kit) {
	operator := ability[store.Operator](k)
	m := k.put(func(m *store.Message) { m.State, m.ExpiresAt = state.Failed, k.now })
	got, err := operator.Requeue(k.Context(), []string{m.ID})
	k.ok(err)
	k.verdicts(got, store.Applied)
	if want := []store.Closed{{ID: m.ID, Code: state.CodeExpired}}; !slices.Equal(k.claim().Closed, want) {
		k.Error("a row past its deliver-by time was handed out")
	}
}

func operateCancel(k *kit) {
	operator := ability[store.Operator](k)
	for s, m := range everyState(k) {
		k.tick(time.Second)
		got, err := operator.Cancel(k.Context(), []string{m.ID})
		k.ok(err)
		if !slices.Contains(state.From(state.EventCancel), s) {
			k.verdicts(got, store.Lost)
			k.stored(m)
			continue
		}
		k.verdicts(got, store.Applied)
		m.State, m.Token, m.UpdatedAt = state.Discarded, store.Token{}, k.now
		m.LastErrorCategory, m.LastErrorCode = state.CategoryRejected, state.CodeCancelled
		k.stored(m)
	}
}

func operateCancelledStays(k *kit) {
	operator := ability[store.Operator](k)
	m := k.put()
	for _, want := range []store.Verdict{store.Applied, store.Lost} {
		got, err := operator.Cancel(k.Context(), []string{m.ID})
		k.ok(err)
		k.verdicts(got, want)
	}
	k.tick(1000 * time.Hour)
	k.claimed(k.claim())
}

func operateOrder(k *kit) {
	operator := ability[store.Operator](k)
	inState := func(s state.State) string { return k.put(func(m *store.Message) { m.State = s }).ID }
	ids := []string{inState(state.Sent), inState(state.Failed), inState(state.Pending), inState(state.Discarded), rowID(999)}
	slices.Reverse(ids)
	got, err := operator.Requeue(k.Context(), ids)
	k.ok(err)
	k.verdicts(got, store.Lost, store.Applied, store.Lost, store.Applied, store.Lost)
	got, err = operator.Cancel(k.Context(), ids) // now three of them wait
	k.ok(err)
	k.verdicts(got, store.Lost, store.Applied, store.Applied, store.Applied, store.Lost)
	for _, act := range []func() ([]store.Verdict, error){
		func() ([]store.Verdict, error) { return operator.Requeue(k.Context(), nil) },
		func() ([]store.Verdict, error) { return operator.Cancel(k.Context(), nil) },
	} {
		got, err := act()
		k.ok(err)
		k.verdicts(got)
	}
}

func operateStats(k *kit) {
	operator := ability[store.Operator](k)
	k.need(k.Put != nil && k.SetClock != nil, "Fixture.Put and Fixture.SetClock")
	stats, err := operator.Stats(k.Context(), store.StatsParams{})
	k.ok(err)
	if len(stats) != 0 {
		k.Errorf("an empty table has %v", stats)
	}
	ago := func(d time.Duration) func(*store.Message) {
		return func(m *store.Message) {
			m.ScheduledAt, m.NextAttemptAt, m.UpdatedAt = k.now.Add(-d), time.Time{}, k.now.Add(-d)
		}
	}
	in := func(s state.State) func(*store.Message) { return func(m *store.Message) { m.State = s } }
	other := func(m *store.Message) { m.Channel = otherChannel }

	k.put(ago(3 * time.Minute))
	k.put(ago(time.Minute))
	k.put(ago(-time.Hour))
	k.put(ago(5*time.Minute), in(state.Processing), func(m *store.Message) { m.LeasedUntil = k.now })
	k.put(ago(time.Hour), in(state.Sent))
	k.put(ago(24*time.Hour), in(state.Sent))
	k.put(ago(24*time.Hour+time.Microsecond), in(state.Sent))
	k.put(ago(time.Hour), in(state.Failed))
	k.put(ago(time.Hour), in(state.Discarded), other)
	k.put(ago(-time.Minute), other)

	type counts map[state.State]int64
	check := func(since time.Time, sent int64) {
		k.Helper()
		stats, err := operator.Stats(k.Context(), store.StatsParams{Since: since})
		k.ok(err)
		if len(stats) != 2 || stats[0].Channel != channel || stats[1].Channel != otherChannel {
			k.Fatalf("the stats are %+v", stats)
		}
		if stats[0].OldestDue != 5*time.Minute || stats[1].OldestDue != 0 {
			k.Errorf("the oldest due rows wait for %v and %v", stats[0].OldestDue, stats[1].OldestDue)
		}
		for i, want := range []struct{ live, ended counts }{
			{counts{state.Pending: 3, state.Processing: 1}, counts{state.Sent: sent, state.Failed: 1}},
			{counts{state.Pending: 1}, counts{state.Discarded: 1}},
		} {
			for _, s := range state.States() {
				if stats[i].Live[s] != want.live[s] || stats[i].Ended[s] != want.ended[s] {
					k.Errorf("%s, %s: %d live and %d ended, want %d and %d", stats[i].Channel, s,
						stats[i].Live[s], stats[i].Ended[s], want.live[s], want.ended[s])
				}
			}
			if stats[i].LiveCapped || stats[i].EndedCapped {
				k.Errorf("%s is capped", stats[i].Channel)
			}
		}
	}
	check(time.Time{}, 2)
	check(k.now.Add(-24*time.Hour+time.Microsecond), 1)
	check(k.now.Add(-48*time.Hour), 3)
}

func operateStatsCap(k *kit) {
	operator := ability[store.Operator](k)
	for range 6 {
		k.put()
	}
	newest := k.now.Add(-time.Second)
	k.put(func(m *store.Message) { m.State, m.UpdatedAt = state.Failed, newest })
	for range 6 {
		k.put(func(m *store.Message) { m.State, m.UpdatedAt = state.Sent, newest.Add(-time.Minute) })
	}
	stats, err := operator.Stats(k.Context(), store.StatsParams{Cap: 4})
	k.ok(err)
	if len(stats) != 1 {
		k.Fatalf("the stats are %+v", stats)
	}
	s := stats[0]
	if s.Live[state.Pending] != 4 || !s.LiveCapped {
		k.Errorf("%d live, capped: %v", s.Live[state.Pending], s.LiveCapped)
	}
	if s.Ended[state.Failed] != 1 || s.Ended[state.Sent] != 3 || !s.EndedCapped {
		k.Errorf("ended %v, capped: %v", s.Ended, s.EndedCapped)
	}
	if s.OldestDue != time.Minute {
		k.Errorf("the oldest due row waits for %v", s.OldestDue)
	}
}

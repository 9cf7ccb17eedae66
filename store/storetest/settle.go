package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var settleCases = []testCase{
	{"what each event writes", settleWrites},
	{"long and absent values", settleValues},
	{"token and lease are both needed", settleFence},
	{"without lease or token there is no fence", settleNoFence},
	{"a fence holds only while processing", settleOtherState},
	{"a repeat is recognised", settleRepeat},
	{"another settlement of the same claim is lost", settleOther},
	{"a repeat after another claim is lost", settleClaimedAgain},
	{"a repeat after another release is lost", settleReleasedAgain},
	{"a repeat after a requeue is lost", settleRequeued},
	{"a repeat after a cancel is lost", settleWithdrawn},
	{"a repeat after a purge is lost", settlePurged},
	{"lease ended, nobody came", settleEndedLease},
	{"the same lease in the same tick", settleSameTick},
	{"a foreign worker writes only the lease", settleForeignLease},
	{"the clock steps back", settleClockBack},
	{"a group is judged row by row", settleGroup},
	{"a group with rows that are gone", settleGroupGone},
	{"a settlement twice in one group", settleTwiceInGroup},
	{"released rows keep their place", settleReleaseOrder},
	{"illegal transitions", settleIllegal},
	{"nothing to settle", settleNothing},
	{"ended context", settleCancelled},
}

// settlements has each event that settles a row, and what it changes beside the lease and the time of change.
func settlements(now time.Time) []struct {
	transition state.Transition
	change     func(*store.Message)
} {
	return []struct {
		transition state.Transition
		change     func(*store.Message)
	}{
		{send, func(m *store.Message) {
			m.ExternalID, m.SentAt, m.LastErrorCategory, m.LastErrorCode = send.ExternalID, now, "", ""
		}},
		{retry, func(m *store.Message) {
			m.NextAttemptAt = now.Add(retry.Wait.Truncate(time.Microsecond))
			m.LastErrorCategory, m.LastErrorCode = retry.Category, retry.Code
			m.Doubts++
		}},
		{fail, func(m *store.Message) {
			m.LastErrorCategory, m.LastErrorCode = fail.Category, fail.Code
			m.Doubts++
		}},
		{discard, func(m *store.Message) {
			m.LastErrorCategory, m.LastErrorCode = discard.Category, discard.Code
		}},
		{release, func(m *store.Message) { m.Attempts-- }},
		{deferral, func(m *store.Message) {
			m.Attempts--
			m.NextAttemptAt = now.Add(deferral.Wait.Truncate(time.Microsecond))
			m.LastErrorCategory, m.LastErrorCode = deferral.Category, deferral.Code
		}},
	}
}

// settled is the claimed row m as t leaves it, by the table above.
func settled(m store.Message, t state.Transition, now time.Time) store.Message {
	for _, s := range settlements(now) {
		if s.transition == t {
			m.State, m.LeasedUntil, m.UpdatedAt = t.To, time.Time{}, now
			s.change(&m)
			return m
		}
	}
	panic("not in the table of settlements")
}

func settleWrites(k *kit) {
	for _, s := range settlements(t0) {
		m := k.take()
		k.tick(time.Second)
		k.applied(with(m, s.transition))
		k.stored(settled(m, s.transition, k.now))
		k.remove(m)
	}
}

func settleValues(k *kit) {
	long := strings.Repeat("ñ", state.MaxExternalIDLength/2)
	m := k.take()
	k.applied(with(m, transition(state.Transition{Event: state.EventSend, ExternalID: long})))
	if got := k.get(m.ID).ExternalID; got != long {
		k.Errorf("the external id came back as %q", got)
	}
	m = k.take()
	unnamed := with(m, transition(state.Transition{Event: state.EventSend}))
	k.applied(unnamed)
	k.applied(unnamed)
	if got := k.get(m.ID).ExternalID; got != "" {
		k.Errorf("an absent external id came back as %q", got)
	}
	m = k.take()
	code := strings.Repeat("a", state.MaxCodeLength)
	k.applied(with(m, transition(state.Transition{Event: state.EventFail, Category: code, Code: code})))
	if got := k.get(m.ID); got.LastErrorCategory != code || got.LastErrorCode != code {
		k.Errorf("64 characters came back as %q and %q", got.LastErrorCategory, got.LastErrorCode)
	}
	m = k.take()
	noCode := with(m, transition(state.Transition{Event: state.EventRetry, Category: state.CategoryNetwork}))
	k.applied(noCode)
	k.applied(noCode)
	if got := k.get(m.ID); got.LastErrorCategory != state.CategoryNetwork || got.LastErrorCode != "" {
		k.Errorf("an absent code came back as %q", got.LastErrorCode)
	}
}

func settleFence(k *kit) {
	m := k.take()
	for _, c := range []struct {
		name   string
		change func(*store.Fence)
	}{
		{"another token", func(f *store.Fence) { f.Token[15] ^= 1 }},
		{"no token", func(f *store.Fence) { f.Token = store.Token{} }},
		{"a lease a microsecond longer", func(f *store.Fence) { f.LeasedUntil = f.LeasedUntil.Add(time.Microsecond) }},
		{"a lease a microsecond shorter", func(f *store.Fence) { f.LeasedUntil = f.LeasedUntil.Add(-time.Microsecond) }},
		{"no lease", func(f *store.Fence) { f.LeasedUntil = time.Time{} }},
		{"another row", func(f *store.Fence) { f.ID = rowID(999) }},
	} {
		for _, s := range settlements(k.now) {
			forged := with(m, s.transition)
			c.change(&forged.Fence)
			got, err := k.Store.Settle(k.Context(), []store.Settlement{forged})
			k.ok(err)
			if len(got) != 1 || got[0] != store.Lost {
				k.Errorf("%s, %s: verdicts %v", c.name, s.transition.Event, got)
			}
		}
		k.stored(m)
	}
	k.applied(with(m, send)) // the true fence, in any zone
}

func settleNoFence(k *kit) {
	m := k.put(func(m *store.Message) { m.State = state.Processing })
	leased := k.put(func(m *store.Message) { m.State, m.LeasedUntil = state.Processing, k.now.Add(time.Hour) })
	token := k.put(func(m *store.Message) { m.State, m.Token = state.Processing, store.Token{7} })
	for _, s := range settlements(k.now) {
		k.lost(with(m, s.transition))
		k.lost(with(leased, s.transition))
		k.lost(with(token, s.transition))
	}
	k.stored(m)
	k.stored(leased)
	k.stored(token)
	// Nor is a closed row without a token taken for one's own work.
	m = k.put(func(m *store.Message) { m.State = state.Sent })
	k.lost(with(m, transition(state.Transition{Event: state.EventSend})))
}

// settleOtherState forges rows as each settlement leaves them, but with the lease still there: neither the fence nor the
// repeat of anything.
func settleOtherState(k *kit) {
	for _, s := range settlements(k.now) {
		m := k.take()
		forged := settled(m, s.transition, k.now)
		forged.LeasedUntil = m.LeasedUntil
		k.overwrite(forged)
		for _, s := range settlements(k.now) {
			k.lost(with(m, s.transition))
		}
		k.stored(forged)
		k.remove(m)
	}
}

func settleRepeat(k *kit) {
	for _, s := range settlements(t0) {
		m := k.take()
		k.tick(time.Second)
		k.applied(with(m, s.transition))
		want := k.get(m.ID)
		for range 3 {
			k.tick(time.Second)
			k.applied(with(m, s.transition))
			k.stored(want)
		}
		k.remove(m)
	}
}

// variants are settlements that differ from each other in one thing a provider's answer may differ in.
func variants() []state.Transition {
	var all []state.Transition
	for _, s := range settlements(t0) {
		all = append(all, s.transition)
	}
	for _, change := range []struct {
		of  state.Transition
		how func(*state.Transition)
	}{
		{send, func(t *state.Transition) { t.ExternalID = "wamid.other" }},
		{send, func(t *state.Transition) { t.ExternalID = "" }},
		{retry, func(t *state.Transition) { t.Wait += time.Microsecond }},
		{retry, func(t *state.Transition) { t.Category = state.CategoryRateLimit }},
		{retry, func(t *state.Transition) { t.Code = "" }},
		{deferral, func(t *state.Transition) { t.Wait = retry.Wait }},
		{deferral, func(t *state.Transition) { t.Wait, t.Category, t.Code = retry.Wait, retry.Category, retry.Code }},
		{fail, func(t *state.Transition) { t.Code = "http_501" }},
		{fail, func(t *state.Transition) { t.Category, t.Code = discard.Category, discard.Code }},
		{discard, func(t *state.Transition) { t.Code = "http_404" }},
		{discard, func(t *state.Transition) { t.Category = state.CategoryRejected }},
	} {
		change.how(&change.of)
		all = append(all, change.of)
	}
	return all
}

func settleOther(k *kit) {
	var first, second []store.Settlement
	all := variants()
	for range len(all) * len(all) {
		k.put()
	}
	claimed := k.claim().Messages
	if len(claimed) != len(all)*len(all) {
		k.Fatalf("claimed %d rows", len(claimed))
	}
	var wantFirst, wantSecond []store.Verdict
	for i, a := range all {
		for j, b := range all {
			m := claimed[i*len(all)+j]
			first, second = append(first, with(m, a)), append(second, with(m, b))
			wantFirst = append(wantFirst, store.Applied)
			verdict := store.Lost
			if i == j {
				verdict = store.Applied
			}
			wantSecond = append(wantSecond, verdict)
		}
	}
	k.settle(wantFirst, first...)
	after := make([]store.Message, len(first))
	for i := range first {
		after[i] = k.get(first[i].ID)
	}
	k.tick(time.Second)
	got, err := k.Store.Settle(k.Context(), second)
	k.ok(err)
	if len(got) != len(wantSecond) {
		k.Fatalf("%d verdicts, want %d", len(got), len(wantSecond))
	}
	for i := range second {
		if got[i] != wantSecond[i] {
			k.Errorf("%+v, then %+v: %v, want %v", first[i].Transition, second[i].Transition, got[i], wantSecond[i])
		}
		k.stored(after[i])
	}
}

func settleClaimedAgain(k *kit) {
	m := k.take()
	k.applied(with(m, retry))
	k.tick(retry.Wait)
	again := k.retake(m.ID)
	k.lost(with(m, retry))
	k.stored(again)
	k.applied(with(again, send))
	k.lost(with(m, retry))
}

func settleReleasedAgain(k *kit) {
	m := k.take()
	k.applied(with(m, release))
	again := k.retake(m.ID)
	k.applied(with(again, release))
	k.lost(with(m, release))
}

func settleRequeued(k *kit) {
	operator := ability[store.Operator](k)
	for _, t := range []state.Transition{fail, discard} {
		m := k.take()
		k.applied(with(m, t))
		verdicts, err := operator.Requeue(k.Context(), []string{m.ID})
		k.ok(err)
		k.verdicts(verdicts, store.Applied)
		want := k.get(m.ID)
		k.lost(with(m, t))
		k.lost(with(m, release))
		k.stored(want)
		k.remove(m)
	}
}

func settleWithdrawn(k *kit) {
	operator := ability[store.Operator](k)
	m := k.take()
	k.applied(with(m, release))
	verdicts, err := operator.Cancel(k.Context(), []string{m.ID})
	k.ok(err)
	k.verdicts(verdicts, store.Applied)
	want := k.get(m.ID)
	k.lost(with(m, release))
	k.lost(with(m, transition(state.Transition{
		Event: state.EventDiscard, Category: state.CategoryRejected, Code: state.CodeCancelled,
	})))
	k.stored(want)
}

func settlePurged(k *kit) {
	m := k.take()
	k.applied(with(m, send))
	k.remove(k.get(m.ID))
	k.lost(with(m, send))
	k.gone(m.ID)
}

func settleEndedLease(k *kit) {
	for _, s := range settlements(t0) {
		m := k.take()
		k.tick(3 * lease)
		k.applied(with(m, s.transition))
		k.stored(settled(m, s.transition, k.now))
		k.remove(m)
	}
}

func settleSameTick(k *kit) {
	first := k.take()
	k.applied(with(first, release))
	second := k.retake(first.ID)
	if !second.LeasedUntil.Equal(first.LeasedUntil) || second.Attempts != first.Attempts {
		k.Fatalf("the claims differ in more than their token: %v and %v", first.LeasedUntil, second.LeasedUntil)
	}
	for _, s := range settlements(k.now) {
		k.lost(with(first, s.transition))
	}
	k.stored(second)
	k.applied(with(second, send))
}

func settleForeignLease(k *kit) {
	m := k.take()
	foreign := m
	foreign.Attempts, foreign.LeasedUntil = m.Attempts+1, m.LeasedUntil.Add(time.Second)
	k.overwrite(foreign)
	for _, s := range settlements(k.now) {
		k.lost(with(m, s.transition))
	}
	k.stored(foreign)
	// The foreign worker settles as it does, without a look at the token; a repeat of ours is still not ours.
	foreign.State, foreign.LeasedUntil = state.Pending, time.Time{}
	k.overwrite(foreign)
	k.lost(with(m, release))
	k.lost(with(m, send))
	k.stored(foreign)
}

func settleClockBack(k *kit) {
	for _, s := range settlements(t0) {
		m := k.take()
		k.tick(-time.Hour)
		k.applied(with(m, s.transition))
		k.stored(settled(m, s.transition, k.now))
		k.remove(m)
		k.tick(time.Hour)
	}
	// A repeat is known all the same, where it can be: a row that was never put off was not put off by this claim either.
	for _, s := range settlements(t0) {
		m := k.take(func(m *store.Message) { m.NextAttemptAt = time.Time{} })
		k.tick(-time.Hour)
		k.applied(with(m, s.transition))
		k.applied(with(m, s.transition))
		k.remove(m)
		k.tick(time.Hour)
	}
	// A fast worker takes the row early, the slow one comes too late.
	slow := k.take()
	k.tick(2 * lease)
	fast := k.retake(slow.ID)
	k.tick(-2 * lease)
	k.lost(with(slow, send))
	k.applied(with(fast, send))
}

func settleGroup(k *kit) {
	for range 6 {
		k.put()
	}
	m := k.claim().Messages
	if len(m) != 6 {
		k.Fatalf("claimed %d rows", len(m))
	}
	k.remove(m[3])
	forged, unknown := with(m[1], send), with(m[1], send)
	forged.Token[0] ^= 1
	unknown.ID = rowID(999)
	k.tick(time.Second)
	k.settle(
		[]store.Verdict{
			store.Applied, store.Lost, store.Applied, store.Lost, store.Applied, store.Lost, store.Applied,
		},
		with(m[5], discard), forged, with(m[0], send), with(m[3], send), with(m[4], release), unknown, with(m[2], retry),
	)
	k.stored(settled(m[0], send, k.now))
	k.stored(m[1])
	k.stored(settled(m[2], retry, k.now))
	k.stored(settled(m[4], release, k.now))
	k.stored(settled(m[5], discard, k.now))
}

func settleGroupGone(k *kit) {
	for range 5 {
		k.put()
	}
	m := k.claim().Messages
	k.settle([]store.Verdict{store.Applied, store.Applied}, with(m[0], send), with(m[1], send))
	k.remove(m[2])
	var group []store.Settlement
	for _, m := range m {
		group = append(group, with(m, release))
	}
	k.settle([]store.Verdict{store.Lost, store.Lost, store.Lost, store.Applied, store.Applied}, group...)
	k.stored(settled(m[0], send, k.now))
	k.stored(settled(m[1], send, k.now))
	k.gone(m[2].ID)
	k.stored(settled(m[3], release, k.now))
	k.stored(settled(m[4], release, k.now))
}

func settleTwiceInGroup(k *kit) {
	m := k.take()
	k.settle([]store.Verdict{store.Applied, store.Applied}, with(m, retry), with(m, retry))
	k.stored(settled(m, retry, k.now))

	m = k.take()
	got, err := k.Store.Settle(k.Context(), []store.Settlement{with(m, send), with(m, discard)})
	k.ok(err)
	switch {
	case len(got) != 2 || got[0] == got[1]:
		k.Errorf("two settlements of one claim: %v, want one of them applied", got)
	case got[0] == store.Applied:
		k.stored(settled(m, send, k.now))
	default:
		k.stored(settled(m, discard, k.now))
	}
}

func settleReleaseOrder(k *kit) {
	a, b, c := k.put(), k.put(), k.put()
	two := k.claim(func(p *store.ClaimParams) { p.Limit = 2 })
	k.claimed(two, a.ID, b.ID)
	k.tick(time.Minute)
	d := k.put(func(m *store.Message) { m.ID = rowID(0) }) // due later, although its id is smaller
	k.settle([]store.Verdict{store.Applied, store.Applied}, with(two.Messages[1], release), with(two.Messages[0], release))
	again := k.claim()
	k.claimed(again, a.ID, b.ID, c.ID, d.ID)
	for _, m := range again.Messages {
		if m.Attempts != a.Attempts+1 {
			k.Errorf("attempts are %d, want %d", m.Attempts, a.Attempts+1)
		}
	}
}

func settleIllegal(k *kit) {
	good, m := k.put(), k.put()
	claimed := k.claim().Messages
	for _, t := range []state.Transition{
		{Event: state.EventClaim, To: state.Processing},
		{Event: state.EventReclaim, To: state.Processing},
		{Event: state.EventRequeue, To: state.Pending},
		{Event: state.EventCancel, To: state.Discarded},
		{Event: state.EventReconcile, To: state.Sent},
		{Event: state.EventSend, To: state.Failed},
		{Event: state.EventFail, To: state.Pending},
		{Event: state.EventSend},
		{Event: "borrar", To: state.Discarded},
		{},
	} {
		_, err := k.Store.Settle(k.Context(), []store.Settlement{with(claimed[0], send), with(claimed[1], t)})
		var illegal *state.TransitionError
		if !errors.As(err, &illegal) || illegal.Event != t.Event {
			k.Errorf("%+v: got %v, want a TransitionError", t, err)
		}
		if !store.Refused(err) {
			k.Errorf("%+v: the error does not count as refused", t)
		}
	}
	for i, id := range []string{good.ID, m.ID} {
		if claimed[i].ID != id {
			k.Fatalf("claimed %s", claimed[i].ID)
		}
		k.stored(claimed[i])
	}
}

func settleNothing(k *kit) {
	got, err := k.Store.Settle(k.Context(), nil)
	if err != nil || len(got) != 0 {
		k.Errorf("no settlements: %v, %v", got, err)
	}
}

func settleCancelled(k *kit) {
	m := k.take()
	if _, err := k.Store.Settle(cancelled(k), []store.Settlement{with(m, send)}); err == nil {
		k.Error("settling under an ended context gave no error")
	}
	k.stored(m)
	k.applied(with(m, send))
}

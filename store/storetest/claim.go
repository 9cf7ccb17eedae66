package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var claimCases = []testCase{
	{"due rows in order", claimOrder},
	{"what a claimed row has", claimWrites},
	{"empty columns", claimEmptyColumns},
	{"limit", claimLimit},
	{"one channel", claimChannel},
	{"boundaries of the turn", claimTurn},
	{"boundaries of the lease", claimLease},
	{"processing without a lease", claimNoLease},
	{"a worker that comes too late", claimTooLate},
	{"tokens are new", claimTokens},
	{"mark", claimMark},
	{"from", claimFrom},
	{"a row that turns up below the mark", claimBelowMark},
	{"closes what is used up", claimCloses},
	{"closing does not starve good rows", claimHeadOfLine},
	{"a worker that dies at every attempt", claimCrashLoop},
	{"the last failure closes", claimLastFailure},
	{"returns what is used up", claimReturnsExhausted},
	{"invalid params", claimInvalid},
	{"ended context", claimCancelled},
}

func claimOrder(k *kit) {
	seed := rand.Uint64()
	k.Logf("seed %d", seed)
	at := func(scheduled, next time.Duration) func(*store.Message) {
		return func(m *store.Message) {
			m.ScheduledAt, m.NextAttemptAt = k.now.Add(scheduled), time.Time{}
			if next != 0 {
				m.NextAttemptAt = k.now.Add(next)
			}
		}
	}
	// The order wanted is the order here; ids ascend, so the first lines would come last by id alone.
	rows := []store.Message{
		k.row(at(-9*time.Minute, 0)),
		k.row(at(-9*time.Minute, 0)),                             // same turn: by id
		k.row(at(-time.Hour, -8*time.Minute)),                    // the later of the two dates counts
		k.row(at(-8*time.Minute, -time.Hour)),                    // whichever it is
		k.row(at(-8*time.Minute+time.Microsecond, -9*time.Hour)), // a microsecond tells
		k.row(at(-time.Minute, -time.Minute), func(m *store.Message) {
			m.State, m.LeasedUntil, m.Token = state.Processing, k.now.Add(-time.Second), store.Token{1}
		}),
		k.row(at(-1, 0)),
		k.row(at(0, 0)),
	}
	var want []string
	for i := range rows {
		rows[i].ID = rowID(1000 - i)
		want = append(want, rows[i].ID)
	}
	rows[0].ID, rows[1].ID = rows[1].ID, rows[0].ID
	want[0], want[1] = want[1], want[0]
	rows[2].ID, rows[3].ID = rows[3].ID, rows[2].ID
	want[2], want[3] = want[3], want[2]
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	for _, m := range rows {
		k.overwrite(m)
	}
	k.claimed(k.claim(), want...)
}

func claimWrites(k *kit) {
	a, b := k.put(), k.put()
	k.tick(time.Second)
	c := k.claim(func(p *store.ClaimParams) { p.Lease = lease + 1999 }) // cut to the microsecond
	k.claimed(c, a.ID, b.ID)
	if !c.Now.Equal(k.now) {
		k.Errorf("the claim's now is %v, want %v", c.Now, k.now)
	}
	for i, want := range []store.Message{a, b} {
		token := c.Messages[0].Token
		if token == (store.Token{}) {
			k.Fatal("the claim has no token")
		}
		want.State, want.Attempts, want.Token = state.Processing, 2, token
		want.LeasedUntil, want.UpdatedAt = k.now.Add(lease+time.Microsecond), k.now
		if d := diff(c.Messages[i], want); d != "" {
			k.Errorf("row %d as handed out:%s", i, d)
		}
		k.stored(want)
		k.applied(with(c.Messages[i], send)) // the fence that was handed out is the one that is stored
	}
}

func claimEmptyColumns(k *kit) {
	want := k.take(func(m *store.Message) {
		m.NextAttemptAt, m.Headers = time.Time{}, nil
		m.LastErrorCategory, m.LastErrorCode, m.Doubts, m.Attempts = "", "", 0, 0
	})
	if want.LastErrorCategory != "" || want.LastErrorCode != "" || want.ExternalID != "" || len(want.Headers) != 0 ||
		!want.NextAttemptAt.IsZero() || !want.SentAt.IsZero() || !want.ExpiresAt.IsZero() {
		k.Errorf("an absent value came back as something: %+v", plainText(want))
	}
	k.stored(want)
}

// plainText prints a row of the tests in full; a Message itself keeps its content to itself.
func plainText(m store.Message) string {
	type row store.Message
	return fmt.Sprintf("%+v", row(m))
}

func claimLimit(k *kit) {
	var ids []string
	for range 5 {
		ids = append(ids, k.put().ID)
	}
	two := func(p *store.ClaimParams) { p.Limit = 2 }
	k.claimed(k.claim(two), ids[:2]...)
	k.claimed(k.claim(two), ids[2:4]...)
	k.claimed(k.claim(two), ids[4])
	k.claimed(k.claim(two))
}

func claimChannel(k *kit) {
	mine := k.put()
	other := k.put(func(m *store.Message) { m.Channel = otherChannel })
	upper := k.put(func(m *store.Message) { m.Channel = "Correo" })
	k.claimed(k.claim(), mine.ID)
	k.stored(other)
	k.stored(upper)
	k.claimed(k.claim(func(p *store.ClaimParams) { p.Channel = otherChannel }), other.ID)
}

func claimTurn(k *kit) {
	for _, c := range []struct {
		name            string
		scheduled, next time.Duration
		due             bool
	}{
		{"both now", 0, 0, true},
		{"scheduled in a microsecond", time.Microsecond, -time.Hour, false},
		{"scheduled now", 0, -time.Hour, true},
		{"next attempt in a microsecond", -time.Hour, time.Microsecond, false},
		{"next attempt now", -time.Hour, 0, true},
		{"both a microsecond ago", -time.Microsecond, -time.Microsecond, true},
	} {
		m := k.put(func(m *store.Message) {
			m.ScheduledAt, m.NextAttemptAt = k.now.Add(c.scheduled), k.now.Add(c.next)
		})
		claim := k.claim()
		if due := len(claim.Messages) == 1; due != c.due {
			k.Errorf("%s: due is %v, want %v", c.name, due, c.due)
		}
		if !c.due {
			k.stored(m)
		}
		k.remove(m)
	}
	m := k.take()
	k.applied(with(m, retry))
	m = k.get(m.ID)
	k.tick(m.NextAttemptAt.Sub(k.now) - time.Microsecond)
	k.claimed(k.claim())
	k.tick(time.Microsecond)
	k.claimed(k.claim(), m.ID)
}

func claimLease(k *kit) {
	m := k.take()
	k.tick(lease - time.Microsecond)
	k.claimed(k.claim())
	k.stored(m)
	k.tick(time.Microsecond)
	k.claimed(k.claim(), m.ID)
}

func claimNoLease(k *kit) {
	m := k.put(func(m *store.Message) { m.State = state.Processing })
	again := k.retake(m.ID)
	if again.Attempts != m.Attempts+1 {
		k.Errorf("attempts are %d, want %d", again.Attempts, m.Attempts+1)
	}
	k.applied(with(again, send))
}

func claimTooLate(k *kit) {
	first := k.take()
	k.tick(lease)
	second := k.retake(first.ID)
	if second.Attempts != first.Attempts+1 {
		k.Errorf("attempts are %d, want %d", second.Attempts, first.Attempts+1)
	}
	k.lost(with(first, transition(state.Transition{Event: state.EventSend, ExternalID: "late"})))
	k.stored(second)
	k.applied(with(second, send))
	if got := k.get(first.ID); got.State != state.Sent || got.ExternalID != send.ExternalID {
		k.Errorf("the row is %s with external id %q", got.State, got.ExternalID)
	}
}

func claimTokens(k *kit) {
	m, seen := k.take(), map[store.Token]bool{}
	for range 50 { // all in one tick of the clock
		if seen[m.Token] {
			k.Fatal("a token came twice")
		}
		seen[m.Token] = true
		k.applied(with(m, release))
		m = k.retake(m.ID)
	}
}

func claimMark(k *kit) {
	from := store.Mark{Turn: k.now.Add(-24 * time.Hour), ID: rowID(7)}
	behind := func(p *store.ClaimParams) { p.From = from }
	check := func(name string, c store.Claim, want store.Mark) {
		k.Helper()
		if c.Mark.ID != want.ID || !c.Mark.Turn.Equal(want.Turn) {
			k.Errorf("%s: the mark is %v %q, want %v %q", name, c.Mark.Turn, c.Mark.ID, want.Turn, want.ID)
		}
	}
	due := func(ago time.Duration) store.Message {
		k.Helper()
		return k.put(func(m *store.Message) { m.NextAttemptAt, m.ScheduledAt = k.now.Add(-ago), k.now.Add(-time.Hour) })
	}
	check("nothing due", k.claim(behind), from)
	check("nothing due, from the head", k.claim(), store.Mark{})

	k.put(func(m *store.Message) { m.Attempts = m.MaxAttempts })
	check("only closed rows", k.claim(behind), from)

	first := due(30 * time.Second)
	due(20 * time.Second)
	check("old rows", k.claim(), store.Mark{Turn: k.now.Add(-30 * time.Second), ID: first.ID})

	first = due(5 * time.Second)
	check("five seconds old", k.claim(), store.Mark{Turn: k.now.Add(-5 * time.Second)})
	k.remove(first)

	due(time.Second)
	check("young rows", k.claim(behind), store.Mark{Turn: k.now.Add(-5 * time.Second)})

	due(10 * time.Second)
	due(time.Second)
	c := k.claim(behind)
	check("the smallest decides", c, store.Mark{Turn: k.now.Add(-10 * time.Second), ID: c.Messages[0].ID})
}

func claimFrom(k *kit) {
	at := func(ago time.Duration) store.Message {
		k.Helper()
		return k.put(func(m *store.Message) { m.NextAttemptAt, m.ScheduledAt = k.now.Add(-ago), k.now.Add(-ago) })
	}
	a, b, c, d := at(time.Hour), at(time.Hour), at(time.Hour), at(time.Minute)
	from := func(m store.Message) func(*store.ClaimParams) {
		return func(p *store.ClaimParams) { p.From = store.Mark{Turn: m.Row().Turn(), ID: m.ID} }
	}
	k.claimed(k.claim(from(d)))
	k.claimed(k.claim(from(b)), c.ID, d.ID)
	k.claimed(k.claim(func(p *store.ClaimParams) { p.From.Turn = a.Row().Turn().Add(time.Microsecond) }))
	k.claimed(k.claim(func(p *store.ClaimParams) { p.From.Turn = a.Row().Turn() }), a.ID, b.ID)
}

func claimBelowMark(k *kit) {
	a, b := k.put(), k.put()
	one := func(p *store.ClaimParams) { p.Limit = 1 }
	first := k.claim(one)
	k.claimed(first, a.ID)
	// As if by a transaction that began before and commits only now: older by turn and by id.
	late := k.put(func(m *store.Message) { m.ID, m.NextAttemptAt = rowID(0), k.now.Add(-time.Hour) })
	k.applied(with(first.Messages[0], release))
	next := k.claim(func(p *store.ClaimParams) { p.From = first.Mark })
	k.claimed(next, b.ID)
	k.claimed(k.claim(), late.ID, a.ID)
}

func claimCloses(k *kit) {
	exhausted := func(m *store.Message) { m.Attempts = m.MaxAttempts }
	beyond := func(m *store.Message) { m.Attempts = m.MaxAttempts + 1 }
	expired := func(m *store.Message) { m.ExpiresAt = k.now }
	processing := func(m *store.Message) {
		m.State, m.LeasedUntil, m.Token = state.Processing, k.now, store.Token{9}
	}
	stuck := func(m *store.Message) { m.State, m.Token = state.Processing, store.Token{9} }
	for _, c := range []struct {
		name    string
		changes []func(*store.Message)
		code    string
	}{
		{"pending at its limit", []func(*store.Message){exhausted}, state.CodeAttemptsExhausted},
		{"pending beyond its limit", []func(*store.Message){beyond}, state.CodeAttemptsExhausted},
		{"lease ended at its limit", []func(*store.Message){processing, exhausted}, state.CodeLeaseExhausted},
		{"no lease, at its limit", []func(*store.Message){stuck, exhausted}, state.CodeLeaseExhausted},
		{"pending past its deliver-by time", []func(*store.Message){expired}, state.CodeExpired},
		{"lease ended past its deliver-by time", []func(*store.Message){processing, expired}, state.CodeExpired},
		{"the limit comes first", []func(*store.Message){processing, exhausted, expired}, state.CodeLeaseExhausted},
	} {
		m := k.put(c.changes...)
		claim := k.claim()
		if want := []store.Closed{{ID: m.ID, Code: c.code}}; len(claim.Messages) != 0 || !slices.Equal(claim.Closed, want) {
			k.Errorf("%s: claimed %v and closed %v, want none and %v", c.name, messageIDs(claim), claim.Closed, want)
		}
		m.State, m.LeasedUntil, m.Token, m.UpdatedAt = state.Failed, time.Time{}, store.Token{}, k.now
		m.LastErrorCategory, m.LastErrorCode = state.CategoryNetwork, c.code
		k.stored(m)
	}
	k.put(func(m *store.Message) { m.ExpiresAt = k.now.Add(time.Microsecond) })
	if c := k.claim(); len(c.Messages) != 1 {
		k.Error("a row was not handed out a microsecond before its deliver-by time")
	}
	// A settlement of a claim whose row was closed under it comes too late, even if it says the same.
	m := k.take(func(m *store.Message) { m.Attempts = m.MaxAttempts - 1 })
	k.tick(lease)
	k.claim()
	k.lost(with(m, state.CloseTransition(state.CodeLeaseExhausted)))
}

func claimHeadOfLine(k *kit) {
	for range 60 {
		k.put(func(m *store.Message) {
			m.State, m.LeasedUntil, m.Attempts = state.Processing, k.now, m.MaxAttempts
			m.NextAttemptAt = k.now.Add(-time.Hour)
		})
	}
	var good []string
	for range 5 {
		good = append(good, k.put().ID)
	}
	var closed int
	var got []string
	for range 4 {
		c := k.claim(func(p *store.ClaimParams) { p.Limit = 20 })
		if n := len(c.Closed) + len(c.Messages); n > 20 {
			k.Errorf("one claim took %d rows of 20", n)
		}
		closed += len(c.Closed)
		got = append(got, messageIDs(c)...)
	}
	if closed != 60 || !reflect.DeepEqual(got, good) {
		k.Errorf("four claims closed %d rows and handed out %v, want 60 and %v", closed, got, good)
	}
}

func claimCrashLoop(k *kit) {
	m := k.put(func(m *store.Message) { m.Attempts, m.MaxAttempts = 0, 3 })
	for attempt := 1; attempt <= 3; attempt++ {
		if got := k.retake(m.ID).Attempts; got != attempt {
			k.Fatalf("attempts are %d, want %d", got, attempt)
		}
		k.tick(lease)
	}
	c := k.claim()
	if want := []store.Closed{{ID: m.ID, Code: state.CodeLeaseExhausted}}; !slices.Equal(c.Closed, want) {
		k.Errorf("closed %v, want %v", c.Closed, want)
	}
	k.tick(1000 * lease)
	k.claimed(k.claim())
}

func claimLastFailure(k *kit) {
	m := k.put(func(m *store.Message) { m.Attempts, m.MaxAttempts = 0, 3 })
	outcome := state.Outcome{Category: state.CategoryRateLimit, Code: "http_429", RetryAfter: time.Minute}
	for range 3 {
		taken := k.retake(m.ID)
		row := taken.Row()
		t, err := state.Resolve(row, row.Age(k.now), outcome, state.DefaultPolicy())
		k.ok(err)
		k.applied(with(taken, t))
		if got := k.get(m.ID); got.State == state.Pending && got.Row().Exhausted() {
			k.Fatal("the row waits although its attempts are used up")
		}
		k.tick(24 * time.Hour)
	}
	if got := k.get(m.ID); got.State != state.Failed || got.LastErrorCode != outcome.Code {
		k.Errorf("the row is %s (%s), want %s", got.State, got.LastErrorCode, state.Failed)
	}
	k.claimed(k.claim())
}

func claimReturnsExhausted(k *kit) {
	all := func(p *store.ClaimParams) { p.ReturnExhausted = true }
	rows := []store.Message{
		k.put(),
		k.put(func(m *store.Message) { m.Attempts = m.MaxAttempts }),
		k.put(func(m *store.Message) { m.ExpiresAt = k.now }),
		k.put(func(m *store.Message) {
			m.State, m.LeasedUntil, m.Token, m.Attempts = state.Processing, k.now, store.Token{9}, m.MaxAttempts
		}),
	}
	codes := []string{"", state.CodeAttemptsExhausted, state.CodeExpired, state.CodeLeaseExhausted}
	c := k.claim(all)
	if len(c.Messages) != len(rows) || len(c.Closed) != 0 {
		k.Fatalf("claimed %v and closed %v", messageIDs(c), c.Closed)
	}
	for i, want := range rows {
		got := c.Messages[i]
		want.State, want.LeasedUntil, want.UpdatedAt = state.Processing, k.now.Add(lease), k.now
		want.Token, want.Closing = c.Messages[0].Token, codes[i]
		if codes[i] == "" {
			want.Attempts++ // what will not be called is not charged
		}
		if d := diff(got, want); d != "" {
			k.Errorf("row %d as handed out:%s", i, d)
		}
		k.stored(want)
	}
	k.claimed(k.claim(all))

	closing := with(c.Messages[1], state.CloseTransition(codes[1]))
	k.applied(closing)
	k.applied(closing)
	want := c.Messages[1]
	want.State, want.LeasedUntil, want.UpdatedAt = state.Failed, time.Time{}, k.now
	want.LastErrorCategory, want.LastErrorCode = state.CategoryNetwork, codes[1]
	k.stored(want)

	// Not closed in time, a row comes back, and may be closed by a plain claim.
	k.tick(lease)
	again := k.claim(all, func(p *store.ClaimParams) { p.From = store.Mark{Turn: rows[2].Row().Turn(), ID: rows[2].ID} })
	if len(again.Messages) != 1 || again.Messages[0].Closing != codes[3] || again.Messages[0].Attempts != rows[3].Attempts {
		k.Errorf("after its lease the row came back as %v", again.Messages)
	}
	k.lost(with(c.Messages[3], state.CloseTransition(codes[3])))
}

func claimInvalid(k *kit) {
	m := k.put()
	for _, c := range []struct {
		field  string
		change func(*store.ClaimParams)
	}{
		{"Channel", func(p *store.ClaimParams) { p.Channel = "" }},
		{"Limit", func(p *store.ClaimParams) { p.Limit = 0 }},
		{"Limit", func(p *store.ClaimParams) { p.Limit = -1 }},
		{"Limit", func(p *store.ClaimParams) { p.Limit = store.MaxClaim + 1 }},
		{"Lease", func(p *store.ClaimParams) { p.Lease = 0 }},
		{"Lease", func(p *store.ClaimParams) { p.Lease = -time.Hour }},
		{"Lease", func(p *store.ClaimParams) { p.Lease = time.Millisecond - 1 }},
	} {
		p := store.ClaimParams{Channel: channel, Limit: 1, Lease: lease}
		c.change(&p)
		_, err := k.Store.Claim(k.Context(), p)
		k.invalid(err, c.field)
	}
	k.stored(m)
	k.claimed(k.claim(func(p *store.ClaimParams) { p.Limit, p.Lease = store.MaxClaim, time.Millisecond }), m.ID)
}

func claimCancelled(k *kit) {
	m := k.put()
	ctx := cancelled(k)
	if _, err := k.Store.Claim(ctx, store.ClaimParams{Channel: channel, Limit: 1, Lease: lease}); err == nil {
		k.Error("a claim under an ended context gave no error")
	}
	k.stored(m)
}

func cancelled(t reporter) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

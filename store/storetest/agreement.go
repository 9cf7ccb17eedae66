package storetest

import (
	"encoding/json"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var agreementCases = []testCase{
	{"claim and Decide", func(k *kit) { agreement(k, state.States(), false) }},
	{"claim and Decide, used up rows returned", func(k *kit) { agreement(k, state.LiveStates(), true) }},
}

// grid is each of the states at every boundary of attempts, dates, lease and deliver-by time.
func grid(k *kit, states []state.State) []store.Message {
	const maxAttempts = 3
	at := func(d time.Duration) time.Time { return k.now.Add(d) }
	none, before, equal, after := time.Time{}, at(-time.Microsecond), at(0), at(time.Microsecond)
	var rows []store.Message
	for _, s := range states {
		for _, attempts := range []int{maxAttempts - 1, maxAttempts, maxAttempts + 1} {
			for _, scheduled := range []time.Time{before, equal, after} {
				for _, next := range []time.Time{none, before, equal, after} {
					for _, leased := range []time.Time{none, before, equal, after} {
						for _, expires := range []time.Time{none, equal, after} {
							if s.Terminal() && !(leased.IsZero() && expires.IsZero()) {
								continue // its dates are enough to tempt a claim
							}
							m := k.row(func(m *store.Message) {
								m.State, m.Attempts, m.MaxAttempts = s, attempts, maxAttempts
								m.ScheduledAt, m.NextAttemptAt, m.LeasedUntil, m.ExpiresAt = scheduled, next, leased, expires
								m.Data, m.Token = json.RawMessage(`{}`), store.Token{7}
							})
							rows = append(rows, m)
						}
					}
				}
			}
		}
	}
	return rows
}

// agreement claims from a grid once and compares what became of each row with [state.Decide].
func agreement(k *kit, states []state.State, returnExhausted bool) {
	rows := grid(k, states)
	for _, m := range rows {
		k.overwrite(m)
	}
	c := k.claim(func(p *store.ClaimParams) { p.Limit, p.ReturnExhausted = store.MaxClaim, returnExhausted })
	handed, closed := map[string]store.Message{}, map[string]string{}
	for _, m := range c.Messages {
		handed[m.ID] = m
	}
	for _, row := range c.Closed {
		closed[row.ID] = row.Code
	}
	decisions := map[state.Decision]int{}
	for _, want := range rows {
		row := want.Row()
		decision, code := state.Decide(row, k.now), state.Closing(row, k.now)
		// Both exceptions are one: nothing is taken before its turn.
		taken := !row.State.Terminal() && !row.Turn().After(k.now) &&
			(decision == state.DecisionSend || decision == state.DecisionReclaim || decision == state.DecisionDiscard)
		decisions[decision]++
		gotHanded, isHanded := handed[want.ID]
		gotCode, isClosed := closed[want.ID]
		wantClosed := taken && code != "" && !returnExhausted
		if isClosed != wantClosed || isHanded != (taken && !wantClosed) {
			k.Errorf("%s: Decide says %s; handed out: %v, closed: %v", plainText(want), decision, isHanded, isClosed)
			continue
		}
		if (decision == state.DecisionSend || decision == state.DecisionReclaim) != (code == "") && taken {
			k.Errorf("%s: Decide says %s, Closing %q", plainText(want), decision, code)
		}
		switch {
		case isClosed:
			if gotCode != code {
				k.Errorf("%s: closed as %s, want %s", plainText(want), gotCode, code)
			}
			want.State, want.Token = state.Failed, store.Token{}
			want.LastErrorCategory, want.LastErrorCode = state.CategoryNetwork, code
			want.LeasedUntil, want.UpdatedAt = time.Time{}, k.now
		case isHanded:
			if gotHanded.Closing != code {
				k.Errorf("%s: handed out with %q, want %q", plainText(want), gotHanded.Closing, code)
			}
			if code == "" {
				want.Attempts++
			}
			want.State, want.Token = state.Processing, gotHanded.Token
			want.LeasedUntil, want.UpdatedAt = k.now.Add(lease), k.now
		}
		k.stored(want)
	}
	for _, d := range []state.Decision{
		state.DecisionSend, state.DecisionRetryLater, state.DecisionDiscard, state.DecisionReclaim, state.DecisionWait,
	} {
		if decisions[d] == 0 {
			k.Errorf("the grid has no row to %s", d)
		}
	}
}

package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// model is a store as the contract describes it, for one goroutine and without an error to give. It shares nothing with the
// stores but the pure functions of package state: what package store does for a store that reads a row, changes it and
// writes it (ClaimParams.Take, Message.Settle and the like) would be wrong in both at once.
type model struct {
	now  time.Time
	rows map[string]*modelRow // by id
}

type modelRow struct {
	store.Message
	left state.Transition // the settlement that left the row as it is; zero: something else did
}

// changed is to be called at every change of a row.
func (r *modelRow) changed(to state.State, now time.Time) {
	r.State, r.LeasedUntil, r.UpdatedAt, r.left = to, time.Time{}, now, state.Transition{}
}

func (m *model) byKey(tenant, key string) *modelRow {
	for _, r := range m.rows {
		if r.TenantID == tenant && r.IdempotencyKey == key {
			return r
		}
	}
	return nil
}

// due reports whether a claim takes or closes the row.
func (m *model) due(r *modelRow) bool {
	if r.State.Terminal() || r.Row().Turn().After(m.now) {
		return false
	}
	switch state.Decide(r.Row(), m.now) {
	case state.DecisionSend, state.DecisionReclaim, state.DecisionDiscard:
		return true
	}
	return false
}

func markAt(r *modelRow) store.Mark { return store.Mark{Turn: r.Row().Turn(), ID: r.ID} }

func compareMarks(a, b store.Mark) int {
	return cmp.Or(a.Turn.Compare(b.Turn), cmp.Compare(a.ID, b.ID))
}

// claim is what a claim with this token answers.
func (m *model) claim(p store.ClaimParams, token store.Token) store.Claim {
	var due []*modelRow
	for _, r := range m.rows {
		if r.Channel == p.Channel && m.due(r) && (p.From == store.Mark{} || compareMarks(markAt(r), p.From) > 0) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *modelRow) int { return compareMarks(markAt(a), markAt(b)) })
	c := store.Claim{Now: m.now, Mark: p.From}
	for _, r := range due[:min(p.Limit, len(due))] {
		place, code := markAt(r), state.Closing(r.Row(), m.now)
		if code != "" && !p.ReturnExhausted {
			r.changed(state.Failed, m.now)
			r.LastErrorCategory, r.LastErrorCode, r.Token = state.CategoryNetwork, code, store.Token{}
			c.Closed = append(c.Closed, store.Closed{ID: r.ID, Code: code})
			continue
		}
		r.changed(state.Processing, m.now)
		r.Token, r.LeasedUntil = token, m.now.Add(p.Lease.Truncate(time.Microsecond))
		if code == "" {
			r.Attempts++
		}
		if latest := (store.Mark{Turn: m.now.Add(-5 * time.Second)}); len(c.Messages) == 0 {
			c.Mark = slices.MinFunc([]store.Mark{place, latest}, compareMarks)
		}
		handed := r.Message
		handed.Closing = code
		c.Messages = append(c.Messages, handed)
	}
	return c
}

// holds reports whether the row is in the hands of whoever has the fence.
func (r *modelRow) holds(f store.Fence) bool {
	return r.State == state.Processing && r.Token == f.Token && r.LeasedUntil.Equal(f.LeasedUntil)
}

// settle also reports whether the verdict is of a settlement written now.
func (m *model) settle(s store.Settlement) (v store.Verdict, written bool) {
	r := m.rows[s.ID]
	switch {
	case r == nil || s.Token == store.Token{}:
		return store.Lost, false
	case r.Token == s.Token && r.left == s.Transition:
		// The one repeat that a store cannot know: see Settle's contract.
		if s.Event == state.EventRelease && r.NextAttemptAt.After(r.UpdatedAt) {
			return store.Lost, false
		}
		return store.Applied, false
	case !r.holds(s.Fence):
		return store.Lost, false
	}
	r.changed(s.To, m.now)
	r.left = s.Transition
	switch s.Event {
	case state.EventSend:
		r.ExternalID, r.SentAt = s.ExternalID, m.now
	case state.EventDefer, state.EventRelease:
		r.Attempts--
	}
	if s.Event == state.EventRetry || s.Event == state.EventDefer {
		r.NextAttemptAt = m.now.Add(s.Wait.Truncate(time.Microsecond))
	}
	if s.Event != state.EventRelease {
		r.LastErrorCategory, r.LastErrorCode = s.Category, s.Code
	}
	if s.Ambiguous {
		r.Doubts++
	}
	return store.Applied, true
}

func (m *model) renew(f store.Fence, d time.Duration) store.Verdict {
	renewed := f
	renewed.LeasedUntil = f.LeasedUntil.Add(d)
	r := m.rows[f.ID]
	switch {
	case r == nil || f.Token == store.Token{}:
	case r.holds(f):
		r.LeasedUntil, r.UpdatedAt = renewed.LeasedUntil, m.now
		return store.Applied
	case r.holds(renewed):
		return store.Applied
	}
	return store.Lost
}

func (m *model) requeue(id string) store.Verdict {
	r := m.rows[id]
	if r == nil || r.State != state.Failed && r.State != state.Discarded {
		return store.Lost
	}
	r.changed(state.Pending, m.now)
	r.Attempts, r.Token, r.ScheduledAt, r.NextAttemptAt = 0, store.Token{}, m.now, m.now
	return store.Applied
}

func (m *model) cancel(id string) store.Verdict {
	r := m.rows[id]
	if r == nil || r.State != state.Pending {
		return store.Lost
	}
	r.changed(state.Discarded, m.now)
	r.Token, r.LastErrorCategory, r.LastErrorCode = store.Token{}, state.CategoryRejected, state.CodeCancelled
	return store.Applied
}

func (m *model) purge(p store.PurgeParams) (gone int64) {
	for id, r := range m.rows {
		if r.State.Terminal() && (p.States == nil || slices.Contains(p.States, r.State)) && r.UpdatedAt.Before(p.Before) {
			delete(m.rows, id)
			gone++
		}
	}
	return gone
}

// nextDue is 0 when no turn lies ahead.
func (m *model) nextDue(channels []string) (next time.Duration) {
	for _, r := range m.rows {
		if in := r.Row().Turn().Sub(m.now); slices.Contains(channels, r.Channel) && in > 0 && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}

// stats are those of the last 24 hours.
func (m *model) stats() []store.ChannelStats {
	var all []store.ChannelStats
	for _, name := range []string{channel, otherChannel} {
		s := store.ChannelStats{Channel: name, Live: map[state.State]int64{}, Ended: map[state.State]int64{}}
		for _, r := range m.rows {
			switch {
			case r.Channel != name:
			case !r.State.Terminal():
				s.Live[r.State]++
				if m.due(r) {
					s.OldestDue = max(s.OldestDue, m.now.Sub(r.Row().Turn()))
				}
			case !r.UpdatedAt.Before(m.now.Add(-24 * time.Hour)):
				s.Ended[r.State]++
			}
		}
		if len(s.Live)+len(s.Ended) > 0 {
			all = append(all, s)
		}
	}
	return all
}

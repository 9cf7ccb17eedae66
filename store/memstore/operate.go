package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Get implements [store.Operator].
func (s *Store) Get(ctx context.Context, id string) (store.Message, error) {
	if err := s.acquire(ctx, "get", unblocked); err != nil {
		return store.Message{}, err
	}
	defer s.mu.Unlock()
	m, found := s.rows[id]
	if !found {
		return store.Message{}, store.ErrNotFound
	}
	return clone(m), nil
}

// GetByKey implements [store.Operator].
func (s *Store) GetByKey(ctx context.Context, tenantID, idempotencyKey string) (store.Message, error) {
	if err := s.acquire(ctx, "get", unblocked); err != nil {
		return store.Message{}, err
	}
	defer s.mu.Unlock()
	if stored, err := s.rules.CheckTenant(tenantID); err == nil { // foreign rows may have a tenant that breaks the rules
		tenantID = stored
	}
	m, found := s.rows[s.ids[key{tenantID, idempotencyKey}]]
	if !found {
		return store.Message{}, store.ErrNotFound
	}
	return clone(m), nil
}

// Requeue implements [store.Operator].
func (s *Store) Requeue(ctx context.Context, ids []string) ([]store.Verdict, error) {
	return s.act(ctx, "requeue", ids, (*store.Message).Requeue)
}

// Cancel implements [store.Operator].
func (s *Store) Cancel(ctx context.Context, ids []string) ([]store.Verdict, error) {
	return s.act(ctx, "cancel", ids, (*store.Message).Cancel)
}

func (s *Store) act(
	ctx context.Context, op string, ids []string, act func(*store.Message, time.Time) store.Verdict,
) ([]store.Verdict, error) {
	if err := s.acquire(ctx, op, s.rowsUnlocked(ids...)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now, verdicts := s.now(), make([]store.Verdict, len(ids))
	for i, id := range ids {
		if m := s.rows[id]; m != nil {
			verdicts[i] = act(m, now)
		}
	}
	return verdicts, nil
}

// NextDue implements [store.DueTimer].
func (s *Store) NextDue(ctx context.Context, channels []string) (time.Duration, bool, error) {
	if err := s.acquire(ctx, "next due", unblocked); err != nil {
		return 0, false, err
	}
	defer s.mu.Unlock()
	now, next := s.now(), time.Time{}
	for _, m := range s.rows {
		turn := m.Row().Turn()
		if slices.Contains(channels, m.Channel) && turn.After(now) && (next.IsZero() || turn.Before(next)) {
			next = turn
		}
	}
	if next.IsZero() {
		return 0, false, nil
	}
	return next.Sub(now), true, nil
}

// Channels implements [store.ChannelLister].
func (s *Store) Channels(ctx context.Context) ([]string, error) {
	if err := s.acquire(ctx, "channels", unblocked); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	live := map[string]bool{}
	for _, m := range s.rows {
		if isLive(m) {
			live[m.Channel] = true
		}
	}
	return slices.Sorted(maps.Keys(live)), nil
}

// Stats implements [store.Operator].
func (s *Store) Stats(ctx context.Context, p store.StatsParams) ([]store.ChannelStats, error) {
	if err := s.acquire(ctx, "stats", unblocked); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	if p.Since.IsZero() {
		p.Since = now.Add(-24 * time.Hour)
	}
	if p.Cap == 0 {
		p.Cap = store.DefaultStatsCap
	}
	live, ended := map[string][]*store.Message{}, []*store.Message{}
	stats := map[string]*store.ChannelStats{}
	for _, m := range s.rows {
		switch {
		case isLive(m):
			live[m.Channel] = append(live[m.Channel], m)
		case m.State.Terminal() && !m.UpdatedAt.Before(p.Since):
			ended = append(ended, m)
		default:
			continue
		}
		stats[m.Channel] = &store.ChannelStats{
			Channel: m.Channel, Live: map[state.State]int64{}, Ended: map[state.State]int64{},
		}
	}
	for channel, rows := range live {
		slices.SortFunc(rows, func(a, b *store.Message) int { return compare(place(a), place(b)) })
		c := stats[channel]
		c.LiveCapped = len(rows) > p.Cap
		for _, m := range rows[:min(p.Cap, len(rows))] {
			c.Live[m.State]++
		}
		oldest := slices.IndexFunc(rows, func(m *store.Message) bool { return s.isDue(m.ID, m.Row(), now) })
		if oldest >= 0 {
			c.OldestDue = now.Sub(rows[oldest].Row().Turn())
		}
	}
	slices.SortFunc(ended, func(a, b *store.Message) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range ended[:min(p.Cap, len(ended))] {
		stats[m.Channel].Ended[m.State]++
	}
	all := make([]store.ChannelStats, 0, len(stats))
	for _, channel := range slices.Sorted(maps.Keys(stats)) {
		stats[channel].EndedCapped = len(ended) > p.Cap
		all = append(all, *stats[channel])
	}
	return all, nil
}

// isLive is false for closed rows and for those of a foreign writer whose state nobody knows.
func isLive(m *store.Message) bool { return slices.Contains(state.LiveStates(), m.State) }

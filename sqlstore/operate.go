package sqlstore

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Get returns a row by id, or [store.ErrNotFound].
func (s *Store) Get(ctx context.Context, id string) (store.Message, error) {
	id, ok := s.dialect.id(id)
	if !ok {
		return store.Message{}, store.ErrNotFound
	}
	return s.getOne(ctx, s.sql.get, id)
}

// GetByKey returns a row by tenant and idempotency key, or [store.ErrNotFound].
func (s *Store) GetByKey(ctx context.Context, tenantID, key string) (store.Message, error) {
	tenant, err := s.rules.CheckTenant(tenantID)
	if err != nil {
		return store.Message{}, store.ErrNotFound
	}
	return s.getOne(ctx, s.sql.getByKey, tenant, key)
}

func (s *Store) getOne(ctx context.Context, query statement, args ...any) (store.Message, error) {
	rows, err := query.query(ctx, s.db, args...)
	if err != nil {
		return store.Message{}, s.fail("get", err)
	}
	found, err := scanMessages(rows, nil)
	if err != nil {
		return store.Message{}, s.fail("get", err)
	}
	if len(found) == 0 {
		return store.Message{}, store.ErrNotFound
	}
	return found[0], nil
}

// readClock asks for the store's now, the database's where it decides.
func (s *Store) readClock(ctx context.Context) (now time.Time, err error) {
	rows, err := s.sql.clock.query(ctx, s.db, s.now())
	if err != nil {
		return now, err
	}
	return now, each(rows, func(scan func(...any) error) error { return scan(dbTime{&now}) })
}

// NextDue returns the wait until the next turn in the future: see [store.DueTimer].
func (s *Store) NextDue(ctx context.Context, channels []string) (time.Duration, bool, error) {
	var least time.Duration
	found := false
	for _, c := range channels {
		rows, err := s.sql.nextDue.query(ctx, s.db, s.now(), c)
		if err == nil {
			err = each(rows, func(scan func(...any) error) error {
				var turn, now time.Time
				if err := scan(dbTime{&turn}, dbTime{&now}); err != nil {
					return err
				}
				if wait := turn.Sub(now); !found || wait < least {
					least, found = wait, true
				}
				return nil
			})
		}
		if err != nil {
			return 0, false, s.fail("next due", err)
		}
	}
	return least, found, nil
}

// Channels returns the channels that have live rows, by one look into the index for each: see [store.ChannelLister].
func (s *Store) Channels(ctx context.Context) ([]string, error) {
	var all []string
	for last, more := "", true; more; {
		rows, err := s.sql.nextChannel.query(ctx, s.db, last)
		if err == nil {
			more = false
			err = each(rows, func(scan func(...any) error) error {
				var live bool
				err := scan(&last, &live)
				if more = true; live {
					all = append(all, last)
				}
				return err
			})
		}
		if err != nil {
			return nil, s.fail("channels", err)
		}
	}
	return all, nil
}

// Stats counts per channel, through the indexes: see [store.Operator].
func (s *Store) Stats(ctx context.Context, p store.StatsParams) ([]store.ChannelStats, error) {
	if p.Cap == 0 {
		p.Cap = store.DefaultStatsCap
	}
	if p.Cap < 1 {
		return nil, &store.InvalidError{Field: "Cap", Reason: "must not be negative"}
	}
	now, err := s.readClock(ctx)
	if err != nil {
		return nil, s.fail("stats", err)
	}
	if p.Since.IsZero() {
		p.Since = now.Add(-24 * time.Hour)
	}
	channels, err := s.Channels(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*store.ChannelStats, len(channels))
	get := func(channel string) *store.ChannelStats {
		if all[channel] == nil {
			all[channel] = &store.ChannelStats{Channel: channel, Live: map[state.State]int64{}, Ended: map[state.State]int64{}}
		}
		return all[channel]
	}
	for _, channel := range channels {
		c := get(channel)
		counts, total, err := s.count(ctx, s.sql.liveCounts, channel, p.Cap)
		if err != nil {
			return nil, err
		}
		c.LiveCapped = total == int64(p.Cap)
		for k, n := range counts {
			c.Live[k.state] = n
		}
		rows, err := s.sql.oldestDue.query(ctx, s.db, s.dialect.time(now), channel)
		if err == nil {
			err = each(rows, func(scan func(...any) error) error {
				var turn time.Time
				err := scan(dbTime{&turn})
				c.OldestDue = now.Sub(turn)
				return err
			})
		}
		if err != nil {
			return nil, s.fail("stats", err)
		}
	}
	ended, total, err := s.count(ctx, s.sql.endedCounts, s.dialect.time(store.Microsecond(p.Since)), p.Cap)
	if err != nil {
		return nil, err
	}
	for k, n := range ended {
		get(k.channel).Ended[k.state] = n
	}
	stats := make([]store.ChannelStats, 0, len(all))
	for _, channel := range slices.Sorted(maps.Keys(all)) {
		c := all[channel]
		c.EndedCapped = total == int64(p.Cap)
		stats = append(stats, *c)
	}
	return stats, nil
}

type countKey struct {
	channel string
	state   state.State
}

func (s *Store) count(ctx context.Context, query statement, args ...any) (map[countKey]int64, int64, error) {
	counts, total := map[countKey]int64{}, int64(0)
	rows, err := query.query(ctx, s.db, args...)
	if err == nil {
		err = each(rows, func(scan func(...any) error) error {
			var k countKey
			var n int64
			err := scan(&k.channel, &k.state, &n)
			counts[k] = n
			total += n
			return err
		})
	}
	return counts, total, s.fail("stats", err)
}

// Requeue starts closed rows afresh: see [store.Operator].
func (s *Store) Requeue(ctx context.Context, ids []string) ([]store.Verdict, error) {
	return s.act(ctx, "requeue", s.sql.requeue, ids)
}

// Cancel withdraws waiting rows: see [store.Operator].
func (s *Store) Cancel(ctx context.Context, ids []string) ([]store.Verdict, error) {
	return s.act(ctx, "cancel", s.sql.cancel, ids)
}

func (s *Store) act(ctx context.Context, op string, a act[statement], ids []string) ([]store.Verdict, error) {
	places := make(map[string]int, len(ids)) // the first of each id, as it is stored
	for i, id := range ids {
		if id, ok := s.dialect.id(id); ok {
			if _, again := places[id]; !again {
				places[id] = i
			}
		}
	}
	verdicts := make([]store.Verdict, len(ids))
	now := s.now()
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(places)), chunkSize) {
		var done []string
		err := s.inTx(ctx, op, func(tx *sql.Tx) (err error) {
			done, err = s.dialect.act(ctx, tx, a, now, s.dialect.list(chunk))
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, id := range done {
			verdicts[places[id]] = store.Applied
		}
	}
	return verdicts, nil
}

package sqlstore

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// life runs every statement of the store once, on an empty table whose clock is the store's own: for settings and
// circumstances that could break any of them.
func life(t *testing.T, box *Store) {
	t.Helper()
	ctx := t.Context()
	must := func(what string, err error, ok bool) {
		t.Helper()
		if err != nil || !ok {
			t.Fatalf("%s: %v", what, err)
		}
	}
	applied := func(what string, want int, v []store.Verdict, err error) {
		t.Helper()
		must(what, err, len(v) == want && !slices.Contains(v, store.Lost))
	}
	ids := enqueue(t, box, "a", "b", "a", "z")
	must("a repeat", nil, ids[0] == ids[2])
	many := []store.NewMessage{message("d"), message("a"), message("c"), message("e"), message("c")}
	many[0].Data = map[string]string{"texto": "🎉 ñ \"\\ ?1 '"}
	many[3].ScheduledAt = time.Now().Add(time.Hour)
	all := enqueueAll(t, box, many)
	must("many", nil, all[0].Inserted && all[1] == (store.EnqueueResult{ID: ids[0]}) && all[4].ID == all[2].ID)

	c, err := box.Claim(ctx, store.ClaimParams{Channel: "correo", Limit: 3, Lease: time.Minute})
	must("claim", err, len(c.Messages) == 3)
	m := c.Messages
	v, err := box.Renew(ctx, []store.Fence{m[0].Fence(), m[1].Fence()}, time.Minute)
	applied("renew", 2, v, err)
	m[0].LeasedUntil, m[1].LeasedUntil = m[0].LeasedUntil.Add(time.Minute), m[1].LeasedUntil.Add(time.Minute)
	retry := sent(m[1])
	retry.Transition = state.Transition{Event: state.EventRetry, To: state.Pending, Wait: time.Hour, Category: state.CategoryNetwork, Code: "http_503"}
	for range 2 { // the repeat too
		v, err = box.Settle(ctx, []store.Settlement{retry, sent(m[0])})
		applied("settle", 2, v, err)
	}
	one, err := box.SettleTx(ctx, sent(m[2]), func(ctx context.Context, tx store.Tx) error {
		_, err := box.Enqueue(ctx, tx, message("next"))
		return err
	})
	must("settle with work", err, one == store.Applied)

	got, err := box.Get(ctx, retry.ID)
	must("get", err, got.State == state.Pending && got.NextAttemptAt.Sub(got.UpdatedAt) == time.Hour && got.LastErrorCode == "http_503")
	got, err = box.GetByKey(ctx, tenant, "d")
	must("get by key", err, got.ID == all[0].ID)
	wait, ok, err := box.NextDue(ctx, []string{"correo"})
	must("next due", err, ok && wait > 55*time.Minute && wait <= time.Hour)
	channels, err := box.Channels(ctx)
	must("channels", err, slices.Equal(channels, []string{"correo"}))
	stats, err := box.Stats(ctx, store.StatsParams{})
	must("stats", err, len(stats) == 1 && stats[0].Live[state.Pending] == 5 && stats[0].Ended[state.Sent] == 2)
	v, err = box.Cancel(ctx, []string{all[0].ID, all[2].ID})
	applied("cancel", 2, v, err)
	v, err = box.Requeue(ctx, []string{all[2].ID})
	applied("requeue", 1, v, err)
	mark, err := box.peek(ctx, claimParams(), box.now())
	must("peek", err, mark.ID != "")
	drained, err := drain(ctx, box, 10)
	must("drain", err, len(drained) == 2)
	n, err := box.Purge(ctx, store.PurgeParams{Before: time.Now().Add(time.Hour), Batch: 2})
	must("purge", err, n == 5)
}

package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var concurrencyCases = []testCase{
	{"no row is claimed twice", raceClaims},
	{"one row, many claimers", raceOneRow},
	{"one settlement wins", raceSettlements},
	{"the same settlement wins twice", raceRepeats},
	{"groups in opposite order", raceGroups},
	{"with work and without", raceSettleTx},
	{"renewer or settler", raceRenew},
	{"cancelled or claimed", raceCancel},
	{"a large group", raceLargeGroup},
}

// race starts n goroutines together and waits for all. Their errors are the test's.
func (k *kit) race(n int, run func(i int) error) {
	k.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			if err := run(i); err != nil {
				k.Errorf("goroutine %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
}

// duel runs two writers on each of n claimed rows, all together, and returns their verdicts.
func (k *kit) duel(rows []store.Message, a, b func(store.Message) (store.Verdict, error)) [][2]store.Verdict {
	k.Helper()
	verdicts := make([][2]store.Verdict, len(rows))
	// Row by row, so that both meet on the same one; in turns, so that neither is always first.
	for i, m := range rows {
		k.race(2, func(j int) (err error) {
			write := a
			if j == 1 {
				write = b
			}
			verdicts[i][j], err = write(m)
			return err
		})
		a, b = b, a
		if i%2 == 1 {
			verdicts[i][0], verdicts[i][1] = verdicts[i][1], verdicts[i][0]
		}
	}
	return verdicts
}

// oneEach fails unless in every duel exactly one side was applied.
func (k *kit) oneEach(verdicts [][2]store.Verdict) {
	k.Helper()
	for i, v := range verdicts {
		if v[0] == v[1] {
			k.Errorf("row %d: both sides are %v", i, v[0])
		}
	}
}

const duels = 40

// claimedRows puts and claims n rows.
func (k *kit) claimedRows(n int) []store.Message {
	k.Helper()
	for range n {
		k.put()
	}
	rows := k.claim(func(p *store.ClaimParams) { p.Limit = n }).Messages
	if len(rows) != n {
		k.Fatalf("claimed %d rows of %d", len(rows), n)
	}
	return rows
}

// settling is one side of a duel.
func (k *kit) settling(t state.Transition) func(store.Message) (store.Verdict, error) {
	return func(m store.Message) (store.Verdict, error) {
		verdicts, err := k.Store.Settle(k.Context(), []store.Settlement{with(m, t)})
		if err != nil {
			return store.Lost, err
		}
		return verdicts[0], nil
	}
}

func raceClaims(k *kit) {
	const claimers, rows = 8, 250
	for range rows {
		k.put()
	}
	claims := make([][]store.Message, claimers+1)
	claimAll := func(i int) error {
		for {
			c, err := k.Store.Claim(k.Context(), store.ClaimParams{Channel: channel, Limit: 7, Lease: lease})
			if err != nil || len(c.Messages) == 0 {
				return err
			}
			claims[i] = append(claims[i], c.Messages...)
		}
	}
	k.race(claimers, claimAll)
	k.ok(claimAll(claimers)) // what the others, passing over each other's rows, may have left
	seen := map[string]int{}
	for i, messages := range claims {
		for _, m := range messages {
			if first, twice := seen[m.ID]; twice {
				k.Errorf("row %s was claimed by %d and by %d", m.ID, first, i)
			}
			seen[m.ID] = i
			if m.Attempts != 2 {
				k.Errorf("row %s has %d attempts", m.ID, m.Attempts)
			}
		}
		inOrder := func(a, b store.Message) int { return a.Row().Turn().Compare(b.Row().Turn()) }
		if !slices.IsSortedFunc(messages, inOrder) {
			k.Errorf("claimer %d got rows out of order", i)
		}
	}
	if len(seen) != rows {
		k.Errorf("%d rows were claimed, want %d", len(seen), rows)
	}
}

func raceOneRow(k *kit) {
	for range 20 {
		m := k.put()
		got := make([]int, 4)
		k.race(len(got), func(i int) error {
			c, err := k.Store.Claim(k.Context(), store.ClaimParams{Channel: channel, Limit: 1, Lease: lease})
			got[i] = len(c.Messages)
			return err
		})
		sum := 0
		for _, n := range got {
			sum += n
		}
		if sum != 1 {
			k.Errorf("row %s was claimed %d times", m.ID, sum)
		}
	}
}

func raceSettlements(k *kit) {
	for _, pair := range [][2]state.Transition{{send, fail}, {retry, discard}, {release, deferral}, {send, release}} {
		rows := k.claimedRows(duels / 4)
		verdicts := k.duel(rows, k.settling(pair[0]), k.settling(pair[1]))
		k.oneEach(verdicts)
		for i, m := range rows {
			winner := pair[0]
			if verdicts[i][1] == store.Applied {
				winner = pair[1]
			}
			k.stored(settled(m, winner, k.now))
			k.remove(m)
		}
	}
}

func raceRepeats(k *kit) {
	rows := k.claimedRows(duels)
	for i, v := range k.duel(rows, k.settling(retry), k.settling(retry)) {
		if v[0] != store.Applied || v[1] != store.Applied {
			k.Errorf("row %d: verdicts %v", i, v)
		}
		k.stored(settled(rows[i], retry, k.now))
	}
}

func raceGroups(k *kit) {
	rows := k.claimedRows(50)
	var forward []store.Settlement
	for _, m := range rows {
		forward = append(forward, with(m, send))
	}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	k.race(4, func(i int) error {
		group := forward
		if i%2 == 1 {
			group = backward
		}
		verdicts, err := k.Store.Settle(k.Context(), group)
		if slices.Contains(verdicts, store.Lost) {
			k.Errorf("verdicts %v", verdicts)
		}
		return err
	})
	for _, m := range rows {
		k.stored(settled(m, send, k.now))
	}
}

func raceSettleTx(k *kit) {
	settler, enqueuer := ability[store.TxSettler](k), ability[store.Enqueuer](k)
	rows := k.claimedRows(duels / 4)
	children := map[string]string{}
	withWork := func(m store.Message) (store.Verdict, error) {
		return settler.SettleTx(k.Context(), with(m, send), func(ctx context.Context, tx store.Tx) error {
			child := k.next()
			child.IdempotencyKey = m.ID
			res, err := enqueuer.Enqueue(ctx, tx, child)
			children[m.ID] = res.ID
			return err
		})
	}
	verdicts := k.duel(rows, withWork, k.settling(retry))
	k.oneEach(verdicts)
	for i, m := range rows {
		child, ran := children[m.ID]
		if verdicts[i][0] == store.Applied {
			k.stored(settled(m, send, k.now))
			k.get(child)
			continue
		}
		k.stored(settled(m, retry, k.now))
		if ran {
			k.gone(child)
		}
	}
}

func raceRenew(k *kit) {
	renewer := ability[store.Renewer](k)
	rows := k.claimedRows(duels / 4)
	renew := func(m store.Message) (store.Verdict, error) {
		verdicts, err := renewer.Renew(k.Context(), []store.Fence{m.Fence()}, lease)
		if err != nil {
			return store.Lost, err
		}
		return verdicts[0], nil
	}
	k.oneEach(k.duel(rows, renew, k.settling(send)))
}

func raceCancel(k *kit) {
	operator := ability[store.Operator](k)
	var verdicts [][2]store.Verdict
	for range duels / 4 {
		m := k.put()
		cancel := func(m store.Message) (store.Verdict, error) {
			verdicts, err := operator.Cancel(k.Context(), []string{m.ID})
			if err != nil {
				return store.Lost, err
			}
			return verdicts[0], nil
		}
		claim := func(store.Message) (store.Verdict, error) {
			c, err := k.Store.Claim(k.Context(), store.ClaimParams{Channel: channel, Limit: 1, Lease: lease})
			if len(c.Messages) == 1 {
				return store.Applied, err
			}
			return store.Lost, err
		}
		verdicts = append(verdicts, k.duel([]store.Message{m}, cancel, claim)...)
	}
	for i, v := range verdicts {
		// A claim may pass over the row while the cancelling transaction has it, but never both.
		if v[0] == store.Applied && v[1] == store.Applied {
			k.Errorf("row %d was cancelled and claimed", i)
		}
		if v[0] == store.Lost && v[1] == store.Lost {
			k.Errorf("row %d was neither cancelled nor claimed", i)
		}
	}
}

func raceLargeGroup(k *kit) {
	const rows = 1200 // more than a store may want to put into one statement
	var messages []store.NewMessage
	for range rows {
		messages = append(messages, k.message())
	}
	k.enqueue(messages...)
	c := k.claim(func(p *store.ClaimParams) { p.Limit = store.MaxClaim })
	if len(c.Messages) != rows {
		k.Fatalf("claimed %d rows", len(c.Messages))
	}
	var group []store.Settlement
	for i, m := range c.Messages {
		t := send
		if i%2 == 1 {
			t = retry
		}
		group = append(group, with(m, t))
	}
	for range 2 {
		verdicts, err := k.Store.Settle(k.Context(), group)
		k.ok(err)
		if len(verdicts) != rows || slices.Contains(verdicts, store.Lost) {
			k.Fatalf("%d verdicts, some of them lost: %v", len(verdicts), slices.Contains(verdicts, store.Lost))
		}
	}
	k.stored(settled(c.Messages[rows-2], send, k.now))
	k.stored(settled(c.Messages[rows-1], retry, k.now))
}

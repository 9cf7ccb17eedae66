package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// defaultSequences is how many random sequences are tried unless somebody asks for another number. They are 30 acts long on
// average, unless -rapid.steps says otherwise.
const defaultSequences = 12

var modelCases = []testCase{
	{"random sequences", randomSequences},
}

// randomSequences does random acts to the store and to the model.
func randomSequences(first *kit) {
	first.need(first.SetClock != nil, "Fixture.SetClock")
	_, enqueues := first.Store.(store.Enqueuer)
	first.need(enqueues || first.Put != nil, "store.Enqueuer and Fixture.Put")

	// rapid has no way to say less than its own number of checks but a flag of the whole process, which is not ours to set.
	asked := flag.Lookup("rapid.checks").DefValue != "100" // by RAPID_CHECKS
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	left, failed := defaultSequences, false
	if asked {
		left = -1
	}
	fixture, sequences, acts := first.Fixture, 0, map[string]int{}
	rapid.Check(first.reporter, func(rt *rapid.T) {
		if left == 0 && !failed {
			return
		}
		passed := false
		defer func() { failed = failed || !passed }()
		// A sequence that passes leaves an empty table to the next one. What others leave must not spoil their repetition.
		if failed {
			fixture = first.another()
		}
		k := newKit(rt, fixture)
		r := &sequence{kit: k, want: model{now: k.now, rows: map[string]*modelRow{}}, tokens: map[store.Token]bool{}, acts: acts}
		rt.Repeat(r.actions())
		r.finish()
		sequences++
		left--
		passed = !rt.Failed()
	})
	first.Logf("%d sequences, acts %v", sequences, acts)
}

// sequence is one random sequence of acts: what the store has handed out, and what the model says that it should have.
type sequence struct {
	*kit
	want    model
	ids     []string           // of all rows there have ever been, and of some that were rolled back
	handed  []store.Message    // claimed rows, under every fence that was ever good
	written []store.Settlement // settlements that were applied
	mark    store.Mark
	tokens  map[store.Token]bool
	touched []string // rows to compare after this act
	acts    map[string]int
}

// act is something to do with a store, at random.
type act struct {
	name string
	do   func(*rapid.T)
}

// actions are the acts that the store is able to do. Those that come first, or twice, are done more often.
func (r *sequence) actions() map[string]func(*rapid.T) {
	claim, settle := act{"claim", r.claimAct}, act{"settle", r.settleAct}
	always := []act{claim}
	withRows := []act{{"clock", r.clockAct}, {"purge", r.purgeAct}}
	withClaims := []act{settle, settle}
	if _, ok := r.Store.(store.Enqueuer); ok {
		always = append(always, act{"enqueue", r.enqueueAct})
	}
	if r.Put != nil {
		always = append(always, act{"foreign row", r.foreignRow})
		withRows = append(withRows, act{"foreign lease", r.foreignLease})
	}
	if operator, ok := r.Store.(store.Operator); ok {
		withRows = append(withRows,
			act{"requeue", func(rt *rapid.T) { r.operate(rt, operator.Requeue, r.want.requeue) }},
			act{"cancel", func(rt *rapid.T) { r.operate(rt, operator.Cancel, r.want.cancel) }})
	}
	if settler, ok := r.Store.(store.TxSettler); ok {
		withClaims = append(withClaims, act{"settle tx", func(rt *rapid.T) { r.settleTxAct(rt, settler) }})
	}
	if renewer, ok := r.Store.(store.Renewer); ok {
		withClaims = append(withClaims, act{"renew", func(rt *rapid.T) { r.renewAct(rt, renewer) }})
	}
	withRows = slices.Concat(always, []act{claim}, withRows)
	withClaims = slices.Concat(withClaims, withRows)
	return map[string]func(*rapid.T){
		"act": func(rt *rapid.T) {
			possible := always
			switch {
			case len(r.handed) > 0:
				possible = withClaims
			case len(r.ids) > 0:
				possible = withRows
			}
			a := possible[rapid.IntRange(0, len(possible)-1).Draw(rt, "act")]
			rt.Log(a.name)
			a.do(rt)
			r.acts[a.name]++
		},
		"": func(*rapid.T) { r.compare() },
	}
}

// compare holds the rows of the last act to the model.
func (r *sequence) compare() {
	ids := r.touched
	r.touched = nil
	if r.Get == nil {
		return
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if want := r.want.rows[id]; want != nil {
			r.stored(want.Message)
		} else {
			r.gone(id)
		}
	}
}

// finish lets all leases and waits end and all that is left go out. Nothing may be stuck, lost or left over.
func (r *sequence) finish() {
	r.touched = slices.Clone(r.ids)
	r.compare()
	r.lookUp()
	r.step(1000 * time.Hour)
	for _, name := range []string{channel, otherChannel} {
		for range r.want.rows {
			c := r.claimAndCompare(store.ClaimParams{Channel: name, Limit: 5, Lease: lease})
			if len(c.Messages)+len(c.Closed) == 0 {
				break
			}
			var group []store.Settlement
			for _, m := range c.Messages {
				group = append(group, with(m, send))
			}
			r.settleAndCompare(group)
		}
	}
	r.step(time.Second)
	rows := int64(len(r.want.rows))
	r.want.purge(store.PurgeParams{Before: r.want.now})
	if n, err := r.Store.Purge(r.Context(), store.PurgeParams{Before: r.want.now}); err != nil || n != rows {
		r.Errorf("in the end %d rows were there and %d could be purged: %v", rows, n, err)
	}
	r.touched = r.ids
	r.compare()
}

func pick[V any](rt *rapid.T, label string, from ...V) V {
	return rapid.SampledFrom(from).Draw(rt, label)
}

// recent is one of the last few of all, the last ones most often.
func recent[V any](rt *rapid.T, label string, all []V) V {
	return all[len(all)-1-rapid.IntRange(0, min(len(all)-1, 11)).Draw(rt, label)]
}

func (r *sequence) step(d time.Duration) {
	r.tick(d)
	r.want.now = r.kit.now
}

func (r *sequence) clockAct(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "to a boundary") {
		if m := r.want.rows[recent(rt, "row", r.ids)]; m != nil {
			at := pick(rt, "which", m.Row().Turn(), m.LeasedUntil, m.ExpiresAt, m.UpdatedAt)
			if d := at.Sub(r.want.now); d.Abs() < 100*time.Hour {
				r.step(d + pick(rt, "off by", 0, time.Microsecond, -time.Microsecond))
				return
			}
		}
	}
	r.step(pick(rt, "by", time.Microsecond, time.Second, time.Minute, lease, time.Hour, -time.Microsecond, -time.Minute, -time.Hour))
}

// someTime is a time about now, or none.
func (r *sequence) someTime(rt *rapid.T, label string) time.Time {
	by := pick(rt, label, -time.Hour, -time.Microsecond, 0, time.Microsecond, time.Minute, noTime)
	if by == noTime {
		return time.Time{}
	}
	return r.want.now.Add(by)
}

const noTime time.Duration = -1 << 63

func (r *sequence) newMessage(rt *rapid.T) store.NewMessage {
	m := r.message(func(m *store.NewMessage) {
		m.TenantID = r.tenant(rapid.IntRange(1, 2).Draw(rt, "tenant"))
		m.IdempotencyKey = pick(rt, "key", "a", "A", "b", "c", "d", "e", "f")
		m.Channel = pick(rt, "channel", channel, channel, channel, otherChannel)
		m.Data = json.RawMessage(pick(rt, "data", `{"a":1,"b":2}`, `{"b":2, "a":1}`, `{"a":1,"b":3}`))
		m.MaxAttempts = rapid.IntRange(0, 3).Draw(rt, "attempts")
	})
	m.ScheduledAt, m.ExpiresAt = r.someTime(rt, "scheduled"), pick(rt, "expires", time.Time{}, r.want.now.Add(time.Minute))
	return m
}

// enqueueInTx enqueues in tx and returns the row to be, or nil where the key has a row already, in the table or among those
// of this transaction.
func (r *sequence) enqueueInTx(tx store.Tx, m store.NewMessage, others []*modelRow) (*modelRow, error) {
	res, err := r.Store.(store.Enqueuer).Enqueue(r.Context(), tx, m)
	if err != nil {
		return nil, err
	}
	r.ids, r.touched = append(r.ids, res.ID), append(r.touched, res.ID)
	data := m.Data.(json.RawMessage)
	old := r.want.byKey(m.TenantID, m.IdempotencyKey)
	for _, o := range others {
		if o.TenantID == m.TenantID && o.IdempotencyKey == m.IdempotencyKey {
			old = o
		}
	}
	if old != nil {
		differs := old.Channel != m.Channel || old.Destination != m.Destination || old.Template != m.Template || !sameJSON(old.Data, data)
		if want := (store.EnqueueResult{ID: old.ID, Differs: differs}); res != want {
			r.Errorf("a key in use: %+v, want %+v", res, want)
		}
		return nil, nil
	}
	if !res.Inserted || res.Differs || slices.Contains(r.ids[:len(r.ids)-1], res.ID) {
		r.Errorf("a new key: %+v", res)
	}
	row := store.Message{
		ID: res.ID, TenantID: m.TenantID, Channel: m.Channel, Destination: m.Destination, Template: m.Template, Data: data,
		IdempotencyKey: m.IdempotencyKey, State: state.Pending, MaxAttempts: cmp.Or(m.MaxAttempts, store.DefaultMaxAttempts),
		ScheduledAt: m.ScheduledAt, ExpiresAt: m.ExpiresAt, CreatedAt: r.want.now, UpdatedAt: r.want.now,
	}
	if row.ScheduledAt.IsZero() {
		row.ScheduledAt = r.want.now
	}
	return &modelRow{Message: row}, nil
}

func (r *sequence) enqueueAct(rt *rapid.T) {
	tx := r.begin()
	var rows []*modelRow
	for range rapid.IntRange(1, 3).Draw(rt, "messages") {
		row, err := r.enqueueInTx(tx, r.newMessage(rt), rows)
		r.ok(err)
		if row != nil {
			rows = append(rows, row)
		}
	}
	if !pick(rt, "commit", true, true, true, false) {
		r.ok(tx.Rollback())
		return
	}
	r.ok(tx.Commit())
	for _, row := range rows {
		r.want.rows[row.ID] = row
	}
}

// foreignRow is a row in any state that somebody else wrote.
func (r *sequence) foreignRow(rt *rapid.T) {
	m := r.put(func(m *store.Message) {
		m.State = rapid.SampledFrom(state.States()).Draw(rt, "state")
		m.MaxAttempts, m.Attempts = 2, rapid.IntRange(0, 3).Draw(rt, "attempts")
		m.ScheduledAt, m.NextAttemptAt = r.want.now.Add(-time.Hour), r.someTime(rt, "next")
		if !m.State.Terminal() {
			m.LeasedUntil, m.ExpiresAt = r.someTime(rt, "lease"), r.someTime(rt, "expires")
		}
	})
	r.want.rows[m.ID] = &modelRow{Message: m}
	r.ids = append(r.ids, m.ID)
}

// foreignLease is a claim by a worker that knows nothing of tokens.
func (r *sequence) foreignLease(rt *rapid.T) {
	m := r.want.rows[recent(rt, "row", r.ids)]
	if m == nil || !r.want.due(m) {
		return
	}
	m.changed(state.Processing, r.want.now)
	m.Attempts++
	// A lease of its own: by chance the same as one of ours would be ours, as the token stays.
	m.LeasedUntil = r.want.now.Add(time.Minute + 333*time.Microsecond)
	r.overwrite(m.Message)
	r.touched = append(r.touched, m.ID)
}

func (r *sequence) claimAct(rt *rapid.T) {
	p := store.ClaimParams{
		Channel: pick(rt, "channel", channel, channel, channel, otherChannel),
		Limit:   pick(rt, "limit", 1, 2, 3, 100),
		Lease:   pick(rt, "lease", lease, time.Minute+1234, time.Millisecond),
		From:    pick(rt, "from", store.Mark{}, store.Mark{}, r.mark),

		ReturnExhausted: rapid.Bool().Draw(rt, "return exhausted"),
	}
	if len(r.ids) > 0 && rapid.IntRange(0, 3).Draw(rt, "from a row") == 0 {
		if m := r.want.rows[recent(rt, "row", r.ids)]; m != nil {
			p.From = markAt(m)
		}
	}
	r.mark = r.claimAndCompare(p).Mark
}

func (r *sequence) claimAndCompare(p store.ClaimParams) store.Claim {
	got, err := r.Store.Claim(r.Context(), p)
	r.ok(err)
	var token store.Token
	if len(got.Messages) > 0 {
		if token = got.Messages[0].Token; token == (store.Token{}) || r.tokens[token] {
			r.Errorf("the token of a claim is %v, of earlier ones %v", token, r.tokens)
		}
		r.tokens[token] = true
	}
	want := r.want.claim(p, token)
	if len(got.Messages) != len(want.Messages) || len(got.Closed) != len(want.Closed) || len(got.Refused) != 0 {
		r.Fatalf("%+v\nclaimed %v, closed %v, refused %v; want\n        %v, closed %v", p,
			messageIDs(got), got.Closed, got.Refused, messageIDs(want), want.Closed)
	}
	for i := range want.Messages {
		if d := diff(got.Messages[i], want.Messages[i]); d != "" {
			r.Errorf("claimed row %d:%s", i, d)
		}
		r.touched = append(r.touched, want.Messages[i].ID)
	}
	for _, closed := range want.Closed {
		if !slices.Contains(got.Closed, closed) {
			r.Errorf("closed %v, want %v", got.Closed, want.Closed)
		}
		r.touched = append(r.touched, closed.ID)
	}
	if got.Mark.ID != want.Mark.ID || !got.Mark.Turn.Equal(want.Mark.Turn) {
		r.Errorf("the mark is %v, want %v", got.Mark, want.Mark)
	}
	if len(want.Messages)+len(want.Closed) > 0 && !got.Now.Equal(want.Now) {
		r.Errorf("claimed at %v, want %v", got.Now, want.Now)
	}
	r.handed = append(r.handed, want.Messages...)
	return want
}

// settlement is right, late, repeated or forged.
func (r *sequence) settlement(rt *rapid.T) store.Settlement {
	if len(r.written) > 0 && rapid.IntRange(0, 3).Draw(rt, "repeat") == 0 {
		return recent(rt, "settlement", r.written)
	}
	m := recent(rt, "claim", r.handed)
	s := with(m, rapid.SampledFrom(variants()).Draw(rt, "as"))
	if m.Closing != "" { // there is no attempt to give back
		s.Transition = fail
	}
	s.Fence = r.maybeForged(rt, s.Fence)
	return s
}

func (r *sequence) maybeForged(rt *rapid.T, f store.Fence) store.Fence {
	switch rapid.IntRange(0, 15).Draw(rt, "forged") {
	case 15:
		f.Token[0] ^= 1
	case 14:
		f.LeasedUntil = f.LeasedUntil.Add(time.Microsecond)
	case 13:
		f.LeasedUntil = f.LeasedUntil.Add(-time.Microsecond)
	case 12:
		f.Token = store.Token{}
	case 11:
		// Not a row of the same claim: that fence may be good.
		if id := recent(rt, "of row", r.ids); r.want.rows[id] == nil || r.want.rows[id].Token != f.Token {
			f.ID = id
		}
	}
	return f
}

func (r *sequence) settleAct(rt *rapid.T) {
	var group []store.Settlement
	for range rapid.IntRange(1, 4).Draw(rt, "settlements") {
		group = append(group, r.settlement(rt))
	}
	r.settleAndCompare(group)
}

func (r *sequence) settleAndCompare(group []store.Settlement) {
	got, err := r.Store.Settle(r.Context(), group)
	r.ok(err)
	var want []store.Verdict
	for _, s := range group {
		verdict, written := r.want.settle(s)
		if written {
			r.written = append(r.written, s)
		}
		want, r.touched = append(want, verdict), append(r.touched, s.ID)
	}
	r.verdicts(got, want...)
}

func (r *sequence) settleTxAct(rt *rapid.T, settler store.TxSettler) {
	s, child := r.settlement(rt), r.newMessage(rt)
	_, enqueues := r.Store.(store.Enqueuer)
	var broken error
	if rapid.Bool().Draw(rt, "broken") {
		broken = errors.New("the work is broken")
	}
	ran, row := false, (*modelRow)(nil)
	got, err := settler.SettleTx(r.Context(), s, func(ctx context.Context, tx store.Tx) (err error) {
		if ran = true; enqueues {
			row, err = r.enqueueInTx(tx, child, nil)
		}
		return errors.Join(err, broken)
	})
	r.touched = append(r.touched, s.ID)
	before := r.want.rows[s.ID]
	if before != nil {
		kept := *before
		before = &kept
	}
	want, written := r.want.settle(s)
	if ran != written {
		r.Errorf("the work was done: %v, want %v", ran, written)
	}
	if written && broken != nil {
		r.want.rows[s.ID], want = before, store.Lost
		if !errors.Is(err, broken) {
			r.Errorf("work that fails gave %v", err)
		}
	} else {
		r.ok(err)
		if written {
			r.written = append(r.written, s)
		}
		if row != nil {
			r.want.rows[row.ID] = row
		}
	}
	r.verdicts([]store.Verdict{got}, want)
}

func (r *sequence) renewAct(rt *rapid.T, renewer store.Renewer) {
	by := pick(rt, "by", time.Minute, time.Microsecond)
	var fences []store.Fence
	var rows []store.Message
	for range rapid.IntRange(1, 3).Draw(rt, "fences") {
		m := recent(rt, "claim", r.handed)
		rows, fences = append(rows, m), append(fences, r.maybeForged(rt, m.Fence()))
	}
	got, err := renewer.Renew(r.Context(), fences, by)
	r.ok(err)
	var want []store.Verdict
	for i, f := range fences {
		verdict := r.want.renew(f, by)
		want, r.touched = append(want, verdict), append(r.touched, f.ID)
		if verdict == store.Applied {
			renewed := rows[i]
			renewed.ID, renewed.LeasedUntil = f.ID, f.LeasedUntil.Add(by)
			r.handed = append(r.handed, renewed)
			r.eitherUpdated(f.ID)
		}
	}
	r.verdicts(got, want...)
}

// eitherUpdated takes over what a store says of the time of change of a renewed row: a repeat may touch it or not.
func (r *sequence) eitherUpdated(id string) {
	if r.Get == nil {
		return
	}
	if got := r.get(id); got.UpdatedAt.Equal(r.want.now) {
		r.want.rows[id].UpdatedAt = r.want.now
	}
}

func (r *sequence) operate(rt *rapid.T, act func(context.Context, []string) ([]store.Verdict, error), of func(string) store.Verdict) {
	var ids []string
	for range rapid.IntRange(1, 3).Draw(rt, "rows") {
		ids = append(ids, recent(rt, "row", r.ids))
	}
	got, err := act(r.Context(), ids)
	r.ok(err)
	var want []store.Verdict
	for _, id := range ids {
		want = append(want, of(id))
	}
	r.touched = append(r.touched, ids...)
	r.verdicts(got, want...)
}

func (r *sequence) purgeAct(rt *rapid.T) {
	p := store.PurgeParams{
		Before: r.want.now.Add(pick(rt, "before", -time.Minute, 0, time.Microsecond, time.Hour)),
		States: pick(rt, "states", nil, []state.State{state.Sent}, []state.State{state.Failed, state.Discarded}),
		Batch:  pick(rt, "batch", 0, 1, 2),
	}
	want := r.want.purge(p)
	r.kit.purge(want, p)
	r.touched = slices.Clone(r.ids)
}

// lookUp compares what the store says of all rows together.
func (r *sequence) lookUp() {
	if timer, ok := r.Store.(store.DueTimer); ok {
		channels := []string{channel, otherChannel}
		got, found, err := timer.NextDue(r.Context(), channels)
		r.ok(err)
		if want := r.want.nextDue(channels); got != want || found != (want > 0) {
			r.Errorf("next due in %v (%v), want %v", got, found, want)
		}
	}
	stats := r.want.stats()
	if lister, ok := r.Store.(store.ChannelLister); ok {
		got, err := lister.Channels(r.Context())
		r.ok(err)
		var want []string
		for _, s := range stats {
			if len(s.Live) > 0 {
				want = append(want, s.Channel)
			}
		}
		if !slices.Equal(got, want) {
			r.Errorf("channels %q, want %q", got, want)
		}
	}
	if operator, ok := r.Store.(store.Operator); ok {
		got, err := operator.Stats(r.Context(), store.StatsParams{})
		r.ok(err)
		if !slices.EqualFunc(got, stats, sameStats) {
			r.Errorf("stats %+v, want %+v", got, stats)
		}
	}
}

func sameStats(a, b store.ChannelStats) bool {
	for _, s := range state.States() {
		if a.Live[s] != b.Live[s] || a.Ended[s] != b.Ended[s] {
			return false
		}
	}
	return a.Channel == b.Channel && a.OldestDue == b.OldestDue && a.LiveCapped == b.LiveCapped && a.EndedCapped == b.EndedCapped
}

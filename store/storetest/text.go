package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

var textCases = []testCase{
	{"keys are compared byte for byte", textKeys},
	{"tenants", textTenants},
	{"tenant and key together", textProviderKey},
	{"keys of foreign writers", textForeignKeys},
	{"texts come back as they went in", textTexts},
	{"data comes back as it went in", textData},
	{"a payload at the limit", textLargeData},
	{"times in any zone", textTimes},
}

func textKeys(k *kit) {
	long := strings.Repeat("k", store.MaxKeyLength-1)
	ids := map[string]string{}
	for _, key := range []string{
		"pedido-A", "pedido-a", "pedido_a", "PEDIDO-A", "pedido%", "1", "01", "1.0", long + "a", long + "A", long + "b",
	} {
		res := k.enqueue(k.message(func(m *store.NewMessage) { m.IdempotencyKey = key }))
		if !res.Inserted {
			k.Errorf("the key %q was taken for %q", key, ids[res.ID])
		}
		ids[res.ID] = key
	}
	for id, key := range ids {
		if got := k.get(id).IdempotencyKey; got != key {
			k.Errorf("the key %q came back as %q", key, got)
		}
	}
}

// textTenants: texts differ by a single byte, UUIDs do not by their spelling.
func textTenants(k *kit) {
	const lower = "7e000000-abcd-4000-8000-00000000ef01"
	if !k.TextTenant {
		m := k.message(func(m *store.NewMessage) { m.TenantID = strings.ToUpper(lower) })
		first := k.enqueue(m)
		if got := k.get(first.ID).TenantID; got != lower {
			k.Errorf("the tenant is stored as %q", got)
		}
		m.TenantID = lower
		if got, want := k.enqueue(m), (store.EnqueueResult{ID: first.ID}); got != want {
			k.Errorf("the same tenant in lower case: %+v, want %+v", got, want)
		}
		return
	}
	for _, tenant := range []string{"T1", "t1", "t_1", "T1 b", lower, strings.ToUpper(lower)} {
		m := k.message(func(m *store.NewMessage) { m.TenantID, m.IdempotencyKey = tenant, "clave" })
		if res := k.enqueue(m); !res.Inserted || k.get(res.ID).TenantID != tenant {
			k.Errorf("the tenant %q: %+v", tenant, res)
		}
	}
}

func textProviderKey(k *kit) {
	enqueuer, tx := ability[store.Enqueuer](k), k.begin()
	m := k.message(func(m *store.NewMessage) { m.IdempotencyKey = strings.Repeat("k", store.MaxKeyLength) })
	if k.TextTenant {
		m.TenantID = strings.Repeat("t", store.MaxProviderKeyLength-1-store.MaxKeyLength)
	}
	res, err := enqueuer.Enqueue(k.Context(), tx, m)
	k.ok(err)
	if k.TextTenant {
		longer := m
		longer.TenantID += "t"
		_, err = enqueuer.Enqueue(k.Context(), tx, longer)
		k.invalid(err, "IdempotencyKey")
	}
	colon := m
	colon.TenantID, colon.IdempotencyKey = "a:b", "c" // would give the provider the key of tenant a's b:c
	_, err = enqueuer.Enqueue(k.Context(), tx, colon)
	k.invalid(err, "TenantID")
	k.ok(tx.Commit())
	row := k.get(res.ID)
	if got := row.ProviderKey(); got != m.TenantID+":"+m.IdempotencyKey || !store.TravellingKey(got) {
		k.Errorf("the provider's key is %q", got)
	}
}

func textForeignKeys(k *kit) {
	keys := []string{
		"café", "cafe", "CAFÉ", "cafe\u0301", "ß", "ss", "日本", "\U0001F4E8",
		"a:b", strings.Repeat("é", store.MaxKeyLength),
	}
	for _, key := range keys {
		k.put(func(m *store.Message) { m.IdempotencyKey, m.NextAttemptAt = key, k.now })
	}
	c := k.claim()
	if len(c.Messages) != len(keys) {
		k.Fatalf("claimed %d rows of %d", len(c.Messages), len(keys))
	}
	operator, hasOperator := k.Store.(store.Operator)
	for i, m := range c.Messages {
		if m.IdempotencyKey != keys[i] {
			k.Errorf("the key %q came back as %q", keys[i], m.IdempotencyKey)
		}
		if !hasOperator {
			continue
		}
		if got, err := operator.GetByKey(k.Context(), m.TenantID, keys[i]); err != nil || got.ID != m.ID {
			k.Errorf("the key %q found row %q: %v", keys[i], got.ID, err)
		}
	}
}

func textTexts(k *kit) {
	for _, text := range []string{
		"o'brien \"x\" \\ % _ $1 ? :a @b", "Ñandú ß 日本語 العربية", "\U0001F4E8\U0001F468\u200d\U0001F469",
		"e\u0301 é", "<b>&amp;</b>", "null", "a  b",
	} {
		m := k.message(func(m *store.NewMessage) {
			m.Destination, m.Template, m.Headers = text, text, map[string]string{"nota": text}
		})
		got := k.get(k.enqueue(m).ID)
		if got.Destination != text || got.Template != text || got.Headers["nota"] != text {
			k.Errorf("%q came back as %q, %q and %q", text, got.Destination, got.Template, got.Headers["nota"])
		}
		if res := k.enqueue(m); res.Differs {
			k.Errorf("%q differs from itself", text)
		}
	}
}

func textData(k *kit) {
	deep := strings.Repeat("[", 30) + strings.Repeat("]", 30)
	for _, c := range []struct {
		data any
		want string
	}{
		{nil, `{}`},
		{json.RawMessage(nil), `{}`},
		{json.RawMessage(`null`), `null`},
		{json.RawMessage(`{}`), `{}`},
		{json.RawMessage(`[]`), `[]`},
		{"texto", `"texto"`},
		{"", `""`},
		{false, `false`},
		{0, `0`},
		{map[string]any{"id": uint64(9007199254740993)}, `{"id":9007199254740993}`},
		{json.RawMessage(`{"id":9007199254740993,"n":18446744073709551615,"f":1.0,"e":1e400,"x":null}`), ""},
		{json.RawMessage(`[-0.1,1e-7,123456789012345678901234567890.123456789]`), ""},
		{map[string]string{"html": "<a href='x'>\u2028&\U0001F4E8</a>"}, ""},
		{json.RawMessage(`"\\u0000 \\ud800 \ud83d\udce8 \b\f\n\r\t\/"`), ""},
		{json.RawMessage(deep), ""},
		{json.RawMessage(`{"":{"":[""]}}`), ""},
	} {
		m := k.message(func(m *store.NewMessage) { m.Data = c.data })
		want := c.want
		if want == "" {
			raw, err := json.Marshal(c.data)
			k.ok(err)
			want = string(raw)
		}
		got := k.get(k.enqueue(m).ID).Data
		if !json.Valid(got) || !sameJSON(json.RawMessage(want), got) {
			k.Errorf("%s came back as %s", want, got)
		}
		if res := k.enqueue(m); res.Inserted || res.Differs {
			k.Errorf("%s, enqueued again: %+v", want, res)
		}
	}
}

func textLargeData(k *kit) {
	text := strings.Repeat("x", store.DefaultMaxPayload-2) // and two quotes
	res := k.enqueue(k.message(func(m *store.NewMessage) { m.Data = text }))
	var got string
	k.ok(json.Unmarshal(k.get(res.ID).Data, &got))
	if got != text {
		k.Errorf("%d characters came back as %d", len(text), len(got))
	}
}

func textTimes(k *kit) {
	for i, at := range []time.Time{
		time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(2000, 1, 1, 0, 0, 0, 0, time.FixedZone("", -11*3600)),
		time.Date(2024, 3, 31, 2, 30, 0, 999_999_000, time.FixedZone("", 2*3600)), // skipped by summer time in Madrid
		time.Date(2038, 1, 19, 3, 14, 8, 1000, time.UTC),
		time.Date(9998, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	} {
		want := k.put(func(m *store.Message) {
			m.State, m.ScheduledAt, m.NextAttemptAt, m.LeasedUntil, m.ExpiresAt = state.Processing, at, at, at, at
			m.SentAt, m.CreatedAt, m.UpdatedAt = at, at, at
			m.Channel = fmt.Sprintf("canal-%d", i)
		})
		k.stored(want)
		k.SetClock(at.Add(-time.Microsecond))
		p := store.ClaimParams{Channel: want.Channel, Limit: 1, Lease: lease}
		for _, due := range []int{0, 1} {
			c, err := k.Store.Claim(k.Context(), p)
			k.ok(err)
			if n := len(c.Messages) + len(c.Closed); n != due {
				k.Errorf("%v: %d rows were due, want %d", at, n, due)
			}
			k.SetClock(at)
		}
	}
	if _, err := k.Get(k.Context(), rowID(999)); !errors.Is(err, store.ErrNotFound) {
		k.Errorf("a row that never was: %v", err)
	}
}

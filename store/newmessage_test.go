package store_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/store"
)

const tenant = "7e000000-abcd-4000-8000-00000000ef01"

func valid() store.NewMessage {
	return store.NewMessage{
		TenantID: tenant, Channel: "correo", Destination: "ana@club.example", Template: "aviso", IdempotencyKey: "k",
	}
}

func field(err error) string {
	var invalid *store.InvalidError
	if !errors.As(err, &invalid) {
		return ""
	}
	return invalid.Field
}

// A message with many faults is refused for the first of them, in the documented order.
func TestEncodeOrder(t *testing.T) {
	broken := store.NewMessage{
		MaxAttempts: -1, ScheduledAt: time.Unix(-1, 0), ExpiresAt: time.Unix(-1, 0), Data: func() {},
		Headers: map[string]string{"": ""},
	}
	good := valid()
	for _, step := range []struct {
		field string
		mend  func()
	}{
		{"TenantID", func() { broken.TenantID = good.TenantID }},
		{"Channel", func() { broken.Channel = good.Channel }},
		{"Destination", func() { broken.Destination = good.Destination }},
		{"Template", func() { broken.Template = good.Template }},
		{"IdempotencyKey", func() { broken.IdempotencyKey = good.IdempotencyKey }},
		{"MaxAttempts", func() { broken.MaxAttempts = 1 }},
		{"ScheduledAt", func() { broken.ScheduledAt = time.Unix(0, 0) }},
		{"ExpiresAt", func() { broken.ExpiresAt = time.Unix(0, 0) }},
		{"Data", func() { broken.Data = nil }},
		{"Headers", func() { broken.Headers = nil }},
	} {
		_, err := store.Rules{}.Encode(broken)
		if got := field(err); got != step.field || !errors.Is(err, store.ErrInvalidOptions) {
			t.Fatalf("got %v, want the fault of %s", err, step.field)
		}
		step.mend()
	}
	if _, err := (store.Rules{}).Encode(broken); err != nil {
		t.Errorf("mended, it is refused: %v", err)
	}
}

func TestEncodeFillsIn(t *testing.T) {
	e, err := store.Rules{DefaultTenant: strings.ToUpper(tenant)}.Encode(store.NewMessage{
		Channel: "whatsapp", Destination: "+54", Template: "x", IdempotencyKey: "k",
		ScheduledAt: time.Date(2026, 1, 2, 3, 4, 5, 1999, time.FixedZone("", -3*3600)),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 1, 2, 6, 4, 5, 1000, time.UTC)
	if e.TenantID != tenant || e.MaxAttempts != store.DefaultMaxAttempts || e.ScheduledAt != want || !e.ExpiresAt.IsZero() {
		t.Errorf("filled in as tenant %s, %d attempts, %v, %v", e.TenantID, e.MaxAttempts, e.ScheduledAt, e.ExpiresAt)
	}
	if string(e.DataJSON) != "{}" || e.HeaderJSON != nil {
		t.Errorf("encoded as %s and %s", e.DataJSON, e.HeaderJSON)
	}
}

func TestTenants(t *testing.T) {
	const upper = "7E000000-ABCD-4000-8000-00000000EF01"
	for _, c := range []struct {
		name   string
		text   bool
		tenant string
		want   string // "": refused
	}{
		{"lower case", false, tenant, tenant},
		{"upper case", false, upper, tenant},
		{"nil UUID", false, "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"},
		{"empty", false, "", ""},
		{"blank at the end", false, tenant + " ", ""},
		{"in braces", false, "{" + tenant + "}", ""},
		{"with urn:uuid:", false, "urn:uuid:" + tenant, ""},
		{"digits alone", false, strings.ReplaceAll(tenant, "-", ""), ""},
		{"dashes elsewhere", false, "7e00000-0abcd-4000-8000-00000000ef01", ""},
		{"a letter too far", false, tenant[:35] + "g", ""},
		{"a word", false, "club", ""},
		{"text", true, "Club 1", "Club 1"},
		{"a UUID as text", true, upper, upper},
		{"200 bytes", true, strings.Repeat("t", 200), strings.Repeat("t", 200)},
		{"201 bytes", true, strings.Repeat("t", 201), ""},
		{"empty text", true, "", ""},
		{"colon", true, "a:b", ""},
		{"accent", true, "ñandú", ""},
		{"tab", true, "a\tb", ""},
		{"blank first", true, " a", ""},
		{"delete", true, "a\x7fb", ""},
		{"broken UTF-8", true, "a\xff", ""},
	} {
		got, err := store.Rules{TextTenant: c.text}.CheckTenant(c.tenant)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && field(err) != "TenantID" {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestProviderKeyLength(t *testing.T) {
	rules := store.Rules{TextTenant: true}
	for length, want := range map[int]string{55: "", 56: "IdempotencyKey", 200: "IdempotencyKey", 201: "TenantID"} {
		m := valid()
		m.TenantID, m.IdempotencyKey = strings.Repeat("t", length), strings.Repeat("k", 200)
		if _, err := rules.Encode(m); field(err) != want {
			t.Errorf("a tenant of %d bytes and a key of 200: %v", length, err)
		}
	}
}

func TestTexts(t *testing.T) {
	set := map[string]struct {
		limit int
		ascii bool
		put   func(*store.NewMessage, string)
	}{
		"Destination":    {store.MaxDestinationLength, false, func(m *store.NewMessage, s string) { m.Destination = s }},
		"Template":       {store.MaxTemplateLength, false, func(m *store.NewMessage, s string) { m.Template = s }},
		"IdempotencyKey": {store.MaxKeyLength, true, func(m *store.NewMessage, s string) { m.IdempotencyKey = s }},
	}
	for name, f := range set {
		for _, c := range []struct {
			text string
			ok   bool
		}{
			{"a", true},
			{"a b:c/d~!", true},
			{strings.Repeat("x", f.limit), true},
			{strings.Repeat("x", f.limit+1), false},
			{strings.Repeat("ñ", f.limit/2), !f.ascii},
			{strings.Repeat("ñ", f.limit/2+1), false}, // bytes count
			{"\U0001F4E8 ñ 日本", !f.ascii},
			{"", false},
			{" ", false},
			{" a", false},
			{"a ", false},
			{"a\u00a0", false},
			{"\u2003a", false},
			{"a\x00b", false},
			{"a\nb", false},
			{"a\r\nb", false},
			{"a\tb", false},
			{"a\x7fb", false},
			{"a\u0085b", false},
			{"a\xf4\x8d\x61\x24", false},
			{"\xed\xa0\x80", false}, // half a surrogate pair
		} {
			m := valid()
			f.put(&m, c.text)
			_, err := store.Rules{}.Encode(m)
			if (err == nil) != c.ok || err != nil && field(err) != name {
				t.Errorf("%s %q: %v", name, c.text, err)
			}
			if err != nil && len(c.text) > 1 && strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: the error repeats %q", name, c.text)
			}
		}
	}
}

func TestChannels(t *testing.T) {
	for _, c := range []struct {
		channels []string
		channel  string
		ok       bool
	}{
		{nil, "correo", true},
		{nil, "whatsapp", true},
		{nil, "Correo", false},
		{nil, "sms", false},
		{nil, "", false},
		{[]string{"sms"}, "sms", true},
		{[]string{"sms"}, "correo", false},
		{[]string{}, "correo", false},
		{[]string{""}, "", false},
	} {
		m := valid()
		m.Channel = c.channel
		if _, err := (store.Rules{Channels: c.channels}).Encode(m); (err == nil) != c.ok || err != nil && field(err) != "Channel" {
			t.Errorf("%q in %q: %v", c.channel, c.channels, err)
		}
	}
}

func TestNumbersAndTimes(t *testing.T) {
	first, last := time.Unix(0, 0), time.Date(9998, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for _, c := range []struct {
		name   string
		change func(*store.NewMessage)
		field  string
	}{
		{"one attempt", func(m *store.NewMessage) { m.MaxAttempts = 1 }, ""},
		{"most attempts", func(m *store.NewMessage) { m.MaxAttempts = store.MaxMaxAttempts }, ""},
		{"one more", func(m *store.NewMessage) { m.MaxAttempts = store.MaxMaxAttempts + 1 }, "MaxAttempts"},
		{"less than none", func(m *store.NewMessage) { m.MaxAttempts = -1 }, "MaxAttempts"},
		{"first time", func(m *store.NewMessage) { m.ScheduledAt, m.ExpiresAt = first, first }, ""},
		{"before it", func(m *store.NewMessage) { m.ScheduledAt = first.Add(-1) }, "ScheduledAt"},
		{"last time", func(m *store.NewMessage) { m.ScheduledAt, m.ExpiresAt = last, last }, ""},
		{"after it", func(m *store.NewMessage) { m.ScheduledAt = last.Add(1) }, "ScheduledAt"},
		{"expires before it", func(m *store.NewMessage) { m.ExpiresAt = first.Add(-1) }, "ExpiresAt"},
		{"expires after it", func(m *store.NewMessage) { m.ExpiresAt = last.Add(1) }, "ExpiresAt"},
	} {
		m := valid()
		c.change(&m)
		if _, err := (store.Rules{}).Encode(m); field(err) != c.field || (err == nil) != (c.field == "") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestPayloadSize(t *testing.T) {
	for _, c := range []struct {
		limit, length int
		ok            bool
	}{
		{0, store.DefaultMaxPayload, true},
		{0, store.DefaultMaxPayload + 1, false},
		{10, 10, true},
		{10, 11, false},
		{store.DefaultMaxPayload * 4, store.DefaultMaxPayload * 4, true},
	} {
		text := strings.Repeat("<", c.length-2) // and two quotes; '<' stays one byte
		raw := json.RawMessage(`"` + text + `"`)
		for _, data := range []any{text, raw} {
			m := valid()
			m.Data = data
			if _, err := (store.Rules{MaxPayload: c.limit}).Encode(m); (err == nil) != c.ok || err != nil && field(err) != "Data" {
				t.Errorf("%d bytes of %d as %T: %v", c.length, c.limit, data, err)
			}
		}
	}
}

type brokenJSON struct{ secret string }

func (b brokenJSON) MarshalJSON() ([]byte, error) { return nil, errors.New(b.secret) }

func TestDataThatCannotBeEncoded(t *testing.T) {
	for _, data := range []any{func() {}, make(chan int), map[string]any{"a": complex(1, 2)}, brokenJSON{"secreto"}} {
		m := valid()
		m.Data = data
		_, err := store.Rules{}.Encode(m)
		if field(err) != "Data" || strings.Contains(err.Error(), "secreto") {
			t.Errorf("%T: %v", data, err)
		}
	}
}

// What is encoded is the caller's value at that moment.
func TestDataIsCopied(t *testing.T) {
	raw := json.RawMessage(`[1]`)
	m := valid()
	m.Data = raw
	e, err := store.Rules{}.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	raw[1] = '2'
	if string(e.DataJSON) != "[1]" {
		t.Errorf("encoded as %s", e.DataJSON)
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers map[string]string
		ok      bool
	}{
		{"none", nil, true},
		{"empty", map[string]string{}, true},
		{"some", map[string]string{"traceparent": "00-1-2-01", "nota": "año \U0001F4E8", "vacio": ""}, true},
		{"no name", map[string]string{"": "a"}, false},
		{"a name with an accent", map[string]string{"año": "a"}, false},
		{"a name with a blank at the end", map[string]string{"a ": "a"}, false},
		{"a long name", map[string]string{strings.Repeat("a", 201): "a"}, false},
		{"a control character", map[string]string{"a": "b\nc"}, false},
		{"NUL", map[string]string{"a": "\x00"}, false},
		{"broken UTF-8", map[string]string{"a": "\xff"}, false},
		{"at the limit", map[string]string{"a": strings.Repeat("x", store.MaxHeadersSize-8)}, true},
		{"over it", map[string]string{"a": strings.Repeat("x", store.MaxHeadersSize-7)}, false},
	} {
		m := valid()
		m.Headers = c.headers
		e, err := store.Rules{}.Encode(m)
		if (err == nil) != c.ok || err != nil && field(err) != "Headers" {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil || len(c.headers) == 0 {
			if e.HeaderJSON != nil {
				t.Errorf("%s: encoded as %s", c.name, e.HeaderJSON)
			}
			continue
		}
		var back map[string]string
		if err := json.Unmarshal(e.HeaderJSON, &back); err != nil || !maps.Equal(back, c.headers) {
			t.Errorf("%s: came back as %v, %v", c.name, back, err)
		}
	}
}

func TestTravellingKey(t *testing.T) {
	for key, want := range map[string]bool{
		tenant + ":k":            true,
		"a":                      true,
		strings.Repeat("k", 256): true,
		strings.Repeat("k", 257): false,
		"":                       false,
		"a:ñ":                    false,
		"a:b\r\nX: y":            false,
		"a:b ":                   false,
		"a:\xff":                 false,
	} {
		if got := store.TravellingKey(key); got != want {
			t.Errorf("%q travels: %v", key, got)
		}
	}
}

func TestSameContent(t *testing.T) {
	m := valid()
	m.Data = map[string]int{"a": 1}
	e, err := store.Rules{}.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ channel, destination, template, data string }{
		{"whatsapp", m.Destination, m.Template, `{"a":1}`},
		{m.Channel, "Ana@club.example", m.Template, `{"a":1}`},
		{m.Channel, m.Destination, "Aviso", `{"a":1}`},
		{m.Channel, m.Destination, m.Template, `{"a":2}`},
		{m.Channel, m.Destination, m.Template, ``},
	} {
		if e.SameContent(c.channel, c.destination, c.template, []byte(c.data)) {
			t.Errorf("%v counts as the same", c)
		}
	}
	if !e.SameContent(m.Channel, m.Destination, m.Template, []byte(` { "a" : 1e0 } `)) {
		t.Error("the same content counts as another")
	}
}

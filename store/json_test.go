package store_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/textproto"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/recado-dev/recado/store"
)

func nested(depth int) string {
	return strings.Repeat(`[{"a":`, depth/2) + strings.Repeat("[", depth%2) + "1" +
		strings.Repeat("]", depth%2) + strings.Repeat("}]", depth/2)
}

// jsonCases are texts, and whether every engine would give them back.
var jsonCases = []struct {
	text string
	ok   bool
}{
	{`null`, true},
	{`{}`, true},
	{` [ ] `, true},
	{`""`, true},
	{`"texto"`, true},
	{`-0`, true},
	{`{"id":9007199254740993,"n":18446744073709551615,"f":1.0,"e":1e400,"x":null}`, true},

	{``, false},
	{` `, false},
	{`{`, false},
	{`{} {}`, false},
	{`{a:1}`, false},
	{`[1,]`, false},
	{`NaN`, false},
	{`01`, false},
	{`"a` + "\n" + `"`, false},
	{"\ufeff{}", false},

	{"\"\xf4\x8d\x61\x24\"", false},
	{"{\"\xff\":1}", false},
	{"\"\xed\xa0\x80\"", false},
	{"\"\x00\"", false},

	{`"\u0000"`, false},
	{`"a\u0000b"`, false},
	{`{"\u0000":1}`, false},
	{`{"a":[{"b\u0000":1}]}`, false},
	{`"\\u0000"`, true},
	{`"\\\u0000"`, false},
	{`"\\\\u0000"`, true},
	{`"\u0001"`, true},
	{`"\"\u0000"`, false},
	{`"\\"`, true},
	{`["\\","\u0000"]`, false},

	{`"\ud83d\udce8"`, true},
	{`"\uD83D\uDCE8"`, true},
	{`"\ud83d"`, false},
	{`"\udce8"`, false},
	{`"\udce8\ud83d"`, false},
	{`"\ud83d\ud83d\udce8"`, false},
	{`"\ud83d\udce8\udce8"`, false},
	{`"\ud83da\udce8"`, false},
	{`"\ud83d\n\udce8"`, false},
	{`"\ud83d\\udce8"`, false},
	{`"\\ud83d"`, true},
	{`"\ud7ff\ue000\ufffd"`, true},
	{`{"\ud83d":1}`, false},
	{`"` + "\U0001F4E8" + `\ud83d\udce8"`, true},

	{nested(1), true},
	{nested(29), true},
	{nested(30), true},
	{nested(31), false},
	{nested(32), false},
	{strings.Repeat("[", 30) + strings.Repeat("]", 30), true},
	{strings.Repeat("[", 31) + strings.Repeat("]", 31), false},
	{"[" + strings.Repeat("[],", 100) + "[]]", true}, // wide is not deep
	{`"` + strings.Repeat("[", 100) + `"`, true},
	{`"\"` + strings.Repeat("{", 100) + `"`, true},

	{`1e1000`, true},
	{`1E+1000`, true},
	{`1e-1000`, true},
	{`1e1001`, false},
	{`1e-1001`, false},
	{`0e1001`, false},
	{`[1,{"a":-2.5e9999999999999999999999}]`, false},
	{`1e00000000000000000000000000001`, true},
	{strings.Repeat("9", 1000), true},
	{strings.Repeat("9", 1001), false},
	{`"` + strings.Repeat("9", 1001) + `e9999"`, true},
}

func encodeJSON(text []byte) (store.Encoded, error) {
	m := valid()
	m.Data = json.RawMessage(text)
	return store.Rules{}.Encode(m)
}

func TestJSON(t *testing.T) {
	for _, c := range jsonCases {
		e, err := encodeJSON([]byte(c.text))
		if (err == nil) != c.ok || err != nil && field(err) != "Data" {
			t.Errorf("%.80q: %v", c.text, err)
		}
		if err == nil && string(e.DataJSON) != c.text {
			t.Errorf("%.80q became %.80q", c.text, e.DataJSON)
		}
	}
}

// What a Go value marshals to is judged like a text.
func TestJSONOfValues(t *testing.T) {
	var deep any = 1
	for range 31 {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		data any
		want string // "": refused
	}{
		"nothing":        {nil, `{}`},
		"no text":        {json.RawMessage(nil), `{}`},
		"bytes":          {[]byte(`{"a": 1}`), `{"a": 1}`},
		"other bytes":    {[]byte("hola"), ""},
		"nil map":        {map[string]int(nil), `null`},
		"HTML":           {"<a&b>", `"<a&b>"`},
		"big integer":    {uint64(18446744073709551615), `18446744073709551615`},
		"number":         {json.Number("1.10"), `1.10`},
		"NUL":            {"a\x00", ""},
		"NUL in a name":  {map[string]int{"a\x00": 1}, ""},
		"backslash u":    {`\u0000`, `"\\u0000"`},
		"broken UTF-8":   {map[string]string{"a": "x\xf4\x8d\x61\x24"}, ""},
		"broken name":    {map[string]int{"\xff": 1}, ""},
		"true U+FFFD":    {"\ufffd", "\"\ufffd\""},
		"nested RawText": {map[string]any{"a": json.RawMessage(`"\ud800"`)}, ""},
		"deep":           {deep, ""},
	} {
		m := valid()
		m.Data = c.data
		e, err := store.Rules{}.Encode(m)
		if string(e.DataJSON) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", name, e.DataJSON, err)
		}
	}
}

func TestSameJSON(t *testing.T) {
	full := "1" + strings.Repeat("0", 400)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{}`, `{ }`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":null}`, `{"b":null}`, false},
		{`{"a":null}`, `{}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[1,1]`, false},
		{`[]`, `{}`, false},
		{`null`, `{}`, false},
		{`null`, `false`, false},
		{`0`, `false`, false},
		{`1`, `"1"`, false},
		{`""`, `null`, false},
		{`1`, `1.0`, true},
		{`100`, `1e2`, true},
		{`-0`, `0`, true},
		{`0.1`, `0.10000000000000000001`, false},
		{`1e400`, full, true},
		{`1e400`, full[:400] + "1", false},
		{`1e-400`, `0`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`9007199254740993`, `9007199254740993.0`, true},
		{`"\u00f1"`, `"ñ"`, true},
		{`"n\u0303"`, `"ñ"`, false}, // another spelling is another text
		{`"\/"`, `"/"`, true},
		{`"A"`, `"a"`, false},
		{`{"a":1,"a":2}`, `{"a":2}`, true}, // the last one counts, as with jsonb
		{`{"a":[{"b":[1.0]}]}`, `{"a":[{"b":[1]}]}`, true},
		{`{"a":[{"b":[1.0]}]}`, `{"a":[{"b":[2]}]}`, false},
		{`{}`, ``, false},
		{`{}`, `{`, false},
		{`{}`, `{} x`, false},
	} {
		e, err := encodeJSON([]byte(c.a))
		if err != nil {
			t.Fatalf("%s: %v", c.a, err)
		}
		if got := e.SameContent(e.Channel, e.Destination, e.Template, []byte(c.b)); got != c.same {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, got)
		}
	}
}

// A foreign writer's absurd number must cost no time, and is the same as itself.
func TestSameJSONAbsurd(t *testing.T) {
	for _, number := range []string{"1e999999999", "1e-999999999", strings.Repeat("9", 100_000)} {
		if e := (store.Encoded{DataJSON: []byte(number)}); !e.SameContent("", "", "", []byte(number)) {
			t.Errorf("%.20s differs from itself", number)
		}
		if e := (store.Encoded{DataJSON: []byte("1")}); e.SameContent("", "", "", []byte(number)) {
			t.Errorf("%.20s is the same as 1", number)
		}
	}
}

// facts are what an independent reading of a JSON text says about it.
type facts struct {
	depth       int
	nul, broken bool // a string with U+0000, or with U+FFFD
}

func (f *facts) text(s string) {
	f.nul = f.nul || strings.ContainsRune(s, 0)
	f.broken = f.broken || strings.ContainsRune(s, utf8.RuneError)
}

func (f *facts) value(v any, depth int) {
	switch v := v.(type) {
	case string:
		f.text(v)
	case []any:
		f.depth = max(f.depth, depth+1)
		for _, x := range v {
			f.value(x, depth+1)
		}
	case map[string]any:
		f.depth = max(f.depth, depth+1)
		for name, x := range v {
			f.text(name)
			f.value(x, depth+1)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, c := range jsonCases {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := encodeJSON(text)
		if err != nil {
			if field(err) != "Data" {
				t.Errorf("%q: %v", text, err)
			}
			if len(text) > 8 && strings.Contains(err.Error(), string(text)) {
				t.Errorf("the error repeats %q", text)
			}
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			if err == nil {
				t.Errorf("%q was accepted", text)
			}
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var value any
		if decodeErr := dec.Decode(&value); decodeErr != nil {
			return // nested beyond what encoding/json reads
		}
		var is facts
		is.value(value, 0)
		spelled := bytes.ContainsRune(text, utf8.RuneError) || bytes.Contains(bytes.ToLower(text), []byte(`\ufffd`))
		numbers := bytes.ContainsAny(text, "eE") || len(text) > 1000 // perhaps one that is out of bounds
		names := bytes.Count(text, []byte(`"`)) > 2                  // perhaps a name that comes twice: one of them is not seen
		bad := is.nul || is.broken && !spelled || is.depth > 30 || len(text) > store.DefaultMaxPayload
		switch {
		case err == nil && bad:
			t.Errorf("%q was accepted: %+v", text, is)
		case err != nil && !bad && !spelled && !numbers && !names:
			t.Errorf("%q was refused: %v", text, err)
		}
		if err != nil {
			return
		}
		again, marshalErr := json.Marshal(value)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		if !e.SameContent(e.Channel, e.Destination, e.Template, again) {
			t.Errorf("%q is not the same as %q", text, again)
		}
	})
}

// Whether two texts say the same depends on nothing but the two, and their order is of no account.
func FuzzSameContent(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[2,null]}`), []byte(`{"b":[2.0,null], "a":1e0}`))
	f.Add([]byte(`1e400`), []byte(`1e-400`))
	f.Add([]byte(`"\u00f1"`), []byte(`"ñ"`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2}`))
	f.Add([]byte(`{`), []byte(`{`))
	f.Add([]byte(`9e999999999`), []byte(`1`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		same := func(a, b []byte) bool { return store.Encoded{DataJSON: a}.SameContent("", "", "", b) }
		if same(a, b) != same(b, a) {
			t.Errorf("%q is the same as %q one way only", a, b)
		}
		if json.Valid(a) != same(a, a) {
			t.Errorf("%q and itself: %v", a, same(a, a))
		}
		if !json.Valid(a) || !json.Valid(b) {
			if same(a, b) {
				t.Errorf("%q is the same as %q, and one is no JSON", a, b)
			}
			return
		}
		var space bytes.Buffer
		if err := json.Indent(&space, a, " ", "\t"); err == nil && !same(a, space.Bytes()) {
			t.Errorf("white space changes %q", a)
		}
		if x := (store.Encoded{DataJSON: a}); x.SameContent("canal", "", "", a) || x.SameContent("", "destino", "", a) || x.SameContent("", "", "plantilla", a) {
			t.Errorf("%q: data alone count", a)
		}
	})
}

// Two messages have one provider key only if they have one tenant and one key; and it arrives in a header as it left.
func FuzzProviderKey(f *testing.F) {
	f.Add("a", "b:c", "a:b", "c", true)
	f.Add("a", ":b", "a:", "b", true)
	f.Add(tenant, "k", strings.ToUpper(tenant), "k", false)
	f.Add("club", "k\r\nBcc: x", "club ", "k", true)
	f.Add(strings.Repeat("t", 56), strings.Repeat("k", 200), "ñ", "k\u00a0", true)
	f.Fuzz(func(t *testing.T, tenantA, keyA, tenantB, keyB string, text bool) {
		rules := store.Rules{TextTenant: text}
		encode := func(tenant, key string) (string, store.Encoded, bool) {
			m := valid()
			m.TenantID, m.IdempotencyKey = tenant, key
			e, err := rules.Encode(m)
			if err != nil {
				if f := field(err); f != "TenantID" && f != "IdempotencyKey" {
					t.Errorf("not a refusal of tenant or key: %v", err)
				}
				return "", e, false
			}
			row := e.Message("1", store.MinTime)
			provider := row.ProviderKey()
			if len(provider) > store.MaxProviderKeyLength || !store.TravellingKey(provider) || provider != row.TenantID+":"+key {
				t.Errorf("%q and %q become %q", tenant, key, provider)
			}
			header, err := textproto.NewReader(bufio.NewReader(strings.NewReader("Idempotency-Key: " + provider + "\r\n\r\n"))).ReadMIMEHeader()
			if err != nil || len(header) != 1 || header.Get("Idempotency-Key") != provider {
				t.Errorf("%q arrives as %q, %v", provider, header, err)
			}
			return provider, e, true
		}
		a, encodedA, okA := encode(tenantA, keyA)
		b, encodedB, okB := encode(tenantB, keyB)
		if okA && okB && a == b && (encodedA.TenantID != encodedB.TenantID || keyA != keyB) {
			t.Errorf("%q is the key of two messages", a)
		}
	})
}

func FuzzEncode(f *testing.F) {
	f.Add(tenant, "correo", "ana@club.example", "aviso", "k", 1, false)
	f.Add("T1", "whatsapp", "+54", "ñ", strings.Repeat("k", 201), 0, true)
	f.Add("a:b", "sms", " ", "a\x00", "ñ", -1, true)
	f.Add("\xff", "", "a\u0085b", "\u00a0a", "a\x7f", store.MaxMaxAttempts, true)
	f.Fuzz(func(t *testing.T, tenant, channel, destination, template, key string, attempts int, text bool) {
		rules := store.Rules{TextTenant: text}
		m := store.NewMessage{
			TenantID: tenant, Channel: channel, Destination: destination, Template: template, IdempotencyKey: key,
			MaxAttempts: attempts,
		}
		e, err := rules.Encode(m)
		if err != nil {
			if field(err) == "" {
				t.Errorf("not an InvalidError: %v", err)
			}
			return
		}
		providerKey := e.TenantID + ":" + e.IdempotencyKey
		if !store.TravellingKey(providerKey) || strings.Count(e.TenantID, ":") != 0 {
			t.Errorf("the provider's key %q was let through", providerKey)
		}
		for _, s := range []string{e.Channel, e.Destination, e.Template} {
			if s == "" || !utf8.ValidString(s) || strings.TrimSpace(s) != s || strings.ContainsAny(s, "\x00\r\n\t\x7f") {
				t.Errorf("%q was let through", s)
			}
		}
		again, err := rules.Encode(e.NewMessage)
		if err != nil || again.TenantID != e.TenantID || again.MaxAttempts != e.MaxAttempts {
			t.Errorf("what was encoded is refused or changed when encoded again: %v", err)
		}
	})
}

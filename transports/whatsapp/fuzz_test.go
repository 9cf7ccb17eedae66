package whatsapp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// Whatever the data are, the sender gets parameters that are one line each, or is not called.
func FuzzParams(f *testing.F) {
	for _, data := range []string{
		`["10:00",7,true]`, `{"a":1}`, `[]`, `["a\nb"]`, `["a\u2028b"]`, `["     "]`, `[null]`, `[[1]]`, `[`, "[\"\xff\"]", `["\ud800"]`, `[1e400,-0.10]`, ` [ "a" ]`, `["a",]`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &probe{outcome: state.Outcome{OK: true}}
		m := testMessage
		m.Data = data
		got := newTransport(t, whatsapp.Config{Sender: p}).Send(t.Context(), m)
		if !got.OK {
			if p.calls != 0 || got.Category != state.CategoryTemplate || got.Code != state.CodeRender && got.Code != whatsapp.CodeBadParameter {
				t.Errorf("%q: %v after %d calls", data, got, p.calls)
			}
			return
		}
		for _, param := range p.message.Params {
			v := param.Value
			if strings.ContainsFunc(v, unicode.IsControl) || strings.ContainsAny(v, "\u2028\u2029") || strings.Contains(v, "     ") ||
				strings.TrimSpace(v) == "" || !utf8.ValidString(v) || utf8.RuneCountInString(v) > whatsapp.MaxParameterLength {
				t.Errorf("%q became the parameter %q", data, v)
			}
		}
		var list []any
		if json.Unmarshal(data, &list) == nil && len(list) != len(p.message.Params) {
			t.Errorf("%q became %d parameters", data, len(p.message.Params))
		}
	})
}

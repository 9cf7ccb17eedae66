package email_test

import (
	"context"
	"encoding/json"
	netmail "net/mail"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
)

// Whatever a row and a template hold, a sender gets one address and one line of subject, and nothing that could begin
// another header; and what a sender answers is passed on with nothing of the mail in it.
func FuzzSend(f *testing.F) {
	f.Add("ana@casa.example", "Hola", "<p>a</p>", "a", "club:k")
	f.Add("ana@casa.example\r\nBcc: b@casa.example", "Hola\r\nBcc: b@casa.example", "", "", "k\n")
	f.Add("ana\u0085@casa.example", "Hola", "a", "", "club:k")
	f.Add("Ana <ana@casa.example>", "\u2028", "\xff", " ", "")
	f.Add("a@casa.example, b@casa.example", "a\x00", "a", "a", "ñ")
	f.Add("\"a\\\r\n b\"@casa.example", "=?utf-8?q?=0D=0ABcc:_b?=", "a", "", "k")
	f.Fuzz(func(t *testing.T, destination, subject, html, text, key string) {
		p := &probe{outcome: state.Outcome{OK: true}}
		m := testMessage
		m.Destination, m.IdempotencyKey = destination, key
		got := newTransport(t, p, renders(email.Content{Subject: subject, HTML: html, Text: text}, nil)).Send(t.Context(), m)
		if p.calls != map[bool]int{true: 1}[got.OK] || !got.OK && got.Category != state.CategoryNumber && got.Category != state.CategoryTemplate {
			t.Fatalf("%v after %d calls", got, p.calls)
		}
		if !got.OK {
			return
		}
		to, err := netmail.ParseAddress(p.mail.To)
		if err != nil || to.Address != p.mail.To || to.Name != "" || strings.ContainsFunc(p.mail.To, unicode.IsControl) || strings.ContainsAny(p.mail.To, ",;<> ") {
			t.Errorf("to %q", p.mail.To)
		}
		if s := p.mail.Subject; s != subject || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) == "" || !utf8.ValidString(s) {
			t.Errorf("subject %q", s)
		}
		if p.mail.HTML != html || p.mail.Text != text || p.mail.IdempotencyKey != key {
			t.Error("body or key are changed")
		}
	})
}

// Data cannot leave the place that a template gives them: whatever they are, the page has the same tags and attributes.
func FuzzTemplates(f *testing.F) {
	const page = `<p title="{{.x}}" class='{{.x}}'>{{.x}}</p><a href="{{.x}}">a</a><a href="/?q={{.x}}">b</a>` +
		`<style>p{color:{{.x}}}</style><script>var x = {{.x}};</script><div onclick="f('{{.x}}')" style="width:{{.x}}"></div>`
	r := email.Templates(files("a.txt", `{{define "subject"}}{{.x}}{{end}}{{.x}}`, "a.html", page))
	tags := func(t *testing.T, x string) (tags, quotes int, ok bool) {
		data, err := json.Marshal(map[string]string{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Render(t.Context(), transports.Message{Template: "a", Data: data})
		if err != nil {
			return 0, 0, false
		}
		if strings.Contains(strings.ToLower(c.HTML), "javascript:") && !strings.Contains(strings.ToLower(c.HTML), "f('") {
			t.Errorf("a script for a link: %q", c.HTML)
		}
		return strings.Count(c.HTML, "<"), strings.Count(c.HTML, `"`), true
	}
	for _, x := range []string{
		"Ana", `"><script>alert(1)</script>`, "'-alert(1)-'", "javascript:alert(1)", "</style><b>", "</script><b>", "<!--", "]]>", "\x00", "\u2028", "expression(1)", "&lt;", "`${x}`",
	} {
		f.Add(x)
	}
	wantTags, _, _ := tags(&testing.T{}, "")
	f.Fuzz(func(t *testing.T, x string) {
		got, _, ok := tags(t, x)
		if ok && got != wantTags {
			t.Errorf("%q makes %d tags of %d", x, got, wantTags)
		}
		// What begins a header or a second line never reaches a sender.
		p := &probe{outcome: state.Outcome{OK: true}}
		m := testMessage
		data, err := json.Marshal(map[string]string{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		m.Template, m.Data = "a", data
		newTransport(t, p, r).Send(context.Background(), m)
		if strings.ContainsFunc(p.mail.Subject, unicode.IsControl) {
			t.Errorf("subject %q", p.mail.Subject)
		}
	})
}

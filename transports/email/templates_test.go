package email_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
)

func files(pairs ...string) fstest.MapFS {
	f := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		f[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return f
}

func render(t *testing.T, fsys fs.FS, template, data string) (email.Content, error) {
	t.Helper()
	return email.Templates(fsys).Render(t.Context(), transports.Message{Template: template, Data: json.RawMessage(data)})
}

// parts are a content's texts, for messages: it would print nothing of itself.
func parts(c email.Content) []string { return []string{c.Subject, c.Text, c.HTML} }

const subject = `{{define "subject"}}s{{end}}`

func TestTemplates(t *testing.T) {
	tests := []struct {
		name     string
		files    fstest.MapFS
		template string
		data     string
		want     email.Content
	}{
		{
			"text alone",
			files("a.txt", "{{define \"subject\"}}\n  Pedido {{.id}}\n{{end}}\n\nHola, {{.nombre}}.\n"),
			"a", `{"id":7,"nombre":"Ana & Eva"}`,
			email.Content{Subject: "Pedido 7", Text: "Hola, Ana & Eva."},
		},
		{
			"HTML is escaped, subject and text are not",
			files("a.txt", `{{define "subject"}}{{.n}}{{end}}{{.n}}`, "a.html", `<p title="{{.n}}">{{.n}}</p><a href="{{.u}}">x</a>`),
			"a", `{"n":"<b>\"&","u":"javascript:alert(1)"}`,
			email.Content{Subject: `<b>"&`, Text: `<b>"&`, HTML: `<p title="&lt;b&gt;&#34;&amp;">&lt;b&gt;&#34;&amp;</p><a href="#ZgotmplZ">x</a>`},
		},
		{
			"HTML alone",
			files("a.txt", subject, "a.html", "<p>h</p>"),
			"a", `{}`,
			email.Content{Subject: "s", HTML: "<p>h</p>"},
		},
		{
			"shared parts, by file name and by definition",
			files("a.txt", subject+`a {{template "_pie.txt" .}}`, "_pie.txt", "pie {{.n}}",
				"a.html", `{{define "cuerpo"}}<i>{{.n}}</i>{{end}}{{template "marco" .}}`,
				"comunes/_marco.html", `{{define "marco"}}<body>{{template "cuerpo" .}}</body>{{end}}`),
			"a", `{"n":"<1>"}`,
			email.Content{Subject: "s", Text: "a pie <1>", HTML: "<body><i>&lt;1&gt;</i></body>"},
		},
		{
			"folders keep order",
			files("plantillas/pedidos/a.txt", subject+"a", "plantillas/pedidos/a.html", "b", "plantillas/LEEME.md", "{{", ".x/a.txt", "{{", ".a.txt", "{{"),
			"a", `{}`,
			email.Content{Subject: "s", Text: "a", HTML: "b"},
		},
		{
			"pages do not share their definitions",
			files("a.txt", subject+`{{define "x"}}a{{end}}{{template "x"}}`, "b.txt", subject+`{{define "x"}}b{{end}}{{template "x"}}`),
			"a", `{}`,
			email.Content{Subject: "s", Text: "a"},
		},
		{
			"numbers keep their digits",
			files("a.txt", subject+`{{.a}} {{.b}} {{.c}} {{.d}} {{printf "%.2f" .c.Float64}} {{if gt .e.Int64 1}}más{{end}}`, "a.html", "<b>{{.a}}</b>"),
			"a", `{"a":9007199254740993,"b":18446744073709551615,"c":10.50,"d":1e400,"e":2}`,
			email.Content{Subject: "s", Text: "9007199254740993 18446744073709551615 10.50 1e400 10.50 más", HTML: "<b>9007199254740993</b>"},
		},
		{
			"a null is nothing",
			files("a.txt", subject+`[{{.x}}{{range .x}}r{{else}}0{{end}}{{if .x}}1{{end}}{{with .y.z}}2{{end}}{{index .l 1}}]`, "a.html", `<p title="{{.x}}">{{.x}}</p>`),
			"a", `{"x":null,"y":{"z":null},"l":[1,null]}`,
			email.Content{Subject: "s", Text: "[0]", HTML: `<p title=""></p>`},
		},
		{"maps in order", files("a.txt", subject+"{{range $k, $v := .}}{{$k}}{{$v}}{{end}}"), "a", `{"z":1,"a":2,"m":3}`, email.Content{Subject: "s", Text: "a2m3z1"}},
		{"list", files("a.txt", subject+"{{range .}}{{.}};{{end}}"), "a", `["x",1,true]`, email.Content{Subject: "s", Text: "x;1;true;"}},
		{"no data", files("a.txt", subject+"a{{.}}"), "a", ``, email.Content{Subject: "s", Text: "a"}},
		{"null data", files("a.txt", subject+"a{{.}}"), "a", `null`, email.Content{Subject: "s", Text: "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := email.Templates(tt.files)
			for range 20 {
				got, err := r.Render(t.Context(), transports.Message{Template: tt.template, Data: json.RawMessage(tt.data)})
				if err != nil || got != tt.want {
					t.Fatalf("got  %q, %v\nwant %q", parts(got), err, parts(tt.want))
				}
			}
		})
	}
}

func TestTemplatesThatFailToRender(t *testing.T) {
	good := files("a.txt", `{{define "subject"}}{{.s}}{{end}}{{.t}}`, "a.html", "{{.h.Int64}}")
	tests := []struct {
		name, template, data, part string
	}{
		{"unknown", "canario", `{}`, ""},
		{"empty name", "", `{}`, ""},
		{"path", "../a", `{}`, ""},
		{"path that leads there", "./a", `{}`, ""},
		{"with its ending", "a.txt", `{}`, ""},
		{"missing in subject", "a", `{"canario":1,"t":1,"h":1}`, "subject"},
		{"missing in text", "a", `{"s":"canario","h":1}`, "text"},
		{"missing in html", "a", `{"s":"canario","t":1}`, "html"},
		{"wrong kind", "a", `{"s":"canario","t":1,"h":9.75}`, "html"},
		{"not JSON", "a", `{canario`, "data"},
		{"something behind", "a", `{"s":1,"t":1,"h":1} canario`, "data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render(t, good, tt.template, tt.data)
			var failed *email.RenderError
			if got != (email.Content{}) || !errors.As(err, &failed) || failed.Part != tt.part {
				t.Fatalf("%q, %v", parts(got), err)
			}
			if (tt.part == "") != errors.Is(err, email.ErrUnknownTemplate) {
				t.Errorf("%v", errors.Unwrap(err))
			}
			if strings.Contains(err.Error(), "canario") || strings.Contains(err.Error(), "9.75") {
				t.Errorf("it quotes content: %v", err)
			}
			if state.IsTransient(err) {
				t.Error("it would be retried")
			}
		})
	}
}

// unreadable is a file system with a file that cannot be opened.
type unreadable struct{ fstest.MapFS }

var errUnreadable = errors.New("unreadable")

func (u unreadable) ReadFile(string) ([]byte, error) { return nil, errUnreadable }

func TestTemplatesThatCannotBeUsed(t *testing.T) {
	tests := []struct {
		name  string
		files fs.FS
		file  string
	}{
		{"text syntax", files("a.txt", subject+"{{"), "a.txt"},
		{"HTML syntax", files("a.txt", subject, "x/a.html", "{{"), "x/a.html"},
		{"shared text syntax", files("a.txt", subject, "_b.txt", "{{"), "_b.txt"},
		{"shared HTML syntax", files("a.txt", subject, "_b.html", "{{"), "_b.html"},
		{"unknown function", files("a.txt", subject+"{{now}}"), "a.txt"},
		{"no subject", files("a.txt", "a"), "a.txt"},
		{"HTML without text", files("a.txt", subject, "b.html", "b"), "b.html"},
		{"HTML that cannot be escaped", files("a.txt", subject, "a.html", "<a href='{{.x}}"), "a.html"},
		{"HTML with a part that is not there", files("a.txt", subject, "a.html", `{{template "b"}}`), "a.html"},
		{"text with a part that is not there", files("a.txt", subject+`{{with .a}}{{else}}{{range .b}}{{if .c}}{{template "_b.txt"}}{{end}}{{end}}{{end}}`), "a.txt"},
		{"shared text with a part that is not there", files("a.txt", subject, "_b.txt", `{{template "_c.txt"}}`), "a.txt"},
		{"same text name", files("x/a.txt", subject, "y/a.txt", subject), "y/a.txt"},
		{"same HTML name", files("a.txt", subject, "x/a.html", "a", "y/a.html", "b"), "y/a.html"},
		{"unreadable", unreadable{files("a.txt", subject)}, "a.txt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := email.Templates(tt.files)
			tr, err := email.New(email.Config{From: "a@b.example", Sender: &probe{}, Render: r})
			var failed *email.TemplateError
			if tr != nil || !errors.As(err, &failed) || failed.File != tt.file || !errors.Is(err, state.ErrInvalidOptions) {
				t.Fatalf("%v", err)
			}
			if tt.name == "unreadable" && !errors.Is(err, errUnreadable) {
				t.Error("the cause is lost")
			}
			if _, again := r.Render(t.Context(), transports.Message{Template: "a"}); !errors.Is(again, err) {
				t.Errorf("rendering says %v", again)
			}
		})
	}
}

func TestTemplatesAtOnce(t *testing.T) {
	r := email.Templates(files("a.txt", subject+"{{.n}}", "a.html", "<b>{{.n}}</b>"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				got, err := r.Render(t.Context(), transports.Message{Template: "a", Data: json.RawMessage(`{"n":"<"}`)})
				if want := (email.Content{Subject: "s", Text: "<", HTML: "<b>&lt;</b>"}); err != nil || got != want {
					t.Errorf("%q, %v", parts(got), err)
				}
			}
		})
	}
	all.Wait()
}

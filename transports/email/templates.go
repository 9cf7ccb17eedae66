package email

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"io/fs"
	"path"
	"strings"
	texttemplate "text/template"
	"text/template/parse"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// subjectName is the template, inside each .txt file, that gives the subject.
const subjectName = "subject"

// Templates renders with the files of fsys, which are read and parsed at once; what is wrong with them comes back from
// [New], as a [TemplateError], and from every Render. A message's template confirmacion_pedido is made of
//
//	confirmacion_pedido.txt    required, text/template: {{define "subject"}}Pedido {{.id}}{{end}} and the text body
//	confirmacion_pedido.html   optional, html/template: the HTML body, escaped for its context
//	_pie.txt, _marco.html      shared by all files with the same ending: call them by file name, {{template "_pie.txt" .}},
//	                           or by what they define
//
// To embed a folder with shared files, write //go:embed all:plantillas, since without all: embed leaves out names that
// begin with "_".
//
// Folders serve only to keep order: a template goes by its file name alone, which therefore must not occur twice. Names
// that begin with a dot, and files with other endings, are left out. No file is opened when a message is rendered.
//
// The templates see the message's decoded data and nothing else, neither clock nor chance, so that they give the same
// bytes at every attempt. A key that the data lack is an error. Numbers are json.Number: all digits stay as stored, and
// to compare or format them take {{.n.Int64}} or {{.n.Float64}}. A null prints as nothing, is false, and ranges over
// nothing. White space around subject and bodies is cut off.
func Templates(fsys fs.FS) Renderer {
	pages, err := load(fsys)
	return &templates{pages: pages, err: err}
}

// TemplateError names the template file that cannot be used. It quotes the file's source, which is no message's content.
// errors.Is(err, state.ErrInvalidOptions) holds.
type TemplateError struct {
	File string // its path in the file system
	Err  error
}

func (e *TemplateError) Error() string { return fmt.Sprintf("template %s: %v", e.File, e.Err) }

// Unwrap returns the cause.
func (e *TemplateError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, state.ErrInvalidOptions) true.
func (e *TemplateError) Is(target error) bool { return target == state.ErrInvalidOptions }

// RenderError is what Render of [Templates] returns for a message. Its text is free of the message's content; the
// cause that it unwraps to may quote some.
type RenderError struct {
	Part string // "data", "subject", "text", "html", or "" for a template that does not exist
	Err  error
}

func (e *RenderError) Error() string {
	if e.Part == "" {
		return ErrUnknownTemplate.Error()
	}
	return "the template cannot be rendered: " + e.Part
}

// GoString keeps %#v from printing the cause.
func (e *RenderError) GoString() string { return e.Error() }

// Unwrap returns the cause.
func (e *RenderError) Unwrap() error { return e.Err }

// ErrUnknownTemplate says that there is no template of a message's name.
var ErrUnknownTemplate = errors.New("there is no such template")

type templates struct {
	pages map[string]page
	err   error
}

type page struct {
	text *texttemplate.Template
	html *htmltemplate.Template // nil: a mail of text alone
}

func (t *templates) Render(_ context.Context, m transports.Message) (Content, error) {
	if t.err != nil {
		return Content{}, t.err
	}
	p, ok := t.pages[m.Template]
	if !ok {
		return Content{}, &RenderError{Err: ErrUnknownTemplate}
	}
	data, err := decode(m.Data)
	if err != nil {
		return Content{}, &RenderError{Part: "data", Err: err}
	}
	var out Content
	if out.Subject, err = execute(p.text.Lookup(subjectName), data); err != nil {
		return Content{}, &RenderError{Part: "subject", Err: err}
	}
	if out.Text, err = execute(p.text, data); err != nil {
		return Content{}, &RenderError{Part: "text", Err: err}
	}
	if p.html == nil {
		return out, nil
	}
	if out.HTML, err = execute(p.html, data); err != nil {
		return Content{}, &RenderError{Part: "html", Err: err}
	}
	return out, nil
}

func execute(t interface{ Execute(io.Writer, any) error }, data any) (string, error) {
	var b strings.Builder
	err := t.Execute(&b, data)
	return strings.TrimSpace(b.String()), err
}

// source is one template file.
type source struct {
	file string // path
	base string // file name
	name string // file name without its ending
	ext  string
	text string
}

func (s source) shared() bool { return strings.HasPrefix(s.base, "_") }

func (s source) fail(err error) error { return &TemplateError{File: s.file, Err: err} }

func load(fsys fs.FS) (map[string]page, error) {
	if fsys == nil {
		return nil, &state.InvalidError{Field: "Render", Reason: "has no file system"}
	}
	sources, err := read(fsys)
	if err != nil {
		return nil, err
	}
	texts, htmls := texttemplate.New(""), htmltemplate.New("")
	for _, s := range sources {
		if !s.shared() {
			continue
		}
		if s.ext == ".txt" {
			_, err = texts.New(s.base).Parse(s.text)
		} else {
			_, err = htmls.New(s.base).Parse(s.text)
		}
		if err != nil {
			return nil, s.fail(err)
		}
	}

	pages := map[string]page{}
	for _, s := range sources {
		if s.shared() || s.ext != ".txt" {
			continue
		}
		if _, twice := pages[s.name]; twice {
			return nil, s.fail(errors.New("there is another file of this name"))
		}
		text, err := parseText(texts, s)
		if err != nil {
			return nil, s.fail(err)
		}
		pages[s.name] = page{text: text}
	}
	for _, s := range sources {
		if s.shared() || s.ext != ".html" {
			continue
		}
		p, ok := pages[s.name]
		if !ok {
			return nil, s.fail(errors.New("there is no .txt file of this name to give the subject"))
		}
		if p.html != nil {
			return nil, s.fail(errors.New("there is another file of this name"))
		}
		if p.html, err = parseHTML(htmls, s); err != nil {
			return nil, s.fail(err)
		}
		pages[s.name] = p
	}
	if len(pages) == 0 {
		return nil, &state.InvalidError{Field: "Render", Reason: "holds no template"}
	}
	return pages, nil
}

func parseText(shared *texttemplate.Template, s source) (*texttemplate.Template, error) {
	all, err := shared.Clone()
	if err != nil {
		return nil, err
	}
	t, err := all.New(s.base).Option("missingkey=error").Parse(s.text)
	if err != nil {
		return nil, err
	}
	if t.Lookup(subjectName) == nil {
		return nil, errors.New(`it does not define "subject"`)
	}
	for _, one := range t.Templates() {
		if one.Tree == nil {
			continue
		}
		if err := calls(t, one.Root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// calls finds a template that is called and not defined: text/template would tell with the first message.
func calls(t *texttemplate.Template, n parse.Node) error {
	branch := func(b *parse.BranchNode) error { return errors.Join(calls(t, b.List), calls(t, b.ElseList)) }
	switch n := n.(type) {
	case *parse.TemplateNode:
		if t.Lookup(n.Name) == nil {
			return fmt.Errorf("it calls the template %q, which no file defines", n.Name)
		}
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := calls(t, child); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	}
	return nil
}

func parseHTML(shared *htmltemplate.Template, s source) (*htmltemplate.Template, error) {
	all, err := shared.Clone()
	if err != nil {
		return nil, err
	}
	t, err := all.New(s.base).Option("missingkey=error").Parse(s.text)
	if err != nil {
		return nil, err
	}
	// html/template works out its escaping at the first execution. Asking for it here finds a template that cannot be
	// escaped now, and not with the first message; that the data are missing does not matter.
	if escape := (*htmltemplate.Error)(nil); errors.As(t.Execute(io.Discard, nil), &escape) {
		return nil, escape
	}
	return t, nil
}

// read returns the template files in the order of their paths.
func read(fsys fs.FS) ([]source, error) {
	var sources []source
	err := fs.WalkDir(fsys, ".", func(file string, d fs.DirEntry, err error) error {
		base, ext := path.Base(file), path.Ext(file)
		switch {
		case err != nil:
			return &TemplateError{File: file, Err: err}
		case file != "." && strings.HasPrefix(base, "."): // editors' files, and the links of mounted volumes
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || ext != ".txt" && ext != ".html":
			return nil
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return &TemplateError{File: file, Err: err}
		}
		sources = append(sources, source{file, base, strings.TrimSuffix(base, ext), ext, string(text)})
		return nil
	})
	return sources, err
}

// decode turns stored data into what templates see. No data are a null.
func decode(data json.RawMessage) (any, error) {
	if len(data) == 0 {
		return null(nil), nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is something behind the JSON value")
	}
	return withNulls(v), nil
}

// null stands for JSON's null: text/template would print nil as "<no value>". It prints as nothing, is false, and a
// range over it is empty.
type null []struct{}

func (null) String() string { return "" }

func withNulls(v any) any {
	switch v := v.(type) {
	case nil:
		return null(nil)
	case map[string]any:
		for k, e := range v {
			v[k] = withNulls(e)
		}
	case []any:
		for i, e := range v {
			v[i] = withNulls(e)
		}
	}
	return v
}

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
	"github.com/recado-dev/recado/transports/email/smtp"
	"github.com/recado-dev/recado/transports/whatsapp"
)

const canary = "canario-7f3a"

// personal are the exported types that hold something of a message, of a person or of an account. However they are
// printed, nothing of it shows, but for the fields that are named: words that stand in a row for anybody to read.
var personal = []struct {
	value any
	shows []string
}{
	{store.NewMessage{}, []string{"Channel"}},
	{store.Message{}, []string{"ID", "Channel", "State"}},
	{store.Encoded{}, []string{"Channel"}},
	{store.Claim{}, []string{"ID", "Channel", "State", "Code"}},
	{store.Settlement{}, []string{"ID", "Event", "To", "Category", "Code"}},
	{store.Error{}, []string{"Op", "Code"}},
	{state.Outcome{}, []string{"Category", "Code"}},
	{state.Transition{}, []string{"Event", "To", "Category", "Code"}},
	{transports.Message{}, []string{"ID", "Channel"}},
	{dispatch.Attempt{}, []string{"ID", "Channel"}},
	{email.Mail{}, nil},
	{email.Content{}, nil},
	{email.RenderError{}, []string{"Part"}},
	{smtp.Config{}, []string{"Host"}},
	{whatsapp.Credentials{}, nil},
	{whatsapp.Param{}, nil},
	{whatsapp.TemplateMessage{}, []string{"Template", "Language"}},
}

// plain are the other exported types with fields, and why they may print as they are.
var plain = map[string]string{
	"state.Backoff": "options", "state.Policy": "options", "store.ClaimParams": "options", "store.PurgeParams": "options",
	"store.StatsParams": "options", "store.Rules": "options", "store/memstore.Config": "options", "sqlstore.Config": "options",
	"sqlstore.MigrateParams": "options", "dispatch.Config": "options", "dispatch.Lane": "options",
	"transports/email.Config": "options", "transports/whatsapp.Config": "options",

	"state.InvalidError": "names a field and a rule", "state.TransitionError": "names an event and a state",
	"sqlstore.SchemaError": "names and settings", "sqlstore.TableBusyError": "a table's name",
	"transports/email.TemplateError": "a file of the application",

	"state.Row": "states, counts, times and words", "store.Mark": "a time and an id", "store.Closed": "an id and a word",
	"store.Fence": "an id, a time and a random number", "store.EnqueueResult": "an id", "store.ChannelStats": "counts",
	"dispatch.Report": "counts, words and sentences of ours", "dispatch.Warning": "a word and a sentence of ours",
	"dispatch.Claimed": "counts and words", "dispatch.Settled": "an id and words",
}

// fill puts the canary into all that v holds, but for the fields that show.
func fill(v reflect.Value, shows []string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(canary)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(shows, f.Name) {
				fill(v.Field(i), shows)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`"` + canary + `"`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), shows)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, shows)
		fill(value, shows)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(driverError{Detail: canary}))
		} else if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(canary))
		}
	}
}

// driverError quotes a row, and is no pointer, so that %#v of what wraps it would print its fields.
type driverError struct{ Detail string }

func (e driverError) Error() string { return "failing row contains " + e.Detail }

// printed is v in every way in which values end up in a log.
func printed(t *testing.T, v any) []string {
	t.Helper()
	var texts []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s", "%x"} {
		texts = append(texts, fmt.Sprintf(verb, v), fmt.Sprintf(verb, []any{v}), fmt.Sprintf(verb, map[string]any{"a": v}),
			fmt.Sprintf(verb, struct{ V any }{v}))
	}
	texts = append(texts, fmt.Errorf("sending %v", v).Error(), errors.Join(fmt.Errorf("%+v", v)).Error())
	for _, handler := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("", "v", v, slog.Group("g", "v", v))
		texts = append(texts, b.String())
	}
	var b bytes.Buffer
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(&b), zap.DebugLevel)
	zap.New(core).Debug("", zap.Any("v", v))
	zap.New(core).Sugar().Debugw("", "v", v)
	return append(texts, b.String())
}

func shown(text string) bool {
	return strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary))
}

func TestNothingPersonalIsPrinted(t *testing.T) {
	for _, p := range personal {
		v := reflect.New(reflect.TypeOf(p.value))
		fill(v.Elem(), p.shows)
		raw, err := json.Marshal(v.Interface())
		if err != nil || !strings.Contains(string(raw), canary) {
			t.Fatalf("%T holds no canary: %s, %v", p.value, raw, err)
		}
		values := []any{v.Interface(), v.Elem().Interface()}
		if _, isError := v.Interface().(error); isError {
			values = values[:1] // it is only an error by its pointer
		}
		for _, value := range values {
			if _, isClaim := v.Interface().(*store.Claim); isClaim {
				if text := fmt.Sprintf("%v %+v %#v %q", value, value, value, value); shown(text) {
					t.Errorf("%T shows: %s", value, text)
				}
				continue // encoding/json, which some loggers fall back on, shows all of it: see Message
			}
			for _, text := range printed(t, value) {
				if shown(text) {
					t.Errorf("%T shows: %s", value, text)
				}
			}
		}
	}
	// What senders hold cannot be filled in from outside.
	sender, err := smtp.New(smtp.Config{Host: "mx.example", Username: canary, Password: canary})
	if err != nil {
		t.Fatal(err)
	}
	overHTTP := resend.New(canary)
	for _, v := range []any{sender, *sender, overHTTP, *overHTTP} {
		for _, text := range printed(t, v) {
			if shown(text) {
				t.Errorf("%T shows: %s", v, text)
			}
		}
	}
}

// The check above must be able to fail.
func TestThePrintedCanaryIsSeen(t *testing.T) {
	for _, text := range printed(t, struct{ A string }{canary}) {
		if !shown(text) {
			t.Errorf("not seen in %q", text)
		}
	}
}

// Every exported type with fields is in one of the two lists, so that none is forgotten.
func TestPrintingIsDecidedForEveryType(t *testing.T) {
	decided := map[string]bool{}
	for _, p := range personal {
		typ := reflect.TypeOf(p.value)
		decided[strings.TrimPrefix(typ.PkgPath(), module+"/")+"."+typ.Name()] = true
	}
	for name := range plain {
		decided[name] = true
	}
	found := map[string]bool{}
	for _, s := range moduleSources(t) {
		if s.isTest() || s.within("examples", "internal", "store/storetest", "sqlstore/internal", "sqlstore/sqlstoretest", "transports/internal", "transports/transporttest") {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				spec := spec.(*ast.TypeSpec)
				fields, ok := spec.Type.(*ast.StructType)
				if !ok || !spec.Name.IsExported() {
					continue
				}
				visible := slices.ContainsFunc(fields.Fields.List, func(f *ast.Field) bool {
					return slices.ContainsFunc(f.Names, (*ast.Ident).IsExported)
				})
				if name := s.dir() + "." + spec.Name.Name; visible {
					found[name] = true
					if !decided[name] {
						t.Errorf("%s: nobody has decided whether %s holds personal data", s.at(spec), name)
					}
				}
			}
		}
	}
	for name := range decided {
		if !found[name] {
			t.Errorf("%s is in a list, and does not exist", name)
		}
	}
}

package sqlstore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Every statement as it is sent, so that a change of the SQL shows in review.
func TestGolden(t *testing.T) {
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			n, _, err := Config{}.resolve(d)
			if err != nil {
				t.Fatal(err)
			}
			q := render(d, n)
			var b strings.Builder
			for _, statement := range q.schema {
				fmt.Fprintf(&b, "-- schema\n%s;\n\n", statement.text)
			}
			print := func(name string, statement reflect.Value) {
				if text := statement.Field(0).String(); text != "" {
					fmt.Fprintf(&b, "-- %s\n%s;\n\n", name, text)
				}
			}
			for v, i := reflect.ValueOf(q), 0; i < v.NumField(); i++ {
				name := v.Type().Field(i).Name
				switch f := v.Field(i); f.Type() {
				case reflect.TypeFor[statement]():
					print(name, f)
				case reflect.TypeFor[act[statement]]():
					print(name+", lock", f.Field(0))
					print(name, f.Field(1))
				}
			}
			golden(t, filepath.Join("testdata", d.String()+".golden.sql"), b.String())
		})
	}
}

// The schema of the default names, for people whose migrations are files.
func TestSchemaFiles(t *testing.T) {
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			up, err := Schema(d, Config{})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("schema", d.String()+".up.sql"), "-- +goose Up\n"+up)
			golden(t, filepath.Join("schema", d.String()+".down.sql"), "-- +goose Down\nDROP TABLE "+d.quote("outbox")+";\n")
		})
	}
}

func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s is no longer what the code says: look at the change, then run go test ./sqlstore -run 'TestGolden|TestSchemaFiles' -update", file)
	}
}

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
	for _, d := range []Dialect{Postgres, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			n, _, err := Config{}.resolve(d)
			if err != nil {
				t.Fatal(err)
			}
			q := render(d, n)
			var b strings.Builder
			for _, statement := range q.schema {
				fmt.Fprintf(&b, "-- schema\n%s;\n\n", statement)
			}
			for v, i := reflect.ValueOf(q), 0; i < v.NumField(); i++ {
				if f := v.Field(i); f.Kind() == reflect.String && f.String() != "" {
					fmt.Fprintf(&b, "-- %s\n%s;\n\n", v.Type().Field(i).Name, f.String())
				}
			}
			file := filepath.Join("testdata", d.String()+".golden.sql")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("the statements differ from %s: look at the change, then run go test ./sqlstore -run TestGolden -update", file)
			}
		})
	}
}

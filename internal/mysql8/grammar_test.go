// Package mysql8 holds what sqlstore.MySQL sends against a grammar of MySQL 8.0.16, the oldest version that it promises:
// the tests that run it have only MariaDB, which takes more and other statements. A grammar knows nothing of types,
// collations, plans and locks; two rules beside it are checked here as well.
package mysql8

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"vitess.io/vitess/go/vt/sqlparser"

	"github.com/recado-dev/recado/sqlstore"
)

var (
	word      = regexp.MustCompile(`[\w.'$\[\]*]+|\?`)
	comment   = regexp.MustCompile(`-- .*`)
	parameter = regexp.MustCompile(`:v\d+`)
	unsaid    = regexp.MustCompile(`generated always |default (charset)`)
)

// words counts the words of a statement, which the parser's own way of writing it keeps.
func words(sql string) map[string]int {
	sql = strings.ToLower(strings.ReplaceAll(comment.ReplaceAllString(sql, ""), "`", ""))
	count := map[string]int{}
	for _, w := range word.FindAllString(unsaid.ReplaceAllString(sql, "$1"), -1) {
		count[w]++
	}
	return count
}

// understood parses a statement, and says where MySQL would refuse it or the parser has skipped a part of it.
func understood(tb testing.TB, sql string) error {
	tb.Helper()
	parser, err := sqlparser.New(sqlparser.Options{MySQLServerVersion: "8.0.16"})
	if err != nil {
		tb.Fatal(err)
	}
	parsed, err := parser.ParseStrictDDL(sql)
	if err != nil {
		return err
	}
	written := words(parameter.ReplaceAllString(sqlparser.String(parsed), "?"))
	for w, n := range words(sql) {
		if written[w] < n {
			return fmt.Errorf("the parser has skipped %q: %s", w, sqlparser.String(parsed))
		}
	}
	return errors.Join(beyondGrammar(parsed)...)
}

// beyondGrammar says what MySQL refuses although its grammar takes it: a default without parentheses that is no literal,
// or that is a text's; and a JSON_TABLE directly under a locking clause.
func beyondGrammar(parsed sqlparser.Statement) (refused []error) {
	switch s := parsed.(type) {
	case *sqlparser.CreateTable:
		for _, c := range s.TableSpec.Columns {
			_, literal := c.Type.Options.Default.(*sqlparser.Literal)
			if c.Type.Options.DefaultLiteral && (!literal || strings.HasSuffix(c.Type.Type, "text")) {
				refused = append(refused, fmt.Errorf("the default of %s needs parentheses", c.Name.String()))
			}
		}
	case *sqlparser.Select:
		if s.Lock == sqlparser.NoLock {
			break
		}
		for _, from := range s.From {
			_ = sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
				if _, ok := node.(*sqlparser.JSONTableExpr); ok {
					refused = append(refused, errors.New("a JSON_TABLE cannot be locked"))
				}
				_, derived := node.(*sqlparser.DerivedTable)
				return !derived, nil
			}, from)
		}
	}
	return refused
}

// golden are all statements that are rendered, by name, as sqlstore's own test holds them.
func golden(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../sqlstore/testdata/mysql.golden.sql")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for part := range strings.SplitSeq(string(text), ";\n\n") {
		if name, sql, ok := strings.Cut(part, "\n"); ok {
			all[name] = sql
		}
	}
	if len(all) < 25 {
		t.Fatalf("only %d statements were found", len(all))
	}
	return all
}

// inspected are the statements that Check sends besides.
func inspected(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	db, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherFunc(func(name, sql string) error {
		all[name] = sql
		return nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	box, err := sqlstore.New(db, sqlstore.MySQL, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mock.ExpectQuery("settings").WillReturnRows(sqlmock.NewRows([]string{"name", "value"}))
	mock.ExpectQuery("columns").WillReturnRows(sqlmock.NewRows([]string{"name", "type", "not null", "generated", "as"}).AddRow("id", "char(36)", true, false, ""))
	for _, name := range []string{"indexes", "unfit"} {
		mock.ExpectQuery(name).WillReturnRows(sqlmock.NewRows([]string{name}))
	}
	mock.ExpectQuery("checks").WillReturnRows(sqlmock.NewRows([]string{"table", "ddl"}).AddRow("outbox", "CHECK (estado)"))
	mock.ExpectQuery("unknown").WillReturnRows(sqlmock.NewRows([]string{"estado", "n"}))
	var incomplete *sqlstore.SchemaError
	if _, err := box.Check(t.Context()); !errors.As(err, &incomplete) {
		t.Fatal(err)
	}
	if err := mock.ExpectationsWereMet(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStatements(t *testing.T) {
	all := golden(t)
	renamed := strings.NewReplacer("`outbox`", "`order`.`select`", "`organizacion_id`", "`group`")
	for name, sql := range maps.Clone(all) {
		all[name+", renamed"] = renamed.Replace(sql)
	}
	maps.Copy(all, inspected(t))
	schema, err := sqlstore.Schema(sqlstore.MySQL, sqlstore.Config{Schema: "order", Table: "select", TenantColumn: "group", TextTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	all["schema, text tenant"] = schema
	for name, sql := range all {
		if err := understood(t, sql); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What MariaDB takes and MySQL does not.
func TestForeignStatements(t *testing.T) {
	for _, sql := range []string{
		"INSERT INTO t (a) VALUES (1) RETURNING a",
		"DELETE FROM t WHERE a = 1 RETURNING a",
		"SELECT a FROM t FOR UPDATE WAIT 5",
		"CREATE INDEX IF NOT EXISTS i ON t (a)",
		"ALTER TABLE t ADD COLUMN IF NOT EXISTS a int",
		"CREATE OR REPLACE TABLE t (a int)",
		"CREATE TABLE t (a uuid)",
		"CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a) PERSISTENT)",
		"CREATE TABLE t (a int, KEY i (a) IGNORED)",
		"CREATE TABLE t (a char(36) DEFAULT uuid())",
		"CREATE TABLE t (a datetime(6) DEFAULT utc_timestamp(6))",
		"CREATE TABLE t (a longtext DEFAULT '{}')",
		"SELECT rank FROM t", // a reserved word
		"SELECT o.id FROM JSON_TABLE(?, '$[*]' COLUMNS (uid int PATH '$')) AS d JOIN o ON o.id = d.uid FOR UPDATE",
		"SELECT o.id FROM JSON_TABLE(?, '$[*]' COLUMNS (uid int PATH '$')) AS d JOIN o ON o.id = d.uid LOCK IN SHARE MODE",
	} {
		if understood(t, sql) == nil {
			t.Errorf("accepted %q", sql)
		}
	}
}

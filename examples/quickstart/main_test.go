package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/recado-dev/recado/examples/internal/mysqlurl"
	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
)

// The worker's goroutines, the servers' and the client's are all gone when run returns; database/sql ends its own a
// moment after Close.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// okLine is the verdict of a good run; every count must be there and none may be 0.
var okLine = regexp.MustCompile(`^quickstart: ok pedidos=[1-9]\d* correos=[1-9]\d* whatsapp=[1-9]\d* rechazados=2 ` +
	`revertidos=35 repetidos=[1-9]\d* reintentos=[1-9]\d* copias=[1-9]\d*$`)

func quickstart(t *testing.T, args ...string) (code int, lines []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = command(t.Context(), args, &stdout, &stderr)
	t.Logf("exit code %d\n%s%s", code, &stdout, &stderr)
	if code != 2 && stderr.Len() > 0 {
		t.Errorf("stderr: %s", &stderr)
	}
	return code, strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
}

func expectOK(t *testing.T, code int, lines []string) {
	t.Helper()
	if last := lines[len(lines)-1]; code != 0 || !okLine.MatchString(last) {
		t.Errorf("exit code %d, last line %q", code, last)
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "con espacio, ñ y 100%?.db")
	code, lines := quickstart(t, "-db", file)
	expectOK(t, code, lines)
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("the file was not kept: %v", err)
	}
	code, lines = quickstart(t, "-db", file)
	if code != 1 || len(lines) != 1 || !strings.Contains(lines[0], "ya existe") {
		t.Errorf("a second run: exit code %d, %q", code, lines)
	}
}

// Two runs on one database at once do not meet; one is kept, the other leaves nothing.
func TestServers(t *testing.T) {
	for _, server := range []struct {
		name     string
		database func(testing.TB) string
		left     string // counts what runs have left
		want     int    // of one
	}{
		{"postgres", dbtest.Postgres, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'recado\_quickstart\_%'`, 1},
		{"mariadb", dbtest.MariaDBURL, "SELECT count(*) FROM information_schema.tables WHERE table_schema = database()", 2},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			dsn := server.database(t)
			t.Run("runs", func(t *testing.T) {
				for _, args := range [][]string{{"-dsn", dsn}, {"-dsn", dsn, "-keep"}} {
					t.Run(fmt.Sprintf("keep=%t", len(args) > 2), func(t *testing.T) {
						t.Parallel()
						code, lines := quickstart(t, args...)
						expectOK(t, code, lines)
					})
				}
			})
			var n int
			if err := open(t, dsn).QueryRowContext(t.Context(), server.left).Scan(&n); err != nil || n != server.want {
				t.Errorf("%d schemas or tables are left, want %d, %v", n, server.want, err)
			}
		})
	}
}

// open opens a server's database beside the program.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	driver, source := "postgres", dsn
	if strings.HasPrefix(dsn, "mysql:") {
		cfg, err := mysqlurl.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		driver, source = "mysql", cfg.FormatDSN()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Each refusal is one line with a remedy, and shows nothing secret.
func TestRefusals(t *testing.T) {
	const secret = "s3cr3t"
	tests := []struct{ name, dsn, file, want string }{
		{name: "another scheme", dsn: "mariadb://u:" + secret + "@127.0.0.1/x", want: "postgres://usuario:clave@servidor:5432/base o mysql://usuario"},
		{name: "no URL", dsn: "host=127.0.0.1 password=" + secret, want: "postgres://usuario"},
		{name: "no scheme", dsn: ":" + secret, want: "postgres://usuario"},
		{name: "the form of MySQL's driver", dsn: "u:" + secret + "@tcp(127.0.0.1:3306)/x", want: "mysql://usuario"},
		{name: "a password with a slash", dsn: "mysql://u:" + secret + "@" + secret + "/1@127.0.0.1/x", want: "%2F"},
		{name: "a password with a question mark", dsn: "postgres://u@" + secret + "?1@127.0.0.1/x", want: "%3F"},
		{name: "a broken URL", dsn: "postgres://u:" + secret + "@%zz/x", want: "postgres://usuario"},
		{name: "no server", dsn: "postgres:///x?password=" + secret, want: "falta el servidor"},
		{name: "nobody there", dsn: "postgres://u:" + secret + "@127.0.0.1:1/x", want: "nadie contesta en 127.0.0.1:1"},
		{name: "a bad parameter", dsn: "postgres://u:" + secret + "@127.0.0.1:1/x?sslmode=" + secret, want: "revise el DSN"},
		{name: "MySQL, a broken URL", dsn: "mysql://u:" + secret + "@%zz/x", want: "mysql://usuario"},
		{name: "MySQL, no server", dsn: "mysql://u:" + secret + "@/x", want: "falta el servidor"},
		{name: "MySQL, no database", dsn: "mysql://u:" + secret + "@127.0.0.1:1", want: "falta la base"},
		{name: "MySQL, nobody there", dsn: "mysql://u:" + secret + "@127.0.0.1:1/x", want: "nadie contesta en 127.0.0.1:1"},
		{name: "MySQL, a bad parameter", dsn: "mysql://u:" + secret + "@127.0.0.1:1/x?parseTime=" + secret, want: "un parámetro"},
		{name: "no folder", file: filepath.Join(t.TempDir(), "no", "x.db"), want: "revise que la carpeta exista"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"-dsn", tt.dsn}
			if tt.file != "" {
				args = []string{"-db", tt.file}
			}
			expectRefusal(t, args, tt.want, secret)
		})
	}
}

func TestRefusalsOfServers(t *testing.T) {
	const secret = "s3cr3t"
	wrongPassword := func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret) }
	nowhere := func(u *url.URL) { u.Path = "/no_hay_tal" }
	for _, server := range []struct {
		name     string
		database func(testing.TB) string
		edits    map[string]func(*url.URL) // by what is wanted
	}{
		{"postgres", dbtest.Postgres, map[string]func(*url.URL){
			"no existe":          nowhere,
			"usuario o la clave": wrongPassword,
			"sslmode=disable":    func(u *url.URL) { u.RawQuery = "" },
		}},
		{"mariadb", dbtest.MariaDBURL, map[string]func(*url.URL){
			"no existe":          nowhere,
			"usuario o la clave": wrongPassword,
			"con el error 1298":  func(u *url.URL) { u.RawQuery = "time_zone=%27" + secret + "%27" },
		}},
	} {
		t.Run(server.name, func(t *testing.T) {
			dsn := server.database(t)
			for want, edit := range server.edits {
				t.Run(want, func(t *testing.T) {
					u, err := url.Parse(dsn)
					if err != nil {
						t.Fatal(err)
					}
					password, _ := u.User.Password()
					edit(u)
					expectRefusal(t, []string{"-dsn", u.String()}, want, secret, password)
				})
			}
		})
	}
}

// Newer servers all have TLS.
func TestNoTLS(t *testing.T) {
	if err := explainMySQL("h:3306", mysql.ErrNoTLS); err.Error() != "el servidor h:3306 no usa TLS: saque tls del DSN" {
		t.Error(err)
	}
}

// Whoever may not make tables is told so, whether the server says that of the table or of the database.
func TestNoRights(t *testing.T) {
	dsn := dbtest.MariaDBURL(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	db, own := open(t, dsn), strings.TrimPrefix(u.Path, "/")
	run := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatal(err)
		}
	}
	user := "'" + own + "'@'%'" // a name that nobody else has
	run("CREATE USER " + user + " IDENTIFIED BY 'clave'")
	t.Cleanup(func() { run("DROP USER " + user) })
	u.User = url.UserPassword(own, "clave")
	expectRefusal(t, []string{"-dsn", u.String()}, "GRANT ALL") // 1044
	run("GRANT SELECT ON " + own + ".* TO " + user)
	expectRefusal(t, []string{"-dsn", u.String()}, "GRANT ALL") // 1142
}

func expectRefusal(t *testing.T, args []string, want string, secrets ...string) {
	t.Helper()
	code, lines := quickstart(t, args...)
	if code != 1 || len(lines) != 1 || !strings.HasPrefix(lines[0], "quickstart: FAILED ") || !strings.Contains(lines[0], want) {
		t.Errorf("exit code %d, %q", code, lines)
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(lines[0], secret) {
			t.Error("it shows a secret")
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"-h"}, 0},
		{[]string{"-nada"}, 2},
		{[]string{"nada"}, 2},
		{[]string{"-db", "a", "-dsn", "b"}, 2},
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), tt.args, &stdout, &stderr)
		if code != tt.code || stdout.Len() > 0 || !strings.Contains(stderr.String(), "-dsn postgres://") {
			t.Errorf("%v: exit code %d, %q, %q", tt.args, code, &stdout, &stderr)
		}
	}
}

// An interrupted run says so, and leaves no temporary database behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out writerFunc = func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("terminados")) { // the progress: all is under way
			cancel()
		}
		return len(p), nil
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	err := run(ctx, options{}, out)
	if err == nil || err.Error() != "interrumpido antes de terminar" {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The data show what they are meant to show.
func TestOrders(t *testing.T) {
	orders, err := readOrders()
	if err != nil {
		t.Fatal(err)
	}
	box, err := sqlstore.New(new(sql.DB), sqlstore.SQLite, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	clubs, seen := map[string]bool{}, map[string]Order{}
	var repeated, impossible, later, accents, emoji, chats int
	for _, o := range orders {
		clubs[o.ClubID] = true
		if first, again := seen[o.ID]; again {
			repeated++
			if first != o {
				t.Errorf("%s is another order the second time", o.ID)
			}
			continue
		}
		seen[o.ID] = o
		for n, counted := range map[*int]bool{
			&impossible: strings.HasSuffix(o.Email, nowhere),
			&later:      o.Delay > 0,
			&accents:    strings.ContainsAny(o.Customer+o.Product, "áéíóúñÍÁÓü"),
			&emoji:      strings.ContainsFunc(o.Customer+o.Product, func(r rune) bool { return r >= 0x1F000 }),
			&chats:      o.WhatsApp != "",
		} {
			if counted {
				*n++
			}
		}
		for _, m := range o.notices() {
			// Without a transaction a good message gets as far as being told so, and a bad one does not.
			if _, err := box.Enqueue(t.Context(), nil, m); err == nil || err.Error() != "a transaction is required" {
				t.Errorf("%s: %v", o.ID, err)
			}
		}
	}
	if len(clubs) != 3 || len(seen) < 300 || impossible != 2 || repeated == 0 || later == 0 || accents < 50 || emoji < 50 {
		t.Errorf("%d clubs, %d orders, %d impossible, %d repeated, %d later, %d with accents, %d with emoji",
			len(clubs), len(seen), impossible, repeated, later, accents, emoji)
	}
	if half := len(seen) / 2; chats < half-50 || chats > half+50 {
		t.Errorf("%d of %d have WhatsApp", chats, len(seen))
	}
}

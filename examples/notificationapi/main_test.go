package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/examples/internal/demodb"
	"github.com/recado-dev/recado/internal/dbtest"
)

// The worker's goroutines and the service's are all gone when run returns; database/sql ends its own a moment after Close.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var okLine = regexp.MustCompile(`^notificationapi: ok altas=57 perdidos_mejor_esfuerzo=[1-9]\d* perdidos_outbox=0$`)

// Whatever the database, best effort loses and the outbox does not, and the output says so.
func TestRun(t *testing.T) {
	for name, args := range map[string]func(*testing.T) []string{
		"sqlite":   func(t *testing.T) []string { return []string{"-db", filepath.Join(t.TempDir(), "ñ.db")} },
		"postgres": func(t *testing.T) []string { return []string{"-dsn", dbtest.Postgres(t)} },
		"mariadb":  func(t *testing.T) []string { return []string{"-dsn", dbtest.MariaDBURL(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := args(t)
			var stdout, stderr bytes.Buffer
			code := command(t.Context(), args, &stdout, &stderr)
			lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
			if code != 0 || stderr.Len() > 0 || !okLine.MatchString(lines[len(lines)-1]) {
				t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
			}
			for _, want := range []string{
				`está caído \(503\): +14 altas, mejor esfuerzo:  0 avisos`, `está lento \(3 s\): +3 altas, mejor esfuerzo:  0 avisos`,
				`mejor esfuerzo +57 +\d+ +[1-9]\d* +\d+ +\d+\n`, `outbox +57 +57 +0 +\d+ +\d+\n`,
			} {
				if !regexp.MustCompile(want).MatchString(stdout.String()) {
					t.Errorf("nothing says %q:\n%s", want, &stdout)
				}
			}
			if name != "sqlite" {
				return
			}
			if info, err := os.Stat(args[1]); err != nil || info.Size() == 0 {
				t.Errorf("the file was not kept: %v", err)
			}
			stdout.Reset()
			if code := command(t.Context(), args, &stdout, &stderr); code != 1 || !strings.Contains(stdout.String(), "notificationapi: FAILED el archivo") {
				t.Errorf("a second run: exit code %d, %s", code, &stdout)
			}
		})
	}
}

// A check that cannot fail proves nothing: each kind of mischief is noticed, and so is a demonstration that shows nothing.
func TestVerdict(t *testing.T) {
	users := []user{{"U-001", "a@correo.example"}, {"U-002", "b@correo.example"}, {"U-003", "c@correo.example"}}
	full := func() ledger {
		l := ledger{queue: map[string]job{}}
		for _, u := range users {
			l.queue[club+":"+u.key()] = job{Code: activation, Recipient: u.email, Variables: u.variables()}
		}
		return l
	}
	key := club + ":" + users[1].key()
	edited := func(edit func(*job)) func(map[string]job) {
		return func(queue map[string]job) {
			j := queue[key]
			j.Variables = maps.Clone(j.Variables)
			edit(&j)
			queue[key] = j
		}
	}
	for _, tt := range []struct {
		name string
		edit func(outbox map[string]job)
		keep bool // best effort keeps everything
		want string
	}{
		{name: "good"},
		{name: "a lost message", edit: func(q map[string]job) { delete(q, key) }, want: "el outbox perdió 1 avisos: U-002"},
		{name: "all are lost", edit: func(q map[string]job) { clear(q) }, want: "el outbox perdió 3 avisos: U-001, U-002, U-003"},
		{name: "nothing to see", keep: true, want: "el mejor esfuerzo no perdió ningún aviso"},
		{name: "another recipient", edit: edited(func(j *job) { j.Recipient = users[0].email }), want: "U-002"},
		{name: "another notice", edit: edited(func(j *job) { j.Code = "newsletter" }), want: "U-002"},
		{name: "another link", edit: edited(func(j *job) { j.Variables["activationUrl"] += "1" }), want: "U-002"},
		{name: "a notice of nobody", edit: func(q map[string]job) { q[club+":activacion-U-009"] = job{} }, want: "nadie"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			direct, outbox := full(), full()
			if !tt.keep {
				delete(direct.queue, key)
			}
			if tt.edit != nil {
				tt.edit(outbox.queue)
			}
			var out bytes.Buffer
			err := verdict(&out, users, direct, outbox)
			if tt.want == "" {
				if err != nil || !strings.HasSuffix(out.String(), "notificationapi: ok altas=3 perdidos_mejor_esfuerzo=1 perdidos_outbox=0\n") {
					t.Errorf("%v\n%s", err, &out)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(out.String(), "notificationapi: ok") {
				t.Errorf("%v, want %q\n%s", err, tt.want, &out)
			}
		})
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
	var stdout, stderr bytes.Buffer
	const secret = "s3cr3t"
	code := command(t.Context(), []string{"-dsn", "postgres://u:" + secret + "@127.0.0.1:1/x"}, &stdout, &stderr)
	if out := stdout.String() + stderr.String(); code != 1 || !strings.Contains(out, "FAILED nadie contesta") || strings.Contains(out, secret) {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// An interrupted run says so, and leaves no temporary database behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out writerFunc = func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("altas")) { // all is under way
			cancel()
		}
		return len(p), nil
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	if err := run(ctx, demodb.Options{}, out); err == nil || err.Error() != "interrumpido antes de terminar" {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

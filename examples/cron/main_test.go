package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = "0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001"

// fixture is an application with an outbox, a folder of templates and a mail server.
type fixture struct {
	db    *sql.DB
	box   *sqlstore.Store
	inbox *inbox
	env   map[string]string
}

func newFixture(t *testing.T, dsn string) *fixture {
	t.Helper()
	folder := t.TempDir()
	template := `{{define "subject"}}Cuota de {{.mes}}{{end}}Hola: vence la cuota de {{.mes}}.`
	if err := os.WriteFile(filepath.Join(folder, "cuota.txt"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fixture{inbox: startInbox(t)}
	f.env = map[string]string{
		"RECADO_DSN": dsn, "RECADO_TEMPLATES": folder, "MAIL_FROM": "Mi Club <hola@club.example>",
		"SMTP_HOST": "127.0.0.1", "SMTP_PORT": strconv.Itoa(f.inbox.port), "SMTP_SECURITY": "insecure",
	}
	var s settings
	if err := s.readDSN(dsn); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.db, err = sql.Open(s.driver, strings.Replace(s.source, "mode=rw&", "", 1)); err != nil { // this one creates it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.db.Close(); err != nil {
			t.Error(err)
		}
	})
	if f.box, err = sqlstore.New(f.db, s.dialect, sqlstore.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := f.box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.endLongAgo(t, s.dialect)
	return f
}

func sqliteFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, "sqlite:"+filepath.Join(t.TempDir(), "club ñ.db"))
}

// endLongAgo leaves a message that was cancelled 31 days ago and one of 29.
func (f *fixture) endLongAgo(t *testing.T, d sqlstore.Dialect) {
	t.Helper()
	for _, days := range []int{31, 29} {
		then := time.Now().AddDate(0, 0, -days)
		past, err := sqlstore.New(f.db, d, sqlstore.Config{Clock: func() time.Time { return then }})
		if err != nil {
			t.Fatal(err)
		}
		id := enqueue(t, past, fmt.Sprint("vieja-", days), "vieja@correo.example")
		verdicts, err := past.Cancel(t.Context(), []string{id})
		if err != nil || verdicts[0] != store.Applied {
			t.Fatal(verdicts, err)
		}
	}
}

func enqueue(t *testing.T, box *sqlstore.Store, key, to string) (id string) {
	t.Helper()
	tx, err := box.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	res, err := box.Enqueue(t.Context(), tx, store.NewMessage{
		TenantID: tenant, Channel: email.Channel, Destination: to, Template: "cuota",
		Data: map[string]string{"mes": "marzo"}, IdempotencyKey: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return res.ID
}

// cron runs the command.
func (f *fixture) cron(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command(ctx, args, func(name string) string { return f.env[name] }, &out, &errs)
	return code, out.String(), errs.String()
}

func (f *fixture) expectStates(t *testing.T, want map[string]state.State) {
	t.Helper()
	for key, st := range want {
		m, err := f.box.GetByKey(t.Context(), tenant, key)
		if err != nil || m.State != st {
			t.Errorf("%s: %v, %v; want %v", key, m, err, st)
		}
	}
}

func TestDrainAndPurge(t *testing.T) {
	for name, newFixture := range map[string]func(*testing.T) *fixture{
		"sqlite":   sqliteFixture,
		"postgres": func(t *testing.T) *fixture { return newFixture(t, dbtest.Postgres(t)) },
		"mariadb":  func(t *testing.T) *fixture { return newFixture(t, dbtest.MariaDBURL(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for n := range 25 { // more than a batch
				enqueue(t, f.box, fmt.Sprint("cuota-", n), fmt.Sprintf("socio%d@correo.example", n))
			}
			enqueue(t, f.box, "nadie", unknown)
			enqueue(t, f.box, "luego", busy)

			code, stdout, stderr := f.cron(t.Context())
			if want := "reclamados=27 enviados=25 reintentar=1 descartados=1 purgados=1\n"; code != exitOK || stdout != want || stderr != "" {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
			f.expectStates(t, map[string]state.State{
				"cuota-0": state.Sent, "cuota-24": state.Sent, "nadie": state.Discarded, "luego": state.Pending, "vieja-29": state.Discarded,
			})
			if mails := f.inbox.received(); len(mails) != 25 || !strings.Contains(mails[0], "Subject: Cuota de marzo") {
				t.Errorf("%d mails", len(mails))
			}
			if _, err := f.box.GetByKey(t.Context(), tenant, "vieja-31"); err == nil {
				t.Error("the purge left the older one")
			}

			// There is nothing left to do but what waits for its retry.
			code, stdout, stderr = f.cron(t.Context(), "-json", "-purge-days", "0", "-deadline", "10s")
			var sum struct {
				Reporte  map[string]any
				Purgados *int64
			}
			if err := json.Unmarshal([]byte(stdout), &sum); err != nil || code != exitOK || stderr != "" {
				t.Fatalf("exit code %d, %q, %q, %v", code, stdout, stderr, err)
			}
			if sum.Reporte["reclamados"] != 0.0 || sum.Purgados == nil || *sum.Purgados != 0 || strings.Count(stdout, "\n") != 1 {
				t.Error(stdout)
			}
		})
	}
}

// Nobody here serves the channel whatsapp: that is worth a warning, and no failure.
func TestWarning(t *testing.T) {
	f := sqliteFixture(t)
	tx, err := f.box.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.box.Enqueue(t.Context(), tx, store.NewMessage{
		TenantID: tenant, Channel: "whatsapp", Destination: "+5491155500000", Template: "cuota", IdempotencyKey: "w",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := f.cron(t.Context())
	if code != exitOK || !strings.Contains(stderr, "whatsapp") || !strings.HasPrefix(stdout, "reclamados=0 ") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// What was told to stop finishes the calls in flight, gives the rest back, purges nothing, and is no failure.
func TestStop(t *testing.T) {
	f := sqliteFixture(t)
	for n := range 20 {
		enqueue(t, f.box, fmt.Sprint("cuota-", n), fmt.Sprintf("socio%d@correo.example", n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.inbox.hold(cancel, ctx.Done())
	code, stdout, stderr := f.cron(ctx)
	if code != exitOK || stderr != "" || !strings.HasSuffix(stdout, "purgados=0\n") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	sent, pending := 0, 0
	for n := range 20 {
		m, err := f.box.GetByKey(t.Context(), tenant, fmt.Sprint("cuota-", n))
		switch {
		case err != nil:
			t.Fatal(err)
		case m.State == state.Sent:
			sent++
		case m.State == state.Pending && m.Attempts == 0:
			pending++
		}
	}
	if sent == 0 || pending == 0 || sent+pending != 20 || sent != len(f.inbox.received()) {
		t.Errorf("%d sent, %d pending, %d received", sent, pending, len(f.inbox.received()))
	}
	f.expectStates(t, map[string]state.State{"vieja-31": state.Discarded})

	// One that is told so before it begins does nothing.
	if code, stdout, _ := f.cron(ctx); code != exitOK || !strings.HasPrefix(stdout, "reclamados=0 ") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

// A deadline that passes leaves messages for the next run, purges all the same, and is no failure.
func TestDeadline(t *testing.T) {
	f := sqliteFixture(t)
	enqueue(t, f.box, "cuota", "socio@correo.example")
	code, stdout, stderr := f.cron(t.Context(), "-deadline", "1ns")
	if want := "reclamados=0 purgados=1\n"; code != exitOK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	f.expectStates(t, map[string]state.State{"cuota": state.Pending})
}

// Whatever keeps the database from doing its part makes the run incomplete.
func TestIncomplete(t *testing.T) {
	const secret = "s3cr3t"
	refuse := func(operation string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()
			_, err := f.db.ExecContext(t.Context(), "CREATE TRIGGER no BEFORE "+operation+" ON outbox BEGIN SELECT raise(ABORT, '"+secret+"'); END")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		spoil  func(*testing.T, *fixture)
		stdout string // its beginning
	}{
		{"claims fail", refuse("UPDATE"), "reclamados=0 errores_reclamo=1 "},
		{"the purge fails", refuse("DELETE"), "reclamados=1 enviados=1 purgados=0"},
		{"no table", func(t *testing.T, f *fixture) {
			if _, err := f.db.ExecContext(t.Context(), "DROP TABLE outbox"); err != nil {
				t.Fatal(err)
			}
		}, "reclamados=0 "},
		{"no file", func(_ *testing.T, f *fixture) { f.env["RECADO_DSN"] += ".no" }, "reclamados=0 "},
		{"no server", func(_ *testing.T, f *fixture) { f.env["RECADO_DSN"] = "postgres://u:" + secret + "@127.0.0.1:1/x" }, "reclamados=0 "},
		{"no MySQL server", func(_ *testing.T, f *fixture) { f.env["RECADO_DSN"] = "mysql://u:" + secret + "@127.0.0.1:1/x" }, "reclamados=0 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := sqliteFixture(t)
			enqueue(t, f.box, "cuota", "socio@correo.example")
			tt.spoil(t, f)
			code, stdout, stderr := f.cron(t.Context())
			if code != exitIncomplete || !strings.HasPrefix(stdout, tt.stdout) || !strings.HasPrefix(stderr, "cron: la corrida quedó incompleta: ") {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, secret) {
				t.Error("it shows a secret")
			}
			if _, err := os.Stat(strings.TrimPrefix(f.env["RECADO_DSN"], "sqlite:")); tt.name == "no file" && err == nil {
				t.Error("a mistyped name became a database")
			}
		})
	}
}

func TestUsage(t *testing.T) {
	const secret = "s3cr3t"
	tests := []struct {
		name string
		args []string
		env  map[string]string // changes
		want string
	}{
		{name: "an unknown option", args: []string{"-nada"}, want: "-nada"},
		{name: "an argument", args: []string{"nada"}, want: "argumento"},
		{name: "no time", args: []string{"-deadline", "0s"}, want: "-deadline"},
		{name: "negative days", args: []string{"-purge-days", "-1"}, want: "-purge-days"},
		{name: "too many days", args: []string{"-purge-days", "4000000"}, want: "-purge-days"},
		{name: "no DSN", env: map[string]string{"RECADO_DSN": ""}, want: "RECADO_DSN"},
		{name: "another scheme", args: []string{"-dsn", "mariadb://u:" + secret + "@h/x"}, want: "postgres://…, mysql://… o sqlite:archivo"},
		{name: "no database", args: []string{"-dsn", "mysql://u:" + secret + "@h"}, want: "falta la base"},
		{name: "no file", env: map[string]string{"RECADO_DSN": "sqlite:"}, want: "sqlite:/ruta"},
		{name: "no templates", env: map[string]string{"RECADO_TEMPLATES": ""}, want: "RECADO_TEMPLATES"},
		{name: "no such folder", args: []string{"-templates", "/no/hay"}, want: "plantillas"},
		{name: "no sender", env: map[string]string{"MAIL_FROM": ""}, want: "MAIL_FROM"},
		{name: "no host", env: map[string]string{"SMTP_HOST": ""}, want: "Host"},
		{name: "no port", env: map[string]string{"SMTP_PORT": "smtp"}, want: "SMTP_PORT"},
		{name: "no security", env: map[string]string{"SMTP_SECURITY": "no"}, want: "SMTP_SECURITY"},
		{name: "a password in the open", env: map[string]string{"SMTP_USERNAME": "u", "SMTP_PASSWORD": secret}, want: "Username"},
	}
	f := sqliteFixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			env := func(name string) string {
				if value, ok := tt.env[name]; ok {
					return value
				}
				return f.env[name]
			}
			code := command(t.Context(), tt.args, env, &out, &errs)
			if code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), tt.want) {
				t.Errorf("exit code %d, %q, %q", code, &out, &errs)
			}
			if strings.Contains(errs.String(), secret) {
				t.Error("it shows a secret")
			}
		})
	}
	if code, stdout, stderr := f.cron(t.Context(), "-h"); code != exitOK || stdout != "" || !strings.Contains(stderr, "SMTP_HOST") {
		t.Errorf("-h: exit code %d, %q, %q", code, stdout, stderr)
	}
	if got := len(f.inbox.received()); got > 0 {
		t.Errorf("%d mails went out", got)
	}
}

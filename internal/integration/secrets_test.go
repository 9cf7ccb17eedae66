package integration

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaplog "go.uber.org/zap/zaptest/observer"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/internal/dbtest"
	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/smtp"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// What no error, log, report, event or error column may show. The external id is stored in its own column alone.
const (
	canary     = "canario"
	canaryID   = "externo-0001"
	apiKey     = canary + "-credencial"
	tenant     = canary + "-inquilino"
	template   = canary + "-plantilla"
	said       = canary + " dice el proveedor: "
	bodyCanary = canary + "-cuerpo"
)

// evidence looks for canaries in whatever gets out, and counts what was looked at.
type evidence struct {
	*testing.T
	count *proof.Tally
}

func (e evidence) clean(where string, values ...any) {
	e.Helper()
	for _, v := range values {
		texts := []string{fmt.Sprintf("%v %+v %#v %q %s", v, v, v, v, v)}
		if r, ok := v.(dispatch.Report); ok { // an error's JSON shows its fields, like direct access
			raw, err := json.Marshal(r)
			if err != nil {
				e.Fatal(err)
			}
			texts = append(texts, string(raw), r.String())
		}
		for _, text := range texts {
			if strings.Contains(text, canary) || strings.Contains(text, canaryID) {
				e.count.Violation(e.T, "%s shows %s", where, text)
			}
		}
	}
}

// refused looks at an error that must have come.
func (e evidence) refused(kind string, err error) {
	e.Helper()
	if err == nil {
		e.Errorf("%s: nothing was refused", kind)
		return
	}
	e.count.Fault(kind)
	e.clean(kind, err, fmt.Errorf("sending: %w", err), errors.Join(err))
}

// quoted looks at a database's error, which must have quoted a canary for the test to show anything.
func (e evidence) quoted(kind string, err error) {
	e.Helper()
	e.refused(kind, err)
	cause := err
	for next := err; next != nil; next = errors.Unwrap(next) {
		cause = next
	}
	if detail, _ := json.Marshal(cause); !strings.Contains(cause.Error()+string(detail), canary) {
		e.Errorf("%s: the driver's error quotes nothing: %v", kind, cause)
	}
}

// witness is an observer that looks at all it is told.
type witness struct{ evidence }

func (w witness) Claimed(c dispatch.Claimed) { w.clean("a claim's event", c) }
func (w witness) Settled(s dispatch.Settled) { w.clean("a settlement's event", s) }

func (w witness) Attempt(ctx context.Context, a dispatch.Attempt) (context.Context, func(state.Outcome)) {
	w.clean("an attempt's event", a)
	return ctx, func(o state.Outcome) { w.clean("an outcome's event", o) }
}

// talkative is a relay that repeats what it hears in all its answers. What it does is in the recipient's name.
func talkative(t *testing.T, count *proof.Tally) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	converse := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		in := bufio.NewReader(conn)
		to, answer := "", "220 "+said
		for {
			if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
				return
			}
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			answer = "250 " + said + strings.TrimSpace(line)
			switch verb {
			case "RCPT":
				to = strings.TrimSpace(line)
				switch {
				case strings.Contains(to, "nadie"):
					answer = "550 5.1.1 " + said + to
				case strings.Contains(to, "corte"):
					count.Fault("relay hangs up")
					return
				case strings.Contains(to, "jerga"):
					answer = said + to
				}
			case "DATA":
				if _, err := io.WriteString(conn, "354 "+said+"\r\n"); err != nil {
					return
				}
				body := ""
				for line := ""; line != ".\r\n"; body += line {
					if line, err = in.ReadString('\n'); err != nil {
						return
					}
				}
				if !strings.Contains(body, bodyCanary) {
					t.Errorf("the mail lacks its body: %s", body)
				}
				answer = "250 2.0.0 Ok: queued as " + canaryID
				if strings.Contains(to, "basura") {
					answer = "554 5.7.1 " + said + to + bodyCanary
				}
			case "QUIT":
				answer = "221 " + said
			}
			if strings.HasPrefix(answer, "55") || strings.HasPrefix(answer, said) {
				count.Fault("relay echoes")
			}
		}
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { converse(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

// complaints makes a database refuse rows by their recipient, in errors that quote the row: rechazo at enqueue, reclamo when
// claimed, cierre when settled, purga when deleted.
func complaints(d sqlstore.Dialect) []string {
	claimed, settled := "NEW.estado = '"+string(state.Processing)+"'", "OLD.estado = '"+string(state.Processing)+"' AND NEW.estado <> OLD.estado"
	const quote = "NEW.destino || ' ' || NEW.datos || ' ' || NEW.clave_idempotencia"
	switch d {
	case sqlstore.Postgres:
		return []string{
			`ALTER TABLE outbox ADD CHECK (destino NOT LIKE '%rechazo%')`,
			`CREATE FUNCTION queja() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF TG_OP = 'DELETE' THEN
		IF OLD.destino LIKE '%purga%' THEN RAISE EXCEPTION 'fila %', OLD; END IF;
		RETURN OLD;
	END IF;
	IF NEW.destino LIKE '%reclamo%' AND ` + claimed + ` OR NEW.destino LIKE '%cierre%' AND ` + settled + `
	THEN RAISE EXCEPTION 'fila %', NEW USING DETAIL = NEW.datos; END IF;
	RETURN NEW;
END $$`,
			`CREATE TRIGGER queja BEFORE UPDATE OR DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION queja()`,
		}
	case sqlstore.MySQL:
		raise := func(when, event, condition, row string) string {
			return `CREATE TRIGGER queja_` + when + ` BEFORE ` + event + ` ON outbox FOR EACH ROW BEGIN
	DECLARE texto varchar(128) DEFAULT left(concat('fila ', ` + row + `.destino, ` + row + `.datos), 128);
	IF ` + condition + ` THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = texto; END IF;
END`
		}
		return []string{
			raise("alta", "INSERT", "NEW.destino LIKE '%rechazo%'", "NEW"),
			raise("cambio", "UPDATE", "NEW.destino LIKE '%reclamo%' AND "+claimed+" OR NEW.destino LIKE '%cierre%' AND "+settled, "NEW"),
			raise("baja", "DELETE", "OLD.destino LIKE '%purga%'", "OLD"),
		}
	}
	return []string{
		`CREATE TRIGGER queja_alta BEFORE INSERT ON outbox WHEN NEW.destino LIKE '%rechazo%' BEGIN SELECT RAISE(ABORT, ` + quote + `); END`,
		`CREATE TRIGGER queja_cambio BEFORE UPDATE ON outbox WHEN NEW.destino LIKE '%reclamo%' AND ` + claimed + ` OR NEW.destino LIKE '%cierre%' AND ` + settled + `
BEGIN SELECT RAISE(ABORT, ` + quote + `); END`,
		`CREATE TRIGGER queja_baja BEFORE DELETE ON outbox WHEN OLD.destino LIKE '%purga%' BEGIN SELECT RAISE(ABORT, ` + strings.ReplaceAll(quote, "NEW", "OLD") + `); END`,
	}
}

// quoting is a value whose encoding fails with an error that quotes it.
type quoting struct{}

func (quoting) MarshalJSON() ([]byte, error) { return nil, errors.New("cannot encode " + bodyCanary) }

// Whatever goes wrong between an enqueue and a settlement, with a database, a relay and a provider that repeat all they are
// given, shows nothing of a message, of an account or of what they said: no error, no log at its most talkative, no report,
// no event, and no column but the message's own.
func TestNoSecretGetsOut(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (sqlstore.Dialect, string, string){
		"postgres": func(t *testing.T) (sqlstore.Dialect, string, string) {
			return sqlstore.Postgres, "postgres", dbtest.Postgres(t)
		},
		"mariadb": func(t *testing.T) (sqlstore.Dialect, string, string) {
			return sqlstore.MySQL, "mysql", dbtest.MariaDB(t)
		},
		"sqlite": func(t *testing.T) (sqlstore.Dialect, string, string) {
			return sqlstore.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "recado.db") + "?_txlock=immediate&_pragma=busy_timeout(30000)"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dialect, driver, dsn := open(t)
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			box, err := sqlstore.New(db, dialect, sqlstore.Config{TextTenant: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, statement := range complaints(dialect) {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			searchForSecrets(t, db, box)
		})
	}
}

func searchForSecrets(t *testing.T, db *sql.DB, box *sqlstore.Store) {
	count := proof.New(t, "canary secrets", "message refused", "enqueue fails", "claim fails", "settlement fails", "purge fails",
		"no transaction", "context ended", "not found", "relay echoes", "relay hangs up", "render fails", "sender panics", "sender quotes", "look-up fails")
	e := evidence{t, count}
	ctx := t.Context()
	n := 0
	message := func(channel, to string, change ...func(*store.NewMessage)) store.NewMessage {
		n++
		m := store.NewMessage{
			TenantID: tenant, Channel: channel, Destination: canary + "-" + to + "@casa.example", Template: template,
			Data: map[string]string{"x": bodyCanary}, IdempotencyKey: fmt.Sprint(canary, "-clave-", n),
			Headers: map[string]string{"nota": canary + "-cabecera"},
		}
		for _, f := range change {
			f(&m)
		}
		return m
	}
	enqueue := func(m store.NewMessage) (store.EnqueueResult, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := box.Enqueue(ctx, tx, m)
		if err != nil {
			if rollback := tx.Rollback(); rollback != nil {
				t.Fatal(rollback)
			}
			return res, err
		}
		return res, tx.Commit()
	}
	put := func(m store.NewMessage) string {
		t.Helper()
		res, err := enqueue(m)
		if err != nil {
			t.Fatal(err, errors.Unwrap(err))
		}
		e.clean("an enqueue's result", res)
		return res.ID
	}

	// Enqueue refuses.
	long := strings.Repeat(canary, 100)
	for _, change := range []func(*store.NewMessage){
		func(m *store.NewMessage) { m.TenantID = canary + ":1" },
		func(m *store.NewMessage) { m.TenantID = long },
		func(m *store.NewMessage) { m.Channel = canary },
		func(m *store.NewMessage) { m.Destination = canary + "\r\nBcc: x" },
		func(m *store.NewMessage) { m.Destination = long },
		func(m *store.NewMessage) { m.Template = canary + "\x00" },
		func(m *store.NewMessage) { m.IdempotencyKey = canary + "-ñ" },
		func(m *store.NewMessage) { m.IdempotencyKey = long },
		func(m *store.NewMessage) { m.Data = json.RawMessage(`{"` + canary) },
		func(m *store.NewMessage) { m.Data = map[string]any{canary: func() {}} },
		func(m *store.NewMessage) { m.Data = quoting{} },
		func(m *store.NewMessage) { m.Data = canary + "\x00" },
		func(m *store.NewMessage) { m.Data = strings.Repeat(canary, 50_000) },
		func(m *store.NewMessage) { m.Headers = map[string]string{canary + "\n": "x"} },
		func(m *store.NewMessage) { m.Headers = map[string]string{"x": canary + "\n"} },
		func(m *store.NewMessage) { m.Headers = map[string]string{"x": strings.Repeat(canary, 1000)} },
	} {
		_, err := enqueue(message(email.Channel, "a", change))
		e.refused("message refused", err)
	}
	_, err := box.EnqueueAll(ctx, nil, []store.NewMessage{message(email.Channel, "a"), message(canary, "b")})
	e.refused("message refused", err)
	_, err = box.Enqueue(ctx, nil, message(email.Channel, "a"))
	e.refused("no transaction", err)

	// The database refuses, and quotes.
	_, err = enqueue(message(email.Channel, "rechazo"))
	e.quoted("enqueue fails", err)
	tx, err := box.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = box.EnqueueAll(ctx, tx, []store.NewMessage{message(email.Channel, "a"), message(email.Channel, "rechazo")})
	e.quoted("enqueue fails", err)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	_, err = box.Enqueue(ctx, tx, message(email.Channel, "a"))
	e.refused("no transaction", err)

	claim := store.ClaimParams{Channel: email.Channel, Limit: 10, Lease: time.Minute}
	put(message(email.Channel, "reclamo"))
	put(message(email.Channel, "cierre"))
	c, err := box.Claim(ctx, claim)
	if err != nil || len(c.Refused) != 1 || len(c.Messages) != 1 {
		t.Fatalf("claimed %v, %v", c, err)
	}
	count.Fault("claim fails")
	e.clean("refused rows", c.Refused, c.Closed, c.Mark)
	settlement := store.Settlement{Fence: c.Messages[0].Fence(), Attempts: 1, Transition: state.Transition{Event: state.EventSend, To: state.Sent, ExternalID: canaryID}}
	_, err = box.Settle(ctx, []store.Settlement{settlement})
	e.quoted("settlement fails", err)
	_, err = box.SettleTx(ctx, settlement, func(context.Context, store.Tx) error { return nil })
	e.quoted("settlement fails", err)
	e.clean("a settlement", settlement)
	wrong := settlement
	wrong.To = state.Pending
	_, err = box.Settle(ctx, []store.Settlement{wrong})
	e.refused("settlement fails", err)
	// On MariaDB a claim that reads its channel to the end has the next entry of the index locked for a moment, and the claim of
	// that channel passes it over until the next pass. Where the channel has a finished row, it is that one.
	finished := []string{put(message(email.Channel, "purga")), put(message(whatsapp.Channel, "bien"))}
	if _, err = box.Cancel(ctx, finished); err != nil {
		t.Fatal(err)
	}
	_, err = box.Purge(ctx, store.PurgeParams{Before: time.Now().Add(time.Hour)})
	e.quoted("purge fails", err)
	_, err = box.GetByKey(ctx, tenant, canary)
	e.refused("not found", err)
	_, err = box.Get(ctx, canary)
	e.refused("not found", err)
	over, cancel := context.WithCancelCause(ctx)
	cancel(errors.New(canary))
	_, err = box.Claim(over, claim)
	e.refused("context ended", err)

	// A worker, whose providers quote.
	for _, to := range []string{"bien", "nadie", "corte", "jerga", "basura", "cierre", "reclamo"} {
		put(message(email.Channel, to))
	}
	put(message(email.Channel, "a", func(m *store.NewMessage) { m.Data = map[string]string{canary: canary} }))
	put(message(email.Channel, "a", func(m *store.NewMessage) { m.Data = json.RawMessage(`["` + canary + `"]`) }))
	put(message(email.Channel, "a", func(m *store.NewMessage) { m.Template = canary + "-otra" }))
	put(message(email.Channel, "a", func(m *store.NewMessage) { m.Destination = canary + " sin arroba" }))
	put(message(email.Channel, "a", func(m *store.NewMessage) { m.ExpiresAt = time.Now().Add(-time.Hour) }))
	for _, to := range []string{"bien", "codigo", "categoria", "id", "panico", "error", "parametros", "parametro"} {
		put(message(whatsapp.Channel, to))
	}
	for _, of := range []string{"-consulta", "-consulta-panico", "-sin-cuenta"} {
		put(message(whatsapp.Channel, "bien", func(m *store.NewMessage) { m.TenantID = canary + of }))
	}
	foreign := put(message(whatsapp.Channel, "bien"))
	if _, err := db.ExecContext(ctx, "UPDATE outbox SET clave_idempotencia = '"+canary+"\n' WHERE id = '"+foreign+"'"); err != nil {
		t.Fatal(err)
	}
	core, logs := zaplog.New(zap.DebugLevel)
	w, err := dispatch.New(box, dispatch.Config{
		Logger: zap.New(core), Observer: witness{e}, BatchSize: 100, Concurrency: 1,
		Transports: dispatch.Transports{email.Channel: mails(t, count), whatsapp.Channel: chats(t, count)},
	})
	if err != nil {
		t.Fatal(err)
	}
	report := w.ProcessBatch(ctx)
	e.clean("a report", report, report.Warnings, report.LastError)
	e.refused("settlement fails", report.Err())
	if report.Claimed < 20 || report.Sent != 3 || report.Errors != 1 || report.Discarded < 8 {
		t.Errorf("the pass came to %v", report)
	}
	encoder := zapcore.NewJSONEncoder(zap.NewDevelopmentEncoderConfig())
	for _, entry := range logs.All() {
		line, err := encoder.EncodeEntry(entry.Entry, entry.Context)
		if err != nil {
			t.Fatal(err)
		}
		e.clean("a log", line.String(), entry.ContextMap())
	}
	if logs.FilterMessageSnippet("panicked").Len() == 0 || logs.FilterMessageSnippet("settlement failed").Len() == 0 {
		t.Errorf("the log lacks a panic or a failed settlement: %d entries", logs.Len())
	}

	// The columns that people and panels read.
	rows, err := db.QueryContext(ctx, "SELECT coalesce(ultimo_error_categoria, ''), coalesce(ultimo_error_codigo, ''), coalesce(id_externo, '') FROM outbox")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	ids := 0
	for rows.Next() {
		var category, code, id string
		if err := rows.Scan(&category, &code, &id); err != nil {
			t.Fatal(err)
		}
		count.Checked(1)
		if id == canaryID {
			ids++
			id = ""
		}
		e.clean("a row's error", category, code, id)
	}
	if err := rows.Err(); err != nil || ids != 2 {
		t.Errorf("%d external ids were stored, %v", ids, err)
	}
	stats, err := box.Stats(ctx, store.StatsParams{})
	if err != nil {
		t.Fatal(err)
	}
	e.clean("the statistics", stats)
}

// mails is the e-mail transport, whose templates fail for what lacks its data.
func mails(t *testing.T, count *proof.Tally) transports.Transport {
	t.Helper()
	relay, err := smtp.New(smtp.Config{Host: "127.0.0.1", Port: talkative(t, count), Security: smtp.InsecurePlaintext})
	if err != nil {
		t.Fatal(err)
	}
	render := email.Templates(fstest.MapFS{
		template + ".txt":  {Data: []byte(`{{define "subject"}}` + canary + `{{end}}{{.x}}`)},
		template + ".html": {Data: []byte(`<p>{{.x}}</p>`)},
	})
	tr, err := email.New(email.Config{From: "Club <hola@club.example>", Sender: relay, Render: email.RenderFunc(
		func(ctx context.Context, m transports.Message) (email.Content, error) {
			c, err := render.Render(ctx, m)
			if err != nil {
				evidence{t, count}.refused("render fails", err)
			}
			return c, err
		})})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// chats is the WhatsApp transport. What goes wrong is in the recipient's name.
func chats(t *testing.T, count *proof.Tally) transports.Transport {
	t.Helper()
	tr, err := whatsapp.New(whatsapp.Config{
		Credentials: func(_ context.Context, tenant string) (*whatsapp.Credentials, error) {
			switch strings.TrimPrefix(tenant, canary) {
			case "-consulta":
				count.Fault("look-up fails")
				return nil, errors.New(tenant + " has no " + apiKey)
			case "-consulta-panico":
				panic(tenant + apiKey)
			case "-sin-cuenta":
				return nil, nil
			}
			return &whatsapp.Credentials{PhoneNumberID: canary + "-numero", APIKey: apiKey}, nil
		},
		Params: func(_ context.Context, m transports.Message) ([]whatsapp.Param, error) {
			switch {
			case strings.Contains(m.Destination, "parametros"):
				count.Fault("render fails")
				return nil, fmt.Errorf("%s has no name in %s", m.Destination, m.Data)
			case strings.Contains(m.Destination, "parametro"):
				return []whatsapp.Param{{Value: canary + "\n"}}, nil
			}
			return []whatsapp.Param{{Value: bodyCanary}}, nil
		},
		Sender: whatsapp.SenderFunc(func(_ context.Context, c whatsapp.Credentials, m whatsapp.TemplateMessage) state.Outcome {
			text := fmt.Sprint(said, m.To, " ", m.Params[0].Value, " ", c.APIKey)
			if c.APIKey != apiKey {
				t.Error("other credentials")
			}
			switch {
			case strings.Contains(m.To, "codigo"):
				count.Fault("sender quotes")
				return state.Outcome{Category: state.CategoryRejected, Code: text}
			case strings.Contains(m.To, "categoria"):
				return state.Outcome{Category: text, Code: text, Ambiguous: true}
			case strings.Contains(m.To, "-id"):
				return state.Outcome{OK: true, ExternalID: text}
			case strings.Contains(m.To, "panico"):
				count.Fault("sender panics")
				panic(text)
			case strings.Contains(m.To, "error"):
				panic(errors.New(text))
			}
			return state.Outcome{OK: true, ExternalID: canaryID}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

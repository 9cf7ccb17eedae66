// Quickstart is Recado's main job, from end to end and with nothing but Go installed:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -dsn 'postgres://usuario:clave@localhost:5432/base?sslmode=disable'
//	go run ./examples/quickstart -dsn 'mysql://usuario:clave@localhost:3306/base'
//
// A shop of three clubs takes the orders of pedidos.csv. Each order is one transaction that writes the order and
// enqueues its notices; one transaction in ten is rolled back on purpose, and some orders are requested twice. A worker
// delivers meanwhile: e-mail over SMTP and WhatsApp over HTTP, to two servers in this process that refuse some attempts
// and break some connections. In the end the servers' ledgers are held against the committed orders.
//
// Read this file from top to bottom. The others hold the shop (orders.go, database.go), its way to send WhatsApp
// (whatsapp_sender.go), the two servers and what they do wrong (inbox.go, whatsapp_standin.go, faults.go), what is shown
// meanwhile (progress.go) and the check (ledger.go).
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/examples/internal/mysqlurl"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/smtp"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// options are the command line's.
type options struct {
	file string // SQLite; "" is a temporary one
	dsn  string // PostgreSQL, MySQL or MariaDB
	keep bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command returns the exit code: 0 when all was delivered and the check holds, 1 when not, 2 for a wrong command line.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.file, "db", "", "`archivo` SQLite nuevo, que se conserva (si falta, uno temporal, que se borra)")
	flags.StringVar(&o.dsn, "dsn", "", "correr en una base de PostgreSQL, MySQL o MariaDB, con un esquema o tablas propias que se borran al final;\n`URL`: "+postgresForm+" o "+mysqlurl.Form)
	flags.BoolVar(&o.keep, "keep", false, "no borrar al final la base temporal, el esquema o las tablas")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "Recibe los pedidos de pedidos.csv, entrega sus avisos y comprueba que no falte ni sobre ninguno.\n\n"+
			"Uso: go run ./examples/quickstart [-db archivo | -dsn postgres://… | -dsn mysql://…] [-keep]")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // flags has said why
		return 2
	case flags.NArg() > 0 || o.file != "" && o.dsn != "":
		flags.Usage()
		return 2
	}
	o.keep = o.keep || o.file != ""
	if err := run(ctx, o, stdout); err != nil {
		_, _ = fmt.Fprintln(stdout, "quickstart: FAILED", err)
		return 1
	}
	return 0
}

// deadline is for a run in which something hangs; a good one takes a few seconds, on a busy machine perhaps a minute.
const deadline = 3 * time.Minute

// With "all:", since a plain pattern leaves out files whose names begin with '_'.
//
//go:embed all:templates
var templates embed.FS

// run is the whole story. When all went well its last line is "quickstart: ok" and the counts; an error is for a line
// of its own.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()

	// The application's database with a table for the orders, and beside that one for the messages.
	db, err := openDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close(o.keep)) }()
	_, _ = fmt.Fprintln(out, "Base de datos:", db.where)
	box, err := sqlstore.New(db.DB, db.dialect, db.outbox)
	if err != nil {
		return err
	}
	if err := box.Migrate(ctx); err != nil {
		return err
	}
	advice, err := box.Check(ctx)
	if err != nil {
		return err
	}
	for _, sentence := range advice {
		_, _ = fmt.Fprintln(out, "Consejo de Check:", sentence)
	}

	// Two servers to deliver to. In real life these are other people's.
	inbox, err := startInbox()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inbox.close()) }()
	standin, err := startStandin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, standin.close()) }()

	// How messages leave: e-mail, rendered from templates, over SMTP …
	server, err := smtp.New(smtp.Config{Host: "127.0.0.1", Port: inbox.port, Security: smtp.InsecurePlaintext})
	if err != nil {
		return err
	}
	files, err := fs.Sub(templates, "templates")
	if err != nil {
		return err
	}
	mail, err := email.New(email.Config{From: "Tienda de los clubes <tienda@clubes.example>", Sender: server, Render: email.Templates(files)})
	if err != nil {
		return err
	}
	// … and WhatsApp through a sender of the application's own, from each club's own number.
	sender := newWhatsAppSender(standin.url)
	defer sender.client.CloseIdleConnections()
	wa, err := whatsapp.New(whatsapp.Config{
		Sender: sender,
		Credentials: func(_ context.Context, club string) (*whatsapp.Credentials, error) {
			return &whatsapp.Credentials{PhoneNumberID: club, APIKey: apiKey(club)}, nil
		},
	})
	if err != nil {
		return err
	}

	// The worker. Nobody wants to watch the default waits, which begin at 30 s.
	policy := state.DefaultPolicy()
	policy.Backoff = state.Backoff{Base: 300 * time.Millisecond, Factor: 2, Max: 2 * time.Second, Jitter: 0.2}
	var retries atomic.Int64
	reported := make(chan struct{}, 1)
	worker, err := dispatch.New(box, dispatch.Config{
		Transports:   dispatch.Transports{email.Channel: mail, whatsapp.Channel: wa},
		Timeout:      10 * time.Second,
		PollInterval: 200 * time.Millisecond,
		Policy:       &policy,
		OnReport: func(r dispatch.Report) {
			retries.Add(int64(r.Retried))
			select {
			case reported <- struct{}{}:
			default: // the watcher has not looked yet
			}
		},
	})
	if err != nil {
		return err
	}

	// All at once: the worker, the orders, and somebody who watches until no message is left to deliver.
	var taken tally
	bar := newProgress(out)
	placed := make(chan struct{})
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return worker.Run(working) })
	group.Go(func() (err error) {
		defer close(placed)
		taken, err = placeOrders(working, db, box, worker.Notify)
		return err
	})
	group.Go(func() error {
		defer stop() // the worker finishes what it is doing and returns
		return watch(working, box, placed, reported, bar.every(), func(stats []store.ChannelStats) { bar.show(stats, retries.Load()) })
	})
	err = group.Wait()
	bar.end()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrumpido antes de terminar")
	case ctx.Err() != nil:
		return fmt.Errorf("no terminó en %s", deadline)
	case err != nil:
		return err
	}
	_, _ = fmt.Fprintf(out, "Pedidos: %d solicitudes: %d confirmadas, %d repetidas, %d revertidas a propósito\n",
		taken.requests, taken.confirmed, taken.repeated, taken.rolledBack)

	// What became of them.
	return verify(ctx, out, db, box, taken, retries.Load(), inbox, standin)
}

// tally counts what became of the requests.
type tally struct {
	requests, confirmed, repeated, rolledBack int
}

// placeOrders takes the orders one by one. It is what Recado is for: the order and its notices exist together, or not
// at all.
func placeOrders(ctx context.Context, db *database, box *sqlstore.Store, notify func()) (tally, error) {
	var t tally
	orders, err := readOrders()
	if err != nil {
		return t, err
	}
	for _, o := range orders {
		t.requests++
		rollBack := t.requests%10 == 0
		isNew, err := placeOrder(ctx, db, box, o, rollBack)
		switch {
		case err != nil:
			return t, fmt.Errorf("pedido %s: %w", o.ID, err)
		case rollBack:
			t.rolledBack++
			continue
		case isNew:
			t.confirmed++
		default:
			t.repeated++
		}
		notify() // a hint after the commit; without it the worker's next poll finds the messages
	}
	return t, nil
}

// placeOrder is one transaction. It reports whether the order's notices are new; those of a repeated request are there
// already, and enqueueing them again changes nothing.
func placeOrder(ctx context.Context, db *database, box *sqlstore.Store, o Order, rollBack bool) (isNew bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it has nothing to do
	if err := o.insert(ctx, tx, db); err != nil {
		return false, err
	}
	for _, m := range o.notices() {
		res, err := box.Enqueue(ctx, tx, m)
		if err != nil {
			return false, err
		}
		isNew = isNew || res.Inserted
	}
	if rollBack {
		return isNew, tx.Rollback()
	}
	return isNew, tx.Commit()
}

// watch returns when all orders are placed and no message is pending or being delivered. It looks at every report of
// the worker, and often enough for the progress to move.
func watch(ctx context.Context, box *sqlstore.Store, placed, reported <-chan struct{}, every time.Duration, show func([]store.ChannelStats)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		allPlaced := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reported:
		case <-tick.C:
		}
		select {
		case <-placed:
			allPlaced = true
		default:
		}
		stats, err := box.Stats(ctx, store.StatsParams{})
		if err != nil {
			return err
		}
		show(stats)
		var live int64
		for _, c := range stats {
			live += sum(c.Live)
		}
		if allPlaced && live == 0 {
			return nil
		}
	}
}

// verify prints the table of states and the verdict.
func verify(ctx context.Context, out io.Writer, db *database, box *sqlstore.Store, taken tally, retries int64, inbox *inbox, standin *standin) error {
	stats, err := box.Stats(ctx, store.StatsParams{})
	if err != nil {
		return err
	}
	printStates(out, stats)
	committed, err := committedOrders(ctx, db)
	if err != nil {
		return err
	}
	mails, err := inbox.check(ctx, box, email.Channel, committed)
	if err != nil {
		return err
	}
	chats, err := standin.check(ctx, box, whatsapp.Channel, committed)
	if err != nil {
		return err
	}
	problems := append(mails.problems, chats.problems...)
	if len(committed) != taken.confirmed {
		problems = append(problems, fmt.Sprintf("se confirmaron %d pedidos y hay %d", taken.confirmed, len(committed)))
	}
	var rows int64
	for _, c := range stats {
		rows += sum(c.Live) + sum(c.Ended)
	}
	if want := int64(mails.expected + chats.expected); rows != want {
		problems = append(problems, fmt.Sprintf("el outbox tiene %d mensajes y los pedidos confirmados %d", rows, want))
	}

	_, _ = fmt.Fprintln(out, "Los registros de los dos servidores, contra los pedidos confirmados:")
	_, _ = fmt.Fprintf(out, "  correo:    %d de %d aceptados, %d rechazados para siempre (la dirección no existe)\n", mails.accepted, mails.expected, mails.refused)
	_, _ = fmt.Fprintf(out, "  whatsapp:  %d de %d aceptados\n", chats.accepted, chats.expected)
	_, _ = fmt.Fprintf(out, "  fallas:    %d veces «más tarde» (451, 429) y %d conexiones cortadas\n",
		inbox.refusals+standin.refusals, inbox.cuts+standin.cuts)
	_, _ = fmt.Fprintf(out, "  copias:    %d, cada una porque se cortó la conexión después de aceptado el mensaje: al menos una vez\n",
		mails.copies+chats.copies)
	if len(problems) > 0 {
		for _, p := range problems[:min(len(problems), 10)] {
			_, _ = fmt.Fprintln(out, "  ¡MAL!", p)
		}
		return fmt.Errorf("la comprobación encontró %d problemas", len(problems))
	}
	_, _ = fmt.Fprintf(out, "quickstart: ok pedidos=%d correos=%d whatsapp=%d rechazados=%d revertidos=%d repetidos=%d reintentos=%d copias=%d\n",
		taken.confirmed, mails.accepted, chats.accepted, mails.refused, taken.rolledBack, taken.repeated, retries, mails.copies+chats.copies)
	return nil
}

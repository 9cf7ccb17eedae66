// Quickstart is Recado's main job, from end to end and with nothing but Go installed:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -dsn 'postgres://usuario:clave@localhost:5432/base?sslmode=disable'
//	go run ./examples/quickstart -dsn 'mysql://usuario:clave@localhost:3306/base'
//
// A shop of three clubs takes the orders of pedidos.csv. Each order is one transaction that writes the order and
// enqueues its notices; one transaction in ten is rolled back on purpose, and some orders are requested twice. A worker
// delivers meanwhile, e-mail through Resend and WhatsApp through Kapso: with the real senders, to doubles of the two
// providers in this process, which refuse some attempts and break some connections. In the end the doubles' records are
// held against the committed orders.
//
// The same goes to real providers, a few orders at a time, all of them to a recipient of your own:
//
//	go run ./examples/quickstart -resend-key re_… -from 'Yo <yo@mi-dominio.example>' -to yo@mi-casa.example
//	go run ./examples/quickstart -smtp smtp://usuario:clave@servidor:587 -from yo@mi-dominio.example -to yo@mi-casa.example
//	go run ./examples/quickstart -kapso-key … -kapso-number 1065 -to-whatsapp +5491122334455
//
// Read this file from top to bottom. The others hold the command line (options.go), the shop (orders.go), the
// senders and where they lead (providers.go), what is shown meanwhile (progress.go) and the check (ledger.go).
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
	"github.com/recado-dev/recado/examples/internal/demodb"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/whatsapp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command returns the exit code: 0 when all was delivered and the check holds, 1 when not, 2 for a wrong command line.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := readOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // readOptions has said why
		return 2
	}
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
	db, err := demodb.Open(ctx, program, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, _ = fmt.Fprintln(out, "Base de datos:", db.Where)
	box, err := sqlstore.New(db.DB, db.Dialect, db.Outbox)
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
	orders, err := readOrders(o)
	if err != nil {
		return err
	}

	// How messages leave: e-mail, rendered from templates …
	mailSender, mailDouble, err := openMail(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mailDouble.close()) }()
	files, err := fs.Sub(templates, "templates")
	if err != nil {
		return err
	}
	mail, err := email.New(email.Config{From: o.from, Sender: mailSender, Render: email.Templates(files)})
	if err != nil {
		return err
	}
	// … and WhatsApp, from each club's own number.
	chatSender, account, chatDouble, err := openChat(o, orders)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chatDouble.close()) }()
	wa, err := whatsapp.New(whatsapp.Config{
		Sender:      chatSender,
		Credentials: func(_ context.Context, club string) (*whatsapp.Credentials, error) { return account(club), nil },
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
		taken, err = placeOrders(working, db, box, orders, worker.Notify)
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
	return verify(ctx, out, db, box, taken, retries.Load(), mailDouble, chatDouble)
}

// tally counts what became of the requests.
type tally struct {
	requests, confirmed, repeated, rolledBack int
}

// placeOrders takes the orders one by one. It is what Recado is for: the order and its notices exist together, or not
// at all.
func placeOrders(ctx context.Context, db *demodb.Database, box *sqlstore.Store, orders []Order, notify func()) (tally, error) {
	var t tally
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
func placeOrder(ctx context.Context, db *demodb.Database, box *sqlstore.Store, o Order, rollBack bool) (isNew bool, err error) {
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
func verify(ctx context.Context, out io.Writer, db *demodb.Database, box *sqlstore.Store, taken tally, retries int64, mailDouble, chatDouble *double) error {
	stats, err := box.Stats(ctx, store.StatsParams{})
	if err != nil {
		return err
	}
	printStates(out, stats)
	committed, err := committedOrders(ctx, db)
	if err != nil {
		return err
	}
	mails, err := check(ctx, mailDouble, box, email.Channel, committed)
	if err != nil {
		return err
	}
	chats, err := check(ctx, chatDouble, box, whatsapp.Channel, committed)
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

	_, _ = fmt.Fprintln(out, "Lo que aceptó cada proveedor, contra los pedidos confirmados:")
	_, _ = fmt.Fprintf(out, "  correo:    %d de %d aceptados%s, %d rechazados para siempre (la dirección no existe)\n",
		mails.accepted, mails.expected, mailDouble.source(), mails.refused)
	_, _ = fmt.Fprintf(out, "  whatsapp:  %d de %d aceptados%s\n", chats.accepted, chats.expected, chatDouble.source())
	printFaults(out, mailDouble, chatDouble)
	if mailDouble != nil {
		_, _ = fmt.Fprintf(out, "  copias:    %d correos: Resend reconoce la clave, y contestó %d repeticiones sin mandar nada\n", mails.copies, mails.repeats)
	}
	if chatDouble != nil {
		_, _ = fmt.Fprintf(out, "  copias:    %d whatsapp, que no tiene claves: cada una porque se cortó la conexión después de aceptado (al menos una vez)\n", chats.copies)
	}
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

// Notificationapi shows the call that nobody's queue covers, and what an outbox makes of it:
//
//	go run ./examples/notificationapi
//	go run ./examples/notificationapi -dsn 'postgres://usuario:clave@localhost:5432/base?sslmode=disable'
//	go run ./examples/notificationapi -dsn 'mysql://usuario:clave@localhost:3306/base'
//
// People sign up at a club. Each sign-up is one transaction that writes the user and enqueues the job "account-activation"
// for a notification service; a worker posts it. Beside that, each sign-up also calls the service the usual way: after the
// commit, twice at most, and what fails is swallowed. The service, in this process, is well for a while, then down, slow and
// flaky, and well again. In the end its two ledgers are held against the users: without the outbox some can never activate
// their account, with it all can.
//
// Read this file from top to bottom. The others hold the sign-up (signup.go), the service (service.go) and the check
// (ledger.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/examples/internal/demodb"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/notification"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command returns the exit code: 0 when the outbox lost nothing and best effort did, 1 when not, 2 for a wrong command line.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o demodb.Options
	flags := flag.NewFlagSet("notificationapi", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.Flags(flags)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "Da de alta usuarios mientras el servicio de notificaciones falla, y cuenta qué avisos se pierden con outbox y sin él.\n\n"+
			"Uso: go run ./examples/notificationapi [-db archivo | -dsn postgres://… | -dsn mysql://…] [-keep]")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // flags has said why
		return 2
	case flags.NArg() > 0 || o.File != "" && o.DSN != "":
		flags.Usage()
		return 2
	}
	if err := run(ctx, o, stdout); err != nil {
		_, _ = fmt.Fprintln(stdout, "notificationapi: FAILED", err)
		return 1
	}
	return 0
}

// deadline is for a run in which something hangs; a good one takes a few seconds.
const deadline = 2 * time.Minute

// run is the whole story. When all went well its last line is "notificationapi: ok" and the counts; an error is for a line
// of its own.
func run(ctx context.Context, o demodb.Options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()

	// The application's database with a table for the users, and beside that one for the messages.
	db, err := demodb.Open(ctx, program, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, _ = fmt.Fprintln(out, "Base de datos:", db.Where)
	db.Outbox.Channels = []string{notification.Channel}
	box, err := sqlstore.New(db.DB, db.Dialect, db.Outbox)
	if err != nil {
		return err
	}
	if err := box.Migrate(ctx); err != nil {
		return err
	}

	// The service, and two ways to it that differ in nothing but the path, by which the service keeps its ledgers.
	service, err := startService()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.close()) }()
	viaOutbox, err := service.transport(outboxWay)
	if err != nil {
		return err
	}
	direct, err := service.transport(directWay)
	if err != nil {
		return err
	}

	// The worker. Nobody wants to watch the default waits, which begin at 30 s.
	policy := state.DefaultPolicy()
	policy.Backoff = state.Backoff{Base: 200 * time.Millisecond, Factor: 2, Max: time.Second, Jitter: 0.2}
	worker, err := dispatch.New(box, dispatch.Config{
		Transports:   dispatch.Transports{notification.Channel: viaOutbox},
		Timeout:      time.Second, // in real life 10 to 15 s
		PollInterval: 100 * time.Millisecond,
		Policy:       &policy,
	})
	if err != nil {
		return err
	}

	// All at once: the worker, the sign-ups, and somebody who watches until no message is left to deliver.
	signedUp := make(chan struct{})
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return worker.Run(working) })
	group.Go(func() error {
		defer close(signedUp)
		return signUpEverybody(working, out, db, box, service, direct, worker.Notify)
	})
	group.Go(func() error {
		defer stop() // the worker finishes what it is doing and returns
		return watch(working, box, signedUp)
	})
	err = group.Wait()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrumpido antes de terminar")
	case ctx.Err() != nil:
		return fmt.Errorf("no terminó en %s", deadline)
	case err != nil:
		return err
	}

	// What became of them.
	users, err := committedUsers(ctx, db)
	if err != nil {
		return err
	}
	return verdict(out, users, service.account(directWay), service.account(outboxWay))
}

// watch returns when everybody has signed up and no message is pending or being delivered.
func watch(ctx context.Context, box store.Operator, signedUp <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-signedUp:
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		stats, err := box.Stats(ctx, store.StatsParams{})
		if err != nil {
			return err
		}
		var live int64
		for _, channel := range stats {
			for _, n := range channel.Live {
				live += n
			}
		}
		if live == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

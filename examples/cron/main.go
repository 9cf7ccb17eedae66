// Cron is one run of an outbox worker, for machines that have a scheduler already: it delivers until nothing is due or
// a deadline has come, deletes what ended long ago, prints a report and exits.
//
//	go run ./examples/cron -dsn sqlite:/var/lib/club/club.db -templates /etc/club/plantillas -deadline 50s -purge-days 30
//
// The exit code is 0 when the run did what it could (messages that were retried, refused or left for the next run do not
// change that), 1 when the database kept it from doing so, and 2 for a wrong command line or configuration. Runs may
// overlap: each message is leased to one of them. On SIGTERM it starts no further call, finishes those in flight, gives
// the other messages back, and still exits with 0; so give it two call timeouts, 60 s, and a little more to stop.
//
// Settings come from the environment, since whoever may list processes can read a command line:
//
//	RECADO_DSN        postgres://usuario:clave@servidor:5432/base, mysql://usuario:clave@servidor:3306/base
//	                  or sqlite:/ruta/archivo.db (-dsn)
//	RECADO_TEMPLATES  folder of the e-mail templates (-templates)
//	MAIL_FROM         the sender: "Mi Club <hola@club.example>" (with the quotes in a file that a shell reads)
//	SMTP_HOST         the mail server; SMTP_PORT where it is not 587, or 465 with SMTP_SECURITY=tls
//	SMTP_SECURITY     starttls (default), tls, or insecure for a server on the same machine
//	SMTP_USERNAME, SMTP_PASSWORD
//
// A crontab, with the settings in a file that only its owner reads:
//
//	*/1 * * * * set -a; . /etc/club/recado.env; exec /usr/local/bin/recado-cron -deadline 50s >>/var/log/recado.log 2>&1
//
// A systemd service and its timer, recado.service and recado.timer:
//
//	[Unit]
//	Wants=network-online.target
//	After=network-online.target
//	[Service]
//	Type=oneshot
//	User=club
//	EnvironmentFile=/etc/club/recado.env
//	ExecStart=/usr/local/bin/recado-cron -deadline 50s
//	TimeoutStopSec=75
//
//	[Timer]
//	OnCalendar=minutely
//	[Install]
//	WantedBy=timers.target
//
// A Kubernetes CronJob:
//
//	apiVersion: batch/v1
//	kind: CronJob
//	metadata: {name: recado}
//	spec:
//	  schedule: "* * * * *"
//	  jobTemplate:
//	    spec:
//	      backoffLimit: 0 # the next minute is the retry
//	      template:
//	        spec:
//	          restartPolicy: Never
//	          terminationGracePeriodSeconds: 75
//	          containers:
//	          - name: recado
//	            image: registry.example/recado-cron
//	            args: [-deadline=50s, -json]
//	            envFrom: [{secretRef: {name: recado}}]
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
)

// The exit codes.
const (
	exitOK         = 0
	exitIncomplete = 1 // the database failed; the next run goes on
	exitUsage      = 2
)

// Bounds of what a run does, beside its deadline.
const (
	callTimeout  = 30 * time.Second // of one mail
	checkTimeout = 15 * time.Second // of connecting and looking at the table
	purgeTimeout = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command does everything and returns the exit code. The report goes to stdout, what went wrong to stderr.
func command(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	s, err := readSettings(args, env, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "cron:", err)
		return exitUsage
	}
	db, err := sql.Open(s.driver, s.source)
	if err != nil { // the driver's error may quote the DSN
		_, _ = fmt.Fprintln(stderr, "cron: el DSN tiene algo que el driver no acepta")
		return exitUsage
	}
	defer db.Close() //nolint:errcheck // nothing is open any more
	sum, err := work(ctx, db, s)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "cron: la corrida quedó incompleta:", err)
	}
	if err := sum.print(stdout, stderr, s.json); err != nil {
		_, _ = fmt.Fprintln(stderr, "cron: no se pudo escribir el informe:", err)
		return exitIncomplete
	}
	if err != nil {
		return exitIncomplete
	}
	return exitOK
}

// work is the run itself: check, drain, purge.
func work(ctx context.Context, db *sql.DB, s settings) (summary, error) {
	var sum summary
	box, err := sqlstore.New(db, s.dialect, sqlstore.Config{})
	if err != nil {
		return sum, err
	}
	worker, err := dispatch.New(box, dispatch.Config{
		Transports: dispatch.Transports{email.Channel: s.mail},
		Timeout:    callTimeout,
	})
	if err != nil {
		return sum, err
	}
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := box.Check(checking); err != nil {
		return sum, ignoreStop(ctx, err)
	}

	draining, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	sum.Report = worker.Drain(draining)
	if s.purgeDays == 0 || ctx.Err() != nil {
		return sum, sum.Report.Err()
	}

	purging, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	sum.Purged, err = box.Purge(purging, store.PurgeParams{Before: time.Now().AddDate(0, 0, -s.purgeDays)})
	return sum, errors.Join(sum.Report.Err(), ignoreStop(ctx, err))
}

// ignoreStop drops an error that comes from being told to stop.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// summary is what a run did.
type summary struct {
	Report dispatch.Report `json:"reporte"`
	Purged int64           `json:"purgados"`
}

// print writes one line to out: the counts, or everything as JSON. Without JSON the warnings go to warnings.
func (s summary) print(out, warnings io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(s)
	}
	for _, w := range s.Report.Warnings {
		if _, err := fmt.Fprintln(warnings, "cron: advertencia:", w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s purgados=%d\n", s.Report, s.Purged)
	return err
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/recado-dev/recado/examples/internal/mysqlurl"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/smtp"
)

// settings are the command line's and the environment's, checked.
type settings struct {
	driver, source string
	dialect        sqlstore.Dialect
	mail           *email.Transport
	deadline       time.Duration
	purgeDays      int // 0: no purge
	json           bool
}

// maxPurgeDays is about a century: what is kept longer needs no purge.
const maxPurgeDays = 36500

// readSettings returns an error without any value in it: a DSN or a password must not end in a log.
func readSettings(args []string, env func(string) string, usage io.Writer) (settings, error) {
	var s settings
	var dsn, templates string
	flags := flag.NewFlagSet("cron", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&dsn, "dsn", "", "base de datos: `postgres://…, mysql://… o sqlite:archivo` (mejor en RECADO_DSN: la línea de órdenes se ve en ps)")
	flags.StringVar(&templates, "templates", "", "`carpeta` de las plantillas de correo (o RECADO_TEMPLATES)")
	flags.DurationVar(&s.deadline, "deadline", 50*time.Second, "después de este plazo no empieza ningún envío")
	flags.IntVar(&s.purgeDays, "purge-days", 30, "borrar lo que terminó hace más de tantos `días`; 0: no borrar nada")
	flags.BoolVar(&s.json, "json", false, "informe en JSON")
	flags.Usage = func() {
		_, _ = fmt.Fprint(usage, "Entrega los correos pendientes de un outbox, purga los viejos e informa. Para cron, systemd o Kubernetes.\n\n"+
			"Uso: cron [opciones], con MAIL_FROM y SMTP_HOST en el entorno, y si hacen falta\n"+
			"SMTP_PORT, SMTP_SECURITY (starttls, tls, insecure), SMTP_USERNAME y SMTP_PASSWORD\n\n"+
			"Sale con 0: completo, 1: incompleto (falló la base), 2: mal configurado\n\n")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return s, err
	case err != nil:
		return s, errors.New("opciones inválidas")
	case flags.NArg() > 0:
		return s, errors.New("sobra un argumento: todo va en opciones, vea -h")
	case s.deadline <= 0:
		return s, errors.New("-deadline tiene que ser mayor que 0")
	case s.purgeDays < 0 || s.purgeDays > maxPurgeDays:
		return s, fmt.Errorf("-purge-days tiene que estar entre 0 y %d", maxPurgeDays)
	}
	// Not as the flags' defaults, which -h would print.
	if dsn == "" {
		dsn = env("RECADO_DSN")
	}
	if templates == "" {
		templates = env("RECADO_TEMPLATES")
	}
	if err := s.readDSN(dsn); err != nil {
		return s, err
	}
	if templates == "" {
		return s, errors.New("falta la carpeta de plantillas: -templates o RECADO_TEMPLATES")
	}
	server, err := readSMTP(env)
	if err != nil {
		return s, err
	}
	s.mail, err = email.New(email.Config{From: env("MAIL_FROM"), Sender: server, Render: email.Templates(os.DirFS(templates))})
	if err != nil {
		return s, fmt.Errorf("correo (MAIL_FROM, plantillas): %w", err)
	}
	return s, nil
}

func (s *settings) readDSN(dsn string) error {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "":
		return errors.New("falta la base de datos: -dsn o RECADO_DSN")
	case "postgres", "postgresql":
		s.driver, s.source, s.dialect = "postgres", dsn, sqlstore.Postgres
	case "mysql":
		cfg, err := mysqlurl.Parse(dsn)
		if err != nil {
			return err
		}
		s.driver, s.source, s.dialect = "mysql", cfg.FormatDSN(), sqlstore.MySQL
	case "sqlite":
		file := strings.TrimPrefix(rest, "//")
		if file == "" {
			return errors.New("al DSN le falta el archivo: sqlite:/ruta/archivo.db")
		}
		// mode=rw: a mistyped name must not become an empty database.
		s.driver, s.dialect = "sqlite", sqlstore.SQLite
		s.source = "file:" + (&url.URL{Path: file}).EscapedPath() +
			"?mode=rw&_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)"
	default:
		return errors.New("el DSN tiene que ser postgres://…, mysql://… o sqlite:archivo")
	}
	return nil
}

func readSMTP(env func(string) string) (*smtp.Sender, error) {
	c := smtp.Config{Host: env("SMTP_HOST"), Username: env("SMTP_USERNAME"), Password: env("SMTP_PASSWORD")}
	if port := env("SMTP_PORT"); port != "" {
		var err error
		if c.Port, err = strconv.Atoi(port); err != nil {
			return nil, errors.New("SMTP_PORT no es un número")
		}
	}
	switch env("SMTP_SECURITY") {
	case "", "starttls":
		c.Security = smtp.StartTLS
	case "tls":
		c.Security = smtp.ImplicitTLS
	case "insecure":
		c.Security = smtp.InsecurePlaintext
	default:
		return nil, errors.New("SMTP_SECURITY tiene que ser starttls, tls o insecure")
	}
	server, err := smtp.New(c)
	if err != nil {
		return nil, fmt.Errorf("servidor de correo (SMTP_…): %w", err)
	}
	return server, nil
}

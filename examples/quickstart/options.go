package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/recado-dev/recado/examples/internal/demodb"
)

// options are the command line's.
type options struct {
	db     demodb.Options
	orders int // how many requests of pedidos.csv; 0: all

	// The real thing instead of the doubles.
	smtp, resendKey       string
	kapsoKey, kapsoNumber string

	from           string // of e-mails
	to, toWhatsApp string // who gets everything; "": the customers, who are made up
	mark           string // ends the numbers of orders, so that Resend does not take them for those of the run before
}

const (
	defaultFrom = "Tienda de los clubes <tienda@clubes.example>"
	realOrders  = 5 // to a real provider, unless there is another number
)

// readOptions says on stderr what is wrong with the command line, and shows none of it: there are keys in it.
func readOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.db.Flags(flags)
	flags.IntVar(&o.orders, "orders", 0, "`cuántos` pedidos (si falta, todos, o 5 si los avisos salen de verdad)")
	flags.StringVar(&o.smtp, "smtp", "", "mandar los correos de verdad, por un servidor SMTP; `URL`: "+smtpForm)
	flags.StringVar(&o.resendKey, "resend-key", "", "mandar los correos de verdad, por Resend, con esta `clave`")
	flags.StringVar(&o.from, "from", "", "`dirección` de la que salen los correos de verdad")
	flags.StringVar(&o.to, "to", "", "`dirección` a la que van todos los correos de verdad")
	flags.StringVar(&o.kapsoKey, "kapso-key", "", "mandar los WhatsApp de verdad, por Kapso, con esta `clave`;\nla cuenta tiene que tener la plantilla "+template+" (es_AR) con tres parámetros")
	flags.StringVar(&o.kapsoNumber, "kapso-number", "", "`phone number id` del que salen los WhatsApp de verdad")
	flags.StringVar(&o.toWhatsApp, "to-whatsapp", "", "`número` al que van todos los WhatsApp de verdad")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "Recibe los pedidos de pedidos.csv, entrega sus avisos y comprueba que no falte ni sobre ninguno.\n\n"+
			"Uso: go run ./examples/quickstart [-db archivo | -dsn postgres://… | -dsn mysql://…] [-keep] [-orders N]\n"+
			"       [-resend-key … | -smtp … con -from y -to] [-kapso-key … con -kapso-number y -to-whatsapp]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil { // flags has said why
		return o, err
	}
	mail, chat := o.smtp+o.resendKey != "", o.kapsoKey != ""
	wrong := ""
	switch {
	case flags.NArg() > 0:
		wrong = "sobra un argumento"
	case o.db.File != "" && o.db.DSN != "":
		wrong = "-db y -dsn no van juntos"
	case o.smtp != "" && o.resendKey != "":
		wrong = "-smtp y -resend-key no van juntos"
	case mail != (o.from != "") || mail != (o.to != ""):
		wrong = "-from y -to van con -smtp o -resend-key, y estos con aquellos"
	case chat != (o.kapsoNumber != "") || chat != (o.toWhatsApp != ""):
		wrong = "-kapso-key, -kapso-number y -to-whatsapp van juntos"
	case o.orders < 0:
		wrong = "-orders no puede ser negativo"
	}
	if wrong != "" {
		_, _ = fmt.Fprintf(stderr, "%s\n\n", wrong)
		flags.Usage()
		return o, errors.New(wrong)
	}
	if mail || chat {
		o.orders = cmp.Or(o.orders, realOrders)
		o.mark = "-" + strconv.FormatInt(time.Now().Unix(), 36)
	}
	o.from = cmp.Or(o.from, defaultFrom)
	return o, nil
}

// redirect sends an order's notices to the one who is to get everything.
func (o options) redirect(order Order) Order {
	order.Email = cmp.Or(o.to, order.Email)
	if order.WhatsApp != "" {
		order.WhatsApp = cmp.Or(o.toWhatsApp, order.WhatsApp)
	}
	return order
}

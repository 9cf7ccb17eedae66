package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/whatsapp"
)

// Order is the business of this application: one line of pedidos.csv, one row of the table pedidos. Its JSON is what
// the e-mail templates see.
type Order struct {
	ID       string        `json:"pedido"`
	ClubID   string        `json:"-"` // the tenant
	Club     string        `json:"club"`
	Customer string        `json:"cliente"`
	Email    string        `json:"-"`
	WhatsApp string        `json:"-"` // "" for those who gave no number
	Product  string        `json:"producto"`
	Quantity int           `json:"cantidad"`
	Total    int           `json:"total"` // pesos
	Delay    time.Duration `json:"-"`     // the notices are not to go out earlier
}

// notices are the messages that an order causes: an e-mail, and a WhatsApp where there is a number. The idempotency key
// says which notice of which order it is: however often the order is requested, each is enqueued once.
func (o Order) notices() []store.NewMessage {
	var at time.Time // zero: now
	if o.Delay > 0 {
		at = time.Now().Add(o.Delay)
	}
	var all []store.NewMessage
	for _, channel := range []string{email.Channel, whatsapp.Channel} {
		if o.destination(channel) == "" {
			continue
		}
		all = append(all, store.NewMessage{
			TenantID:       o.ClubID,
			Channel:        channel,
			Destination:    o.destination(channel),
			Template:       "confirmacion_pedido",
			Data:           o.data(channel),
			IdempotencyKey: o.key(channel),
			ScheduledAt:    at,
		})
	}
	return all
}

func (o Order) destination(channel string) string {
	if channel == whatsapp.Channel {
		return o.WhatsApp
	}
	return o.Email
}

// data is what the template needs: named values for the e-mail's, positional parameters for WhatsApp's.
func (o Order) data(channel string) any {
	if channel == whatsapp.Channel {
		return []any{o.Customer, o.ID, o.Product}
	}
	return o
}

func (o Order) key(channel string) string { return "confirmacion-" + channel + "-" + o.ID }

// createOrders and selectOrders are written so that every engine takes them. The first %s is what stands before the
// table's name, the one at the end what only MySQL wants to be told.
const createOrders = `
CREATE TABLE %spedidos (
	pedido varchar(40) PRIMARY KEY, club_id varchar(36) NOT NULL, club text NOT NULL, cliente text NOT NULL, correo text NOT NULL,
	whatsapp text NOT NULL, producto text NOT NULL, cantidad integer NOT NULL, total integer NOT NULL
) %s`

const selectOrders = `
SELECT pedido, club_id, club, cliente, correo, whatsapp, producto, cantidad, total FROM %spedidos`

// insertOrder and insertOrderMySQL leave an order that exists already alone.
const (
	insertOrder = `
INSERT INTO %spedidos (pedido, club_id, club, cliente, correo, whatsapp, producto, cantidad, total)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING`

	insertOrderMySQL = `
INSERT INTO %spedidos (pedido, club_id, club, cliente, correo, whatsapp, producto, cantidad, total)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE pedido = pedido`
)

// insert writes the order.
func (o Order) insert(ctx context.Context, tx *sql.Tx, db *database) error {
	statement := insertOrder
	if db.dialect == sqlstore.MySQL {
		statement = insertOrderMySQL
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(statement, db.prefix),
		o.ID, o.ClubID, o.Club, o.Customer, o.Email, o.WhatsApp, o.Product, o.Quantity, o.Total)
	return err
}

// committedOrders reads back what was really kept.
func committedOrders(ctx context.Context, db *database) (_ []Order, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(selectOrders, db.prefix))
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says it
	var all []Order
	for rows.Next() {
		var o Order
		err := rows.Scan(&o.ID, &o.ClubID, &o.Club, &o.Customer, &o.Email, &o.WhatsApp, &o.Product, &o.Quantity, &o.Total)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

//go:embed pedidos.csv
var ordersCSV string

// readOrders returns the requested orders, line by line: some are requested twice.
func readOrders() ([]Order, error) {
	lines, err := csv.NewReader(strings.NewReader(ordersCSV)).ReadAll()
	if err != nil {
		return nil, err
	}
	var orders []Order
	for i, f := range lines[1:] { // behind the header
		var n [3]int
		for j := range n {
			if n[j], err = strconv.Atoi(f[7+j]); err != nil {
				return nil, fmt.Errorf("pedidos.csv, pedido %d, columna %s: no es un número", i+1, lines[0][7+j])
			}
		}
		orders = append(orders, Order{
			ID: f[0], ClubID: f[1], Club: f[2], Customer: f[3], Email: f[4], WhatsApp: f[5], Product: f[6],
			Quantity: n[0], Total: n[1], Delay: time.Duration(n[2]) * time.Second,
		})
	}
	return orders, nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/recado-dev/recado/examples/internal/demodb"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/notification"
)

// program's Create is written so that every engine takes it.
var program = demodb.Program{Name: "notificationapi", Table: "usuarios", Create: `
CREATE TABLE %susuarios (usuario varchar(40) PRIMARY KEY, correo text NOT NULL) %s`}

const club = "0199a3c2-7c10-7a00-8b1e-5f0c6a2d1001" // the tenant

// user is the business of this application: one row of the table usuarios.
type user struct {
	id, email string
}

// The notice, as the service knows it.
const activation = "account-activation"

func (u user) variables() map[string]string {
	return map[string]string{"activationUrl": "https://club.example/activar/" + u.id}
}

// key says which notice of which fact this is: the activation of this user. However often it is enqueued, it is one.
func (u user) key() string { return "activacion-" + u.id }

// Bounds of best effort, and what lies between two sign-ups.
const (
	directTries   = 2
	directTimeout = 300 * time.Millisecond
	betweenUsers  = 30 * time.Millisecond
)

// signUpEverybody lets people sign up while the service goes through its day, and says how the direct calls went.
func signUpEverybody(ctx context.Context, out io.Writer, db *demodb.Database, box *sqlstore.Store, s *service, direct transports.Transport, notify func()) error {
	tick := time.NewTicker(betweenUsers)
	defer tick.Stop()
	n := 0
	for _, p := range day {
		s.set(p.condition)
		arrived := 0
		for range p.users {
			n++
			u := user{id: fmt.Sprintf("U-%03d", n), email: fmt.Sprintf("socia%03d@correo.example", n)}
			if err := signUp(ctx, db, box, u); err != nil {
				return err
			}
			notify() // a hint after the commit; without it the worker's next poll finds the message
			called, err := callDirectly(ctx, direct, u)
			if err != nil {
				return err
			}
			if called {
				arrived++
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		_, _ = fmt.Fprintf(out, "El servicio %-28s %2d altas, mejor esfuerzo: %2d avisos aceptados\n", string(p.condition)+":", p.users, arrived)
	}
	return nil
}

// signUp is one transaction: the user and the intent to send the activation exist together, or not at all.
func signUp(ctx context.Context, db *demodb.Database, box *sqlstore.Store, u user) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it has nothing to do
	values := "?, ?"
	if db.Dialect == sqlstore.Postgres {
		values = "$1, $2"
	}
	insert := fmt.Sprintf("INSERT INTO %susuarios (usuario, correo) VALUES (%s)", db.Prefix, values)
	if _, err := tx.ExecContext(ctx, insert, u.id, u.email); err != nil {
		return err
	}
	_, err = box.Enqueue(ctx, tx, store.NewMessage{
		TenantID:       club,
		Channel:        notification.Channel,
		Destination:    u.email,
		Template:       activation,
		Data:           u.variables(),
		IdempotencyKey: u.key(),
		MaxAttempts:    20, // the waits are short here, and the outage is not
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// callDirectly is best effort: the same call, twice at most, and nobody remembers that it failed. That is right for what the
// user gets some other way, and wrong for this.
func callDirectly(ctx context.Context, t transports.Transport, u user) (arrived bool, err error) {
	variables, err := json.Marshal(u.variables())
	if err != nil {
		return false, err
	}
	for try := range directTries {
		calling, cancel := context.WithTimeout(ctx, directTimeout)
		o := t.Send(calling, transports.Message{
			TenantID: club, Channel: notification.Channel, Destination: u.email, Template: activation, Data: variables,
			IdempotencyKey: club + ":" + u.key(), Attempt: try + 1, MaxAttempts: directTries,
		})
		cancel()
		if o.OK {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// committedUsers reads back who really signed up.
func committedUsers(ctx context.Context, db *demodb.Database) (_ []user, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT usuario, correo FROM %susuarios ORDER BY usuario", db.Prefix))
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says it
	var all []user
	for rows.Next() {
		var u user
		if err := rows.Scan(&u.id, &u.email); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, rows.Err()
}

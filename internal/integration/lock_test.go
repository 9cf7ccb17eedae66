//go:build unix

package integration

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// Somebody holds the row of a message that is being sent, as an open psql does after an UPDATE: the other messages are
// settled meanwhile, and this one when it is let go.
func TestARowHeldBySomebody(t *testing.T) {
	onServers(t, heldRow)
}

func heldRow(ctx context.Context, t *testing.T, db *sql.DB, box *sqlstore.Store) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]store.NewMessage, 20)
	for i := range messages {
		messages[i] = store.NewMessage{TenantID: "club", Channel: "correo", Destination: "ana", Template: "aviso", IdempotencyKey: fmt.Sprint("k-", i)}
	}
	results, err := box.EnqueueAll(ctx, tx, messages)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	calling, held := make(chan struct{}, len(messages)), make(chan struct{})
	w, err := dispatch.New(box, dispatch.Config{
		Concurrency: len(messages),
		Transports: dispatch.Transports{"correo": transports.Func(func(context.Context, transports.Message) state.Outcome {
			calling <- struct{}{}
			<-held
			return state.Outcome{OK: true}
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan dispatch.Report, 1)
	go func() { done <- w.ProcessBatch(ctx) }()
	for range messages {
		<-calling
	}
	other, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(ctx, "UPDATE outbox SET destino = 'eva' WHERE id = '"+results[7].ID+"'"); err != nil {
		t.Fatal(err)
	}
	close(held)
	until(ctx, t, "all the other messages are settled", func() bool {
		var n int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE terminado IS NOT NULL").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == len(messages)-1
	})
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Sent != len(messages) || r.Err() != nil {
		t.Errorf("the report is %v", r)
	}
}

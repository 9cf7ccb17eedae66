package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/recado-dev/recado/dispatch"
	boltstore "github.com/recado-dev/recado/examples/customstore"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

var orders = []byte("pedidos")

// placeOrder writes an order and the mail about it, or neither.
func placeOrder(db *bbolt.DB, box *boltstore.Store, id, email string, stock int) error {
	return db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(orders)
		if err != nil {
			return err
		}
		_, err = box.Enqueue(context.Background(), boltstore.Tx{Tx: tx}, store.NewMessage{
			Channel: "correo", Destination: email, Template: "confirmacion", Data: map[string]string{"pedido": id},
			IdempotencyKey: "confirmacion-" + id,
		})
		if err != nil {
			return err
		}
		if stock == 0 {
			return errors.New("sold out")
		}
		return bucket.Put([]byte(id), []byte(email))
	})
}

// An order and its mail are written in one transaction. A worker delivers the mail from the same file.
func Example() {
	dir, err := os.MkdirTemp("", "boltstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "club.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	box, err := boltstore.New(db, store.Rules{TextTenant: true, DefaultTenant: "club"})
	if err != nil {
		log.Fatal(err)
	}
	mail := transports.Func(func(_ context.Context, m transports.Message) state.Outcome {
		fmt.Printf("%s to %s: %s, key %s\n", m.Template, m.Destination, m.Data, m.IdempotencyKey)
		return state.Outcome{OK: true, ExternalID: "mail-1"}
	})
	worker, err := dispatch.New(box, dispatch.Config{Transports: dispatch.Transports{"correo": mail}})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println("A-17:", placeOrder(db, box, "A-17", "ana@club.example", 1))
	fmt.Println("A-18:", placeOrder(db, box, "A-18", "eva@club.example", 0))
	fmt.Println(worker.Drain(context.Background()))
	// Output:
	// A-17: <nil>
	// A-18: sold out
	// confirmacion to ana@club.example: {"pedido":"A-17"}, key club:confirmacion-A-17
	// reclamados=1 enviados=1
}

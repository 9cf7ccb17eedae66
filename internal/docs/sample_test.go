package docs

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/sqlstore/sqlstoretest"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports/email"
	"github.com/recado-dev/recado/transports/email/resend"
	"github.com/recado-dev/recado/transports/whatsapp"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

// What the READMEs' sample takes for granted.
type (
	Pedido struct {
		ID string `json:"id"`
	}
	Cliente     struct{ Email string }
	repositorio struct{}
)

func (repositorio) Credenciales(context.Context, string) (*whatsapp.Credentials, error) {
	return nil, nil
}

// sample is the code between the markers, which TestSample finds in both READMEs.
func sample(ctx context.Context, db *sql.DB, tx *sql.Tx, g *errgroup.Group, zl *zap.Logger, plantillas fs.FS, apiKey string,
	repo repositorio, club, id string, c Cliente,
) error {
	// sample:begin
	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{}) // runs no SQL; box.Migrate(ctx) makes the table
	if err != nil {
		return err
	}
	mail, err := email.New(email.Config{
		From: "Mi Club <hola@club.example>", Sender: resend.New(apiKey),
		Render: email.Templates(plantillas), // an fs.FS, parsed at once
	})
	if err != nil {
		return err
	}
	wa, err := whatsapp.New(whatsapp.Config{
		Sender: kapso.New(),
		Credentials: func(ctx context.Context, tenant string) (*whatsapp.Credentials, error) {
			return repo.Credenciales(ctx, tenant) // nil, nil: not configured, discarded
		},
	})
	if err != nil {
		return err
	}
	w, err := dispatch.New(box, dispatch.Config{
		Logger:     zl,
		Transports: dispatch.Transports{email.Channel: mail, whatsapp.Channel: wa},
	})
	if err != nil {
		return err
	}

	// enqueue, in the transaction of the business fact
	res, err := box.Enqueue(ctx, tx, store.NewMessage{
		TenantID: club, Channel: email.Channel, Destination: c.Email,
		Template: "confirmacion_pedido", Data: Pedido{ID: id}, IdempotencyKey: "confirmacion-pedido-" + id,
	})

	// a cron
	rep := w.Drain(ctx)
	_, perr := box.Purge(ctx, store.PurgeParams{Before: time.Now().AddDate(0, 0, -30)})
	if err := errors.Join(rep.Err(), perr); err != nil {
		log.Fatal(err)
	}

	// or a service
	g.Go(func() error { return w.Run(ctx) })
	// sample:end
	_ = res
	return err
}

func sampleMock(mock sqlmock.Sqlmock, box *sqlstore.Store, id string) {
	// mock:begin
	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO pedidos").WillReturnResult(sqlmock.NewResult(0, 1))
	sqlstoretest.ExpectEnqueue(mock, box, sqlstoretest.Inserted(id)) // sqlmock's default matcher; ids are strings
	mock.ExpectCommit()
	// mock:end
}

func sampleOperate(ctx context.Context, box *sqlstore.Store, club string) (store.Message, []store.Verdict, []store.ChannelStats, error) {
	// operate:begin
	ids := []string{"0190a5a0-0000-7000-8000-000000000007"}
	requeued, err := box.Requeue(ctx, ids) // fallido, descartado → pendiente, due now, no attempts charged
	if err != nil {
		log.Fatal(err)
	}
	cancelled, err := box.Cancel(ctx, ids) // pendiente → descartado, code cancelado
	if err != nil {
		log.Fatal(err)
	}
	stats, err := box.Stats(ctx, store.StatsParams{}) // per channel: oldest due, live, ended in 24 h
	if err != nil {
		log.Fatal(err)
	}
	message, err := box.GetByKey(ctx, club, "confirmacion-pedido-A-17")
	// operate:end
	return message, append(requeued, cancelled...), stats, err
}

func TestSample(t *testing.T) {
	_, _, _ = sample, sampleMock, sampleOperate
	source := read(t, "sample_test.go")
	for _, name := range []string{"sample", "mock", "operate"} {
		code := dedent(between(t, source, "\t// "+name+":begin\n", "\t// "+name+":end\n"))
		for _, file := range readmes {
			if !contains(blocks(read(t, file), "go"), code) {
				t.Errorf("%s does not show the code between the markers %s of sample_test.go", file, name)
			}
		}
	}
}

package handles

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/recado-dev/recado/sqlstore"
	"github.com/recado-dev/recado/store"
)

type gormOrder struct {
	ID    string
	Email string `gorm:"column:correo"`
}

func (gormOrder) TableName() string { return "pedidos" }

// gormTx returns the transaction that tx is in. That is a *sql.Tx or, with PrepareStmt, a *gorm.PreparedStmtTX around one:
// asking for what Enqueue needs finds both, whereas outside a transaction there is a *sql.DB, which has no Commit.
func gormTx(tx *gorm.DB) (store.Tx, error) {
	if t, ok := tx.Statement.ConnPool.(store.Tx); ok {
		return t, nil
	}
	return nil, fmt.Errorf("gorm is in no transaction: it holds a %T", tx.Statement.ConnPool)
}

func placeWithGorm(db *gorm.DB, box *sqlstore.Store) place {
	return func(ctx context.Context, o order, rest func() error) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&gormOrder{ID: o.ID, Email: o.Email}).Error; err != nil {
				return err
			}
			sqlTx, err := gormTx(tx)
			if err != nil {
				return err
			}
			if _, err := box.Enqueue(ctx, sqlTx, welcome(o)); err != nil {
				return err
			}
			return rest()
		})
	}
}

// openGorm lets gorm and the outbox share one pool, which a prepared insert needs.
func openGorm(t *testing.T, e engine, db *sql.DB, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	dialector := gormpostgres.New(gormpostgres.Config{Conn: db})
	if e.name == mariadb.name {
		dialector = gormmysql.New(gormmysql.Config{Conn: db})
	}
	cfg.Logger = logger.Discard
	gormDB, err := gorm.Open(dialector, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return gormDB
}

func TestGorm(t *testing.T) {
	for name, cfg := range map[string]*gorm.Config{
		"by default":             {},
		"PrepareStmt":            {PrepareStmt: true},
		"SkipDefaultTransaction": {SkipDefaultTransaction: true},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, []engine{postgres, mariadb}, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
				try(t, db, box, placeWithGorm(openGorm(t, e, db, cfg), box))
			})
		})
	}
}

// A nested transaction is a savepoint: rolled back alone, it takes its message with it.
func TestGormSavepoint(t *testing.T) {
	on(t, []engine{postgres, mariadb}, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		err := openGorm(t, e, db, &gorm.Config{}).Transaction(func(tx *gorm.DB) error {
			place := placeWithGorm(tx, box)
			if err := place(t.Context(), order{"A1", "ana@club.example"}, accepted); err != nil {
				return err
			}
			if err := place(t.Context(), order{"B1", "benito@club.example"}, refused); !errors.Is(err, errRefused) {
				return fmt.Errorf("got %v, want the error that undid the order", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, db, 1, 1)
	})
}

// gormHooked enqueues in a hook, so that nobody can create an order and forget the message.
type gormHooked struct {
	ID    string
	Email string `gorm:"column:correo"`
	box   *sqlstore.Store
}

func (gormHooked) TableName() string { return "pedidos" }

func (h *gormHooked) AfterCreate(tx *gorm.DB) error {
	sqlTx, err := gormTx(tx)
	if err != nil {
		return err
	}
	_, err = h.box.Enqueue(tx.Statement.Context, sqlTx, welcome(order{h.ID, h.Email}))
	return err
}

// A hook runs in the transaction that gorm opens for a Create of its own, unless SkipDefaultTransaction is set. Then
// there is none to enqueue in, and the order is there already: only an explicit Transaction keeps the two together.
func TestGormHook(t *testing.T) {
	on(t, []engine{postgres, mariadb}, func(t *testing.T, e engine, db *sql.DB, box *sqlstore.Store) {
		create := func(db *gorm.DB, o order) error {
			return db.WithContext(t.Context()).Create(&gormHooked{o.ID, o.Email, box}).Error
		}
		if err := create(openGorm(t, e, db, &gorm.Config{}), order{"A1", "ana@club.example"}); err != nil {
			t.Fatal(err)
		}
		expect(t, db, 1, 1)

		skipping := openGorm(t, e, db, &gorm.Config{SkipDefaultTransaction: true})
		if err := create(skipping, order{"B1", "benito@club.example"}); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
			t.Errorf("got %v, want an error that names what gorm holds", err)
		}
		expect(t, db, 2, 1)
		err := skipping.Transaction(func(tx *gorm.DB) error { return create(tx, order{"C1", "carla@club.example"}) })
		if err != nil {
			t.Fatal(err)
		}
		expect(t, db, 3, 2)
	})
}

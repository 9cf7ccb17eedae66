// Package sqlstore is the outbox over database/sql: PostgreSQL, MySQL, MariaDB and SQLite.
//
// It promises that a message enqueued in a transaction exists if, and only if, that transaction commits, and keeps the
// contract of package store on every engine. The application needs no broker and no second connection: [Store.Enqueue]
// runs in the caller's own transaction, and everything else in short transactions of the store's own that hold no lock
// while anything is being sent.
//
//	box, err := sqlstore.New(db, sqlstore.Postgres, sqlstore.Config{}) // runs no SQL
//	err = box.Migrate(ctx)                                             // or apply Schema with your own tool
//	res, err := box.Enqueue(ctx, tx, store.NewMessage{ ... })          // with the business fact
//
// [Store.Check] compares the database with what the store needs and says what is wrong, or slower than it could be.
//
// All SQL of an engine stands in its own file, in the same order: dialect_postgres.go, dialect_mysql.go and
// dialect_sqlite.go.
package sqlstore

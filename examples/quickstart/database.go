package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/lib/pq"
	_ "modernc.org/sqlite" // pure Go: no C compiler needed

	"github.com/recado-dev/recado/examples/internal/mysqlurl"
	"github.com/recado-dev/recado/sqlstore"
)

// database is the application's own database, fresh for this run. The table of its orders is in it.
type database struct {
	*sql.DB
	dialect sqlstore.Dialect
	outbox  sqlstore.Config // what the table of messages is called
	prefix  string          // what stands before the name of the orders' table
	drop    string          // on a server: the statement that removes all that this run made
	tempDir string          // SQLite: this run's own, "" when the file has a name of the user's
	where   string          // for people
}

// openDatabase opens what the options name. Its errors are one line each, say what to do, and never show the DSN, which
// may hold a password.
func openDatabase(ctx context.Context, o options) (*database, error) {
	if o.dsn == "" {
		return openSQLite(ctx, o.file)
	}
	scheme, rest, _ := strings.Cut(o.dsn, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		// A part of the password would be taken for the server, and shown.
		return nil, errors.New("el DSN tiene una @ de más: si la clave lleva @, /, ? o #, escriba %40, %2F, %3F o %23")
	}
	switch scheme {
	case "postgres", "postgresql":
		return openPostgres(ctx, o.dsn)
	case "mysql":
		return openMySQL(ctx, o.dsn)
	}
	return nil, errors.New("el DSN no es una URL de PostgreSQL ni de MySQL: escriba " + postgresForm + " o " + mysqlurl.Form)
}

// openSQLite opens a new file: in a temporary directory that is removed at the end, unless there is a name for it.
func openSQLite(ctx context.Context, file string) (*database, error) {
	d := &database{dialect: sqlstore.SQLite}
	if file == "" {
		dir, err := os.MkdirTemp("", "recado-quickstart-")
		if err != nil {
			return nil, fmt.Errorf("no se pudo crear un directorio temporal: %w", err)
		}
		d.tempDir, file = dir, filepath.Join(dir, "pedidos.db")
	} else if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("el archivo %s ya existe o no se puede leer: elija otro con -db, o bórrelo", file)
	}
	d.where = "SQLite, " + file
	// Transactions that begin with the write lock and wait for it are what the outbox needs of SQLite.
	name := (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath()
	var err error
	d.DB, err = sql.Open("sqlite", "file:"+name+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		return nil, fmt.Errorf("no se pudo preparar la base SQLite: %w", err)
	}
	if exec(ctx, d.DB, fmt.Sprintf(createOrders, "", "")) != nil {
		_ = d.close(false) // there is nothing in it
		return nil, fmt.Errorf("no se pudo crear la base SQLite en %s: revise que la carpeta exista y se pueda escribir", file)
	}
	return d, nil
}

// connectTimeout is for a server that does not answer.
const connectTimeout = 10 * time.Second

// ownName is what tells a run's tables from other runs' and from all else on a server.
func ownName() string { return "recado_quickstart_" + strings.ReplaceAll(uuid.NewString(), "-", "") }

const postgresForm = "postgres://usuario:clave@servidor:5432/base"

// openPostgres makes a schema of its own in an existing database. It is dropped at the end.
func openPostgres(ctx context.Context, dsn string) (*database, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("el DSN no es una URL de PostgreSQL: escriba " + postgresForm)
	}
	host := cmp.Or(u.Host, u.Query().Get("host")) // the latter may be a socket's directory
	if host == "" {
		return nil, errors.New("al DSN le falta el servidor: escriba " + postgresForm)
	}
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, errors.New("el DSN tiene un parámetro que el driver no acepta: escriba " + postgresForm + "?sslmode=disable")
	}
	schema := ownName()
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := exec(connecting, db, "CREATE SCHEMA "+schema+"; "+fmt.Sprintf(createOrders, schema+".", "")); err != nil {
		_ = db.Close() // its connection is what failed
		return nil, explainPostgres(host, err)
	}
	return &database{
		DB: db, dialect: sqlstore.Postgres, outbox: sqlstore.Config{Schema: schema}, prefix: schema + ".",
		drop:  "DROP SCHEMA " + schema + " CASCADE",
		where: fmt.Sprintf("PostgreSQL, %s, esquema %s", host, schema),
	}, nil
}

// explainPostgres says what to do about a server that would not let us in.
func explainPostgres(host string, err error) error {
	var refused *pq.Error
	switch {
	case errors.Is(err, pq.ErrSSLNotSupported):
		return fmt.Errorf("el servidor %s no usa TLS: agregue ?sslmode=disable al DSN", host)
	case errors.As(err, &refused):
		switch refused.Code {
		case "28P01", "28000":
			return fmt.Errorf("el servidor %s no aceptó el usuario o la clave: revíselos en el DSN", host)
		case "3D000":
			return fmt.Errorf("la base de datos del DSN no existe en %s: créela con createdb, o nombre otra", host)
		case "42501":
			return errors.New("el usuario no puede crear esquemas: dele GRANT CREATE ON DATABASE, o use otro usuario")
		}
		return fmt.Errorf("el servidor %s contestó con el error %s", host, refused.Code)
	}
	return explainNetwork(host, "PostgreSQL", err)
}

// openMySQL makes tables of its own in an existing database, since many a user may not make another database. They are
// dropped at the end.
func openMySQL(ctx context.Context, dsn string) (*database, error) {
	cfg, err := mysqlurl.Parse(dsn)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("el driver no acepta el DSN: escriba " + mysqlurl.Form)
	}
	name := ownName()
	d := &database{
		DB: sql.OpenDB(connector), dialect: sqlstore.MySQL, outbox: sqlstore.Config{Table: name + "_outbox"}, prefix: name + "_",
		drop:  fmt.Sprintf("DROP TABLE IF EXISTS %[1]s_pedidos, %[1]s_outbox", name),
		where: fmt.Sprintf("MySQL o MariaDB, %s, tablas %s_…", cfg.Addr, name),
	}
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := d.PingContext(connecting); err != nil {
		_ = d.Close() // its connection is what failed
		return nil, explainMySQL(cfg.Addr, err)
	}
	// The database's own character set may know no emoji.
	if err := exec(connecting, d.DB, fmt.Sprintf(createOrders, d.prefix, "DEFAULT CHARSET=utf8mb4")); err != nil {
		_ = d.close(false) // no transaction undoes a CREATE TABLE whose answer was lost
		return nil, explainMySQL(cfg.Addr, err)
	}
	return d, nil
}

// explainMySQL says what to do about a server that would not let us in.
func explainMySQL(host string, err error) error {
	var refused *mysql.MySQLError
	switch {
	case errors.Is(err, mysql.ErrNoTLS):
		return fmt.Errorf("el servidor %s no usa TLS: saque tls del DSN", host)
	case errors.As(err, &refused):
		switch refused.Number {
		case 1045, 1698:
			return fmt.Errorf("el servidor %s no aceptó el usuario o la clave: revíselos en el DSN", host)
		case 1049:
			return fmt.Errorf("la base de datos del DSN no existe en %s: créela con CREATE DATABASE, o nombre otra", host)
		case 1044, 1142: // the former is also said of a database that does not exist
			return errors.New("el usuario no puede crear tablas en la base del DSN, o no la hay: dele GRANT ALL ON base.*, o nombre otra base u otro usuario")
		}
		return fmt.Errorf("el servidor %s contestó con el error %d", host, refused.Number)
	}
	return explainNetwork(host, "el servidor", err)
}

// explainNetwork says what to do about a server that cannot be reached.
func explainNetwork(host, server string, err error) error {
	var (
		dns    *net.DNSError
		netErr net.Error
	)
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("no se encuentra el servidor %s: revise el nombre en el DSN", host)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr):
		return fmt.Errorf("nadie contesta en %s: revise que %s esté en marcha y que servidor y puerto sean esos", host, server)
	}
	return fmt.Errorf("no se pudo abrir una sesión en %s: revise el DSN", host)
}

// exec runs a statement in a transaction: outside one, database/sql may run it twice when the connection breaks.
func exec(ctx context.Context, db *sql.DB, statement string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// close closes the handle and removes what this run created, unless it is to be kept.
func (d *database) close(keep bool) error {
	var err error
	if d.drop != "" && !keep {
		// Not under the run's context: that may have ended.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = exec(ctx, d.DB, d.drop)
	}
	err = errors.Join(err, d.Close())
	if d.tempDir != "" && !keep {
		err = errors.Join(err, os.RemoveAll(d.tempDir))
	}
	return err
}

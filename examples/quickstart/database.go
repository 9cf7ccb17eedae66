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

	"github.com/google/uuid"
	"github.com/lib/pq"
	_ "modernc.org/sqlite" // pure Go: no C compiler needed

	"github.com/recado-dev/recado/sqlstore"
)

// database is the application's own database, fresh for this run.
type database struct {
	*sql.DB
	dialect sqlstore.Dialect
	schema  string // PostgreSQL: this run's own
	tempDir string // SQLite: this run's own, "" when the file has a name of the user's
	prefix  string // the schema as it stands before a table's name in SQL
	where   string // for people
}

// openDatabase opens what the options name. Its errors are one line each, say what to do, and never show the DSN, which
// may hold a password.
func openDatabase(ctx context.Context, o options) (*database, error) {
	if o.dsn != "" {
		return openPostgres(ctx, o.dsn)
	}
	return openSQLite(o.file)
}

// openSQLite opens a new file: in a temporary directory that is removed at the end, unless there is a name for it.
func openSQLite(file string) (*database, error) {
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
	if d.Ping() != nil {
		_ = d.close(false) // there is nothing in it
		return nil, fmt.Errorf("no se pudo crear la base SQLite en %s: revise que la carpeta exista y se pueda escribir", file)
	}
	return d, nil
}

// openPostgres makes a schema of its own in an existing database, so that runs do not meet each other or anything else,
// and drops it at the end.
func openPostgres(ctx context.Context, dsn string) (*database, error) {
	u, err := url.Parse(dsn)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("el DSN no es una URL de PostgreSQL: escriba postgres://usuario:clave@servidor:5432/base")
	}
	host := cmp.Or(u.Host, u.Query().Get("host")) // the latter may be a socket's directory
	if host == "" {
		return nil, errors.New("al DSN le falta el servidor: escriba postgres://usuario:clave@servidor:5432/base")
	}
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, errors.New("el DSN tiene un parámetro que el driver no acepta: escriba postgres://usuario:clave@servidor:5432/base?sslmode=disable")
	}
	schema := "recado_quickstart_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	connecting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := exec(connecting, db, "CREATE SCHEMA "+schema); err != nil {
		_ = db.Close() // its connection is what failed
		return nil, explain(host, err)
	}
	return &database{
		DB: db, dialect: sqlstore.Postgres, schema: schema, prefix: schema + ".",
		where: fmt.Sprintf("PostgreSQL, %s, esquema %s", host, schema),
	}, nil
}

// explain says what to do about a PostgreSQL that would not let us in.
func explain(host string, err error) error {
	var (
		refused *pq.Error
		dns     *net.DNSError
		netErr  net.Error
	)
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
	case errors.As(err, &dns):
		return fmt.Errorf("no se encuentra el servidor %s: revise el nombre en el DSN", host)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr):
		return fmt.Errorf("nadie contesta en %s: revise que PostgreSQL esté en marcha y que servidor y puerto sean esos", host)
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
	if d.schema != "" && !keep {
		// Not under the run's context: that may have ended.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = exec(ctx, d.DB, "DROP SCHEMA "+d.schema+" CASCADE")
	}
	err = errors.Join(err, d.Close())
	if d.tempDir != "" && !keep {
		err = errors.Join(err, os.RemoveAll(d.tempDir))
	}
	return err
}

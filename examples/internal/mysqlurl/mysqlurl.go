// Package mysqlurl reads the address of a MySQL or MariaDB database as the URL that people know from other databases,
// since the driver has a form of its own.
package mysqlurl

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Form is the URL that Parse takes. Behind it may come the driver's own parameters: ?tls=true.
const Form = "mysql://usuario:clave@servidor:3306/base"

// Parse returns the driver's configuration for a URL. The port may be missing; the server and the database may not. Errors
// are one line for people and show nothing of the URL, which may hold a password.
func Parse(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" {
		return nil, errors.New("el DSN no es una URL de MySQL: escriba " + Form)
	}
	database := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Hostname() == "":
		return nil, errors.New("al DSN le falta el servidor: escriba " + Form)
	case database == "":
		return nil, errors.New("al DSN le falta la base: escriba " + Form)
	}
	// The driver looks for the last slash. What comes from the URL's other parts may hold anything, so it goes around the
	// driver's form.
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	cfg, err := mysql.ParseDSN("tcp(" + address + ")/?" + strings.ReplaceAll(u.RawQuery, "/", "%2F"))
	if err != nil { // it may quote a value
		return nil, errors.New("el DSN tiene un parámetro que el driver no acepta: escriba " + Form)
	}
	cfg.User, cfg.DBName = u.User.Username(), database
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysql.NopLogger{} // all that goes wrong is returned as well
	return cfg, nil
}

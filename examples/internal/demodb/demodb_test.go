package demodb

import (
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Newer servers all have TLS.
func TestNoTLS(t *testing.T) {
	if err := explainMySQL("h:3306", mysql.ErrNoTLS); err.Error() != "el servidor h:3306 no usa TLS: saque tls del DSN" {
		t.Error(err)
	}
}

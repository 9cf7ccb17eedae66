package adapter

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/recado-dev/recado/state"
)

// The codes of a call that got no answer, beside [state.CodeTimeout].
const (
	CodeDNS     = "dns"
	CodeRefused = "conexion_rechazada"
	CodeConnect = "conexion"
	CodeTLS     = "tls"
	CodeCut     = "conexion_cortada"
)

// LossCode names the way in which a call to a server was lost. otherwise is the answer where the error alone does not
// tell; nothing of its text is used.
func LossCode(err error, otherwise string) string {
	var (
		dns    *net.DNSError
		netErr net.Error
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return state.CodeTimeout
	case errors.As(err, &dns):
		return CodeDNS
	case errors.As(err, &netErr) && netErr.Timeout(): // the kernel's own, when nobody answers
		return state.CodeTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return CodeRefused
	}
	return otherwise
}

//go:build !unix

package dbtest

import "errors"

type script struct{ prepare, serve, ready, stop string }

// supervisor cannot be had here.
type supervisor struct{}

var errUnixOnly = errors.New("servers are started on Unix only")

// run needs a Unix shell and Unix process rules. Elsewhere the server has to come from the environment.
func (script) run(string, map[string]string, ...string) (*supervisor, error) { return nil, errUnixOnly }

func (*supervisor) order(...string) (string, error) { return "", errUnixOnly }

func (*supervisor) close() {}

func freePort() (string, error) { return "0", nil }

//go:build !unix

package dbtest

import "errors"

type script struct{ start, stop string }

// run needs a Unix shell and Unix process rules. Elsewhere the server has to come from the environment.
func (script) run(string, map[string]string, ...string) error {
	return errors.New("servers are started on Unix only")
}

func freePort() (string, error) { return "0", nil }

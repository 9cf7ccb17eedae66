//go:build unix

package dbtest

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// script is how a server is run: pieces of sh that run in the server's own directory, with the same positional
// parameters.
type script struct {
	prepare string // done once
	serve   string // one command: the server, in the foreground
	ready   string // what it writes to its log when it answers
	stop    string // the signal that ends it
}

// supervisor is the shell that started a server, and stops it. The kernel closes its standard input when this process
// ends, be it by a panic, os.Exit or SIGKILL, and that is what stops the server.
type supervisor struct {
	shell   *exec.Cmd
	orders  *os.File
	answers *os.File
	lines   *bufio.Reader // of answers
}

// whole is the shell's program. The signals of a terminal go to the whole process group; the shell has to outlive them to
// clean up. A server that is started again finds the log of the last start gone. The id of one that ended is forgotten: it
// may be another process's by then.
func (s script) whole() string {
	return `
trap '' HUP INT QUIT TERM PIPE
server=
end() { [ -z "$server" ] || { kill -$1 $server; wait $server; server=; }; }
start() {
	: >log
	` + s.serve + ` >>log 2>&1 &
	server=$! tries=1200
	until grep -q '` + s.ready + `' log || [ $((tries -= 1)) = 0 ] || ! kill -0 $server; do sleep 0.05; done
	grep -q '` + s.ready + `' log || { end KILL; false; }
} 2>/dev/null
if { ` + s.prepare + `
} && start "$@"
then
	echo ready
	while read -r order others; do
		case $order in
		kill) [ -z "$others" ] || kill -KILL $others; end KILL; echo killed ;;
		start) if start "$@"; then echo ready; else echo failed; fi ;;
		esac
	done
	exec >/dev/null 2>&1
	end ` + s.stop + `
else tail -n 20 log
fi
cd / && rm -rf "$0"
`
}

// run makes a directory with the given files, starts the server in it and returns once it answers. The shell that
// started it stops it, and removes the directory, when this process is gone.
func (s script) run(prefix string, files map[string]string, args ...string) (_ *supervisor, err error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	// Database servers refuse to run as root.
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if credential != nil {
		for name := range files {
			err = errors.Join(err, os.Chown(filepath.Join(dir, name), int(credential.Uid), int(credential.Gid)))
		}
		if err = errors.Join(err, os.Chown(dir, int(credential.Uid), int(credential.Gid))); err != nil {
			return nil, err
		}
	}

	ordersEnd, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, answersEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersEnd.Close(), orders.Close())
	}
	shell := exec.Command("/bin/sh", append([]string{"-c", s.whole(), dir}, args...)...)
	shell.Dir, shell.Stdin, shell.Stdout = dir, ordersEnd, answersEnd
	shell.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	shell.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	err = shell.Start()
	_, _ = ordersEnd.Close(), answersEnd.Close()
	if err != nil {
		return nil, errors.Join(err, orders.Close(), answers.Close())
	}
	started := &supervisor{shell, orders, answers, bufio.NewReader(answers)}
	if said, err := started.lines.ReadString('\n'); err != nil || said != "ready\n" {
		rest, _ := io.ReadAll(started.lines)
		started.close()
		return nil, errors.Join(err, errors.New(strings.TrimSpace(said+string(rest))))
	}
	return started, nil
}

// order has the shell do something, and returns its answer.
func (s *supervisor) order(words ...string) (string, error) {
	if _, err := io.WriteString(s.orders, strings.Join(words, " ")+"\n"); err != nil {
		return "", err
	}
	answer, err := s.lines.ReadString('\n')
	return strings.TrimSpace(answer), err
}

// close stops the server, and returns when its directory is gone.
func (s *supervisor) close() {
	_, _, _ = s.orders.Close(), s.shell.Wait(), s.answers.Close()
}

// unprivileged returns the user that a server runs as when this process is root, else nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// freePort returns a TCP port that nobody listened on a moment ago. It is none of those that the kernel gives to clients:
// one of them might have it when a server is started again.
func freePort() (string, error) {
	var last error
	for range 20 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return "", last
}

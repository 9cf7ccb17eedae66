//go:build unix

package dbtest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// script is how a server is started and stopped: two pieces of sh that run in the server's own directory, with the
// same positional parameters. The log is expected in the file "log".
type script struct{ start, stop string }

// lifelines are the write ends of the pipes that keep servers running. Nothing is ever written: the kernel closes them
// when this process ends, be it by a panic, os.Exit or SIGKILL, and that is what stops the servers.
var lifelines []*os.File

// run makes a directory with the given files, starts the server in it and returns once it answers. The shell that
// started it stops it, and removes the directory, when this process is gone.
func (s script) run(prefix string, files map[string]string, args ...string) (err error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	// Database servers refuse to run as root.
	credential, err := unprivileged()
	if err != nil {
		return err
	}
	if credential != nil {
		for name := range files {
			err = errors.Join(err, os.Chown(filepath.Join(dir, name), int(credential.Uid), int(credential.Gid)))
		}
		if err = errors.Join(err, os.Chown(dir, int(credential.Uid), int(credential.Gid))); err != nil {
			return err
		}
	}

	lifelineEnd, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return errors.Join(err, lifelineEnd.Close(), lifeline.Close())
	}
	defer func() { _ = report.Close() }()

	// The signals of a terminal go to the whole process group; the shell has to outlive them to clean up.
	whole := "trap '' HUP INT QUIT TERM\nif " + s.start + "\nthen echo ready; exec >/dev/null 2>&1; cat\n" + s.stop +
		"\nelse tail -n 20 log\nfi\ncd / && rm -rf \"$0\"\n"
	cmd := exec.Command("/bin/sh", append([]string{"-c", whole, dir}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = dir, lifelineEnd, reportEnd
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	err = cmd.Start()
	_, _ = lifelineEnd.Close(), reportEnd.Close()
	if err != nil {
		return errors.Join(err, lifeline.Close())
	}

	said, err := io.ReadAll(report)
	if err != nil || string(said) != "ready\n" {
		_, _ = lifeline.Close(), cmd.Wait()
		return errors.Join(err, errors.New(strings.TrimSpace(string(said))))
	}
	lifelines = append(lifelines, lifeline)
	return nil
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

// freePort returns a TCP port that nobody listened on a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

//go:build unix

package crash

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// runWorker is the process of a worker. It says which messages' results were lost.
func runWorker(ctx context.Context, c child) error {
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		return err
	}
	db.SetMaxIdleConns(handles)
	box, err := newBox(db, c.Driver, 0)
	if err != nil {
		return err
	}
	w, err := newWorker(box, deliver(c.Receiver, c.Name), func(id string) { fmt.Println(id) })
	if err != nil {
		return err
	}
	return errors.Join(w.Run(ctx), db.Close())
}

// process is a child of the test. Whatever becomes of the test, it ends: its standard input does.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// spawn starts the test binary as a child. What it says goes to out.
func spawn(c child, out, stderr io.Writer) (*process, error) {
	told, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(told))
	cmd.Stdout, cmd.Stderr = out, stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &process{c.Name, cmd, stdin}, cmd.Start()
}

// kill ends the process at once.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	err := p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s ended before it was killed: %w", p.name, err)
	}
	return nil
}

// stop has the process end by itself, which it must do without an error.
func (p *process) stop() error {
	return errors.Join(p.stdin.Close(), p.cmd.Wait())
}

// freeze stops the process with SIGSTOP, until the returned function wakes it up. That is done by a process of its own, so
// that a frozen one does not outlive the test.
func (p *process) freeze() (wake func() error, err error) {
	const program = `trap '' HUP INT QUIT TERM; kill -STOP "$1" && echo && read -r _; kill -CONT "$1"`
	guard := exec.Command("/bin/sh", "-c", program, "sh", strconv.Itoa(p.cmd.Process.Pid))
	stdin, err := guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := guard.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(err, stdin.Close(), guard.Wait())
	}
	return func() error { return errors.Join(stdin.Close(), guard.Wait()) }, nil
}

// locked is a buffer for many writers.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fleet is a number of worker processes. Its methods belong to the test's goroutine.
type fleet struct {
	t         *testing.T
	told      child
	started   int
	awake     []*process // in the order of their start
	frozen    sync.WaitGroup
	out, errs locked

	mu    sync.Mutex
	woken []*process // that are to be awake again
}

func newFleet(t *testing.T, told child, size int) *fleet {
	f := &fleet{t: t, told: told}
	t.Cleanup(func() {
		f.frozen.Wait()
		for _, p := range append(f.awake, f.woken...) {
			_ = p.kill() // it may have ended by itself
		}
		if s := f.errs.String(); s != "" {
			t.Errorf("the workers complain:\n%s", s)
		}
	})
	for range size {
		f.start()
	}
	return f
}

func (f *fleet) start() {
	f.t.Helper()
	c := f.told
	f.started++
	c.Name = strconv.Itoa(f.started)
	p, err := spawn(c, &f.out, &f.errs)
	if err != nil {
		f.t.Fatal(err)
	}
	f.awake = append(f.awake, p)
}

// take removes a worker from those that are awake: the named one if it is, else the oldest.
func (f *fleet) take(name string) *process {
	f.mu.Lock()
	f.awake, f.woken = append(f.awake, f.woken...), nil
	f.mu.Unlock()
	at := 0
	for i, p := range f.awake {
		if p.name == name {
			at = i
		}
	}
	p := f.awake[at]
	f.awake = append(f.awake[:at:at], f.awake[at+1:]...)
	return p
}

// freeze freezes a worker and wakes it up when until returns.
func (f *fleet) freeze(p *process, until func()) error {
	wake, err := p.freeze()
	if err != nil {
		return errors.Join(err, p.kill())
	}
	f.frozen.Go(func() {
		until()
		if err := wake(); err != nil {
			f.t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.woken = append(f.woken, p)
	})
	return nil
}

// end stops all workers, and returns the messages whose results were lost.
func (f *fleet) end() (lost []string) {
	f.t.Helper()
	f.frozen.Wait()
	for len(f.awake)+len(f.woken) > 0 {
		if err := f.take("").stop(); err != nil {
			f.t.Errorf("a worker: %v", err)
		}
	}
	return strings.Fields(f.out.String())
}

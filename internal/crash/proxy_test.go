//go:build unix

package crash

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/proof"
)

// proxy stands between a database and its clients. Each of its connections breaks in one of four ways, at random and in the
// middle of a request: when the server has the request, or just before.
type proxy struct {
	listener net.Listener
	target   string
	tally    *proof.Tally

	broken chan string   // the kind of each break
	calm   atomic.Bool   // nothing breaks any more
	closed chan struct{} // ends what waits
	links  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	next   int // kind
	live   map[*link]bool
}

// The ways in which a connection breaks.
const (
	cut       = "cut"           // both sides at once
	stall     = "stall"         // nothing passes for a while, then all does, or it is cut
	halfClose = "half-close"    // one side is told that the other has said all
	dropped   = "dropped reply" // requests pass, replies do not
)

var breaks = []string{cut, stall, halfClose, dropped}

func startProxy(t *testing.T, target string, seed uint64, tally *proof.Tally) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		listener: listener, target: target, tally: tally, broken: make(chan string), closed: make(chan struct{}),
		random: rand.New(rand.NewPCG(seed, 0)), live: map[*link]bool{},
	}
	p.links.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		close(p.closed)
		p.mu.Lock()
		for l := range p.live {
			l.cut(false)
		}
		p.mu.Unlock()
		p.links.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// awaitBreaks waits until each kind of break has happened so often.
func (p *proxy) awaitBreaks(t *testing.T, times int) {
	t.Helper()
	missing := map[string]int{}
	for _, kind := range breaks {
		missing[kind] = times
	}
	tooLate := time.After(settleIn)
	for len(missing) > 0 {
		select {
		case kind := <-p.broken:
			if missing[kind]--; missing[kind] <= 0 {
				delete(missing, kind)
			}
		case <-tooLate:
			t.Fatalf("these did not happen: %v", missing)
		}
	}
}

// report says that a connection breaks now, to whoever listens.
func (p *proxy) report(kind string) {
	p.tally.Fault(kind)
	select {
	case p.broken <- kind:
	case <-time.After(time.Millisecond): // nobody does any more
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		p.mu.Lock()
		p.live[l] = true
		p.mu.Unlock()
		var ways sync.WaitGroup
		ways.Go(l.requests)
		ways.Go(l.replies)
		p.links.Go(func() {
			ways.Wait()
			l.cut(false)
			p.mu.Lock()
			delete(p.live, l)
			p.mu.Unlock()
		})
	}
}

// flaw is how and when a connection is to break, drawn in advance.
type flaw struct {
	kind   string
	after  int // requests
	choice bool
	harsh  bool // reset, rather than closed
	pause  time.Duration
}

func (p *proxy) draw() flaw {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	f := flaw{
		kind: breaks[p.next%len(breaks)], after: 5 + p.random.IntN(proof.Size(40, 150)),
		choice: p.random.IntN(2) == 0, harsh: p.random.IntN(2) == 0,
		pause: time.Duration(p.random.IntN(1000)) * time.Millisecond,
	}
	if p.random.IntN(8) == 0 {
		f.pause += lease // long enough for others to take over
	}
	return f
}

// wait returns false when the proxy is to end.
func (p *proxy) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-p.closed:
		return false
	}
}

// link is one connection.
type link struct {
	*proxy
	client, server *net.TCPConn
	deaf           atomic.Bool // replies are dropped
}

func (l *link) cut(harsh bool) {
	if harsh {
		_ = errors.Join(l.client.SetLinger(0), l.server.SetLinger(0)) // which fails only where it is closed already
	}
	_, _ = l.client.Close(), l.server.Close()
}

// requests passes on what the client says, up to the moment at which the connection breaks.
func (l *link) requests() {
	defer func() { _ = l.server.CloseWrite() }()
	buf := make([]byte, 64<<10)
	f := l.draw()
	for n := 0; ; n++ {
		size, err := l.client.Read(buf)
		if err != nil {
			return
		}
		breaks := n == f.after && !l.calm.Load()
		if breaks {
			l.report(f.kind)
		}
		if breaks && f.kind == stall {
			if !l.wait(f.pause) || f.choice {
				l.cut(f.harsh)
				return
			}
			f, n = l.draw(), 0
			breaks = false
		}
		if breaks && f.kind == cut && f.choice {
			l.cut(f.harsh)
			return
		}
		if breaks && f.kind == dropped {
			l.deaf.Store(true)
			time.AfterFunc(f.pause, func() { l.cut(f.harsh) })
		}
		if _, err := l.server.Write(buf[:size]); err != nil {
			return
		}
		if breaks && f.kind == cut {
			l.cut(f.harsh)
			return
		}
		if breaks && f.kind == halfClose {
			if f.choice {
				return // the server hears that the client has said all
			}
			_ = l.client.CloseWrite() // where it fails the client is gone
		}
	}
}

func (l *link) replies() {
	defer func() { _ = l.client.CloseWrite() }()
	buf := make([]byte, 64<<10)
	for {
		size, err := l.server.Read(buf)
		if err != nil {
			return
		}
		if l.deaf.Load() {
			continue
		}
		if _, err := l.client.Write(buf[:size]); err != nil {
			return
		}
	}
}

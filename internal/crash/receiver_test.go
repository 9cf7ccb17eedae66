//go:build unix

package crash

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
)

// call is one call for a message, as the receiver sees it.
type call struct {
	worker   string
	key      string
	attempt  int
	body     [sha256.Size]byte
	accepted bool
}

// external is the receiver's own id of an accepted call.
func external(id string, attempt int) string { return "x-" + id + "-" + strconv.Itoa(attempt) }

// ledger is what the receiver remembers. It keeps two books: calls, each of which counts for a receiver that does not look
// at keys; and effects, the calls that one which honours them would not have known for repeats.
type ledger struct {
	mu      sync.Mutex
	calls   map[string][]call // by message
	effects map[string]int    // by key
	bodies  map[string][sha256.Size]byte
	changed []string // keys that came back with another body

	lost map[string]int // by message: results of which workers were told that they are lost

	watches map[chan string]int      // how many calls each of them still waits for
	thefts  map[string]chan struct{} // see theft
}

func newLedger() *ledger {
	return &ledger{
		calls: map[string][]call{}, effects: map[string]int{}, bodies: map[string][sha256.Size]byte{},
		lost: map[string]int{}, watches: map[chan string]int{},
		thefts: map[string]chan struct{}{},
	}
}

// add notes a call. It reports whether the message is stolen, see theft.
func (l *ledger) add(id string, c call) (stolen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.calls[id]; len(before) > 0 {
		var theft chan struct{}
		if theft, stolen = l.thefts[before[len(before)-1].worker]; stolen {
			select {
			case theft <- struct{}{}:
			default: // it is known
			}
		}
	}
	l.calls[id] = append(l.calls[id], c)
	if c.accepted {
		if body, again := l.bodies[c.key]; !again {
			l.bodies[c.key] = c.body
			l.effects[c.key]++
		} else if body != c.body {
			l.changed = append(l.changed, c.key)
		}
	}
	for w, n := range l.watches {
		if l.watches[w] = n - 1; n == 1 {
			w <- c.worker // of capacity 1
			delete(l.watches, w)
		}
	}
	return stolen
}

// theft waits until another worker calls for a message that the named one has called for last, or for d.
func (l *ledger) theft(worker string, d time.Duration) {
	theft := make(chan struct{}, 1)
	l.mu.Lock()
	l.thefts[worker] = theft
	l.mu.Unlock()
	select {
	case <-theft:
	case <-time.After(d):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.thefts, worker)
}

// lose notes that a worker was told that its result is lost.
func (l *ledger) lose(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[id]++
}

// watch tells who makes the nth call from now.
func (l *ledger) watch(n int) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := make(chan string, 1)
	l.watches[w] = n
	return w
}

// answer is what becomes of a call.
type answer int

const (
	accept     answer = iota
	acceptOnce        // accepted, but the caller is told of an error of the server
	acceptCut         // accepted, and the connection broken
	acceptHang        // accepted, and never answered
	busy              // not accepted, for now
	refuse            // not accepted, for good
)

// answerTo draws the answer to an attempt: the same for the same seed, key and attempt.
func answerTo(seed uint64, key string, attempt int) answer {
	draw := func(text string) int {
		h := fnv.New64a()
		_, _ = io.WriteString(h, text) // never fails
		return rand.New(rand.NewPCG(seed, h.Sum64())).IntN(1000)
	}
	if draw(key) < 20 {
		return refuse
	}
	switch n := draw(key + " " + strconv.Itoa(attempt)); {
	case n < 50:
		return busy
	case n < 90:
		return acceptOnce
	case n < 120:
		return acceptCut
	case n < 125:
		return acceptHang
	}
	return accept
}

func (a answer) accepted() bool { return a < busy }

// outcome is what a worker is told, by a receiver in its own process.
func (a answer) outcome(id string, attempt int) state.Outcome {
	switch a {
	case accept:
		return state.Outcome{OK: true, ExternalID: external(id, attempt)}
	case busy:
		return state.Outcome{Category: state.CategoryRateLimit, Code: "ocupado"}
	case refuse:
		return state.Outcome{Category: state.CategoryRejected, Code: "rechazado"}
	}
	return state.Outcome{Category: state.CategoryNetwork, Code: "http_500", Ambiguous: true}
}

// receive is the transport of workers that run in the test's own process.
func (l *ledger) receive(seed uint64) transports.Func {
	return func(_ context.Context, m transports.Message) state.Outcome {
		a := answerTo(seed, m.IdempotencyKey, m.Attempt)
		l.add(m.ID, call{key: m.IdempotencyKey, attempt: m.Attempt, body: sha256.Sum256(m.Data), accepted: a.accepted()})
		return a.outcome(m.ID, m.Attempt)
	}
}

// How long the receiver takes.
const (
	think     = 10 * time.Millisecond  // for the caller to be killed in the middle of the call
	thinkLong = 300 * time.Millisecond // for the one from whom the message was taken to wake up in the middle of the call
)

// listen starts the receiver of workers in other processes, and returns its address.
func (l *ledger) listen(t *testing.T, seed uint64) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		attempt, badAttempt := strconv.Atoi(r.Header.Get("X-Attempt"))
		if err != nil || badAttempt != nil { // the caller died before it had said all
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		id, key := r.Header.Get("X-Message"), r.Header.Get("X-Key")
		a := answerTo(seed, key, attempt)
		pause := think
		if l.add(id, call{r.Header.Get("X-Worker"), key, attempt, sha256.Sum256(body), a.accepted()}) {
			pause = thinkLong
		}
		select {
		case <-time.After(pause):
		case <-r.Context().Done(): // the caller is gone
			return
		}
		switch a {
		case accept:
			_, _ = io.WriteString(w, external(id, attempt))
		case acceptOnce:
			w.WriteHeader(http.StatusInternalServerError)
		case acceptCut:
			panic(http.ErrAbortHandler)
		case acceptHang:
			<-r.Context().Done()
		case busy:
			w.WriteHeader(http.StatusTooManyRequests)
		case refuse:
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// deliver is the transport that calls such a receiver.
func deliver(url, worker string) transports.Func {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	return func(ctx context.Context, m transports.Message) state.Outcome {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(m.Data)))
		if err != nil {
			return state.Outcome{Category: state.CategoryRejected, Code: "url"}
		}
		r.GetBody = nil // so that nothing is sent again behind our back
		r.Header.Set("X-Worker", worker)
		r.Header.Set("X-Message", m.ID)
		r.Header.Set("X-Key", m.IdempotencyKey)
		r.Header.Set("X-Attempt", strconv.Itoa(m.Attempt))
		lost := state.Outcome{Category: state.CategoryNetwork, Code: "conexion", Ambiguous: true}
		answered, err := client.Do(r)
		if err != nil {
			return lost
		}
		said, err := io.ReadAll(answered.Body)
		if err = errors.Join(err, answered.Body.Close()); err != nil {
			return lost
		}
		switch answered.StatusCode {
		case http.StatusOK:
			return state.Outcome{OK: true, ExternalID: string(said)}
		case http.StatusTooManyRequests:
			return busy.outcome("", 0)
		case http.StatusUnprocessableEntity:
			return refuse.outcome("", 0)
		}
		return acceptOnce.outcome("", 0)
	}
}

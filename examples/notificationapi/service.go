package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/recado-dev/recado/transports/notification"
)

// condition is how the service does, in words for people.
type condition string

const (
	well  condition = "anda bien"
	down  condition = "está caído (503)"
	slow  condition = "está lento (3 s)"
	flaky condition = "falla a ratos"
)

// day is what the service goes through, measured in sign-ups.
var day = []struct {
	condition condition
	users     int
}{{well, 12}, {down, 14}, {slow, 3}, {flaky, 20}, {well, 8}}

// The two ways to the service, each with a ledger of its own.
const (
	directWay = "mejor-esfuerzo"
	outboxWay = "outbox"
)

// slowness is longer than anybody waits.
const slowness = 3 * time.Second

const token = "clave-de-la-demostracion"

// service is a notification service: it takes jobs into a queue, which is where its own reliability begins. It recognises
// repeats by their key.
type service struct {
	server http.Server
	client http.Client
	url    string
	served chan error

	mu        sync.Mutex
	condition condition
	ledgers   map[string]*ledger
}

// ledger is what the service has seen on one way.
type ledger struct {
	calls   int
	tries   map[string]int // by key
	queue   map[string]job // by key: what it has accepted
	repeats int            // of what it has
}

// job is what it takes.
type job struct {
	Code      string            `json:"code"`
	Recipient string            `json:"recipient"`
	Variables map[string]string `json:"variables"`
}

func startService() (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{
		url: "http://" + l.Addr().String() + "/", served: make(chan error, 1), condition: well,
		client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}},
		ledgers: map[string]*ledger{
			directWay: {tries: map[string]int{}, queue: map[string]job{}}, outboxWay: {tries: map[string]int{}, queue: map[string]job{}},
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{way}", s.take)
	s.server = http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: slowness}
	go func() { s.served <- s.server.Serve(l) }()
	return s, nil
}

// transport is a way to the service.
func (s *service) transport(way string) (*notification.Transport, error) {
	return notification.New(s.url+way, notification.Bearer(token), notification.BareIdempotencyKeys(), notification.HTTPClient(&s.client))
}

// close waits for the calls that go on.
func (s *service) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*slowness)
	defer cancel()
	s.client.CloseIdleConnections()
	err := s.server.Shutdown(ctx)
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *service) set(c condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition = c
}

// account is a copy of what the service has accepted on a way, and how often it was called.
func (s *service) account(way string) ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[way]
	return ledger{calls: l.calls, queue: maps.Clone(l.queue), repeats: l.repeats}
}

// take answers a call as the service's condition lets it.
func (s *service) take(w http.ResponseWriter, r *http.Request) {
	var j job
	body, err := io.ReadAll(r.Body)
	if err != nil { // the caller has gone
		return
	}
	if json.Unmarshal(body, &j) != nil || r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	key, way := r.Header.Get("Idempotency-Key"), r.PathValue("way")
	switch c, chance := s.arrival(way, key); {
	case c == down, c == flaky && chance < 128:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case c == slow:
		patience := time.NewTimer(slowness)
		defer patience.Stop()
		select {
		case <-r.Context().Done(): // the caller has gone, and is not heard any more
			return
		case <-patience.C:
		}
	case c == flaky && chance < 160: // it has the job, and the caller never hears of it
		s.enqueue(way, key, j)
		panic(http.ErrAbortHandler)
	}
	s.enqueue(way, key, j)
	w.WriteHeader(http.StatusAccepted)
	_, _ = fmt.Fprintf(w, `{"id":"job-%x"}`, sha256.Sum256([]byte(key)))
}

// arrival counts a call and says in which condition it finds the service. The chance, 0 to 255, depends on nothing but the
// call, so that every run sees the same faults.
func (s *service) arrival(way, key string) (c condition, chance int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[way]
	l.calls++
	l.tries[key]++
	return s.condition, int(sha256.Sum256(fmt.Append(nil, way, key, l.tries[key]))[0])
}

func (s *service) enqueue(way, key string, j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[way]
	if _, known := l.queue[key]; known {
		l.repeats++
		return
	}
	l.queue[key] = j
}

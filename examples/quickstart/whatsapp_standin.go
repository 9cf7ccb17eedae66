package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// standin plays a WhatsApp provider in this process, over real HTTP. It keeps what it accepts in its ledger, and
// misbehaves as planned.
type standin struct {
	*ledger
	server *http.Server
	url    string
	served chan error
}

// whatsappRequest is what the provider is sent: a template, its parameters, and a mark of our own that comes back with
// its notices.
type whatsappRequest struct {
	To       string   `json:"to"`
	Template string   `json:"template"`
	Language string   `json:"language"`
	Params   []string `json:"params"`
	Mark     string   `json:"mark"`
}

// whatsappResponse is what it answers.
type whatsappResponse struct {
	ID string `json:"id"`
}

func startStandin() (*standin, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &standin{ledger: newLedger(), url: "http://" + l.Addr().String(), served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{number}/messages", s.receive)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { s.served <- s.server.Serve(l) }()
	return s, nil
}

// close waits for the calls that go on.
func (s *standin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// apiKey is the key of a sending number.
func apiKey(number string) string { return "key-of-" + number }

func (s *standin) receive(w http.ResponseWriter, r *http.Request) {
	if key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); key != apiKey(r.PathValue("number")) {
		http.Error(w, "unknown key", http.StatusUnauthorized)
		return
	}
	var m whatsappRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&m); err != nil || len(m.Params) != 3 || m.Mark == "" {
		http.Error(w, "not a message of ours", http.StatusBadRequest)
		return
	}
	d := delivery{key: m.Mark, order: m.Params[1], to: m.To, text: strings.Join(m.Params, " · ")}
	switch s.attempt(d) {
	case refuse:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	case cutBefore, cutAfter:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"wamid.%x"}`, d.order) // a client that left will ask again
	}
}

// Package fakes plays the providers behind Recado's senders over HTTP, for tests and examples. Each double is an
// [http.Handler] that answers as the provider does, keeps a record of what it took, and misbehaves where it is told to.
//
// A double knows what a sender can notice: keys, refusals by their machine codes, rate limits, lost answers. It delivers
// nothing, and reports nothing later.
package fakes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// Fault is what becomes of a call instead of an answer to it.
type Fault string

// All faults. After the first three nothing has been taken; a sender can know it of the first alone.
const (
	TooMany     Fault = "too many"    // 429, with Retry-After
	Unavailable Fault = "unavailable" // 500
	CutBefore   Fault = "cut before"  // the connection breaks without an answer
	CutAfter    Fault = "cut after"   // the message is taken, and the connection breaks without an answer
	Stalled     Fault = "stalled"     // the message is taken, and no answer comes until the client gives up
)

// Faults decides about the attempts of each key, the first of which is 1. "" is no fault. nil: there are none.
type Faults func(key string, attempt int) Fault

// Seeded is the same faults at every run, for one key of five: two attempts fail at most, and none is Stalled.
func Seeded(seed uint64) Faults {
	plans := [][]Fault{{TooMany}, {TooMany, TooMany}, {Unavailable}, {CutBefore}, {CutAfter}, {TooMany, CutAfter}}
	return func(key string, attempt int) Fault {
		digest := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, key))
		n := int(digest[0]) % (5 * len(plans))
		if n >= len(plans) || attempt > len(plans[n]) {
			return ""
		}
		return plans[n][attempt-1]
	}
}

// Delivery is a message as a double took it.
type Delivery struct {
	Key  string // the sender's
	ID   string // the double's
	To   string
	Text string          // what the recipient sees first: the subject, or the template's parameters
	Body json.RawMessage // the whole call
}

// Record is what a double has seen, for whoever holds it against tables of their own.
type Record struct {
	Accepted []Delivery
	Calls    map[string]int // by key, whatever became of them; those without good credentials and content aside
	Repeated map[string]int // by key: recognised, and answered without being taken again
	Lost     map[string]int // by key: taken or recognised, and not answered
	Refused  map[string]int // by recipient: refused for good
	Faults   map[Fault]int
}

// ledger is the part that the doubles share.
type ledger struct {
	faults Faults
	mu     sync.Mutex // over all below, and over a double's own state
	record Record
}

func newLedger(f Faults) ledger {
	if f == nil {
		f = func(string, int) Fault { return "" }
	}
	return ledger{faults: f, record: Record{
		Calls: map[string]int{}, Repeated: map[string]int{}, Lost: map[string]int{}, Refused: map[string]int{}, Faults: map[Fault]int{},
	}}
}

// Record returns a copy of what has been seen until now.
func (l *ledger) Record() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record
	return Record{
		Accepted: slices.Clone(r.Accepted), Calls: maps.Clone(r.Calls), Repeated: maps.Clone(r.Repeated),
		Lost: maps.Clone(r.Lost), Refused: maps.Clone(r.Refused), Faults: maps.Clone(r.Faults),
	}
}

// call counts a call and decides about it.
func (l *ledger) call(key string) Fault {
	l.mu.Lock()
	l.record.Calls[key]++
	attempt := l.record.Calls[key]
	l.mu.Unlock()
	f := l.faults(key, attempt) // not under the lock: a test may wait in it
	if f != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.record.Faults[f]++
	}
	return f
}

// refuses applies the rule of a configuration that may have none.
func (l *ledger) refuses(rule func(to string) bool, to string) bool {
	if rule == nil || !rule(to) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.Refused[to]++
	return true
}

// loseAnswer does what f says to a call whose message was taken. It returns if that is nothing.
func (l *ledger) loseAnswer(f Fault, key string, r *http.Request) {
	if f != CutAfter && f != Stalled {
		return
	}
	l.mu.Lock()
	l.record.Lost[key]++
	l.mu.Unlock()
	if f == Stalled {
		<-r.Context().Done()
	}
	cut()
}

// cut breaks the connection.
func cut() { panic(http.ErrAbortHandler) }

// maxBody is more than any message of the tests has, in bytes.
const maxBody = 1 << 20

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left has lost its answer
}

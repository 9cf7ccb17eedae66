package state

import (
	"context"
	"errors"
	"sync"

	"github.com/looplab/fsm"
)

// Event is a cause that moves a row from one state to another.
type Event string

// The events of the lifecycle. Which columns each one writes is said by the methods of [Transition].
const (
	EventClaim     Event = "reclamar"   // a worker takes a due row
	EventReclaim   Event = "destrabar"  // a worker takes over a row whose lease ended
	EventSend      Event = "enviar"     // the provider accepted it
	EventRetry     Event = "reintentar" // a charged failure that may pass
	EventFail      Event = "fallar"     // attempts used up, or closed without a call
	EventDiscard   Event = "descartar"  // a permanent refusal
	EventRelease   Event = "liberar"    // given back uncalled, place and attempt kept
	EventDefer     Event = "aplazar"    // nothing went out: later, without charge
	EventRequeue   Event = "reencolar"  // an operator starts a closed row afresh
	EventCancel    Event = "cancelar"   // an operator withdraws a waiting row
	EventReconcile Event = "conciliar"  // an operator learned that an ambiguous row was accepted
)

// events is the only place where a from/to pair is written.
var events = fsm.Events{
	{Name: string(EventClaim), Src: []string{string(Pending)}, Dst: string(Processing)},
	{Name: string(EventReclaim), Src: []string{string(Processing)}, Dst: string(Processing)},
	{Name: string(EventSend), Src: []string{string(Processing)}, Dst: string(Sent)},
	{Name: string(EventRetry), Src: []string{string(Processing)}, Dst: string(Pending)},
	{Name: string(EventFail), Src: []string{string(Processing), string(Pending)}, Dst: string(Failed)},
	{Name: string(EventDiscard), Src: []string{string(Processing)}, Dst: string(Discarded)},
	{Name: string(EventRelease), Src: []string{string(Processing)}, Dst: string(Pending)},
	{Name: string(EventDefer), Src: []string{string(Processing)}, Dst: string(Pending)},
	{Name: string(EventRequeue), Src: []string{string(Failed), string(Discarded)}, Dst: string(Pending)},
	{Name: string(EventCancel), Src: []string{string(Pending)}, Dst: string(Discarded)},
	{Name: string(EventReconcile), Src: []string{string(Failed)}, Dst: string(Sent)},
}

type edge struct {
	event Event
	from  State
}

// table is derived from events once and never changes: the hot path reads it without building a machine.
var table = func() map[edge]State {
	t := make(map[edge]State)
	for _, e := range events {
		for _, src := range e.Src {
			t[edge{Event(e.Name), State(src)}] = State(e.Dst)
		}
	}
	return t
}()

// Events returns every event, in the order of the lifecycle table.
func Events() []Event {
	all := make([]Event, len(events))
	for i, e := range events {
		all[i] = Event(e.Name)
	}
	return all
}

// Next returns the state that event leads to from a state, or a [TransitionError] when the table has no such move.
// It allocates nothing when the move is legal.
func Next(from State, event Event) (State, error) {
	if to, ok := table[edge{event, from}]; ok {
		return to, nil
	}
	return "", &TransitionError{Event: event, From: from}
}

// From returns the states in which event is legal, in lifecycle order.
func From(event Event) []State {
	var from []State
	for _, s := range states {
		if _, ok := table[edge{event, s}]; ok {
			from = append(from, s)
		}
	}
	return from
}

// Machine is one row's lifecycle as a looplab/fsm machine. It is safe for concurrent use: of two events fired
// together, each sees the state that the other left.
type Machine struct {
	mu  sync.Mutex
	fsm *fsm.FSM
}

// NewMachine returns a machine that stands in s, or an [InvalidError] when s is not one of the five states (looplab/fsm
// itself would accept it).
func NewMachine(s State) (*Machine, error) {
	s, err := Parse(string(s))
	if err != nil {
		return nil, err
	}
	return &Machine{fsm: fsm.NewFSM(string(s), events, nil)}, nil
}

// Current returns the state the machine stands in.
func (m *Machine) Current() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return State(m.fsm.Current())
}

// Fire applies event and returns the state it leads to. An illegal event is a [TransitionError] and changes nothing.
//
// There is no context: an event of looplab/fsm v1.0.3 under a cancelled context leaves that machine in transition for
// ever (its issue 115).
func (m *Machine) Fire(event Event) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := State(m.fsm.Current())
	err := m.fsm.Event(context.Background(), string(event))
	// A legal self-loop (destrabar) is reported as NoTransitionError (its issue 110).
	if selfLoop := (fsm.NoTransitionError{}); errors.As(err, &selfLoop) && selfLoop.Err == nil {
		err = nil
	}
	if err != nil {
		return from, &TransitionError{Event: event, From: from}
	}
	return State(m.fsm.Current()), nil
}

// Mermaid draws the lifecycle as a Mermaid state diagram, straight from the machine.
func Mermaid() string {
	m := fsm.NewFSM(string(Pending), events, nil)
	diagram, err := fsm.VisualizeForMermaidWithGraphType(m, fsm.StateDiagram)
	if err != nil {
		panic(err) // the graph type is a constant of the library
	}
	return diagram
}

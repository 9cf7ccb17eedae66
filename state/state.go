package state

import "slices"

// State is the stored value of the estado column.
type State string

// The five states, with the values that are stored.
const (
	Pending    State = "pendiente"
	Processing State = "procesando"
	Sent       State = "enviado"
	Failed     State = "fallido"
	Discarded  State = "descartado"
)

var states = []State{Pending, Processing, Sent, Failed, Discarded}

// States returns every state, in the order of the lifecycle. The slice is the caller's own.
func States() []State { return slices.Clone(states) }

// LiveStates returns the states in which a row still has work to do: pendiente and procesando.
func LiveStates() []State {
	return slices.DeleteFunc(States(), State.Terminal)
}

// TerminalStates returns the states in which a row rests until an operator or a purge touches it.
func TerminalStates() []State {
	return slices.DeleteFunc(States(), func(s State) bool { return !s.Terminal() })
}

// Terminal reports whether no worker touches a row in this state. An unknown state is not terminal.
func (s State) Terminal() bool { return s == Sent || s == Failed || s == Discarded }

// Parse turns a stored value into a State. Anything but the five exact values is an [InvalidError] for the field
// "estado".
func Parse(s string) (State, error) {
	if st := State(s); slices.Contains(states, st) {
		return st, nil
	}
	return "", &InvalidError{Field: "estado", Reason: "is not a state of the lifecycle"}
}

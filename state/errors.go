package state

import (
	"errors"
	"fmt"
)

// ErrInvalidOptions is matched by every [InvalidError]: options or input that are a programming error.
var ErrInvalidOptions = errors.New("invalid options")

// InvalidError names the field that was refused and the rule it breaks. It never repeats the field's content, so it
// can be logged. errors.Is(err, ErrInvalidOptions) holds.
type InvalidError struct {
	Field  string // as the caller wrote it, for example "IdempotencyKey"
	Reason string // the broken rule, for example "is longer than 200 bytes"
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid options: %s %s", e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidOptions) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalidOptions }

// TransitionError says that an event is not legal in a state.
type TransitionError struct {
	Event Event
	From  State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("event %q is not legal in state %q", string(e.Event), string(e.From))
}

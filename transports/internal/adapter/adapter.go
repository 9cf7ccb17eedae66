// Package adapter holds what the channel adapters share: how they call the application's own functions, and how they
// pass a sender's outcome on.
package adapter

import (
	"context"
	"errors"

	"github.com/recado-dev/recado/state"
)

// Errors of [Call] beside those of the called function. Neither carries content.
var (
	ErrEnded = errors.New("the context ended first")
	ErrPanic = errors.New("the function panicked")
)

// Call runs f, an application's function, so that neither its panic nor its refusal to return reaches the caller. When
// ctx ends, before f or while it runs, the answer is [ErrEnded] at once and whatever f returns later is dropped; its
// goroutine lasts until f returns. An error that f returns once ctx has ended counts as [ErrEnded] too, since it is
// mostly ctx's own.
func Call[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, ErrEnded
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: ErrPanic} // what remains of a panic, and of a runtime.Goexit
		defer func() {
			_ = recover() // its value may hold personal data, and may panic itself when printed
			done <- r
		}()
		v, err := f(ctx)
		r = result{v, err}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return none, ErrEnded
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, ErrEnded
	}
}

// Render runs the function that turns a message's data into content. ok is false when nothing may be sent, and then
// refused is what the attempt came to:
//
//   - an error or a panic: plantilla/render, which discards the row
//   - an error marked with [state.Transient]: red/render
//   - ctx ended: red/timeout
//
// The last two are charged attempts although nothing went out: NotCalled would let a fault of the application be
// deferred for free, again and again.
func Render[T any](ctx context.Context, f func(context.Context) (T, error)) (value T, refused state.Outcome, ok bool) {
	value, err := Call(ctx, f)
	switch {
	case ctx.Err() != nil: // also after a success: no call starts once the attempt is over
		return value, state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout}, false
	case state.IsTransient(err):
		return value, state.Outcome{Category: state.CategoryNetwork, Code: state.CodeRender}, false
	case err != nil:
		return value, state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}, false
	}
	return value, state.Outcome{}, true
}

// Validate asks a sender whose constructor returns no error what is wrong with its options.
func Validate(sender any) error {
	if s, ok := sender.(interface{ Validate() error }); ok {
		return s.Validate()
	}
	return nil
}

// Named gives a failure without a code its category as the code, so that panels always have a word to show.
func Named(o state.Outcome) state.Outcome {
	if !o.OK && o.Code == "" {
		o.Code = o.Category
	}
	return o
}

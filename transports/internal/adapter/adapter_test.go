package adapter_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

var (
	errOwn = errors.New("its own")
	noMap  map[int]int
)

// explosive is a panic value that panics when printed.
type explosive struct{}

func (explosive) Error() string { panic("printed") }

func TestCall(t *testing.T) {
	tests := []struct {
		name string
		f    func(context.Context) (int, error)
		want int
		err  error
	}{
		{"value", func(context.Context) (int, error) { return 7, nil }, 7, nil},
		{"error", func(context.Context) (int, error) { return 0, errOwn }, 0, errOwn},
		{"panic", func(context.Context) (int, error) { panic(explosive{}) }, 0, adapter.ErrPanic},
		{"nil map", func(context.Context) (int, error) { noMap[0]++; return 1, nil }, 0, adapter.ErrPanic},
		{"Goexit", func(context.Context) (int, error) { runtime.Goexit(); return 1, nil }, 0, adapter.ErrPanic},
		{"the context's own error", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, 0, adapter.ErrEnded},
		{"too late", nil, 0, adapter.ErrEnded}, // it blocks until it is released
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				release := make(chan struct{})
				defer close(release)
				if tt.f == nil {
					tt.f = func(context.Context) (int, error) { <-release; return 1, nil }
				}
				begin := time.Now()
				got, err := adapter.Call(ctx, tt.f)
				if got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("%d, %v; want %d, %v", got, err, tt.want, tt.err)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("it held the caller for %v", took)
				}
			})
		})
	}
}

func TestCallAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := adapter.Call(ctx, func(context.Context) (int, error) {
		t.Error("called")
		return 0, nil
	})
	if !errors.Is(err, adapter.ErrEnded) {
		t.Error(err)
	}
}

func TestRender(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tests := []struct {
		name string
		err  error
		end  bool
		want state.Outcome
	}{
		{"fine", nil, false, state.Outcome{}},
		{"for good", errOwn, false, state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}},
		{"may pass", state.Transient(errOwn), false, state.Outcome{Category: state.CategoryNetwork, Code: state.CodeRender}},
		{"its own timeout", context.DeadlineExceeded, false, state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}},
		{"fine, but over", nil, true, state.Outcome{Category: state.CategoryNetwork, Code: state.CodeTimeout}},
	}
	for _, tt := range tests {
		_, refused, ok := adapter.Render(ctx, func(context.Context) (int, error) {
			if tt.end {
				cancel()
			}
			return 0, tt.err
		})
		if refused != tt.want || ok != (tt.want == state.Outcome{}) {
			t.Errorf("%s: %+v, %v", tt.name, refused, ok)
		}
	}
}

func TestNamed(t *testing.T) {
	for _, tt := range []struct{ in, want state.Outcome }{
		{state.Outcome{OK: true, ExternalID: "1"}, state.Outcome{OK: true, ExternalID: "1"}},
		{state.Outcome{Category: "limite"}, state.Outcome{Category: "limite", Code: "limite"}},
		{state.Outcome{Category: "limite", Code: "429", Account: true}, state.Outcome{Category: "limite", Code: "429", Account: true}},
		{state.Outcome{}, state.Outcome{}},
	} {
		if got := adapter.Named(tt.in); got != tt.want {
			t.Errorf("%+v", got)
		}
	}
}

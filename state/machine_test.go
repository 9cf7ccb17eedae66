package state_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recado-dev/recado/state"
)

// moves is the lifecycle written down a second time, by hand: a change of the table has to be made here as well.
var moves = []struct {
	event    state.Event
	from, to state.State
}{
	{state.EventClaim, state.Pending, state.Processing},
	{state.EventReclaim, state.Processing, state.Processing},
	{state.EventSend, state.Processing, state.Sent},
	{state.EventRetry, state.Processing, state.Pending},
	{state.EventFail, state.Processing, state.Failed},
	{state.EventFail, state.Pending, state.Failed},
	{state.EventDiscard, state.Processing, state.Discarded},
	{state.EventRelease, state.Processing, state.Pending},
	{state.EventDefer, state.Processing, state.Pending},
	{state.EventRequeue, state.Failed, state.Pending},
	{state.EventRequeue, state.Discarded, state.Pending},
	{state.EventCancel, state.Pending, state.Discarded},
	{state.EventReconcile, state.Failed, state.Sent},
}

func legal(event state.Event, from state.State) (state.State, bool) {
	for _, m := range moves {
		if m.event == event && m.from == from {
			return m.to, true
		}
	}
	return "", false
}

// Every event in every state: the written table, Next, From and a real machine must agree.
func TestTableAndMachineAgree(t *testing.T) {
	events := append(state.Events(), "", "desconocido")
	if got, want := len(state.Events()), 11; got != want {
		t.Errorf("%d events, want %d", got, want)
	}
	for _, event := range events {
		for _, from := range state.States() {
			t.Run(string(event)+" in "+string(from), func(t *testing.T) {
				to, ok := legal(event, from)

				next, nextErr := state.Next(from, event)
				if next != to || (nextErr == nil) != ok {
					t.Errorf("Next: %q, %v; want %q", next, nextErr, to)
				}
				if slices.Contains(state.From(event), from) != ok {
					t.Errorf("From: %q", state.From(event))
				}

				m := newMachine(t, from)
				fired, fireErr := m.Fire(event)
				if (fireErr == nil) != ok {
					t.Fatalf("Fire: %v", fireErr)
				}
				if !ok {
					to = from // an illegal event changes nothing
					wantTransitionError(t, nextErr, event, from)
					wantTransitionError(t, fireErr, event, from)
				}
				if fired != to || m.Current() != to {
					t.Errorf("Fire: %q, then in %q; want %q", fired, m.Current(), to)
				}

				// Legal or not, the machine goes on from where it stands.
				for _, again := range state.Events() {
					if next, err := state.Next(to, again); err == nil {
						if got, err := m.Fire(again); got != next || err != nil {
							t.Fatalf("then %s: %q, %v; want %q", again, got, err, next)
						}
						break
					}
				}
			})
		}
	}
}

func TestFromIsInLifecycleOrder(t *testing.T) {
	for event, want := range map[state.Event][]state.State{
		state.EventFail:    {state.Pending, state.Processing},
		state.EventRequeue: {state.Failed, state.Discarded},
		state.EventClaim:   {state.Pending},
		"desconocido":      nil,
	} {
		if got := state.From(event); !slices.Equal(got, want) {
			t.Errorf("From(%s) = %q, want %q", event, got, want)
		}
	}
}

// A reclaim leads back to where it started, which looplab/fsm reports as an error.
func TestReclaimIsALegalSelfLoop(t *testing.T) {
	m := newMachine(t, state.Processing)
	for range 3 {
		if got, err := m.Fire(state.EventReclaim); got != state.Processing || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if got, err := m.Fire(state.EventSend); got != state.Sent || err != nil {
		t.Errorf("after it: %q, %v", got, err)
	}
}

func TestUnknownStatesAreRefused(t *testing.T) {
	for _, s := range []string{
		"", "PENDIENTE", " pendiente", "pendiente ", "pendiente\x00", "pendientе" /* a Cyrillic е */, "enviada", "ok",
	} {
		_, parseErr := state.Parse(s)
		m, machineErr := state.NewMachine(state.State(s))
		if m != nil {
			t.Errorf("NewMachine(%q) gave a machine", s)
		}
		for _, err := range []error{parseErr, machineErr} {
			var invalid *state.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "estado" || !errors.Is(err, state.ErrInvalidOptions) {
				t.Errorf("%q: %v", s, err)
			} else if strings.TrimSpace(s) != "" && strings.Contains(err.Error(), s) {
				t.Errorf("the error repeats the content: %v", err)
			}
		}
		if state.State(s).Terminal() {
			t.Errorf("%q is terminal", s)
		}
		for _, event := range state.Events() {
			if _, err := state.Next(state.State(s), event); err == nil {
				t.Errorf("%s is legal in %q", event, s)
			}
		}
	}
	for _, s := range state.States() {
		if got, err := state.Parse(string(s)); got != s || err != nil {
			t.Errorf("Parse(%q) = %q, %v", s, got, err)
		}
	}
}

func TestStates(t *testing.T) {
	all := []state.State{state.Pending, state.Processing, state.Sent, state.Failed, state.Discarded}
	// The values are stored, and shared with workers written in other languages.
	if got := []state.State{"pendiente", "procesando", "enviado", "fallido", "descartado"}; !slices.Equal(got, all) {
		t.Errorf("the stored values are %q", all)
	}
	for name, tc := range map[string]struct {
		list func() []state.State
		want []state.State
	}{
		"States":         {state.States, all},
		"LiveStates":     {state.LiveStates, all[:2]},
		"TerminalStates": {state.TerminalStates, all[2:]},
	} {
		got := tc.list()
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s() = %q, want %q", name, got, tc.want)
		}
		clear(got) // the caller's own
		if !slices.Equal(tc.list(), tc.want) {
			t.Errorf("%s: a caller can change it for everybody", name)
		}
	}
	events := state.Events()
	clear(events)
	if slices.Contains(state.Events(), "") {
		t.Error("Events: a caller can change it for everybody")
	}
}

// Only an operator's act leads out of a terminal state.
func TestTerminalStatesRest(t *testing.T) {
	operator := []state.Event{state.EventRequeue, state.EventReconcile}
	for _, s := range state.TerminalStates() {
		for _, event := range state.Events() {
			if _, err := state.Next(s, event); err == nil && !slices.Contains(operator, event) {
				t.Errorf("%s is legal in %s", event, s)
			}
		}
	}
}

func TestConcurrentEventsHaveOneWinner(t *testing.T) {
	for _, tc := range []struct {
		from state.State
		pair [2]state.Event
	}{
		{state.Processing, [2]state.Event{state.EventSend, state.EventFail}},
		{state.Processing, [2]state.Event{state.EventRetry, state.EventDiscard}},
		{state.Pending, [2]state.Event{state.EventClaim, state.EventClaim}},
	} {
		t.Run(string(tc.pair[0])+" against "+string(tc.pair[1]), func(t *testing.T) {
			for round := range 1000 {
				m := newMachine(t, tc.from)
				var errs [2]error
				var wg sync.WaitGroup
				start := make(chan struct{})
				for i, event := range tc.pair {
					wg.Go(func() {
						<-start
						_, errs[i] = m.Fire(event)
					})
				}
				close(start)
				wg.Wait()
				winner, loser := 0, 1
				if errs[0] != nil {
					winner, loser = 1, 0
				}
				if errs[winner] != nil || errs[loser] == nil {
					t.Fatalf("round %d: %v, %v", round, errs[0], errs[1])
				}
				to, _ := legal(tc.pair[winner], tc.from)
				if m.Current() != to {
					t.Fatalf("round %d: %s won, the machine is in %s", round, tc.pair[winner], m.Current())
				}
				// The loser saw the state that the winner left, not a cached one.
				wantTransitionError(t, errs[loser], tc.pair[loser], to)
			}
		})
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := state.Next(state.Processing, state.EventSend); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNext(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = state.Next(state.Processing, state.EventSend)
	}
}

func newMachine(t *testing.T, s state.State) *state.Machine {
	t.Helper()
	m, err := state.NewMachine(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantTransitionError(t *testing.T, err error, event state.Event, from state.State) {
	t.Helper()
	var got *state.TransitionError
	if !errors.As(err, &got) {
		t.Fatalf("%v is not a TransitionError", err)
	}
	if got.Event != event || got.From != from {
		t.Errorf("the error says %q in %q, want %q in %q", got.Event, got.From, event, from)
	}
	for _, word := range []string{string(event), string(from)} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %q", err, word)
		}
	}
}

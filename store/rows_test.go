package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// What the rules about a row come to is the conformance kit's to say; here is only what no store of ours does.

func TestTakeRefusesWhatIsNotLive(t *testing.T) {
	for _, s := range append(state.TerminalStates(), "") {
		for _, attempts := range []int{0, 5} { // to hand out, and to close
			m := &store.Message{State: s, Attempts: attempts, MaxAttempts: 5}
			_, err := store.ClaimParams{}.Take([]*store.Message{m}, store.NewToken(), time.Now())
			if illegal := (*state.TransitionError)(nil); !errors.As(err, &illegal) || m.State != s {
				t.Errorf("%q with %d attempts: %v", s, attempts, err)
			}
		}
	}
}

func TestSettleARowThatIsNotThere(t *testing.T) {
	var none store.Message
	v, written, err := none.Settle(store.Settlement{Transition: state.ReleaseTransition()}, time.Now())
	if v != store.Lost || written || err != nil {
		t.Errorf("got %v, %v, %v", v, written, err)
	}
	_, _, err = none.Settle(store.Settlement{}, time.Now())
	if illegal := (*state.TransitionError)(nil); !errors.As(err, &illegal) {
		t.Errorf("an illegal transition: %v", err)
	}
}

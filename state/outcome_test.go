package state_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/recado-dev/recado/state"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		name    string
		outcome state.Outcome
		want    state.Class
	}{
		{"ok", state.Outcome{OK: true}, state.ClassOK},
		{"ok with an id", state.Outcome{OK: true, ExternalID: "m-1"}, state.ClassOK},
		{"ok beats a category", state.Outcome{OK: true, Category: state.CategoryRejected}, state.ClassOK},
		{"network", state.Outcome{Category: "red"}, state.ClassTransient},
		{"rate limit", state.Outcome{Category: "limite"}, state.ClassTransient},
		{"idempotency conflict", state.Outcome{Category: "conflicto_idempotencia"}, state.ClassTransient},
		{"credentials", state.Outcome{Category: "credenciales"}, state.ClassPermanent},
		{"rejected", state.Outcome{Category: "rechazado"}, state.ClassPermanent},
		{"billing", state.Outcome{Category: "facturacion"}, state.ClassPermanent},
		{"template", state.Outcome{Category: "plantilla"}, state.ClassPermanent},
		{"number", state.Outcome{Category: "numero"}, state.ClassPermanent},
		{"window", state.Outcome{Category: "ventana"}, state.ClassPermanent},
		{"nothing", state.Outcome{}, state.ClassTransient},
		{"unknown", state.Outcome{Category: "marciano"}, state.ClassTransient},
		{"case counts", state.Outcome{Category: "RECHAZADO"}, state.ClassTransient},
		{"white space counts", state.Outcome{Category: "rechazado "}, state.ClassTransient},
		{"the code does not count", state.Outcome{Category: "red", Code: "rechazado"}, state.ClassTransient},
		{"nor here", state.Outcome{Category: "rechazado", Code: "red"}, state.ClassPermanent},
		{
			"nor do the flags",
			state.Outcome{Category: "rechazado", Ambiguous: true, NotCalled: true, Account: true, RetryAfter: 1},
			state.ClassPermanent,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := state.Classify(tc.outcome); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestCategorySets(t *testing.T) {
	for class, tc := range map[state.Class]struct {
		list func() []string
		size int
	}{
		state.ClassTransient: {state.TransientCategories, 3},
		state.ClassPermanent: {state.PermanentCategories, 6},
	} {
		set := tc.list()
		if len(set) != tc.size {
			t.Errorf("%s: %q", class, set)
		}
		for _, category := range set {
			if got := state.Classify(state.Outcome{Category: category}); got != class {
				t.Errorf("%s is in the %s set, its class is %s", category, class, got)
			}
		}
		clear(set) // the caller's own
		if slices.Contains(tc.list(), "") {
			t.Errorf("%s: a caller can change the set for everybody", class)
		}
	}
	for _, category := range state.TransientCategories() {
		if slices.Contains(state.PermanentCategories(), category) {
			t.Errorf("%s is in both sets", category)
		}
	}
}

func TestTransient(t *testing.T) {
	if state.Transient(nil) != nil || state.IsTransient(nil) {
		t.Error("nil became an error")
	}
	if state.IsTransient(io.EOF) {
		t.Error("an unmarked error is transient")
	}
	marked := fmt.Errorf("reading the order: %w", state.Transient(io.EOF))
	if !state.IsTransient(marked) || !errors.Is(marked, io.EOF) {
		t.Errorf("%v lost its mark or its cause", marked)
	}
	if got := state.Transient(io.EOF).Error(); got != io.EOF.Error() {
		t.Errorf("the mark changed the text to %q", got)
	}
}

package store_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

func TestClaimParams(t *testing.T) {
	good := store.ClaimParams{Channel: "correo", Limit: 1, Lease: time.Millisecond}
	for _, c := range []struct {
		field  string
		change func(*store.ClaimParams)
	}{
		{"", func(*store.ClaimParams) {}},
		{"", func(p *store.ClaimParams) { p.Limit = store.MaxClaim }},
		{"Channel", func(p *store.ClaimParams) { p.Channel = "" }},
		{"Limit", func(p *store.ClaimParams) { p.Limit = 0 }},
		{"Limit", func(p *store.ClaimParams) { p.Limit = store.MaxClaim + 1 }},
		{"Lease", func(p *store.ClaimParams) { p.Lease = time.Millisecond - 1 }},
	} {
		p := good
		c.change(&p)
		if err := p.Validate(); field(err) != c.field || (err == nil) != (c.field == "") {
			t.Errorf("%+v: %v, want a fault of %q", p, err, c.field)
		}
	}
}

func TestPurgeParams(t *testing.T) {
	before := time.Date(2026, 1, 2, 3, 4, 5, 1999, time.FixedZone("", 3600))
	p, err := store.PurgeParams{Before: before}.Normalize()
	if err != nil || !slices.Equal(p.States, state.TerminalStates()) || p.Batch != 1000 || !p.Before.Equal(before.Truncate(time.Microsecond)) {
		t.Errorf("the defaults are %+v, %v", p, err)
	}
	own := store.PurgeParams{Before: before, States: []state.State{state.Sent}, Batch: store.MaxClaim}
	if p, err := own.Normalize(); err != nil || !slices.Equal(p.States, own.States) || p.Batch != own.Batch {
		t.Errorf("the caller's own became %+v, %v", p, err)
	}
	for _, c := range []struct {
		field string
		p     store.PurgeParams
	}{
		{"Before", store.PurgeParams{}},
		{"States", store.PurgeParams{Before: before, States: []state.State{}}},
		{"States", store.PurgeParams{Before: before, States: []state.State{state.Sent, state.Pending}}},
		{"States", store.PurgeParams{Before: before, States: []state.State{"otro"}}},
		{"Batch", store.PurgeParams{Before: before, Batch: -1}},
		{"Batch", store.PurgeParams{Before: before, Batch: store.MaxClaim + 1}},
	} {
		if _, err := c.p.Normalize(); field(err) != c.field {
			t.Errorf("%+v: %v, want a fault of %s", c.p, err, c.field)
		}
	}
}

func TestMicrosecond(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	for _, c := range []struct{ t, want time.Time }{
		{time.Time{}, time.Time{}},
		{time.Time{}.In(zone), time.Time{}},
		{time.Date(2026, 1, 1, 2, 0, 0, 1999, zone), time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC)},
		{time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
	} {
		if got := store.Microsecond(c.t); got != c.want {
			t.Errorf("%v became %v, want %v", c.t, got, c.want)
		}
	}
	if now := time.Now(); store.Microsecond(now).After(now) || now.Sub(store.Microsecond(now)) >= time.Microsecond {
		t.Error("the present was not rounded down by less than a microsecond")
	}
}

func TestVerdicts(t *testing.T) {
	var zero store.Verdict
	if zero != store.Lost || store.Lost.String() != "lost" || store.Applied.String() != "applied" {
		t.Errorf("the verdicts are %v, %v and %v", zero, store.Lost, store.Applied)
	}
}

// An error of the database shows its operation and code, never the driver's text, which may quote values.
func TestErrors(t *testing.T) {
	secret := errors.New("duplicate key (ana@club.example)")
	for _, c := range []struct {
		err     error
		text    string
		code    string
		refused bool
	}{
		{&store.Error{Op: "claim", Code: "40001", Err: secret}, "outbox: claim: 40001", "40001", false},
		{&store.Error{Op: "enqueue", Code: "23505", Refused: true, Err: secret}, "outbox: enqueue: 23505", "23505", true},
		{&store.Error{Op: "settle", Err: io.ErrUnexpectedEOF}, "outbox: settle: connection failed", "", false},
		{&store.Error{Op: "settle"}, "outbox: settle", "", false},
		{&store.Error{Op: "settle", Err: secret}, "outbox: settle: failed without a code (errors.Unwrap has the driver's error)", "", false},
		{&store.Error{Op: "settle", Err: driver.ErrBadConn}, "outbox: settle: connection failed", "", false},
		{&store.Error{Op: "settle", Err: &net.OpError{Op: "dial", Err: secret}}, "outbox: settle: connection failed", "", false},
		{&store.Error{Op: "enqueue", Err: sql.ErrTxDone}, "outbox: enqueue: the transaction has ended", "", false},
		{&store.Error{Op: "enqueue", Code: "42P01", Refused: true, Err: secret}, "outbox: enqueue: 42P01 (no such table: run Migrate, or look at Config.Table and Config.Schema)", "42P01", true},
		{&store.Error{Op: "purge", Err: fmt.Errorf("x: %w", context.Canceled)}, "outbox: purge: canceled", "", false},
		{&store.Error{Op: "purge", Err: context.DeadlineExceeded}, "outbox: purge: deadline exceeded", "", false},
		{&store.Error{Op: "purge", Code: "57014", Err: context.DeadlineExceeded}, "outbox: purge: 57014", "57014", false},
	} {
		wrapped := fmt.Errorf("worker: %w", c.err)
		if got := c.err.Error(); got != c.text {
			t.Errorf("the text is %q, want %q", got, c.text)
		}
		if got := store.ErrorCode(wrapped); got != c.code {
			t.Errorf("%v: the code is %q, want %q", c.err, got, c.code)
		}
		if got := store.Refused(wrapped); got != c.refused {
			t.Errorf("%v: refused is %v", c.err, got)
		}
	}
	if err := (&store.Error{Err: secret}); !errors.Is(err, secret) {
		t.Error("the driver's error is out of reach")
	}
	for err, refused := range map[error]bool{
		nil:                     false,
		secret:                  false,
		store.ErrNotFound:       false,
		store.ErrInvalidOptions: true,
		&store.InvalidError{Field: "Limit", Reason: "is odd"}:                           true,
		&state.TransitionError{Event: state.EventSend, From: state.Sent}:                true,
		&store.Error{Op: "claim", Err: &store.InvalidError{Field: "f", Reason: "is r"}}: false, // the database's word counts
	} {
		if got := store.Refused(err); got != refused {
			t.Errorf("%v: refused is %v, want %v", err, got, refused)
		}
		if got := store.ErrorCode(err); got != "" {
			t.Errorf("%v: the code is %q", err, got)
		}
	}
}

func TestValidChannel(t *testing.T) {
	for name, ok := range map[string]bool{
		"correo": true, "2": true, "push.ios_v2-beta": true, strings.Repeat("a", 63): true,
		"": false, "Correo": false, "a b": false, ".a": false, "ñ": false, "ana@club.example": false, "correo\n": false, strings.Repeat("a", 64): false,
	} {
		if store.ValidChannel(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}

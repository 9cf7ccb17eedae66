package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/transports"
)

// Defaults and bounds of a lane.
const (
	DefaultBatchSize   = 20
	DefaultConcurrency = 5
	DefaultLease       = 10 * time.Minute
	DefaultTimeout     = time.Minute // or half the lease, where that is less

	MinLease   = 5 * time.Second
	MaxLease   = 24 * time.Hour // a lease beyond a day is a row that looks stuck
	MinTimeout = time.Second

	// LeaseMargin is what must be left of a lease beside the timeout for a call to start.
	LeaseMargin = time.Second

	DefaultPollInterval = time.Second
	MinPollInterval     = 10 * time.Millisecond
)

// Transports says which transport serves which channel. A [Lane] in it brings settings of its own; any other transport
// takes the Config's.
type Transports map[string]transports.Transport

// Lane is a transport with settings of its own. A zero field takes the Config's value.
type Lane struct {
	transports.Transport

	BatchSize   int
	Concurrency int
	Lease       time.Duration
	Timeout     time.Duration
	Policy      *state.Policy
}

// Config is a worker's. Only Transports is needed; every zero field takes its default.
type Config struct {
	// Transports are the channels that this worker serves; others are left alone. It may be empty.
	Transports Transports

	// BatchSize is how many messages a lane claims at most and, while it streams, holds without having started them.
	// 1 to 10000, default 20.
	BatchSize int

	// Concurrency is how many calls a lane makes at once. At least 1, default 5.
	Concurrency int

	// Lease is how long a claimed message is this worker's. When it ends unsettled (a crash, a pause), another worker
	// takes the message over. 5 s to 24 h, default 10 min.
	Lease time.Duration

	// Timeout bounds one call. At least 1 s and at most half the lease; default 1 min, or half the lease if that is less.
	Timeout time.Duration

	// Policy says how failures are retried. Default: state.DefaultPolicy().
	Policy *state.Policy

	// PollInterval is how often Run looks for due messages when nobody calls Notify. At least 10 ms, default 1 s; each
	// wait is up to a tenth shorter or longer.
	PollInterval time.Duration

	// Rand draws what spreads polls and pauses: from [0, 1), safe for concurrent use. Default: math/rand/v2.
	Rand func() float64

	// Grace is how long Run goes on after its context has ended, for the calls in flight. Calls still running then are
	// cut off and count as timeouts. Default: the largest Timeout + 5 s.
	Grace time.Duration

	// DiscardUnserved discards messages of channels without a transport (credenciales/transporte_no_configurado), as the
	// reference does, instead of leaving them to another worker.
	DiscardUnserved bool

	Logger   *zap.Logger  // nil: silence
	Observer Observer     // nil: none
	OnReport func(Report) // called by Run, from one goroutine: at least once a second while there is work
}

// lane is a channel with its settings resolved.
type lane struct {
	channel string
	Lane
	wake chan struct{} // of capacity 1, see Notify
}

// resolve validates the options in the reference's order and fills in the defaults.
func (cfg Config) resolve() ([]*lane, error) {
	base := Lane{
		BatchSize: cfg.BatchSize, Concurrency: cfg.Concurrency, Lease: cfg.Lease, Timeout: cfg.Timeout, Policy: cfg.Policy,
	}.or(Lane{BatchSize: DefaultBatchSize, Concurrency: DefaultConcurrency, Lease: DefaultLease})
	if base.Policy == nil {
		policy := state.DefaultPolicy()
		base.Policy = &policy
	}
	if err := base.withTimeout().validate(""); err != nil {
		return nil, err
	}
	if d := cfg.PollInterval; d != 0 && d < MinPollInterval {
		return nil, invalid("PollInterval", "must be at least 10 ms")
	}
	if cfg.Grace < 0 {
		return nil, invalid("Grace", "must not be negative")
	}
	var lanes []*lane
	for _, channel := range slices.Sorted(maps.Keys(cfg.Transports)) {
		prefix := fmt.Sprintf("Transports[%q]", channel)
		t := cfg.Transports[channel]
		switch {
		case channel == "":
			return nil, invalid(prefix, "is a channel without a name")
		case isNil(t):
			return nil, invalid(prefix, "is nil")
		}
		l := Lane{Transport: t}
		switch t := t.(type) {
		case Lane:
			l = t
		case *Lane:
			l = *t
		}
		if isNil(l.Transport) {
			return nil, invalid(prefix+".Transport", "is nil")
		}
		l = l.or(base).withTimeout()
		if err := l.validate(prefix + "."); err != nil {
			return nil, err
		}
		lanes = append(lanes, newLane(channel, l))
	}
	return lanes, nil
}

func newLane(channel string, l Lane) *lane {
	policy := *l.Policy // the caller keeps his own
	l.Policy = &policy
	return &lane{channel: channel, Lane: l, wake: make(chan struct{}, 1)}
}

// or fills l's zero fields from d.
func (l Lane) or(d Lane) Lane {
	l.BatchSize = cmp.Or(l.BatchSize, d.BatchSize)
	l.Concurrency = cmp.Or(l.Concurrency, d.Concurrency)
	l.Lease = cmp.Or(l.Lease, d.Lease)
	l.Timeout = cmp.Or(l.Timeout, d.Timeout)
	l.Policy = cmp.Or(l.Policy, d.Policy)
	return l
}

// withTimeout derives a default that fits any lease.
func (l Lane) withTimeout() Lane {
	l.Timeout = cmp.Or(l.Timeout, min(DefaultTimeout, l.Lease/2))
	return l
}

func (l Lane) validate(prefix string) error {
	switch {
	case l.BatchSize < 1 || l.BatchSize > store.MaxClaim:
		return invalid(prefix+"BatchSize", "must be between 1 and 10000")
	case l.Lease < MinLease || l.Lease > MaxLease:
		return invalid(prefix+"Lease", "must be between 5 s and 24 h")
	case l.Timeout < MinTimeout:
		return invalid(prefix+"Timeout", "must be at least 1 s")
	case l.Timeout > l.Lease/2:
		return invalid(prefix+"Timeout", "must be at most half the lease")
	case l.Concurrency < 1:
		return invalid(prefix+"Concurrency", "must be at least 1")
	case l.Policy.MaxAge < 0:
		return invalid(prefix+"Policy.MaxAge", "must not be negative")
	case l.Policy.MaxRetryAfter < 0:
		return invalid(prefix+"Policy.MaxRetryAfter", "must not be negative")
	}
	if bad := (*state.InvalidError)(nil); errors.As(l.Policy.Backoff.Validate(), &bad) {
		return invalid(prefix+"Policy."+bad.Field, bad.Reason)
	}
	return nil
}

// warning says so when the last message of a full batch might not start within its lease.
func (l *lane) warning() (Warning, bool) {
	rounds := (l.BatchSize + l.Concurrency - 1) / l.Concurrency
	worst := time.Duration(rounds)*l.Timeout + LeaseMargin
	if l.Lease >= worst {
		return Warning{}, false
	}
	return Warning{Code: WarningShortLease, Channel: l.channel, Text: fmt.Sprintf(
		"channel %s: the lease of %s is shorter than the worst case of a batch, %s (timeout %s × %d rounds of %d calls + %s): its last messages may be released uncalled",
		l.channel, l.Lease, worst, l.Timeout, rounds, l.Concurrency, LeaseMargin)}, true
}

// isNil sees through an interface that holds a nil.
func isNil(x any) bool {
	if x == nil {
		return true
	}
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Interface:
		return v.IsNil()
	}
	return false
}

func invalid(field, reason string) error {
	return &state.InvalidError{Field: field, Reason: reason}
}

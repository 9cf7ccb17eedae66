package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Report sums up a pass. Claimed = Sent + Retried + Failed + Discarded + Lost + Released + Deferred + Errors.
type Report struct {
	Claimed   int // messages taken, those that the claim closed included
	Sent      int // accepted by the provider
	Retried   int // failed, to be tried again
	Failed    int // out of attempts, past their time, or held
	Discarded int // refused for good
	Lost      int // the fence refused the result: another worker has the message
	Released  int // given back uncalled
	Deferred  int // nothing went out: later, without charge
	Errors    int // the result could not be stored; the lease will end and the message be taken again

	ClaimErrors int // claims that failed
	Abandoned   int // calls that had not returned a second Timeout after their own; they may still be running

	Warnings  []Warning // never nil
	LastError string    // the database's code of the last error; "" when there was none, or it had no code
}

// Warning is something the operator should know. The worker never acts on it.
type Warning struct {
	Code    string // one of the Warning constants
	Channel string
	Text    string // a sentence in English, without personal data
}

// The codes of warnings.
const (
	WarningShortLease   = "lease_corto"          // a full batch may outlast its lease
	WarningUnserved     = "canal_sin_transporte" // messages wait on a channel that this worker does not serve
	WarningChannelsFail = "canales_no_leidos"    // the unserved channels could not be looked up
)

// String returns the text.
func (w Warning) String() string { return w.Text }

// MarshalText encodes a warning as its text.
func (w Warning) MarshalText() ([]byte, error) { return []byte(w.Text), nil }

// ErrIncomplete is matched by [Report.Err].
var ErrIncomplete = errors.New("outbox: the pass is incomplete")

// Err returns an error that matches [ErrIncomplete] when the database kept the pass from being complete: a claim failed,
// or a result could not be stored. Messages that were retried, failed, discarded or lost are no error.
func (r Report) Err() error {
	if r.Errors == 0 && r.ClaimErrors == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d claims failed, %d results not stored, last code %q", ErrIncomplete, r.ClaimErrors, r.Errors, r.LastError)
}

// counters are the counts with the seed's names, in its order.
func (r Report) counters() []counter {
	return []counter{
		{"reclamados", r.Claimed},
		{"enviados", r.Sent},
		{"reintentar", r.Retried},
		{"fallidos", r.Failed},
		{"descartados", r.Discarded},
		{"perdidos", r.Lost},
		{"liberados", r.Released},
		{"aplazados", r.Deferred},
		{"errores", r.Errors},
		{"errores_reclamo", r.ClaimErrors},
		{"abandonados", r.Abandoned},
	}
}

type counter struct {
	name  string
	value int
}

// String is one line: claimed, and what else is not zero.
func (r Report) String() string {
	var b strings.Builder
	for i, c := range r.counters() {
		if i == 0 || c.value != 0 {
			fmt.Fprintf(&b, "%s=%d ", c.name, c.value)
		}
	}
	if r.LastError != "" {
		fmt.Fprintf(&b, "ultimoError=%s ", r.LastError)
	}
	if n := len(r.Warnings); n > 0 {
		fmt.Fprintf(&b, "advertencias=%d ", n)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// MarshalJSON uses the reference's names: reclamados, enviados, …, advertencias (a list of texts) and, only when there
// was an error, ultimoError.codigo (null when it had no code).
func (r Report) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for _, c := range r.counters() {
		fmt.Fprintf(&b, "%q:%d,", c.name, c.value)
	}
	warnings, err := json.Marshal(append([]Warning{}, r.Warnings...))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, `"advertencias":%s`, warnings)
	if r.Err() != nil {
		code := []byte("null")
		if r.LastError != "" {
			if code, err = json.Marshal(r.LastError); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(&b, `,"ultimoError":{"codigo":%s}`, code)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// MarshalLogObject logs the same names with zap.
func (r Report) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, c := range r.counters() {
		enc.AddInt(c.name, c.value)
	}
	if r.LastError != "" {
		enc.AddString("ultimoError", r.LastError)
	}
	return enc.AddArray("advertencias", zapcore.ArrayMarshalerFunc(func(enc zapcore.ArrayEncoder) error {
		for _, w := range r.Warnings {
			enc.AppendString(w.Text)
		}
		return nil
	}))
}

// empty reports whether nothing happened.
func (r Report) empty() bool {
	return !slices.ContainsFunc(r.counters(), func(c counter) bool { return c.value != 0 })
}

// add adds the counts of other. Warnings are the worker's, not a lane's, and are left alone.
func (r *Report) add(other Report) {
	r.Claimed += other.Claimed
	r.Sent += other.Sent
	r.Retried += other.Retried
	r.Failed += other.Failed
	r.Discarded += other.Discarded
	r.Lost += other.Lost
	r.Released += other.Released
	r.Deferred += other.Deferred
	r.Errors += other.Errors
	r.ClaimErrors += other.ClaimErrors
	r.Abandoned += other.Abandoned
	if other.LastError != "" {
		r.LastError = other.LastError
	}
}

// count counts one settled message.
func (r *Report) count(event state.Event, v store.Verdict) {
	r.Claimed++
	if v != store.Applied {
		r.Lost++
		return
	}
	switch event {
	case state.EventSend:
		r.Sent++
	case state.EventRetry:
		r.Retried++
	case state.EventFail:
		r.Failed++
	case state.EventDiscard:
		r.Discarded++
	case state.EventRelease:
		r.Released++
	case state.EventDefer:
		r.Deferred++
	}
}

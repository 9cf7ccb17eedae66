package state

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of what a transition carries.
const (
	MaxCodeLength       = 64  // characters of a category or a code
	MaxExternalIDLength = 255 // bytes of an external id

	// MinConflictWait is the least wait after an idempotency conflict: the provider is still busy with the first call.
	MinConflictWait = time.Minute
)

// Bounds of an uncharged deferral.
const (
	minDefer = 30 * time.Second
	maxDefer = 5 * time.Minute
)

// Policy is how a lane answers to failures.
type Policy struct {
	Backoff       Backoff       // waits of charged retries
	MaxAge        time.Duration // an unreachable row older than this is closed; 0 means never
	MaxRetryAfter time.Duration // cap on a provider's own wait
	HoldAmbiguous bool          // close ambiguous outcomes as fallido/ambiguo instead of retrying
}

// DefaultPolicy is [DefaultBackoff], a MaxAge of 72 h and a MaxRetryAfter of 6 h.
func DefaultPolicy() Policy {
	return Policy{Backoff: DefaultBackoff(), MaxAge: 72 * time.Hour, MaxRetryAfter: 6 * time.Hour}
}

// Transition is what a store has to write. It carries a wait, never a date: the store adds it to its own now. Like
// [Outcome] it prints without its external id.
type Transition struct {
	Event      Event
	To         State
	Wait       time.Duration // with EventRetry and EventDefer
	Category   string
	Code       string
	ExternalID string // with EventSend; "" is stored as NULL
	Ambiguous  bool   // adds 1 to dudas
}

// String shows everything but the external id.
func (t Transition) String() string {
	type bare Transition // has no String
	t.ExternalID = withheld(t.ExternalID)
	return fmt.Sprintf("%+v", bare(t))
}

// GoString keeps %#v from printing the external id.
func (t Transition) GoString() string { return t.String() }

// LogValue keeps log/slog from printing the external id.
func (t Transition) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Charged reports whether the attempt stays charged. Only liberar and aplazar give it back.
func (t Transition) Charged() bool { return t.Event != EventRelease && t.Event != EventDefer }

// Waits reports whether proximo_intento_en becomes now + Wait; otherwise it is left alone.
func (t Transition) Waits() bool { return t.Event == EventRetry || t.Event == EventDefer }

// KeepsError reports whether the error columns are left alone; otherwise they become Category and Code ("" is NULL).
func (t Transition) KeepsError() bool { return t.Event == EventRelease }

// Validate returns a [TransitionError] unless the event leads from procesando to To: the only transitions that settle
// a claimed row.
func (t Transition) Validate() error {
	to, err := Next(Processing, t.Event)
	if err != nil || to != t.To || t.Event == EventReclaim {
		return &TransitionError{Event: t.Event, From: Processing}
	}
	return nil
}

// ReleaseTransition gives a claimed row back uncalled.
func ReleaseTransition() Transition { return Transition{Event: EventRelease, To: Pending} }

// CloseTransition closes a claimed row without a call, under one of the codes of [Closing].
func CloseTransition(code string) Transition {
	return Transition{Event: EventFail, To: Failed, Category: CategoryNetwork, Code: code}
}

// Resolve says which transition an outcome asks for. r is the row as claimed, age how long it has been wanting to go out
// (see [Row.Age]). The error is a [TransitionError] when the row is not in procesando, or an [InvalidError] when the
// policy's backoff is senseless.
//
//   - accepted: enviar
//   - a permanent category: descartar
//   - certainly not sent, category red: aplazar without charge, for half the row's age between 30 s and 5 min; past
//     MaxAge fallar as inalcanzable, but only if an earlier such deferral is on record in the row
//   - ambiguous, where the policy holds those: fallar as ambiguo
//   - anything else: reintentar after the backoff, or fallar when the attempts are used up
//
// A malformed outcome (no category, or one that is not a machine word) is transient.
func Resolve(r Row, age time.Duration, o Outcome, p Policy) (Transition, error) {
	t, err := resolve(r, age, o.clean(), p)
	if err != nil {
		return Transition{}, err
	}
	if r.State != Processing { // fallar would be legal elsewhere, but only a claimed row has an outcome
		return Transition{}, &TransitionError{Event: t.Event, From: r.State}
	}
	if t.To, err = Next(r.State, t.Event); err != nil {
		return Transition{}, err
	}
	return t, nil
}

func resolve(r Row, age time.Duration, o Outcome, p Policy) (Transition, error) {
	class := Classify(o)
	if class == ClassOK {
		return Transition{Event: EventSend, ExternalID: o.ExternalID}, nil
	}
	t := Transition{Category: o.Category, Code: o.Code, Ambiguous: o.Ambiguous}
	hint := min(max(0, o.RetryAfter), max(0, p.MaxRetryAfter))
	switch {
	case class == ClassPermanent:
		t.Event = EventDiscard
	case o.NotCalled && o.Category == CategoryNetwork:
		if p.MaxAge > 0 && age > p.MaxAge && r.unreachable() {
			t.Event, t.Code = EventFail, CodeUnreachable
			break
		}
		t.Event, t.Code = EventDefer, unreachableCode(o.Code)
		t.Wait = max(hint, min(max(age/2, minDefer), maxDefer))
	case o.Ambiguous && p.HoldAmbiguous:
		t.Event, t.Code = EventFail, CodeAmbiguous
	case r.Exhausted():
		t.Event = EventFail
	default:
		backoff := p.Backoff
		if o.Category == CategoryIdempotencyConflict {
			backoff.Base = max(backoff.Base, MinConflictWait)
			backoff.Max = max(backoff.Max, backoff.Base)
			hint = max(hint, MinConflictWait)
		}
		wait, err := backoff.Delay(max(0, r.Attempts-1))
		if err != nil {
			return t, err
		}
		t.Event, t.Wait = EventRetry, max(wait, hint)
	}
	return t, nil
}

// unreachable reports whether the row's last recorded error is an unreachable deferral.
func (r Row) unreachable() bool {
	return r.LastErrorCategory == CategoryNetwork &&
		(r.LastErrorCode == CodeUnreachable || strings.HasPrefix(r.LastErrorCode, CodeUnreachable+":"))
}

// unreachableCode records a deferral so that a later one can tell: inalcanzable:dns, for instance.
func unreachableCode(code string) string {
	if code == "" {
		return CodeUnreachable
	}
	return cut(CodeUnreachable + ":" + code)
}

// clean keeps only what may be stored.
func (o Outcome) clean() Outcome {
	if o.OK {
		o.ExternalID = cleanID(o.ExternalID)
		return o
	}
	if o.Category = cut(o.Category); !machineWord(o.Category) {
		// Whoever cannot name what happened is not believed that nothing went out.
		o.Category, o.Code, o.NotCalled = CategoryNetwork, CodeMalformed, false
	}
	o.Ambiguous = o.Ambiguous && !o.NotCalled
	if o.Code = cut(o.Code); o.Code != "" && !machineWord(o.Code) {
		o.Code = CodeMalformed
	}
	return o
}

func cut(s string) string {
	if len(s) > MaxCodeLength { // a machine word is ASCII; anything else is refused afterwards
		return s[:MaxCodeLength]
	}
	return s
}

// machineWord reports whether s is made of letters, digits, '_', '.', ':' and '-' alone, is not empty, and has no more
// than 8 digits in a row. It leaves no room for a sentence, an address or a telephone number.
func machineWord(s string) bool {
	digits := 0
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && c != '_' && c != '.' && c != ':' && c != '-' {
			return false
		}
		if digits++; !digit {
			digits = 0
		}
		if digits > 8 {
			return false
		}
	}
	return s != ""
}

// cleanID makes a provider's id safe to store: valid UTF-8, printable, bounded, and no sentence. An id that is not is dropped, since
// half an id is of no use.
func cleanID(id string) string {
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) || c == ' ' }
	if len(id) > MaxExternalIDLength || !utf8.ValidString(id) || strings.ContainsFunc(id, unprintable) {
		return ""
	}
	return id
}

package state

import "time"

// Row is what the pure functions need to know of a row. Zero times mean NULL. All times are of the store's one clock.
type Row struct {
	State         State
	Attempts      int // charged so far, the running one included
	MaxAttempts   int
	ScheduledAt   time.Time // programado_para
	NextAttemptAt time.Time // proximo_intento_en
	LeasedUntil   time.Time // bloqueado_hasta
	ExpiresAt     time.Time // vence_en
	CreatedAt     time.Time // creado_en

	LastErrorCategory string // ultimo_error_categoria
	LastErrorCode     string // ultimo_error_codigo
}

// Turn is when a live row is due: the later of ScheduledAt and NextAttemptAt. It is the zero time for any other row.
func (r Row) Turn() time.Time {
	switch {
	case r.State != Pending && r.State != Processing:
		return time.Time{}
	case r.NextAttemptAt.After(r.ScheduledAt):
		return r.NextAttemptAt
	}
	return r.ScheduledAt
}

// Age is how long the row has been wanting to go out at now: since the later of CreatedAt and ScheduledAt. It is never
// negative, and at most a century.
func (r Row) Age(now time.Time) time.Duration {
	since := r.CreatedAt
	if r.ScheduledAt.After(since) {
		since = r.ScheduledAt
	}
	return min(max(0, now.Sub(since)), maxAge)
}

// maxAge keeps sums with an age from overflowing.
const maxAge = 100 * 365 * 24 * time.Hour

// Exhausted reports whether every allowed attempt has been charged.
func (r Row) Exhausted() bool { return r.Attempts >= r.MaxAttempts }

// Expired reports whether the deliver-by time has come. The instant itself counts.
func (r Row) Expired(now time.Time) bool { return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) }

// Decision is what is due for a row.
type Decision string

// The five decisions, with the reference's words.
const (
	DecisionSend       Decision = "enviar"
	DecisionRetryLater Decision = "reintentar_luego"
	DecisionDiscard    Decision = "descartar" // nothing more to send: terminal, exhausted or expired
	DecisionReclaim    Decision = "destrabar"
	DecisionWait       Decision = "esperar"
)

// Decide says what is due for a row at now. It is the model of the claim: a store claims exactly the rows for which it
// answers enviar or destrabar, and closes those live rows for which it answers descartar. Equal instants count as due,
// and as expired. A processing row without a lease counts as expired, an unknown state waits. It never panics.
//
// Two exceptions to that parity, both because a claim walks the rows in order of their turn: a pending row at its limit
// (descartar here) and a processing row whose lease ended (destrabar here) are both taken only when [Row.Turn] comes.
func Decide(r Row, now time.Time) Decision {
	switch {
	case r.State.Terminal():
		return DecisionDiscard
	case r.State == Processing:
		switch {
		case r.LeasedUntil.After(now):
			return DecisionWait
		case r.Exhausted() || r.Expired(now):
			return DecisionDiscard
		}
		return DecisionReclaim
	case r.State == Pending:
		switch {
		case r.Exhausted():
			return DecisionDiscard
		case r.ScheduledAt.After(now):
			return DecisionWait
		case r.NextAttemptAt.After(now):
			return DecisionRetryLater
		case r.Expired(now):
			return DecisionDiscard
		}
		return DecisionSend
	}
	return DecisionWait
}

// Closing says with which code a claim closes a due live row instead of handing it out, or "" when it does not:
// lease_agotado and intentos_agotados for a row at its limit, vencido for one past its deliver-by time.
func Closing(r Row, now time.Time) string {
	switch {
	case r.Exhausted() && r.State == Processing:
		return CodeLeaseExhausted
	case r.Exhausted():
		return CodeAttemptsExhausted
	case r.Expired(now):
		return CodeExpired
	}
	return ""
}

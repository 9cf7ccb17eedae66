package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/recado-dev/recado/state"
)

// Message is one row of the outbox, whole. Zero times and empty optional texts mean NULL.
//
// It prints and logs as its id, channel and state alone: destination, data and key are personal data. encoding/json and
// direct access show all of it.
type Message struct {
	ID             string // UUID
	TenantID       string
	Channel        string // canal
	Destination    string // destino
	Template       string // plantilla
	Data           json.RawMessage
	IdempotencyKey string // clave_idempotencia, without the tenant

	State         state.State
	Attempts      int       // intentos: charged so far; in a claimed row the running one included
	MaxAttempts   int       // max_intentos
	ScheduledAt   time.Time // programado_para
	NextAttemptAt time.Time // proximo_intento_en
	LeasedUntil   time.Time // bloqueado_hasta
	Token         Token     // reclamo; it stays after settling
	ExpiresAt     time.Time // vence_en

	LastErrorCategory string
	LastErrorCode     string
	Doubts            int    // dudas: attempts that ended ambiguous
	ExternalID        string // id_externo

	SentAt    time.Time         // enviado_en
	CreatedAt time.Time         // creado_en
	UpdatedAt time.Time         // actualizado_en
	Headers   map[string]string // cabeceras

	// Closing is set only by a claim with ReturnExhausted: the code under which the caller has to close this row.
	Closing string
}

// Fence returns the fence of a claimed row.
func (m *Message) Fence() Fence {
	return Fence{ID: m.ID, LeasedUntil: m.LeasedUntil, Token: m.Token}
}

// ProviderKey returns the key that a provider gets: the literal tenant:key.
func (m *Message) ProviderKey() string { return m.TenantID + ":" + m.IdempotencyKey }

// Row returns what the pure functions of package state need.
func (m *Message) Row() state.Row {
	return state.Row{
		State: m.State, Attempts: m.Attempts, MaxAttempts: m.MaxAttempts,
		ScheduledAt: m.ScheduledAt, NextAttemptAt: m.NextAttemptAt, LeasedUntil: m.LeasedUntil,
		ExpiresAt: m.ExpiresAt, CreatedAt: m.CreatedAt,
		LastErrorCategory: m.LastErrorCategory, LastErrorCode: m.LastErrorCode,
	}
}

// String returns id, channel and state.
func (m Message) String() string { return fmt.Sprintf("message %s (%s, %s)", m.ID, m.Channel, m.State) }

// GoString keeps %#v from printing personal data.
func (m Message) GoString() string { return m.String() }

// LogValue keeps log/slog from printing personal data.
func (m Message) LogValue() slog.Value { return slog.StringValue(m.String()) }

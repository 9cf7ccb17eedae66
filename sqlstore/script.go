package sqlstore

import (
	"database/sql/driver"
	"encoding/json"
	"time"

	"github.com/recado-dev/recado/sqlstore/internal/script"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Script is for package sqlstoretest, which builds its expectations from it.
func (s *Store) Script() script.Script {
	q := s.sql
	all := script.Script{
		Insert: q.insert.text, Find: q.find.text, Claim: q.claim.text, Settle: q.settle.text, AfterSettle: q.afterSettle.text,
		Repeated: q.repeated.text, NextChannel: q.nextChannel.text,
		LockClaim: q.lockClaim.text, LockFenced: q.lockFenced.text, Fenced: q.fenced.text,
	}
	switch s.dialect {
	case Postgres:
		all.BeforeClaim = q.beforeClaim.text
		all.Row = func(m store.Message) []driver.Value { return append(s.values(m), m.Closing) }
	case MySQL:
		all.Row = func(m store.Message) []driver.Value {
			now := s.dialect.time(m.UpdatedAt)
			return append(s.values(beforeClaim(m)), now)
		}
	default:
		all.Row = s.values
	}
	return all
}

// beforeClaim is a row as it was before a claim made it what it is.
func beforeClaim(m store.Message) store.Message {
	if m.State == state.Processing && m.Closing == "" {
		m.Attempts--
	}
	m.State, m.LeasedUntil, m.Token = state.Pending, time.Time{}, store.Token{}
	return m
}

// values are a whole row, in the order in which it is read.
func (s *Store) values(m store.Message) []driver.Value {
	headers := any(nil)
	if m.Headers != nil {
		text, err := json.Marshal(m.Headers)
		if err != nil {
			panic(err) // texts cannot fail
		}
		headers = string(text)
	}
	t := s.dialect.time
	return []driver.Value{
		m.ID, m.TenantID, m.Channel, m.Destination, m.Template, string(m.Data), m.IdempotencyKey, string(m.State),
		m.Attempts, m.MaxAttempts, t(m.ScheduledAt), t(m.NextAttemptAt), t(m.LeasedUntil), tokenText(m.Token),
		t(m.ExpiresAt), null(m.LastErrorCategory), null(m.LastErrorCode), m.Doubts, null(m.ExternalID), t(m.SentAt),
		t(m.CreatedAt), t(m.UpdatedAt), headers,
	}
}

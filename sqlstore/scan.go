package sqlstore

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// dbTime reads a time of any engine: timestamps as they are, integers as microseconds since 1970, texts as MySQL writes
// them, in UTC, and NULL as the zero time. PostgreSQL's infinities, which only a foreign writer stores, become the ends of what every engine can store.
type dbTime struct{ t *time.Time }

func (d dbTime) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*d.t = time.Time{}
	case time.Time:
		*d.t = v.UTC()
	case int64:
		*d.t = time.UnixMicro(v).UTC()
	case []byte:
		return d.Scan(string(v))
	case string:
		switch v {
		case "infinity":
			*d.t = store.MaxTime
		case "-infinity":
			*d.t = store.MinTime
		default:
			t, err := time.Parse(mysqlTime, v)
			if err != nil {
				return errors.New("cannot read a time from this text")
			}
			*d.t = t
		}
	default:
		return fmt.Errorf("cannot read a time from %T", v)
	}
	return nil
}

// each calls f for every row, and closes rows.
func each(rows *sql.Rows, f func(scan func(...any) error) error) (err error) {
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return &unreadable{err}
		}
	}
	return rows.Err()
}

// unreadable is a row whose values are not of our types. Reading it again would not help.
type unreadable struct{ err error }

func (e *unreadable) Error() string { return e.err.Error() }
func (e *unreadable) Unwrap() error { return e.err }

// scanMessages reads rows of {columns}, with one column behind them where a place for it is given, and closes them.
func scanMessages(rows *sql.Rows, behind func(*store.Message) any) (all []store.Message, err error) {
	err = each(rows, func(scan func(...any) error) error {
		var m store.Message
		var st string
		var data, headers []byte
		var token, category, code, externalID sql.NullString
		var attempts, maxAttempts, doubts sql.NullInt64
		dest := []any{
			&m.ID, &m.TenantID, &m.Channel, &m.Destination, &m.Template, &data, &m.IdempotencyKey, &st,
			&attempts, &maxAttempts,
			dbTime{&m.ScheduledAt},
			dbTime{&m.NextAttemptAt},
			dbTime{&m.LeasedUntil},
			&token,
			dbTime{&m.ExpiresAt},
			&category, &code, &doubts, &externalID,
			dbTime{&m.SentAt},
			dbTime{&m.CreatedAt},
			dbTime{&m.UpdatedAt},
			&headers,
		}
		if behind != nil {
			dest = append(dest, behind(&m))
		}
		if err := scan(dest...); err != nil {
			return err
		}
		// A state that is not ours is shown as it is: no claim hands such a row out.
		m.State = state.State(st)
		m.Data = data
		m.Attempts, m.MaxAttempts, m.Doubts = int(attempts.Int64), int(maxAttempts.Int64), int(doubts.Int64)
		m.LastErrorCategory, m.LastErrorCode, m.ExternalID = category.String, code.String, externalID.String
		if id, err := uuid.Parse(token.String); err == nil {
			m.Token = store.Token(id)
		}
		if headers != nil && json.Unmarshal(headers, &m.Headers) != nil {
			m.Headers = nil // a foreign writer's; nothing of ours depends on them
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// scanStrings reads one text column, and closes rows.
func scanStrings(rows *sql.Rows) (all []string, err error) {
	err = each(rows, func(scan func(...any) error) error {
		var s string
		if err := scan(&s); err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
}

// scanTimes reads one column of times, and closes rows.
func scanTimes(rows *sql.Rows) (all []time.Time, err error) {
	err = each(rows, func(scan func(...any) error) error {
		var t time.Time
		err := scan(dbTime{&t})
		all = append(all, t)
		return err
	})
	return all, err
}

// tokenText is how a token is stored; the zero Token is NULL.
func tokenText(t store.Token) any {
	if t == (store.Token{}) {
		return nil
	}
	return uuid.UUID(t).String()
}

// null stores "" as NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

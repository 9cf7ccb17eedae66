package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// Claim takes due rows: see [store.Store]. It is one statement in one short transaction. Where the reply to its COMMIT
// is lost, the rows are read back by their token; rows that it closed are then not reported.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.Claim, error) {
	if err := p.Validate(); err != nil {
		return store.Claim{}, err
	}
	p.Lease = p.Lease.Truncate(time.Microsecond)
	var (
		token = store.NewToken()
		now   = s.now()
		rows  []store.Message
	)
	err := s.inTx(ctx, "claim", func(tx *sql.Tx) (err error) {
		rows, err = s.dialect.claim(ctx, tx, s.sql, now, p, token)
		return err
	})
	if store.Refused(err) && !denied(store.ErrorCode(err)) {
		return s.claimApart(ctx, p, now, token, err)
	}
	if errors.Is(err, errCommit) {
		var found *sql.Rows
		if found, err = s.sql.readBack.query(ctx, s.db, p.Channel, tokenText(token), p.Limit); err == nil {
			rows, err = scanMessages(found, nil)
		}
		err = s.fail("claim", err)
	}
	if err != nil {
		return store.Claim{}, err
	}
	return sortClaim(rows, p), nil
}

// maxRefused is how many refused rows one claim passes over: behind them, the others wait.
const maxRefused = 100

// claimApart claims row by row, for a batch that the database refuses as a whole: a trigger or constraint of the
// application's, or a value of a foreign writer, must not stop a channel. It passes over the rows that are to blame. Where it
// fails halfway, what it has taken is handed out all the same: it is charged, and the next claim meets the failure.
func (s *Store) claimApart(ctx context.Context, p store.ClaimParams, now any, token store.Token, refusal error) (store.Claim, error) {
	var taken []store.Message
	var refused []store.Closed
	var failure error
	next := p
	next.Limit = 1
	for failure == nil && len(taken) < p.Limit && len(refused) < maxRefused {
		var rows []store.Message
		err := s.inTx(ctx, "claim", func(tx *sql.Tx) (err error) {
			rows, err = s.dialect.claim(ctx, tx, s.sql, now, next, token)
			return err
		})
		switch {
		case err == nil && len(rows) == 0:
			p.Limit = 0 // nothing more is due
		case err == nil:
			taken = append(taken, rows...)
			if m := rows[0]; m.State == state.Processing { // a closed row has left the queue
				next.From = store.Mark{Turn: m.Row().Turn(), ID: m.ID}
			}
		case !store.Refused(err):
			failure = err
		default:
			row, peekErr := s.peek(ctx, next, now)
			if peekErr != nil {
				failure = refusal // it is not about a row
				break
			}
			next.From = row
			refused = append(refused, store.Closed{ID: row.ID, Code: store.ErrorCode(err)})
		}
	}
	if failure == nil && len(refused) == maxRefused {
		failure = refusal // nor is this
	}
	if failure != nil && len(taken) == 0 {
		return store.Claim{}, failure
	}
	c := sortClaim(taken, p)
	c.Refused = refused
	return c, nil
}

// peek finds the first due row, without touching it.
func (s *Store) peek(ctx context.Context, p store.ClaimParams, now any) (m store.Mark, err error) {
	rows, err := s.sql.peek.query(ctx, s.db, now, p.Channel, s.dialect.time(p.From.Turn), markID(p.From))
	if err != nil {
		return m, err
	}
	err = each(rows, func(scan func(...any) error) error { return scan(dbTime{&m.Turn}, &m.ID) })
	if err == nil && m.ID == "" {
		err = store.ErrNotFound
	}
	return m, err
}

// markID is the id half of a mark as a parameter: no id lies before all ids.
func markID(m store.Mark) string {
	return cmp.Or(m.ID, "00000000-0000-0000-0000-000000000000")
}

// sortClaim parts the closed rows from the claimed ones and puts these in order: no engine promises one.
func sortClaim(rows []store.Message, p store.ClaimParams) store.Claim {
	c := store.Claim{Mark: p.From}
	for _, m := range rows {
		c.Now = m.UpdatedAt
		if m.State == state.Processing {
			c.Messages = append(c.Messages, m)
		} else {
			c.Closed = append(c.Closed, store.Closed{ID: m.ID, Code: m.LastErrorCode})
		}
	}
	slices.SortFunc(c.Messages, func(a, b store.Message) int {
		return cmp.Or(a.Row().Turn().Compare(b.Row().Turn()), cmp.Compare(a.ID, b.ID))
	})
	if len(c.Messages) > 0 {
		c.Mark = store.MarkOf(&c.Messages[0], c.Now)
	}
	return c
}

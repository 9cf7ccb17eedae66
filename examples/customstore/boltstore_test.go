package boltstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/storetest"
)

// open returns a store in a new file.
func open(t *testing.T, rules store.Rules) *Store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "outbox.db"), rules)
}

func openFile(t *testing.T, file string, rules store.Rules) *Store {
	t.Helper()
	// Nothing of a test has to survive the machine, so nothing is synced.
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := New(db, rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fixture(t *testing.T, rules store.Rules) storetest.Fixture {
	s := open(t, rules)
	return storetest.Fixture{
		Store: s,
		Put: func(ctx context.Context, m store.Message) error {
			return s.update(ctx, func(tx Tx) error { return tx.put(&m) })
		},
		Get: func(_ context.Context, id string) (store.Message, error) {
			tx, err := s.db.Begin(false)
			if err != nil {
				return store.Message{}, err
			}
			defer tx.Rollback()
			m, err := Tx{Tx: tx}.get(id)
			return *m, err
		},
		SetClock:   func(now time.Time) { s.clock = func() time.Time { return now } },
		TextTenant: rules.TextTenant,
	}
}

func TestConformance(t *testing.T) {
	for name, rules := range map[string]store.Rules{"uuid": {}, "text": {TextTenant: true}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture(t, rules) })
		})
	}
}

// enqueue writes one message on a channel, due now or at a time, and returns its id.
func (s *Store) enqueue(t *testing.T, channel, key string, at time.Time) string {
	t.Helper()
	var res store.EnqueueResult
	err := s.update(t.Context(), func(tx Tx) (err error) {
		res, err = s.Enqueue(t.Context(), tx, store.NewMessage{
			TenantID: "7e000000-0000-4000-8000-000000000001", Channel: channel, Destination: "ana@club.example",
			Template: "aviso", IdempotencyKey: key, ScheduledAt: at,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.ID
}

// spoil makes a row unreadable.
func (s *Store) spoil(t *testing.T, id string) {
	t.Helper()
	err := s.update(t.Context(), func(tx Tx) error {
		return tx.Bucket(rows).Put(bytes.Clone(tx.Bucket(places).Get([]byte(id))), []byte(`{"Destination":4711}`))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *Store) claim(t *testing.T, from store.Mark) store.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), store.ClaimParams{Channel: "correo", Limit: 10, Lease: time.Minute, From: from})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A row that cannot be read is reported, and in nobody's way.
func TestUnreadableRow(t *testing.T) {
	s := open(t, store.Rules{})
	bad := s.enqueue(t, "correo", "bad", time.Time{})
	good := s.enqueue(t, "correo", "good", time.Time{})
	s.spoil(t, bad)
	c := s.claim(t, store.Mark{})
	if len(c.Refused) != 1 || c.Refused[0] != (store.Closed{ID: bad, Code: "unreadable"}) {
		t.Errorf("refused %v", c.Refused)
	}
	if len(c.Messages) != 1 || c.Messages[0].ID != good {
		t.Errorf("claimed %v", c.Messages)
	}
	_, err := s.Settle(t.Context(), []store.Settlement{{Fence: store.Fence{ID: bad}, Transition: state.ReleaseTransition()}})
	if err == nil || strings.Contains(err.Error(), "4711") || store.ErrorCode(err) != "unreadable" || !store.Refused(err) {
		t.Errorf("settling it: %v", err)
	}
}

// A claim reads its stretch of the queue and nothing else: it would report what it met.
func TestClaimReadsOnlyItsStretch(t *testing.T) {
	s := open(t, store.Rules{})
	mark := store.Mark{Turn: store.Microsecond(time.Now().Add(-time.Minute)), ID: "f"}
	for _, id := range []string{
		s.enqueue(t, "correo", "below the mark", mark.Turn),
		s.enqueue(t, "correo", "later", time.Now().Add(time.Hour)),
		s.enqueue(t, "whatsapp", "elsewhere", time.Time{}),
	} {
		s.spoil(t, id)
	}
	due := s.enqueue(t, "correo", "due", time.Time{})
	c := s.claim(t, mark)
	if len(c.Refused) != 0 || len(c.Messages) != 1 || c.Messages[0].ID != due {
		t.Errorf("claimed %v, refused %v", c.Messages, c.Refused)
	}
	if c := s.claim(t, store.Mark{}); len(c.Refused) != 1 {
		t.Errorf("from the head it refused %v", c.Refused)
	}
}

// What a process had claimed and settled is known to the next one.
func TestReopened(t *testing.T) {
	s := open(t, store.Rules{})
	s.enqueue(t, "correo", "sent", time.Time{})
	s.enqueue(t, "correo", "in flight", time.Time{})
	claimed := s.claim(t, store.Mark{}).Messages
	send := store.Settlement{Fence: claimed[0].Fence(), Attempts: 1, Transition: state.Transition{Event: state.EventSend, To: state.Sent}}
	settle := func(s *Store) {
		t.Helper()
		v, err := s.Settle(t.Context(), []store.Settlement{send})
		if err != nil || v[0] != store.Applied {
			t.Errorf("settled: %v, %v", v, err)
		}
	}
	settle(s)
	file := s.db.Path()
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, file, store.Rules{})
	settle(s) // the answer had been lost
	s.clock = func() time.Time { return claimed[1].LeasedUntil }
	if again := s.claim(t, store.Mark{}).Messages; len(again) != 1 || again[0].ID != claimed[1].ID || again[0].Attempts != 2 {
		t.Errorf("claimed again: %v", again)
	}
}

// A transaction of another file, or none that writes, takes no message.
func TestOtherTransactions(t *testing.T) {
	s, other := open(t, store.Rules{}), open(t, store.Rules{})
	m := store.NewMessage{
		TenantID: "7e000000-0000-4000-8000-000000000001", Channel: "correo", Destination: "ana@club.example",
		Template: "aviso", IdempotencyKey: "clave",
	}
	theirs, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Rollback()
	if _, err := s.Enqueue(t.Context(), theirs, m); !errors.Is(err, store.ErrTxRequired) {
		t.Errorf("another file's: %v", err)
	}
	if _, err := theirs.ExecContext(t.Context(), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SQL: %v", err)
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		_, err := s.Enqueue(t.Context(), Tx{Tx: tx}, m)
		return err
	})
	if err == nil {
		t.Error("one that only reads took a message")
	}
}

func TestSize(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			lines += strings.Count(read(t, file), "\n")
		}
	}
	if lines == 0 || lines >= 300 {
		t.Errorf("the store has %d lines, comments included; it is to stay below 300", lines)
	}
}

// The page shows code of this folder, to the letter.
func TestReadme(t *testing.T) {
	code := read(t, "boltstore.go") + read(t, "boltstore_test.go") + read(t, "example_test.go")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) == 0 {
		t.Error("the page shows no code")
	}
	for _, block := range blocks {
		if !strings.Contains(code, "\n"+block[1]) {
			t.Errorf("the page shows code that is not here:\n%s", block[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

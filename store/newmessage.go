package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of a new message, in bytes of UTF-8. They are the same on every store.
const (
	MaxTenantLength      = 200
	MaxDestinationLength = 320 // the longest e-mail address: 64 + 1 + 255, RFC 5321 section 4.5.3.1
	MaxTemplateLength    = 200
	MaxKeyLength         = 200
	MaxProviderKeyLength = 256     // tenant:key; Resend's limit for an Idempotency-Key
	MaxHeadersSize       = 4 << 10 // as JSON
	DefaultMaxPayload    = 256 << 10

	DefaultMaxAttempts = 5
	MaxMaxAttempts     = math.MaxInt32
)

// DefaultChannels are the channels that a store accepts unless told otherwise.
var DefaultChannels = []string{"correo", "whatsapp"}

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// ValidChannel reports whether name can be the name of a channel: 1 to 63 lower-case letters, digits, '_', '.' and '-',
// beginning with a letter or a digit. Rows of foreign writers may hold others.
func ValidChannel(name string) bool { return channelName.MatchString(name) }

// NewMessage is a message to enqueue. Texts are refused, never trimmed or cut: when they are empty, too long, not UTF-8,
// have control characters, or begin or end with white space.
//
// Like [Message] it prints as nothing but its channel.
type NewMessage struct {
	TenantID       string            // required unless the store has a default tenant; no ':'; printable ASCII
	Channel        string            // required; one of the store's channels
	Destination    string            // required: where to, as the transport understands it
	Template       string            // required: what to say
	Data           any               // anything that marshals to JSON; nil is {}; json.RawMessage and []byte are JSON already
	IdempotencyKey string            // required: 1 to 200 printable ASCII characters, unique within the tenant
	ScheduledAt    time.Time         // not before; zero: now, by the store's clock
	ExpiresAt      time.Time         // deliver by: past it the message is closed as vencido; zero: never
	MaxAttempts    int               // 1 to 2147483647; 0: 5
	Headers        map[string]string // the caller's own, for instance traceparent; nil: none
}

// String returns the channel.
func (m NewMessage) String() string { return fmt.Sprintf("new message (%s)", m.Channel) }

// GoString keeps %#v from printing personal data.
func (m NewMessage) GoString() string { return m.String() }

// LogValue keeps log/slog from printing personal data.
func (m NewMessage) LogValue() slog.Value { return slog.StringValue(m.String()) }

// Rules are a store's own part in the validation of messages. The zero Rules accept uuid tenants, [DefaultChannels] and
// [DefaultMaxPayload].
type Rules struct {
	TextTenant    bool     // the tenant is any text; otherwise it is a UUID
	DefaultTenant string   // taken when a message names none
	Channels      []string // nil: DefaultChannels
	MaxPayload    int      // bytes of Data as JSON; 0: DefaultMaxPayload
}

// Encoded is a valid message as it goes into a row.
type Encoded struct {
	NewMessage                 // with the tenant, the attempts and times to the microsecond filled in
	DataJSON   json.RawMessage // valid JSON, with numbers kept digit by digit
	HeaderJSON json.RawMessage // nil: none
}

// Encode validates m in the reference's order (tenant, channel, destination, template, key, attempts, schedule), then
// what the reference leaves to the database, and encodes it. Every refusal is an [InvalidError].
func (r Rules) Encode(m NewMessage) (Encoded, error) {
	if m.TenantID == "" {
		m.TenantID = r.DefaultTenant
	}
	tenant, err := r.CheckTenant(m.TenantID)
	if err != nil {
		return Encoded{}, err
	}
	m.TenantID = tenant
	channels := r.Channels
	if channels == nil {
		channels = DefaultChannels
	}
	if m.Channel == "" {
		return Encoded{}, invalid("Channel", "is empty")
	}
	if !slices.Contains(channels, m.Channel) {
		return Encoded{}, invalid("Channel", "is not one of the store's channels (see Channels)")
	}
	if err := checkText("Destination", m.Destination, MaxDestinationLength); err != nil {
		return Encoded{}, err
	}
	if err := checkText("Template", m.Template, MaxTemplateLength); err != nil {
		return Encoded{}, err
	}
	if err := checkASCII("IdempotencyKey", m.IdempotencyKey, MaxKeyLength); err != nil {
		return Encoded{}, err
	}
	if len(m.TenantID)+1+len(m.IdempotencyKey) > MaxProviderKeyLength {
		return Encoded{}, invalid("IdempotencyKey", "together with the tenant is longer than 256 bytes")
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > MaxMaxAttempts {
		return Encoded{}, invalid("MaxAttempts", "must be between 1 and 2147483647")
	}
	if m.MaxAttempts == 0 {
		m.MaxAttempts = DefaultMaxAttempts
	}
	if m.ScheduledAt, err = checkTime("ScheduledAt", m.ScheduledAt); err != nil {
		return Encoded{}, err
	}
	if m.ExpiresAt, err = checkTime("ExpiresAt", m.ExpiresAt); err != nil {
		return Encoded{}, err
	}
	e := Encoded{NewMessage: m}
	if e.DataJSON, err = encodeData(m.Data, r.MaxPayload); err != nil {
		return Encoded{}, err
	}
	if e.HeaderJSON, err = encodeHeaders(m.Headers); err != nil {
		return Encoded{}, err
	}
	return e, nil
}

// CheckTenant returns the tenant as it is stored (a UUID in lower case), or an [InvalidError].
func (r Rules) CheckTenant(tenant string) (string, error) {
	if r.TextTenant {
		if err := checkASCII("TenantID", tenant, MaxTenantLength); err != nil {
			return "", err
		}
		if strings.Contains(tenant, ":") {
			return "", invalid("TenantID", "has a ':', which would make provider keys ambiguous")
		}
		return tenant, nil
	}
	if tenant == "" {
		return "", invalid("TenantID", "is empty")
	}
	id, err := uuid.Parse(tenant)
	if err != nil || len(tenant) != 36 { // Parse also takes braces, a urn: prefix and bare digits
		return "", invalid("TenantID", "is not a UUID (for other tenants, see TextTenant)")
	}
	return id.String(), nil
}

// SameContent reports whether e says the same as an existing row: channel, destination, template, and data compared as
// JSON values (order of keys, white space and the spelling of numbers and strings aside).
func (e Encoded) SameContent(channel, destination, template string, data []byte) bool {
	return e.Channel == channel && e.Destination == destination && e.Template == template && sameJSON(e.DataJSON, data)
}

// TravellingKey reports whether a provider key can be put into a header: printable ASCII, 1 to 256 bytes, without white
// space at either end. Rows of foreign writers may hold others.
func TravellingKey(providerKey string) bool {
	return checkASCII("", providerKey, MaxProviderKeyLength) == nil
}

// checkText is the rule for free texts.
func checkText(field, s string, limit int) error {
	switch {
	case s == "":
		return invalid(field, "is empty")
	case len(s) > limit:
		return invalid(field, fmt.Sprintf("is longer than %d bytes", limit))
	case !utf8.ValidString(s):
		return invalid(field, "is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalid(field, "has a control character")
	case strings.TrimSpace(s) != s:
		return invalid(field, "begins or ends with white space")
	}
	return nil
}

// checkASCII is the rule for what travels in a header.
func checkASCII(field, s string, limit int) error {
	if err := checkText(field, s, limit); err != nil {
		return err
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c > '~' }) {
		return invalid(field, "has a character outside printable ASCII")
	}
	return nil
}

// The range of times that every engine can store: from MinTime to just before MaxTime.
var (
	MinTime = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

func checkTime(field string, t time.Time) (time.Time, error) {
	if t.IsZero() {
		return t, nil
	}
	if t.Before(MinTime) || !t.Before(MaxTime) {
		return t, invalid(field, "must lie between the years 1970 and 9998")
	}
	return Microsecond(t), nil
}

func encodeData(data any, limit int) (json.RawMessage, error) {
	if limit == 0 {
		limit = DefaultMaxPayload
	}
	raw, isRaw := data.(json.RawMessage)
	if text, ok := data.([]byte); ok { // encoding/json would make it base64
		raw, isRaw = text, true
	}
	switch {
	case data == nil, isRaw && raw == nil:
		return json.RawMessage("{}"), nil
	case !isRaw:
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(data); err != nil { // the error may quote the data
			return nil, invalid("Data", "cannot be encoded as JSON")
		}
		raw = bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	}
	if len(raw) > limit {
		return nil, invalid("Data", fmt.Sprintf("is larger than %d bytes as JSON", limit))
	}
	return slices.Clone(raw), checkJSON("Data", raw, !isRaw)
}

func encodeHeaders(headers map[string]string) (json.RawMessage, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	for k, v := range headers {
		if err := checkASCII("Headers", k, MaxKeyLength); err != nil {
			return nil, err
		}
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			return nil, invalid("Headers", "has a value with a control character or broken UTF-8")
		}
	}
	raw, err := json.Marshal(headers)
	if err != nil {
		return nil, invalid("Headers", "cannot be encoded as JSON")
	}
	if len(raw) > MaxHeadersSize {
		return nil, invalid("Headers", fmt.Sprintf("are larger than %d bytes as JSON", MaxHeadersSize))
	}
	return raw, nil
}

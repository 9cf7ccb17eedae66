package email

import (
	"log/slog"
	"maps"
	"mime"
	netmail "net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxRecipients is how many addresses a mail may go to, copies included.
const MaxRecipients = 50

// Extras are what a mail may have beside subject and bodies. A [Renderer] sets them, the same for the same message each time,
// and all may be empty. They print and log as a fixed word.
type Extras struct {
	// ReplyTo is one address, with a display name or without.
	ReplyTo string

	// CC and BCC get copies, the latter without the others' knowledge: bare addresses, at most [MaxRecipients] with the
	// message's own. A message is one call and one row, so that it fails for all if a provider refuses one of them.
	CC  []string
	BCC []string

	// Headers are further ones, such as List-Unsubscribe. A name is made of letters, digits and '-', at most 64 of them; a
	// value is one line of at most 900 bytes. What a sender writes itself, or what a relay acts on, cannot be set: addresses,
	// Subject, Date, the Message-ID, what begins with Content-, Resent- or Resend-, and the like.
	Headers map[string]string

	// Tags are for the provider's own reports; SMTP has none and leaves them out. Names and values are made of letters,
	// digits, '_' and '-', at most 256 of them.
	Tags map[string]string

	// Attachments are files. How many bytes are too many, the provider decides: 40 MB of the whole mail, encoded, at Resend.
	Attachments []Attachment
}

// Attachment is a file that a mail brings. It prints and logs as a fixed word.
type Attachment struct {
	Name    string // without a path; at most 255 bytes
	Type    string // its media type, such as "application/pdf"; "": not said
	Content []byte // not empty
}

// String returns a fixed word.
func (Extras) String() string { return redacted }

// GoString keeps %#v from printing personal data.
func (Extras) GoString() string { return redacted }

// LogValue keeps log/slog from printing personal data.
func (Extras) LogValue() slog.Value { return slog.StringValue(redacted) }

// String returns a fixed word.
func (Attachment) String() string { return redacted }

// GoString keeps %#v from printing personal data.
func (Attachment) GoString() string { return redacted }

// LogValue keeps log/slog from printing personal data.
func (Attachment) LogValue() slog.Value { return slog.StringValue(redacted) }

const maxHeaderValue = 900 // bytes: a line of a mail has 998

var (
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

	// reserved are the headers that a sender writes, or that say to a relay where a mail comes from or goes to.
	reserved = []string{
		"From", "Sender", "To", "Cc", "Bcc", "Reply-To", "Subject", "Date", "Message-Id", "Mime-Version", "Return-Path", "Received",
		"Delivered-To", "Dkim-Signature", "Idempotency-Key",
	}
	reservedPrefixes = []string{"Content-", "Resent-", "Resend-", "Arc-"}
)

// usable reports whether x can go out, and whether no more goes out than it says.
func (x Extras) usable() bool {
	if x.ReplyTo != "" {
		if _, err := netmail.ParseAddress(x.ReplyTo); err != nil || strings.ContainsFunc(x.ReplyTo, unicode.IsControl) {
			return false
		}
	}
	copies := slices.Concat(x.CC, x.BCC)
	if 1+len(copies) > MaxRecipients {
		return false
	}
	for _, to := range copies {
		if bare, ok := bareAddress(to); !ok || bare != to {
			return false
		}
	}
	names := map[string]bool{}
	for name, value := range x.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if names[name] || !headerName.MatchString(name) || slices.Contains(reserved, name) ||
			slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
			!oneLine(value, maxHeaderValue) || strings.TrimSpace(value) != value {
			return false
		}
		names[name] = true
	}
	for name, value := range x.Tags {
		if !tagForm.MatchString(name) || !tagForm.MatchString(value) {
			return false
		}
	}
	return !slices.ContainsFunc(x.Attachments, func(a Attachment) bool { return !a.usable() })
}

func (a Attachment) usable() bool {
	if a.Type != "" {
		kind, params, err := mime.ParseMediaType(a.Type)
		if err != nil || !strings.Contains(kind, "/") || strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") ||
			!oneLine(a.Type, 255) || slices.ContainsFunc(slices.Collect(maps.Values(params)), func(v string) bool { return !oneLine(v, 255) }) {
			return false
		}
	}
	return oneLine(a.Name, 255) && !strings.ContainsAny(a.Name, `/\`) && len(a.Content) > 0
}

// oneLine reports whether s is text that is not blank and has no more bytes than most, none of them a line break or another
// control character, which could begin another header.
func oneLine(s string, most int) bool {
	return len(s) <= most && strings.TrimSpace(s) != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

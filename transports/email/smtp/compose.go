package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	netmail "net/mail"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
)

const codeBadSender = "remitente_invalido"

// letter is a mail ready for the wire.
type letter struct {
	from, to *netmail.Address
	bytes    []byte
}

// compose writes the mail, the same bytes for the same mail. It does so before any connection is made: a mail that
// breaks off halfway must never reach a server.
func compose(m email.Mail) (*letter, state.Outcome) {
	from, err := netmail.ParseAddress(m.From)
	if err != nil {
		return nil, state.Outcome{Category: state.CategoryRejected, Code: codeBadSender, Account: true}
	}
	to, err := netmail.ParseAddress(m.To)
	if err != nil {
		return nil, state.Outcome{Category: state.CategoryNumber, Code: email.CodeBadAddress}
	}
	if m.IdempotencyKey == "" { // every such mail would have the same Message-ID
		return nil, state.Outcome{Category: state.CategoryRejected, Code: state.CodeBadKey}
	}

	msg := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithBoundary(boundary(m)))
	err = msg.From(from.String())
	if err == nil {
		err = msg.To(to.String())
	}
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date.UTC())
	msg.SetMessageIDWithValue(messageID(m.IdempotencyKey, from.Address))
	switch {
	case m.HTML == "":
		msg.SetBodyString(mail.TypeTextPlain, m.Text)
	case m.Text == "":
		msg.SetBodyString(mail.TypeTextHTML, m.HTML)
	default:
		msg.SetBodyString(mail.TypeTextPlain, m.Text)
		msg.AddAlternativeString(mail.TypeTextHTML, m.HTML)
	}
	var b bytes.Buffer
	if err == nil {
		_, err = msg.WriteTo(&b)
	}
	if err != nil {
		return nil, state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}
	}
	return &letter{from: from, to: to, bytes: b.Bytes()}, state.Outcome{}
}

// messageID is the key's digest at the sender's domain. The key itself may name a person.
func messageID(key, from string) string {
	digest := sha256.Sum256([]byte(key))
	id := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(digest[:])
	return strings.ToLower(id) + from[strings.LastIndexByte(from, '@'):]
}

// boundary depends on what it separates, so that nobody who knows the key can put it into the content.
func boundary(m email.Mail) string {
	digest := sha256.New()
	for _, part := range []string{m.IdempotencyKey, m.Text, m.HTML} {
		digest.Write([]byte(part))
		digest.Write([]byte{0})
	}
	return hex.EncodeToString(digest.Sum(nil)[:20])
}

// path is an address as MAIL and RCPT take it.
func path(a *netmail.Address) string { return (&netmail.Address{Address: a.Address}).String() }

func ascii(a *netmail.Address) bool {
	return !strings.ContainsFunc(a.Address, func(r rune) bool { return r > '~' })
}

package smtp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"mime"
	"mime/multipart"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
)

const codeBadSender = "remitente_invalido"

// letter is a mail ready for the wire.
type letter struct {
	from    *netmail.Address
	to      []*netmail.Address // the message's own, and those that get copies
	replyTo *netmail.Address   // nil: there is none
	bytes   []byte
}

// compose writes the mail, the same bytes for the same mail. It does so before any connection is made: a mail that
// breaks off halfway must never reach a server. Tags have no place in it.
func compose(m email.Mail) (*letter, state.Outcome) {
	from, err := netmail.ParseAddress(m.From)
	if err != nil {
		return nil, state.Outcome{Category: state.CategoryRejected, Code: codeBadSender, Account: true}
	}
	var to []*netmail.Address
	for _, address := range slices.Concat([]string{m.To}, m.CC, m.BCC) {
		a, err := netmail.ParseAddress(address)
		if err != nil {
			return nil, state.Outcome{Category: state.CategoryNumber, Code: email.CodeBadAddress}
		}
		to = append(to, a)
	}
	l := &letter{from: from, to: to}
	if m.IdempotencyKey == "" { // every such mail would have the same Message-ID
		return nil, state.Outcome{Category: state.CategoryRejected, Code: state.CodeBadKey}
	}

	msg := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithBoundary(boundary(m)))
	err = msg.From(from.String())
	if err == nil {
		err = msg.To(to[0].String())
	}
	if err == nil && len(m.CC) > 0 {
		err = msg.Cc(m.CC...)
	}
	if err == nil && m.ReplyTo != "" {
		if l.replyTo, err = netmail.ParseAddress(m.ReplyTo); err == nil {
			err = msg.ReplyTo(l.replyTo.String())
		}
	}
	for name, value := range m.Headers { // written in the order of their names
		msg.SetGenHeader(mail.Header(textproto.CanonicalMIMEHeaderKey(name)), value)
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
	l.bytes = b.Bytes()
	if err == nil && len(m.Attachments) > 0 {
		l.bytes, err = attach(l.bytes, m)
	}
	if err != nil {
		return nil, state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}
	}
	return l, state.Outcome{}
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

// attach makes a mail the first part of one with attachments. The library would give both levels of parts one boundary, or
// boundaries of chance.
func attach(plain []byte, m email.Mail) ([]byte, error) {
	head, body, _ := bytes.Cut(plain, []byte("\r\n\r\n"))
	var b bytes.Buffer
	content := textproto.MIMEHeader{}
	for _, field := range headerFields(head) {
		if name, value, _ := strings.Cut(field, ": "); strings.HasPrefix(name, "Content-") {
			content.Set(name, value)
		} else {
			b.WriteString(field + "\r\n")
		}
	}
	digest := sha256.Sum256([]byte("mixed " + boundary(m)))
	outer := hex.EncodeToString(digest[:20])
	b.WriteString("Content-Type: multipart/mixed;\r\n boundary=" + outer + "\r\n\r\n")

	parts := multipart.NewWriter(&b)
	err := parts.SetBoundary(outer)
	write := func(header textproto.MIMEHeader, body []byte) {
		part, e := parts.CreatePart(header)
		if err = errors.Join(err, e); err == nil {
			_, err = part.Write(body)
		}
	}
	write(content, body)
	for _, a := range m.Attachments {
		write(textproto.MIMEHeader{
			"Content-Type":              {cmp.Or(a.Type, "application/octet-stream")},
			"Content-Disposition":       {mime.FormatMediaType("attachment", map[string]string{"filename": a.Name})},
			"Content-Transfer-Encoding": {"base64"},
		}, base64Lines(a.Content))
	}
	err = errors.Join(err, parts.Close())
	return b.Bytes(), err
}

// headerFields are the fields of a head, each with the lines that it goes on in.
func headerFields(head []byte) (fields []string) {
	for line := range strings.SplitSeq(string(head), "\r\n") {
		if strings.HasPrefix(line, " ") && len(fields) > 0 {
			fields[len(fields)-1] += "\r\n" + line
			continue
		}
		fields = append(fields, line)
	}
	return fields
}

// base64Lines has lines of 76 characters.
func base64Lines(content []byte) []byte {
	var b bytes.Buffer
	for line := range slices.Chunk(content, 57) {
		b.WriteString(base64.StdEncoding.EncodeToString(line) + "\r\n")
	}
	return b.Bytes()
}

// path is an address as MAIL and RCPT take it.
func path(a *netmail.Address) string { return (&netmail.Address{Address: a.Address}).String() }

func ascii(a *netmail.Address) bool {
	return a == nil || !strings.ContainsFunc(a.Address, func(r rune) bool { return r > '~' })
}

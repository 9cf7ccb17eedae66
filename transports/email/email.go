// Package email carries messages of the channel correo: it renders a message's data and hands the mail to a [Sender].
//
// It promises one call to the sender per attempt, under the message's idempotency key, and the same bytes at every
// attempt as long as the [Renderer] gives the same content for the same message; [Templates] does. A message that
// cannot become a mail (an address that is none, a template that fails, no subject, no body) is refused for good
// without any call.
//
// It does not retry, keeps nothing, and does not know whether a mail arrives: an accepted mail has been accepted by the
// provider. Senders live in packages of their own; a function will do too, see [SenderFunc].
package email

import (
	"context"
	"log/slog"
	netmail "net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

// Channel is the delivery channel that a message for this transport names.
const Channel = "correo"

// CodeBadAddress is the code, with category numero, of a destination that is not exactly one bare address.
const CodeBadAddress = "direccion_invalida"

// Config says who sends, through what, and how a message becomes a mail. All fields are required.
type Config struct {
	// From is the sender's address, with a display name or without: "Mi Club <hola@club.example>".
	From string

	// Sender hands a mail to a provider.
	Sender Sender

	// Render turns a message into subject and body: [Templates], or a function as [RenderFunc].
	Render Renderer
}

// Content is a rendered message. The subject is one line; at least one of the bodies is not blank. Like [Mail] it prints and
// logs as a fixed word.
type Content struct {
	Subject string
	HTML    string
	Text    string
}

// String returns a fixed word.
func (Content) String() string { return redacted }

// GoString keeps %#v from printing personal data.
func (Content) GoString() string { return redacted }

// LogValue keeps log/slog from printing personal data.
func (Content) LogValue() slog.Value { return slog.StringValue(redacted) }

// Renderer turns a message into content. It is called at every attempt, by many goroutines at once, and must give the
// same content for the same message each time: no clock, no chance, no data that may have changed. Providers refuse a
// repeated key under which the content differs.
//
// An error discards the message, since the same message would fail again; wrap one that may pass (a database out of
// reach) with [state.Transient], and the attempt is retried. A panic counts as an error. Neither is logged here: a
// Renderer that wraps another can do it. ctx ends at the attempt's timeout; a Render that outlives it is left behind.
type Renderer interface {
	Render(ctx context.Context, m transports.Message) (Content, error)
}

// RenderFunc adapts a function to a Renderer.
type RenderFunc func(ctx context.Context, m transports.Message) (Content, error)

// Render calls f.
func (f RenderFunc) Render(ctx context.Context, m transports.Message) (Content, error) {
	return f(ctx, m)
}

// Transport is the [transports.Transport] of the channel correo. It is safe for concurrent use.
type Transport struct {
	from   string
	sender Sender
	render Renderer
}

// New returns a Transport. A missing field, or a From that is not one mail address, is a [state.InvalidError] that
// names it; files that [Templates] could not use are a [TemplateError]. An error of the sender's own Validate is passed on.
func New(c Config) (*Transport, error) {
	if _, err := netmail.ParseAddress(c.From); err != nil || strings.ContainsFunc(c.From, unicode.IsControl) {
		return nil, &state.InvalidError{Field: "From", Reason: "is not a mail address"}
	}
	if f, ok := c.Sender.(SenderFunc); c.Sender == nil || ok && f == nil {
		return nil, &state.InvalidError{Field: "Sender", Reason: "is not set"}
	}
	if err := adapter.Validate(c.Sender); err != nil {
		return nil, err
	}
	switch r := c.Render.(type) {
	case nil:
		return nil, &state.InvalidError{Field: "Render", Reason: "is not set"}
	case RenderFunc:
		if r == nil {
			return nil, &state.InvalidError{Field: "Render", Reason: "is not set"}
		}
	case *templates:
		if r.err != nil {
			return nil, r.err
		}
	}
	return &Transport{from: c.From, sender: c.Sender, render: c.Render}, nil
}

// Send renders m and makes one call to the sender, whose outcome it passes on; a failure without a code gets its
// category as the code. Without any call it answers:
//
//   - numero/direccion_invalida: the destination is not exactly one bare address (blanks around it are dropped; a
//     display name, angle brackets, a list or a quoted local part are refused)
//   - plantilla/render: rendering failed, or gave a subject that is blank or not one printable line, or no body
//   - red/render: rendering failed with an error marked with [state.Transient]
//   - red/timeout: ctx ended before the sender was called
//
// All of these are charged attempts. A panic of the sender is not caught: it is the worker that knows what to do.
func (t *Transport) Send(ctx context.Context, m transports.Message) state.Outcome {
	to, ok := bareAddress(m.Destination)
	if !ok {
		return state.Outcome{Category: state.CategoryNumber, Code: CodeBadAddress}
	}
	content, refused, ok := adapter.Render(ctx, func(ctx context.Context) (Content, error) {
		return t.render.Render(ctx, m)
	})
	if !ok {
		return refused
	}
	if !content.usable() {
		return state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}
	}
	return adapter.Named(t.sender.Send(ctx, Mail{
		From:           t.from,
		To:             to,
		Subject:        content.Subject,
		HTML:           content.HTML,
		Text:           content.Text,
		IdempotencyKey: m.IdempotencyKey,
		Date:           m.CreatedAt,
	}))
}

// bareAddress accepts what a parser reads as one address and that is nothing but this address, so that it can stand
// alone in a header, in an envelope or in JSON.
func bareAddress(destination string) (string, bool) {
	bare := strings.Trim(destination, " \t")
	parsed, err := netmail.ParseAddress(bare)
	return bare, err == nil && parsed.Address == bare && !strings.ContainsFunc(bare, unicode.IsControl)
}

// usable reports whether c makes a mail. A control character in a subject could begin another header.
func (c Content) usable() bool {
	for _, s := range []string{c.Subject, c.HTML, c.Text} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return strings.TrimSpace(c.Subject) != "" && !strings.ContainsFunc(c.Subject, unicode.IsControl) &&
		strings.TrimSpace(c.HTML+c.Text) != ""
}

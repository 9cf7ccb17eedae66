package email_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
)

func goodExtras() email.Extras {
	return email.Extras{
		ReplyTo:     "Atención <atencion@club.example>",
		CC:          []string{"eva@casa.example"},
		BCC:         []string{"archivo@club.example"},
		Headers:     map[string]string{"List-Unsubscribe": "<https://club.example/baja>", "x-club": "Ñandú"},
		Tags:        map[string]string{"tipo": "aviso_1"},
		Attachments: []email.Attachment{{Name: "factura ñ.pdf", Type: "application/pdf", Content: []byte("%PDF")}},
	}
}

func sendWith(t *testing.T, x email.Extras) (*probe, state.Outcome) {
	t.Helper()
	p := &probe{outcome: state.Outcome{OK: true}}
	c := testContent
	c.Extras = x
	return p, newTransport(t, p, renders(c, nil)).Send(t.Context(), testMessage)
}

func TestExtras(t *testing.T) {
	if p, got := sendWith(t, goodExtras()); !got.OK || !reflect.DeepEqual(p.mail.Extras, goodExtras()) {
		t.Errorf("%+v", got)
	}
	many := strings.Split(strings.Repeat("a@casa.example ", email.MaxRecipients-1), " ")
	for name, edit := range map[string]func(*email.Extras){
		"as many copies as may be": func(x *email.Extras) { x.CC, x.BCC = many[:20], many[20:email.MaxRecipients-1] },
		"a long header":            func(x *email.Extras) { x.Headers["X-A"] = strings.Repeat("a", 900) },
		"a type with parameters":   func(x *email.Extras) { x.Attachments[0].Type = "text/calendar; method=REQUEST" },
		"no type":                  func(x *email.Extras) { x.Attachments[0].Type = "" },
	} {
		x := goodExtras()
		edit(&x)
		if _, got := sendWith(t, x); !got.OK {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Nothing that a renderer gives can add a header or a recipient, or take the place of one that is written anyway.
func TestExtrasRefusedUncalled(t *testing.T) {
	many := strings.Split(strings.TrimSpace(strings.Repeat("a@casa.example ", email.MaxRecipients)), " ")
	bad := map[string]func(*email.Extras){
		"reply to nobody":          func(x *email.Extras) { x.ReplyTo = "canario" },
		"reply to two":             func(x *email.Extras) { x.ReplyTo = "a@b.example, c@b.example" },
		"reply with a line break":  func(x *email.Extras) { x.ReplyTo = "a@b.example\r\nBcc: c@b.example" },
		"a copy to nobody":         func(x *email.Extras) { x.CC = []string{"canario"} },
		"a copy with a name":       func(x *email.Extras) { x.BCC = []string{"Ana <a@b.example>"} },
		"a copy with a line break": func(x *email.Extras) { x.CC = []string{"a@b.example\r\nRCPT TO:<c@b.example>"} },
		"a copy with blanks":       func(x *email.Extras) { x.CC = []string{" a@b.example"} },
		"too many copies":          func(x *email.Extras) { x.CC, x.BCC = many[:25], many[25:] },
		"a name with a colon":      func(x *email.Extras) { x.Headers["X-A: b\r\nBcc"] = "c" },
		"a name with a blank":      func(x *email.Extras) { x.Headers["X A"] = "c" },
		"a name beyond ASCII":      func(x *email.Extras) { x.Headers["X-Ñ"] = "c" },
		"no name":                  func(x *email.Extras) { x.Headers[""] = "c" },
		"a long name":              func(x *email.Extras) { x.Headers["X"+strings.Repeat("a", 64)] = "c" },
		"one header twice":         func(x *email.Extras) { x.Headers["X-CLUB"] = "c" },
		"a value of two lines":     func(x *email.Extras) { x.Headers["X-A"] = "a\r\n b" },
		"a value with a NUL":       func(x *email.Extras) { x.Headers["X-A"] = "a\x00" },
		"a value that is no text":  func(x *email.Extras) { x.Headers["X-A"] = "\xff" },
		"a blank value":            func(x *email.Extras) { x.Headers["X-A"] = " " },
		"a value with blanks":      func(x *email.Extras) { x.Headers["X-A"] = "a " },
		"a long value":             func(x *email.Extras) { x.Headers["X-A"] = strings.Repeat("a", 901) },
		"a tag with a blank":       func(x *email.Extras) { x.Tags["a b"] = "c" },
		"a tag beyond ASCII":       func(x *email.Extras) { x.Tags["a"] = "ñ" },
		"an empty tag":             func(x *email.Extras) { x.Tags["a"] = "" },
		"a long tag":               func(x *email.Extras) { x.Tags["a"] = strings.Repeat("a", 257) },
		"no file name":             func(x *email.Extras) { x.Attachments[0].Name = " " },
		"a path":                   func(x *email.Extras) { x.Attachments[0].Name = "../a" },
		"a path of Windows":        func(x *email.Extras) { x.Attachments[0].Name = `..\a` },
		"a file name of two lines": func(x *email.Extras) { x.Attachments[0].Name = "a\r\nb" },
		"a long file name":         func(x *email.Extras) { x.Attachments[0].Name = strings.Repeat("a", 256) },
		"an empty file":            func(x *email.Extras) { x.Attachments[0].Content = nil },
		"no media type":            func(x *email.Extras) { x.Attachments[0].Type = "pdf" },
		"half a media type":        func(x *email.Extras) { x.Attachments[0].Type = "a/b; c" },
		"a type of two lines":      func(x *email.Extras) { x.Attachments[0].Type = "a/b;\r\n c=d" },
		"a type that has parts":    func(x *email.Extras) { x.Attachments[0].Type = "multipart/mixed; boundary=x" },
	}
	for _, name := range []string{
		"From", "sender", "TO", "Cc", "bcc", "Reply-To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "content-transfer-encoding",
		"Return-Path", "Received", "Delivered-To", "DKIM-Signature", "ARC-Seal", "Resent-To", "Resend-Idempotency-Key", "Idempotency-Key",
	} {
		bad["the header "+name] = func(x *email.Extras) { x.Headers[name] = "a@b.example" }
	}
	for name, edit := range bad {
		x := goodExtras()
		edit(&x)
		if p, got := sendWith(t, x); got != (state.Outcome{Category: "plantilla", Code: "render"}) || p.calls > 0 {
			t.Errorf("%s: %+v after %d calls", name, got, p.calls)
		}
	}
}

func TestExtrasPrintNothing(t *testing.T) {
	x := email.Extras{
		ReplyTo: "canario", CC: []string{"canario"}, Headers: map[string]string{"canario": "canario"},
		Attachments: []email.Attachment{{Name: "canario", Content: []byte("canario")}},
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("", "extras", x, "file", x.Attachments[0])
	_, _ = fmt.Fprintf(&b, "%v %+v %#v %v %+v %#v", x, x, x, x.Attachments, x.Attachments, x.Attachments)
	if strings.Contains(b.String(), "canario") {
		t.Error(b.String())
	}
}

package smtp

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	server "github.com/emersion/go-smtp"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
)

func extraMail() email.Mail {
	m := testMail
	m.Extras = email.Extras{
		ReplyTo: "Atención Ñ <atencion@club.example>",
		CC:      []string{"canario-copia@casa.example", "otra@casa.example"},
		BCC:     []string{"canario-oculta@casa.example"},
		Headers: map[string]string{"list-unsubscribe": "<https://club.example/baja?c=1>", "X-Club": "Ñandú " + strings.Repeat("ñ", 300)},
		Tags:    map[string]string{"tipo": "canario-etiqueta"},
		Attachments: []email.Attachment{
			{Name: `factura "ñ".pdf`, Type: "application/pdf", Content: bytes.Repeat([]byte("%PDF\x00\r\n.\r\n--"), 1000)},
			{Name: "turno.ics", Type: "text/calendar; method=REQUEST", Content: []byte("BEGIN:VCALENDAR")},
			{Name: "x", Content: []byte{0}},
		},
	}
	return m
}

// What a mail has beside subject and bodies arrives, to each recipient's mailbox and no header that tells of the hidden one;
// and in the same bytes at every attempt.
func TestExtras(t *testing.T) {
	r := &relay{}
	s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
	for range 3 {
		check(t, send(t, t.Context(), s, extraMail()), state.Outcome{OK: true})
	}
	mails := r.received()
	if len(mails) != 3 || mails[0] != mails[1] || mails[0] != mails[2] {
		t.Fatalf("the attempts differ:\n%q", mails)
	}
	if want := []string{canaryTo, "canario-copia@casa.example", "otra@casa.example", "canario-oculta@casa.example"}; !slices.Equal(r.rcpts[:4], want) {
		t.Errorf("it went to %q", r.rcpts[:4])
	}
	if strings.Contains(mails[0], "oculta") || strings.Contains(mails[0], "etiqueta") {
		t.Errorf("it tells too much:\n%s", mails[0])
	}
	got, err := netmail.ReadMessage(strings.NewReader(mails[0]))
	if err != nil {
		t.Fatal(err)
	}
	header := func(name string) string {
		text, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get(name))
		if err != nil || len(got.Header[textproto.CanonicalMIMEHeaderKey(name)]) != 1 {
			t.Errorf("%s: %q, %v", name, got.Header[name], err)
		}
		return text
	}
	for name, want := range map[string]string{
		"Cc": "<canario-copia@casa.example>, <otra@casa.example>", "List-Unsubscribe": "<https://club.example/baja?c=1>",
		"X-Club": "Ñandú " + strings.Repeat("ñ", 300), "Mime-Version": "1.0", "To": "<" + canaryTo + ">",
	} {
		if have := header(name); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
	if list, err := got.Header.AddressList("Reply-To"); err != nil || len(list) != 1 || list[0].Name != "Atención Ñ" || list[0].Address != "atencion@club.example" {
		t.Errorf("reply to %v, %v", list, err)
	}

	parts := readParts(t, got.Header.Get("Content-Type"), got.Body, "multipart/mixed")
	if len(parts) != 4 {
		t.Fatalf("%d parts", len(parts))
	}
	if bodies := readParts(t, parts[0].header.Get("Content-Type"), bytes.NewReader(parts[0].body), "multipart/alternative"); len(bodies) != 2 {
		t.Errorf("%d bodies", len(bodies))
	}
	for i, a := range extraMail().Attachments {
		part := parts[i+1]
		content, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(part.body)))
		if kind := part.header.Get("Content-Type"); err != nil || !bytes.Equal(content, a.Content) || part.name != a.Name ||
			kind != a.Type && (a.Type != "" || kind != "application/octet-stream") {
			t.Errorf("attachment %d: %q, %q, %d bytes, %v", i, part.name, kind, len(content), err)
		}
	}
}

type part struct {
	header textproto.MIMEHeader
	name   string
	body   []byte
}

func readParts(t *testing.T, contentType string, body io.Reader, want string) (all []part) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != want {
		t.Fatalf("%s, %v", contentType, err)
	}
	parts := multipart.NewReader(body, params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part{p.Header, p.FileName(), b})
	}
}

// An attachment joins a single body as it joins two.
func TestAttachmentToOneBody(t *testing.T) {
	m := extraMail()
	m.HTML = ""
	l, refused := compose(m)
	if l == nil {
		t.Fatal(refused)
	}
	got, err := netmail.ReadMessage(bytes.NewReader(l.bytes))
	if err != nil {
		t.Fatal(err)
	}
	if parts := readParts(t, got.Header.Get("Content-Type"), got.Body, "multipart/mixed"); len(parts) != 4 ||
		parts[0].header.Get("Content-Type") != "text/plain; charset=UTF-8" || parts[0].header.Get("Content-Transfer-Encoding") != "quoted-printable" {
		t.Errorf("%+v", parts[0].header)
	}
}

// A message is one: where a recipient of a copy is refused, it goes to nobody.
func TestOneRecipientRefused(t *testing.T) {
	n := 0
	r := &relay{}
	r.rcpt = func(net.Conn) error {
		if n++; n < 3 {
			return nil
		}
		return &server.SMTPError{Code: 550, EnhancedCode: server.EnhancedCode{5, 1, 1}, Message: "no such user " + canaryTo}
	}
	s := newSender(t, Config{Port: r.start(t), Security: InsecurePlaintext})
	check(t, send(t, t.Context(), s, extraMail()), refused(state.CategoryNumber, "smtp_550_5.1.1"))
	if len(r.received()) > 0 {
		t.Error("a mail left")
	}
	for _, m := range []email.Mail{
		{From: "a@b.example", To: "a@b.example", IdempotencyKey: "k", Extras: email.Extras{CC: []string{"a"}}},
		{From: "a@b.example", To: "a@b.example", IdempotencyKey: "k", Extras: email.Extras{BCC: []string{"a@b.example>\r\nRCPT TO:<c@b.example"}}},
	} {
		check(t, send(t, t.Context(), s, m), refused(state.CategoryNumber, email.CodeBadAddress))
	}
}

// Whatever extras pass the transport, they add the headers that they name and no other, no line is too long or ends in half a
// CRLF, and the attachment arrives as it was.
func FuzzExtras(f *testing.F) {
	f.Add("Ana <a@b.example>", "c@b.example", "List-Unsubscribe", "<https://b.example>", "a.pdf", "application/pdf", []byte("%PDF"))
	f.Add("a@b.example\r\nBcc: c@b.example", "c@b.example\r\nDATA", "X: y\r\nBcc", "a\r\nBcc: b", "a\"\r\nX: y", "text/plain\r\nX: y", []byte("\r\n.\r\n"))
	f.Add("", "", "bcc", "c@b.example", "../a", "multipart/mixed; boundary=x", []byte("--x--"))
	f.Add("", "", "X-A", strings.Repeat("a", 900), strings.Repeat("ñ", 127), "a/b; c=\"d\\\"\"", []byte{0})
	f.Add("", "", "X-A", "=?utf-8?q?=0D=0A?="+strings.Repeat(" ñ", 200), "a  b", "", []byte("--"))
	f.Fuzz(func(t *testing.T, replyTo, cc, name, value, file, kind string, content []byte) {
		x := email.Extras{
			ReplyTo: replyTo, Headers: map[string]string{name: value}, Attachments: []email.Attachment{{Name: file, Type: kind, Content: content}},
		}
		if cc != "" {
			x.CC = []string{cc}
		}
		var passed *email.Mail
		tr, err := email.New(email.Config{
			From: "a@b.example", Render: email.RenderFunc(func(context.Context, transports.Message) (email.Content, error) {
				return email.Content{Subject: "s", Text: "t", HTML: "h", Extras: x}, nil
			}),
			Sender: email.SenderFunc(func(_ context.Context, m email.Mail) state.Outcome {
				passed = &m
				return state.Outcome{OK: true}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if o := tr.Send(t.Context(), transports.Message{Destination: "b@b.example", IdempotencyKey: "k"}); !o.OK {
			if o != (state.Outcome{Category: state.CategoryTemplate, Code: state.CodeRender}) || passed != nil {
				t.Errorf("%v", o)
			}
			return
		}
		l, refused := compose(*passed)
		if l == nil {
			t.Fatalf("%v of what was let through", refused)
		}
		for line := range bytes.SplitSeq(l.bytes, []byte("\r\n")) {
			if bytes.ContainsAny(line, "\r\n") || len(line) > 998 {
				t.Errorf("line %q", line)
			}
		}
		got, err := netmail.ReadMessage(bytes.NewReader(l.bytes))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To", textproto.CanonicalMIMEHeaderKey(name)}
		if cc != "" {
			want = append(want, "Cc")
		}
		if replyTo != "" {
			want = append(want, "Reply-To")
		}
		slices.Sort(want)
		var have []string
		for name, values := range got.Header {
			have = append(have, name)
			if len(values) != 1 {
				t.Errorf("%s %d times", name, len(values))
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			t.Errorf("headers %q, want %q", have, want)
		}
		text, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get(name))
		if plain, _ := new(mime.WordDecoder).DecodeHeader(value); err == nil && text != plain && text != value {
			t.Errorf("%q arrives as %q", value, text)
		}
		parts := readParts(t, got.Header.Get("Content-Type"), got.Body, "multipart/mixed")
		if len(parts) != 2 {
			t.Fatalf("%d parts", len(parts))
		}
		arrived, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(parts[1].body)))
		if err != nil || !bytes.Equal(arrived, content) {
			t.Errorf("%d bytes arrive of %d, %v", len(arrived), len(content), err)
		}
	})
}

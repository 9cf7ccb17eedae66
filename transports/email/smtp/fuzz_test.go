package smtp

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/email"
)

// Whatever a mail holds, it goes out with the headers that we write and no other, each once, on lines that end in CRLF and
// nowhere else, so that no server can see a second mail in it; and its texts arrive as they were.
func FuzzMail(f *testing.F) {
	f.Add("Club <hola@club.example>", "ana@casa.example", "Hola", "<p>a</p>", "a", "club:k", int64(0))
	f.Add("a@b.example\r\nBcc: c@b.example", "a@b.example>\r\nRCPT TO:<c@b.example", "a\r\nBcc: c@b.example\r\n\r\nx", "a\r.\r\nMAIL FROM:<>", "\n.\n", "k\r\nX: y", int64(1))
	f.Add("=?utf-8?q?=0D=0ABcc:_c?= <a@b.example>", "\"a b\"@b.example", "=?utf-8?q?=0D=0A?=", "", "--\r\n--", "ñ", int64(-1))
	f.Add("Ñandú <ñ@club.example>", "ñ@casa.example", strings.Repeat("ñ", 500), strings.Repeat("x", 2000), "\xff\x00", " ", int64(1<<40))
	f.Add("\"a\\\"b\\\\\" <a@b.example>", "a@[127.0.0.1]", "\u2028\u0085", "\r", "\n", "k", int64(1<<33))
	f.Fuzz(func(t *testing.T, from, to, subject, html, text, key string, date int64) {
		m := email.Mail{From: from, To: to, Subject: subject, HTML: html, Text: text, IdempotencyKey: key, Date: time.Unix(date%(1<<37), 0)}
		l, refused := compose(m)
		if l == nil {
			if refused.OK || refused.Code == "" || state.Classify(refused) != state.ClassPermanent {
				t.Errorf("refused as %v", refused)
			}
			return
		}
		if again, _ := compose(m); again == nil || !bytes.Equal(again.bytes, l.bytes) {
			t.Error("the same mail gives other bytes")
		}
		for _, address := range []*netmail.Address{l.from, l.to} {
			if p := path(address); strings.ContainsAny(p, "\r\n\x00") || !strings.HasPrefix(p, "<") || !strings.HasSuffix(p, ">") {
				t.Errorf("a command with %q", p)
			}
		}
		head, body, found := bytes.Cut(l.bytes, []byte("\r\n\r\n"))
		if !found {
			t.Fatalf("no end of the headers: %q", l.bytes)
		}
		names := map[string]int{}
		for line := range bytes.SplitSeq(head, []byte("\r\n")) {
			if bytes.ContainsAny(line, "\r\n\x00") || len(line) > 998 {
				t.Errorf("line %q", line)
			}
			if !bytes.HasPrefix(line, []byte(" ")) && !bytes.HasPrefix(line, []byte("\t")) {
				name, _, _ := bytes.Cut(line, []byte(":"))
				names[textproto.CanonicalMIMEHeaderKey(string(name))]++
			}
		}
		want := map[string]int{"Date": 1, "From": 1, "To": 1, "Subject": 1, "Message-Id": 1, "Mime-Version": 1, "Content-Type": 1, "Content-Transfer-Encoding": 1}
		if multi := html != "" && text != ""; multi {
			delete(want, "Content-Transfer-Encoding")
		}
		if !maps.Equal(names, want) {
			t.Fatalf("headers %v, want %v:\n%s", names, want, head)
		}
		if rest := bytes.ReplaceAll(body, []byte("\r\n"), nil); bytes.ContainsAny(rest, "\r\n") {
			t.Errorf("a line ends in half a CRLF: %q", body)
		}
		read, err := netmail.ReadMessage(bytes.NewReader(l.bytes))
		if err != nil {
			t.Fatal(err)
		}
		if list, err := read.Header.AddressList("To"); err != nil || len(list) != 1 || list[0].Address != l.to.Address {
			t.Errorf("to %v, %v", list, err)
		}
		if list, err := read.Header.AddressList("From"); err != nil || len(list) != 1 || list[0].Address != l.from.Address {
			t.Errorf("from %v, %v", list, err)
		}
		var got []string
		decode := func(r io.Reader) {
			text, err := io.ReadAll(quotedprintable.NewReader(r))
			if err != nil {
				t.Error(err)
			}
			got = append(got, lines(string(text)))
		}
		kind, params, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
		switch {
		case err != nil:
			t.Fatal(err)
		case kind == "multipart/alternative":
			parts := multipart.NewReader(read.Body, params["boundary"])
			for part, err := parts.NextRawPart(); err != io.EOF; part, err = parts.NextRawPart() {
				if err != nil {
					t.Fatal(err)
				}
				decode(part)
			}
		default:
			decode(read.Body)
		}
		bodies := slices.DeleteFunc([]string{text, html}, func(s string) bool { return s == "" })
		if len(bodies) == 0 {
			bodies = []string{""}
		}
		for i := range bodies {
			bodies[i] = lines(bodies[i])
		}
		if !slices.Equal(got, bodies) {
			t.Errorf("%q arrives as %q", bodies, got)
		}
	})
}

// lines drops how lines end, which a mail does not keep.
func lines(s string) string {
	return strings.TrimRight(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n")
}

var replyCode = regexp.MustCompile(`^(smtp_\d{3}(_[245]\.\d{1,3}\.\d{1,3})?|respuesta_invalida)$`)

// Whatever a server answers, in whatever phase, what is kept of it is a code and perhaps a queue id, and neither an address
// nor a sentence.
func FuzzReply(f *testing.F) {
	f.Add(uint8(recipient), 550, "5.1.1 <ana@casa.example>: no such user")
	f.Add(uint8(dot), 250, "2.0.0 Ok: queued as 4WxYz01aBc")
	f.Add(uint8(dot), 250, "OK id=ana7@casa.example")
	f.Add(uint8(authenticating), 535, "5.7.8 bad password: secreto1")
	f.Add(uint8(greeting), -1, "5.999999.1\x00\xff")
	f.Add(uint8(200), 1<<40, "4.7.28")
	f.Fuzz(func(t *testing.T, in uint8, code int, text string) {
		p := phase(in % uint8(dot+1))
		o := p.outcome(&textproto.Error{Code: code, Msg: text})
		if o.OK || o.ExternalID != "" || o.NotCalled && (p >= sender || o.Ambiguous) || o.Ambiguous && p != dot {
			t.Errorf("%v in phase %d", o, p)
		}
		if code >= 100 && code <= 999 && !replyCode.MatchString(o.Code) {
			t.Errorf("code %q", o.Code)
		}
		r := state.Row{State: state.Processing, Attempts: 1, MaxAttempts: 9}
		if kept, err := state.Resolve(r, 0, o, state.DefaultPolicy()); err != nil || kept.Category != o.Category || !strings.HasSuffix(kept.Code, o.Code) {
			t.Errorf("%v is kept as %v, %v", o, kept, err)
		}
		id := queueID(text)
		if len(id) > 128 || strings.ContainsAny(id, "@<> ,;") || !utf8.ValidString(id) || !strings.Contains(text, id) {
			t.Errorf("queue id %q", id)
		}
		if kept, err := state.Resolve(r, 0, state.Outcome{OK: true, ExternalID: id}, state.DefaultPolicy()); err != nil || kept.ExternalID != id {
			t.Errorf("queue id %q is kept as %q, %v", id, fmt.Sprint(kept.ExternalID), err)
		}
	})
}

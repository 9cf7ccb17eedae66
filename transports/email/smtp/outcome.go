package smtp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/adapter"
)

// phase is how far a conversation got. The order counts: before sender the server has seen nothing of the mail.
type phase uint8

const (
	dialling phase = iota
	greeting
	securing
	authenticating
	sender
	recipient
	content // DATA and the mail, up to its final dot
	dot     // the final dot may have gone out
)

// The codes of what is not a reply, beside those of [adapter.LossCode].
const (
	codeCut     = adapter.CodeCut
	codeGarbage = "respuesta_invalida"
	codeNoTLS   = "tls_no_ofrecido"
	codeNoAuth  = "auth_no_ofrecida"
	codeNoUTF8  = "smtputf8"
)

// outcome says what an error in this phase came to. Nothing of the error's text goes into it.
func (p phase) outcome(err error) state.Outcome {
	if r, ok := asReply(err); ok {
		return p.refusal(r.Code, enhancedCode(r))
	}
	switch {
	case errors.Is(err, errNoTLS):
		return state.Outcome{Category: state.CategoryCredentials, Code: codeNoTLS, Account: true}
	case errors.Is(err, errNoAuth):
		return state.Outcome{Category: state.CategoryCredentials, Code: codeNoAuth, Account: true}
	case errors.Is(err, errNoUTF8From):
		return state.Outcome{Category: state.CategoryCredentials, Code: codeNoUTF8, Account: true}
	case errors.Is(err, errNoUTF8To):
		return state.Outcome{Category: state.CategoryNumber, Code: codeNoUTF8}
	}
	return p.lost(p.lossCode(err))
}

// lost is a conversation that ended without an answer.
func (p phase) lost(code string) state.Outcome {
	return state.Outcome{Category: state.CategoryNetwork, Code: code, NotCalled: p < sender, Ambiguous: p == dot}
}

func (p phase) lossCode(err error) string {
	var netErr net.Error
	otherwise := codeGarbage
	switch {
	case p == dialling:
		otherwise = adapter.CodeConnect
	case p == securing:
		otherwise = adapter.CodeTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &netErr):
		otherwise = codeCut
	}
	return adapter.LossCode(err, otherwise)
}

// refusal is the table of replies. Enhanced codes are more exact than the three digits, so they are looked at first.
func (p phase) refusal(code int, enhanced string) state.Outcome {
	o := state.Outcome{Code: fmt.Sprintf("smtp_%d", code)}
	if enhanced != "" {
		o.Code += "_" + enhanced
	}
	switch {
	case code == 452, code/100 == 4 && (enhanced == "4.5.3" || enhanced == "4.7.28"):
		o.Category, o.NotCalled = state.CategoryRateLimit, p < sender
	case code/100 == 4:
		o.Category, o.NotCalled = state.CategoryNetwork, p < sender
	case code/100 != 5: // an answer to some other question
		return p.lost(codeGarbage)
	case p == securing, p == authenticating, slices.Contains(wantsAuth, code), slices.Contains(badSender, enhanced),
		p == sender && slices.Contains(sendersFault, code):
		o.Category, o.Account = state.CategoryCredentials, true
	case strings.HasPrefix(enhanced, "5.1."), p == recipient && slices.Contains(noMailbox, code) && !otherReason(enhanced):
		o.Category = state.CategoryNumber
	default:
		o.Category, o.Account = state.CategoryRejected, p < sender
	}
	return o
}

var (
	wantsAuth    = []int{530, 534, 535, 538}
	noMailbox    = []int{521, 550, 551, 553, 556}
	sendersFault = []int{521, 550, 551, 553, 554, 556}
	badSender    = []string{"5.1.7", "5.1.8"}
)

// otherReason reports whether the recipient was refused for policy or for a full mailbox: the address is good.
func otherReason(enhanced string) bool {
	return strings.HasPrefix(enhanced, "5.7.") || enhanced == "5.2.2" || enhanced == "5.3.4"
}

func asReply(err error) (*textproto.Error, bool) {
	var r *textproto.Error
	return r, errors.As(err, &r)
}

var enhancedForm = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// enhancedCode is the status code at the head of a reply's text, unless its class contradicts the reply.
func enhancedCode(r *textproto.Error) string {
	code := enhancedForm.FindString(r.Msg)
	if code == "" || int(code[0]-'0') != r.Code/100 {
		return ""
	}
	return code
}

// The forms in which servers show a queue id. Each id is bounded, holds no '@' and must hold a digit, so that neither an
// address nor a sentence passes for one.
var queueForms = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(?:queued as|\bid=)\s*<?([a-z0-9._-]{4,128})(?:[\s>,;)]|$)`),     // Postfix, Exim, OpenSMTPD
	regexp.MustCompile(`(?i)^(?:2\.\d\.\d )?ok:?\s+<?([a-z0-9._-]{4,128})(?:[\s>,;)]|$)`),    // Amazon SES, Gmail
	regexp.MustCompile(`(?i)^(?:2\.\d\.\d )?([a-z0-9]{8,32}) message accepted for delivery`), // Sendmail
}

func queueID(reply string) string {
	for _, form := range queueForms {
		if m := form.FindStringSubmatch(reply); m != nil && strings.ContainsAny(m[1], "0123456789") {
			return m[1]
		}
	}
	return ""
}

package kapso

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// Codes of lines whose Graph code says too little to whoever reads it in the table.
const (
	CodeOptedOut        = httpsend.CodeGone         // rechazado: the recipient wants no more marketing
	CodeTemplateSyncing = "plantilla_sincronizando" // limite: the template is there in a few minutes
)

// codeBadRecipient is the line for a 100, a parameter that is wrong, whose details say that it is the recipient.
const codeBadRecipient = "100:destino"

// Waits where the provider names none.
const (
	pairWait   = time.Minute      // for one recipient
	syncWait   = 10 * time.Minute // for a template, and for an account under maintenance
	numberWait = 6 * time.Hour    // for a number that is held back
)

// What lines have in common.
var (
	token    = state.Outcome{Category: state.CategoryCredentials, Account: true}
	billing  = state.Outcome{Category: state.CategoryBilling, Account: true}
	rejected = state.Outcome{Category: state.CategoryRejected}
	number   = state.Outcome{Category: state.CategoryNumber}
	badModel = state.Outcome{Category: state.CategoryTemplate}
	limit    = state.Outcome{Category: state.CategoryRateLimit}
	doubt    = state.Outcome{Category: state.CategoryNetwork, Ambiguous: true}
)

// DefaultOutcomes returns what refusals mean, in a map of the caller's own. A key is a Graph code, as in 131047, or a
// status, as in http_402, for answers without a code, or 100:destino for a 100 whose details are about the recipient. The key
// is also the code that is stored, unless the line has another.
//
// Two lines are often worth replacing with a transient one, through [Outcomes]: 131049 (marketing that Meta held back, and
// may let through a day later) and 132015 (a template that is paused, and may come back).
func DefaultOutcomes() map[string]state.Outcome {
	t := httpsend.Statuses().With(map[string]state.Outcome{
		"0": token, "190": token, // the token is invalid or has expired
		"3": token, "10": token, "131005": token, // a permission is missing, as with 200 to 299
		"33":  token,                                                    // no such phone number id
		"368": token, "131031": token, "131037": token, "131045": token, // the account is blocked, or the name not approved
		"133000": token, "133005": token, "133006": token, "133008": token, // registration of the number
		"133009": token, "133010": token, "133015": token,

		"131042": billing, "134011": billing,

		"4": limit, "80007": limit, "130429": limit, "132069": limit,
		"131056": {Category: state.CategoryRateLimit, RetryAfter: pairWait},
		"131048": {Category: state.CategoryRateLimit, Account: true, RetryAfter: numberWait},
		"133016": {Category: state.CategoryRateLimit, Account: true, RetryAfter: numberWait},
		"134101": {Category: state.CategoryRateLimit, Code: CodeTemplateSyncing, RetryAfter: syncWait},

		"1": doubt, "2": doubt, "131000": doubt, "131016": doubt, "133004": doubt,
		"131057": {Category: state.CategoryNetwork, RetryAfter: syncWait}, // maintenance

		"131021": number, "131026": number, "131030": number,
		"131047": {Category: state.CategoryWindow},

		"132000": badModel, "132001": badModel, "132005": badModel, "132007": badModel, "132012": badModel,
		"132015": badModel, "132016": badModel, "132068": badModel, "134102": badModel,

		"100": rejected, "131008": rejected, "131009": rejected, // a parameter
		codeBadRecipient: number,
		"130497":         rejected, "131063": rejected, // the country
		"130472": rejected, "131049": rejected, // Meta keeps it from the recipient
		"131050": {Category: state.CategoryRejected, Code: CodeOptedOut},
		"131051": rejected, "131052": rejected, "131053": rejected, "131055": rejected, // the type, or its media
		"135000": rejected,
	})
	for code := 200; code < 300; code++ {
		t[strconv.Itoa(code)] = token
	}
	return t
}

// words are the last resort, for refusals of Kapso's own, which have a text and nothing else.
var words = []struct {
	all      []string
	category string
}{
	{[]string{"template"}, state.CategoryTemplate},
	{[]string{"24", "window"}, state.CategoryWindow},
	{[]string{"24", "ventana"}, state.CategoryWindow},
	{[]string{"phone"}, state.CategoryNumber},
	{[]string{"recipient"}, state.CategoryNumber},
}

// refusal looks an answer up. An answer in JSON comes from the API: where it has no code of the table, a status that says
// no more than "refused" is not believed, since nobody knows what was refused. Any other answer comes from something in
// front of the API, and its status is all there is.
func (s *Sender) refusal(a httpsend.Answer) state.Outcome {
	byStatus := s.table.Status(a)
	var answer map[string]json.RawMessage
	if json.Unmarshal(a.Body, &answer) != nil || answer == nil || byStatus.OK {
		return byStatus
	}
	code, readable := graphCode(answer["error"])
	if readable {
		if code == "100" && inWords(details(answer["error"])) == state.CategoryNumber {
			code = codeBadRecipient
		}
		if o, ok := s.table.Find(code, a); ok {
			return o
		}
		byStatus.Code = httpsend.CodeUnknown + code
	}
	if byStatus.Category != state.CategoryRejected {
		return byStatus
	}
	var text string
	if json.Unmarshal(answer["error"], &text) == nil {
		if category := inWords(text); category != "" {
			byStatus.Category = category
			return byStatus
		}
	}
	if !readable {
		byStatus.Code = fmt.Sprintf("%shttp_%d", httpsend.CodeUnknown, a.Status)
	}
	byStatus.Category, byStatus.Ambiguous = state.CategoryNetwork, a.Status >= http.StatusInternalServerError
	return byStatus
}

// graphCode reads the code of an error, which some write as a text. It has seven digits at most.
func graphCode(raw json.RawMessage) (code string, ok bool) {
	var e struct{ Code *json.Number }
	if json.Unmarshal(raw, &e) != nil || e.Code == nil {
		return "", false
	}
	n, err := strconv.ParseUint(e.Code.String(), 10, 23)
	return strconv.FormatUint(n, 10), err == nil
}

// details are Graph's words about an error that its code alone does not explain.
func details(raw json.RawMessage) string {
	var e struct {
		Data struct{ Details string } `json:"error_data"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	return e.Data.Details
}

func inWords(text string) string {
	text = strings.ToLower(text)
next:
	for _, w := range words {
		for _, word := range w.all {
			if !strings.Contains(text, word) {
				continue next
			}
		}
		return w.category
	}
	return ""
}

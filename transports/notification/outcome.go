package notification

import (
	"encoding/json"
	"strings"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/internal/httpsend"
)

// DefaultOutcomes returns what refusals mean, in a map of the caller's own. A key is a status, as in http_404, or a status
// and the machine code in the answer (see [CodeField]), as in http_422:unknown_template; the latter counts first, and there
// is none by default, since every service has codes of its own. The key is also the code that is stored, unless the line
// has another. A redirect is refused for good.
//
// What nobody has heard of is transient, counts as an attempt, and shows in the stored code: a status without a line, as in
// http_418; and a code that no line has under a status that says no more than that the job was refused (400, 422), as in
// desconocido:http_422. The service's own text is never stored. Where its codes need no telling apart, give http_400 and
// http_422 lines with a code of their own: those are taken as they are.
//
// Three lines are often worth replacing, through [Outcomes]:
//
//   - http_404, where a gateway answers so while the service is deployed: category red
//   - http_409, where it means that the service has the job already: OK
//   - a code that tells a known key with another body: rechazado, and Ambiguous, since an earlier attempt has arrived
func DefaultOutcomes() map[string]state.Outcome { return httpsend.Statuses() }

// word returns the text or number at a path of fields in a JSON body, and "" where there is none.
func word(body []byte, path string) string {
	value := json.RawMessage(body)
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return ""
		}
		value = object[name]
	}
	var text string
	var number json.Number
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &number) == nil:
		return number.String()
	}
	return ""
}

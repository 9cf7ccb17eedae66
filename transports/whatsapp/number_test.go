package whatsapp_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/recado-dev/recado/transports/whatsapp"
)

func TestNormalize(t *testing.T) {
	for _, tt := range []struct{ number, country, want string }{
		// nothing to go by
		{"", "54", ""},
		{"  \t", "54", ""},
		{"sin número", "54", ""},
		{"00", "54", ""},
		{"٠١١٢٢٣٣٤٤٥٥", "54", ""},

		// Argentina: every way to write one number
		{"1122334455", "54", "5491122334455"},
		{"11 2233-4455", "54", "5491122334455"},
		{"(011) 2233-4455", "54", "5491122334455"},
		{"011 15 2233-4455", "54", "5491122334455"},
		{"11 15 2233 4455", "54", "5491122334455"},
		{"+54 9 11 2233-4455", "54", "5491122334455"},
		{"+54 11 2233-4455", "54", "5491122334455"},
		{"+54 011 15 2233-4455", "54", "5491122334455"},
		{"54 9 011 15 2233-4455", "54", "5491122334455"},
		{"0054 9 11 2233 4455", "54", "5491122334455"},
		{"9 11 2233-4455", "54", "5491122334455"},
		{"tel. 11.2233.4455 (Ana)", "54", "5491122334455"},

		// area codes of three and four digits
		{"0351 15 234-5678", "54", "5493512345678"},
		{"351 2345678", "54", "5493512345678"},
		{"02901 15 45-6789", "54", "5492901456789"},
		{"2901456789", "54", "5492901456789"},

		// a 15 that belongs to the number
		{"11 1515-1515", "54", "5491115151515"},
		{"11 15 1515-1515", "54", "5491115151515"},
		{"3715 15 456789", "54", "5493715456789"},
		{"3715 456789", "54", "5493715456789"},
		{"351 15 1545678", "54", "5493511545678"},

		// Argentina: nothing that could be guessed
		{"2233-4455", "54", ""},
		{"15 2233-4455", "54", ""},
		{"112233445", "54", ""},
		{"11223344556", "54", ""},
		{"11 22 33 44 55 66", "54", ""},
		{"11 15 2233 44556", "54", ""},
		{"54 54 9 11 2233 4455", "54", ""},
		{"+54 9 9 11 2233 4455", "54", ""},
		{"0 0 11 2233 4455", "54", "5491122334455"}, // a 00 that leads nowhere
		{"54 9 0 0122334455", "54", ""},
		{"+1 212 555 0100", "54", ""},

		// elsewhere
		{"+598 99 123 456", "598", "59899123456"},
		{"99 123 456", "598", "59899123456"},
		{"00598 99123456", "598", "59899123456"},
		{"+1 (212) 555-0100", "1", "12125550100"},
		{"1234567", "598", ""},
		{"12345678", "598", "59812345678"},
		{"59812345", "598", "59812345"},
		{"123456789012345", "1", "123456789012345"},
		{"1234567890123456", "1", ""},
		{"223456789012345", "1", ""}, // too long with its calling code

		// no calling code
		{"11 2233-4455", "", ""},
		{"11 2233-4455", "+54", ""},
		{"11 2233-4455", "AR", ""},
		{"11 2233-4455", "054", ""},
		{"11 2233-4455", "5491", ""},
	} {
		got, ok := whatsapp.Normalize(tt.number, tt.country)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q of %q: %q, %v, want %q", tt.number, tt.country, got, ok, tt.want)
		}
	}
}

var normalForm = regexp.MustCompile(`^[1-9][0-9]{7,14}$`)

// Whatever is typed, what comes out has the form of a number, is made of the digits that were typed, and stays as it is.
func FuzzNormalize(f *testing.F) {
	f.Add("+54 9 011 15 2233-4455", "54")
	f.Add("0351 15 234-5678", "54")
	f.Add("0000 99 123 456", "598")
	f.Add("ñ\xff12345678", "1")
	f.Fuzz(func(t *testing.T, number, country string) {
		got, ok := whatsapp.Normalize(number, country)
		if !ok {
			if got != "" {
				t.Errorf("%q of %q: %q and not ok", number, country, got)
			}
			return
		}
		if !normalForm.MatchString(got) || !strings.HasPrefix(got, country) || country == "54" && (len(got) != 13 || got[2] != '9') {
			t.Errorf("%q of %q: %q", number, country, got)
		}
		if last := got[len(got)-6:]; !strings.HasSuffix(regexp.MustCompile(`[^0-9]`).ReplaceAllString(number, ""), last) {
			t.Errorf("%q of %q ends otherwise: %q", number, country, got)
		}
		if again, ok := whatsapp.Normalize(got, country); !ok || again != got {
			t.Errorf("%q of %q: %q, and again %q, %v", number, country, got, again, ok)
		}
	})
}

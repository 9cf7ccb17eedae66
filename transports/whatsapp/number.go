package whatsapp

import (
	"regexp"
	"strings"
)

// argentina is the calling code of the country whose mobile numbers WhatsApp writes in a way of its own.
const argentina = "54"

// mobile is an Argentine number as it is dialled there: the area code, of two digits in Buenos Aires and of three or four
// elsewhere, perhaps the 15 of mobile phones, and the rest. With the 15 it has twelve digits, without it ten. No area code but
// 11 begins with anything else than a 2 or a 3, so that a 15 without one before it is not taken for one.
var mobile = regexp.MustCompile(`^(?:(11)15([0-9]{8})|([23][0-9]{2})15([0-9]{7})|([23][0-9]{3})15([0-9]{6})|(11[0-9]{8}|[23][0-9]{9}))$`)

var (
	callingCode = regexp.MustCompile(`^[1-9][0-9]{0,2}$`)
	fullNumber  = regexp.MustCompile(`^[1-9][0-9]{7,14}$`)
)

// Normalize makes a phone number that people wrote one to enqueue: digits alone, calling code included. country is the
// calling code, such as "54", of numbers without one. ok is false, and the number empty, where it cannot be told what was
// meant: the application asks the customer again, since a transport sends to the number as it is.
//
// All but digits is dropped, and a leading 00. An Argentine number loses the 0 and the 15 of calls within the country and
// gets the 9 of mobile phones: it comes out as 549 and ten digits, or not at all. Any other has 8 to 15 digits, and gets the
// calling code unless it begins with it.
//
// That a number can be written does not mean that it exists, or is on WhatsApp.
func Normalize(number, country string) (normalized string, ok bool) {
	digits := strings.TrimPrefix(strings.Map(digitsOnly, number), "00")
	if !callingCode.MatchString(country) || digits == "" {
		return "", false
	}
	if country == argentina {
		for _, prefix := range []string{argentina, "9", "0"} {
			digits = strings.TrimPrefix(digits, prefix)
		}
		parts := mobile.FindStringSubmatch(digits)
		if parts == nil {
			return "", false
		}
		return argentina + "9" + strings.Join(parts[1:], ""), true
	}
	if len(digits) < 8 {
		return "", false
	}
	if !strings.HasPrefix(digits, country) {
		digits = country + digits
	}
	if !fullNumber.MatchString(digits) {
		return "", false
	}
	return digits, true
}

func digitsOnly(r rune) rune {
	if r < '0' || r > '9' {
		return -1
	}
	return r
}

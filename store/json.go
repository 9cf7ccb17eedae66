package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// What every engine's JSON can hold: MariaDB nests to 31 levels, PostgreSQL's numbers end at 131,072 digits (and are
// written out in full, so a short exponent could make a huge value), and jsonb has no U+0000 and no half surrogate pairs.
const (
	maxDepth    = 30
	maxExponent = 1000
)

// checkJSON accepts what comes back from every engine as the value that was given. For text that encoding/json has just
// made, encoded says so: it turns broken UTF-8 into the escape \ufffd, and writes a true U+FFFD as it is.
func checkJSON(field string, raw []byte, encoded bool) error {
	if !utf8.Valid(raw) {
		return invalid(field, "is not valid UTF-8")
	}
	if !json.Valid(raw) {
		return invalid(field, "is not valid JSON")
	}
	depth := 0
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return invalid(field, "is nested deeper than 30 levels")
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		case c == '"':
			end, reason := scanString(raw, i, encoded)
			if reason != "" {
				return invalid(field, reason)
			}
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(raw) && bytes.IndexByte([]byte("0123456789+-.eE"), raw[end]) >= 0 {
				end++
			}
			if !boundedNumber(raw[i:end]) {
				return invalid(field, "has a number of more than 1000 digits")
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// scanString walks the valid JSON string that begins at raw[i]. It returns the index behind it, and what is wrong with it.
func scanString(raw []byte, i int, encoded bool) (end int, reason string) {
	high := false // the previous escape was a high surrogate
	for i++; ; {
		escape := raw[i] == '\\' && raw[i+1] == 'u'
		var unit uint64
		if escape {
			unit, _ = strconv.ParseUint(string(raw[i+2:i+6]), 16, 16) // json.Valid saw the four digits
		}
		low := escape && unit>>10 == 0xDC00>>10
		switch {
		case high != low:
			return 0, "has half a surrogate pair"
		case escape && unit == 0:
			return 0, `has a \u0000`
		case escape && encoded && unit == utf8.RuneError:
			return 0, "has a text that is not valid UTF-8"
		}
		high = escape && unit>>10 == 0xD800>>10
		switch {
		case escape:
			i += 6
		case raw[i] == '\\':
			i += 2
		case raw[i] == '"':
			return i + 1, ""
		default:
			i++
		}
	}
}

func boundedNumber(n []byte) bool {
	mantissa, exponent := n, []byte("0")
	if e := bytes.IndexAny(n, "eE"); e >= 0 {
		mantissa, exponent = n[:e], n[e+1:]
	}
	exp, err := strconv.Atoi(string(exponent))
	return err == nil && len(mantissa) <= maxExponent && exp >= -maxExponent && exp <= maxExponent
}

// sameJSON compares two texts as JSON values. A text that is not JSON equals nothing.
func sameJSON(a, b []byte) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && sameValue(x, y)
}

func decode(raw []byte) (v any, err error) {
	if !json.Valid(raw) { // a Decoder stops behind the first value
		return nil, errors.New("not JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

func sameValue(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		y, ok := y.(json.Number)
		return ok && sameNumber(x, y)
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if v, found := y[k]; !found || !sameValue(x[k], v) {
				return false
			}
		}
		return true
	}
	return x == y
}

func sameNumber(x, y json.Number) bool {
	if x == y {
		return true
	}
	// A row's number may come written out in full; only absurd ones are left uncompared.
	if len(x) > 4*maxExponent || len(y) > 4*maxExponent {
		return false
	}
	a, okA := new(big.Rat).SetString(string(x))
	b, okB := new(big.Rat).SetString(string(y))
	return okA && okB && a.Cmp(b) == 0
}

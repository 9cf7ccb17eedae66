package httpsend

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Whatever a header says, the wish is no negative one, digits are read as seconds, and nothing else but a date counts.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"", "0", "120", "-1", "+5", "1.5", " 7", "9223372036854775807", "99999999999999999999", "soon",
		"Thu, 24 Sep 2026 12:00:00 GMT", "Thursday, 24-Sep-26 12:00:00 GMT", "Thu Sep 24 12:00:00 9999", "1\r\n2", "\xff",
	} {
		f.Add(value, "", int64(0))
		f.Add(value, "Thu, 24 Sep 2026 11:00:00 GMT", int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, value, date string, now int64) {
		got := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(now, 0))
		if got < 0 {
			t.Errorf("%q: %v", value, got)
		}
		if value != "" && strings.Trim(value, "0123456789") == "" {
			if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && got != time.Duration(seconds)*time.Second {
				t.Errorf("%q: %v", value, got)
			}
			return
		}
		if _, err := http.ParseTime(value); err != nil && got != 0 {
			t.Errorf("%q: %v", value, got)
		}
	})
}

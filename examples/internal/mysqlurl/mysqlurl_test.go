package mysqlurl

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][4]string{ // address, user, password, database
		"mysql://u:c@h:3307/b":                   {"h:3307", "u", "c", "b"},
		"mysql://u@h/b?loc=America/Buenos_Aires": {"h:3306", "u", "", "b"},
		"mysql://h/b?tls=skip-verify":            {"h:3306", "", "", "b"},
		"mysql://u%3A:%40c%2F%3A%28@[::1]/b%2F1": {"[::1]:3306", "u:", "@c/:(", "b/1"},
	} {
		cfg, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [4]string{cfg.Addr, cfg.User, cfg.Passwd, cfg.DBName}; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	cfg, err := Parse("mysql://u@h/b?loc=America/Buenos_Aires&tls=true")
	if err != nil || cfg.Loc.String() != "America/Buenos_Aires" || cfg.TLS.ServerName != "h" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// Each refusal says what is wrong, and shows nothing secret.
func TestRefusals(t *testing.T) {
	const secret = "s3cr3t"
	for text, want := range map[string]string{
		"":                                     "no es una URL",
		"u:" + secret + "@tcp(h:3306)/b":       "no es una URL",
		"postgres://u:" + secret + "@h/b":      "no es una URL",
		"mysql://u:" + secret + "@%zz/b":       "no es una URL",
		"mysql://u:" + secret + "@/b":          "falta el servidor",
		"mysql://u:" + secret + "@:3306/b":     "falta el servidor",
		"mysql://u:" + secret + "@h":           "falta la base",
		"mysql://u:" + secret + "@h/":          "falta la base",
		"mysql://u@h/b?parseTime=" + secret:    "un parámetro",
		"mysql://u@h/b?serverPubKey=" + secret: "un parámetro",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), Form) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: it shows a secret", text)
		}
	}
}

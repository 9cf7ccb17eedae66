package fakes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports/whatsapp"
	"github.com/recado-dev/recado/transports/whatsapp/kapso"
)

var (
	testAccount = whatsapp.Credentials{PhoneNumberID: "1065", APIKey: "k-1"}
	testMessage = whatsapp.TemplateMessage{
		To: "+5491122334455", Template: "turno", Language: "es_AR", IdempotencyKey: "club-1:a-1", Params: []whatsapp.Param{{Value: "Ana"}, {Value: "10:00"}},
	}
)

func kapsoPair(t *testing.T, c fakes.KapsoConfig, options ...kapso.Option) (*fakes.Kapso, *kapso.Sender) {
	t.Helper()
	c.Keys = map[string]string{"1065": "k-1"}
	double := fakes.NewKapso(c)
	url, client := serve(t, double)
	all := append([]kapso.Option{kapso.BaseURL(url + "/meta/whatsapp/v24.0"), kapso.HTTPClient(client)}, options...)
	return double, kapso.New(all...)
}

func TestKapsoAccepts(t *testing.T) {
	for name, options := range map[string][]kapso.Option{"a key": nil, "a token": {kapso.Bearer()}} {
		double, sender := kapsoPair(t, fakes.KapsoConfig{Templates: map[string]int{"turno": 2}}, options...)
		got := sender.Send(t.Context(), testAccount, testMessage)
		r := double.Record()
		wantRecord(t, r, 1, 1)
		if d := r.Accepted[0]; !got.OK || got.ExternalID == "" || d.ID != got.ExternalID || d.To != testMessage.To ||
			d.Key != testMessage.IdempotencyKey || d.Text != "Ana · 10:00" {
			t.Errorf("%s: %+v, %+v", name, got, d)
		}
	}
}

func TestKapsoRefusals(t *testing.T) {
	double, sender := kapsoPair(t, fakes.KapsoConfig{
		Templates: map[string]int{"turno": 2}, Refuse: func(to string) bool { return strings.HasSuffix(to, "00") },
	})
	with := func(edit func(*whatsapp.Credentials, *whatsapp.TemplateMessage)) (whatsapp.Credentials, whatsapp.TemplateMessage) {
		c, m := testAccount, testMessage
		edit(&c, &m)
		return c, m
	}
	for code, edit := range map[string]func(*whatsapp.Credentials, *whatsapp.TemplateMessage){
		"33":       func(c *whatsapp.Credentials, _ *whatsapp.TemplateMessage) { c.PhoneNumberID = "1066" },
		"http_401": func(c *whatsapp.Credentials, _ *whatsapp.TemplateMessage) { c.APIKey = "k-2" },
		"100": func(_ *whatsapp.Credentials, m *whatsapp.TemplateMessage) {
			m.IdempotencyKey = strings.Repeat("k", 513)
		},
		"131008": func(_ *whatsapp.Credentials, m *whatsapp.TemplateMessage) { m.Language = "" },
		"132001": func(_ *whatsapp.Credentials, m *whatsapp.TemplateMessage) { m.Template = "otra" },
		"132000": func(_ *whatsapp.Credentials, m *whatsapp.TemplateMessage) { m.Params = m.Params[:1] },
		"131026": func(_ *whatsapp.Credentials, m *whatsapp.TemplateMessage) { m.To = "+5491122334400" },
	} {
		c, m := with(edit)
		if got := sender.Send(t.Context(), c, m); got.OK || got.Code != code || state.Classify(got) != state.ClassPermanent {
			t.Errorf("%s: %+v", code, got)
		}
	}
	if r := double.Record(); len(r.Accepted)+len(r.Calls) > 0 || r.Refused["+5491122334400"] != 1 {
		t.Errorf("%+v", r)
	}
	_, sender = kapsoPair(t, fakes.KapsoConfig{}, kapso.Bearer())
	c, m := with(func(c *whatsapp.Credentials, _ *whatsapp.TemplateMessage) { c.APIKey = "k-2" })
	if got := sender.Send(t.Context(), c, m); got.Code != "190" || !got.Account {
		t.Errorf("a bad token: %+v", got)
	}
}

func TestKapsoFaults(t *testing.T) {
	for fault, want := range faultCases {
		double, sender := kapsoPair(t, fakes.KapsoConfig{Faults: always(fault)})
		got := sender.Send(t.Context(), testAccount, testMessage)
		if !sameKind(got, want) || (got.RetryAfter == time.Second) != (fault == fakes.TooMany) {
			t.Errorf("%q: %+v", fault, got)
		}
		taken := 0
		if fault == "" || fault == fakes.CutAfter {
			taken = 1
		}
		wantRecord(t, double.Record(), taken, 1)
	}
}

// Without a key, each lost answer costs a copy, and nothing else does.
func TestKapsoTakesOneMoreForEachLostAnswer(t *testing.T) {
	const seed = 20260924
	t.Log("seed", seed)
	double, sender := kapsoPair(t, fakes.KapsoConfig{Faults: fakes.Seeded(seed)})
	calls := keep(t, func(n int) state.Outcome {
		m := testMessage
		m.IdempotencyKey = fmt.Sprint("club-1:", n)
		return sender.Send(t.Context(), testAccount, m)
	})
	r := double.Record()
	if len(r.Lost) == 0 {
		t.Error("no answer was lost")
	}
	wantRecord(t, r, 200+len(r.Lost), calls)
}

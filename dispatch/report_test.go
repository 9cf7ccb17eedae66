package dispatch_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/recado-dev/recado/dispatch"
)

// full is a report whose every count is another.
func full() dispatch.Report {
	r := dispatch.Report{
		LastError: "40001",
		Warnings:  []dispatch.Warning{{Code: dispatch.WarningUnserved, Channel: chat, Text: `a "text"`}},
	}
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		if v.Field(i).CanInt() {
			v.Field(i).SetInt(int64(101 + i))
		}
	}
	return r
}

func TestReportString(t *testing.T) {
	tests := []struct {
		name   string
		report dispatch.Report
		want   string
	}{
		{"nothing", dispatch.Report{}, "reclamados=0"},
		{"zeros are left out", dispatch.Report{Claimed: 3, Sent: 2, Lost: 1}, "reclamados=3 enviados=2 perdidos=1"},
		{"everything", full(), "reclamados=101 enviados=102 reintentar=103 fallidos=104 descartados=105 perdidos=106 liberados=107 " +
			"aplazados=108 errores=109 errores_reclamo=110 abandonados=111 ultimoError=40001 advertencias=1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.report.String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestReportJSON(t *testing.T) {
	const zeros = `"fallidos":0,"descartados":0,"perdidos":0,"liberados":0,"aplazados":0,`
	tests := []struct {
		name   string
		report dispatch.Report
		want   string
	}{
		{"nothing", dispatch.Report{}, `{"reclamados":0,"enviados":0,"reintentar":0,` + zeros +
			`"errores":0,"errores_reclamo":0,"abandonados":0,"advertencias":[]}`},
		{"everything", full(), `{"reclamados":101,"enviados":102,"reintentar":103,"fallidos":104,"descartados":105,"perdidos":106,` +
			`"liberados":107,"aplazados":108,"errores":109,"errores_reclamo":110,"abandonados":111,` +
			`"advertencias":["a \"text\""],"ultimoError":{"codigo":"40001"}}`},
		{"an error without a code", dispatch.Report{Claimed: 1, Errors: 1}, `{"reclamados":1,"enviados":0,"reintentar":0,` + zeros +
			`"errores":1,"errores_reclamo":0,"abandonados":0,"advertencias":[],"ultimoError":{"codigo":null}}`},
		{"a claim error", dispatch.Report{ClaimErrors: 1, LastError: `a"b`}, `{"reclamados":0,"enviados":0,"reintentar":0,` + zeros +
			`"errores":0,"errores_reclamo":1,"abandonados":0,"advertencias":[],"ultimoError":{"codigo":"a\"b"}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(test.report)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestReportLogsWhatItsJSONSays(t *testing.T) {
	enc := zapcore.NewMapObjectEncoder()
	if err := enc.AddObject("report", full()); err != nil {
		t.Fatal(err)
	}
	logged, err := json.Marshal(enc.Fields["report"])
	if err != nil {
		t.Fatal(err)
	}
	spoken, err := json.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	var a, b map[string]any
	if err := errors.Join(json.Unmarshal(logged, &a), json.Unmarshal(spoken, &b)); err != nil {
		t.Fatal(err)
	}
	b["ultimoError"] = b["ultimoError"].(map[string]any)["codigo"] // a log line has no use for the nesting
	if !reflect.DeepEqual(a, b) {
		t.Errorf("logged %v\nJSON   %v", a, b)
	}
}

func TestReportErr(t *testing.T) {
	untroubled := full()
	untroubled.Errors, untroubled.ClaimErrors = 0, 0
	tests := []struct {
		name   string
		report dispatch.Report
		parts  []string // of the text; nil: no error
	}{
		{"nothing", dispatch.Report{}, nil},
		{"retried, failed, discarded, lost, abandoned", untroubled, nil},
		{"a result not stored", dispatch.Report{Claimed: 3, Errors: 3, LastError: "08006"}, []string{"0 claims", "3 results", "08006"}},
		{"a claim failed", dispatch.Report{ClaimErrors: 2}, []string{"2 claims", "0 results"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.report.Err()
			if test.parts == nil {
				if err != nil {
					t.Errorf("error %q, want none", err)
				}
				return
			}
			if !errors.Is(err, dispatch.ErrIncomplete) {
				t.Fatalf("error %v, want ErrIncomplete", err)
			}
			for _, part := range test.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %s", err, part)
				}
			}
		})
	}
}

package memstore_test

import (
	"testing"
	"time"

	"github.com/recado-dev/recado/internal/proof"
	"github.com/recado-dev/recado/store"
	"github.com/recado-dev/recado/store/memstore"
	"github.com/recado-dev/recado/store/storetest"
)

func TestConformance(t *testing.T) {
	proof.SeedSequences(t)
	for name, rules := range map[string]store.Rules{"uuid": {}, "text": {TextTenant: true}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Fixture {
				var now time.Time
				s := memstore.New(memstore.Config{Rules: rules, Clock: func() time.Time { return now }})
				return storetest.Fixture{
					Store: s, Put: s.Put, Get: s.Get,
					SetClock: func(t time.Time) { now = t }, TextTenant: rules.TextTenant,
				}
			})
		})
	}
}

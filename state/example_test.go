package state_test

import (
	"fmt"
	"time"

	"github.com/recado-dev/recado/state"
)

func ExampleDecide() {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	row := state.Row{State: state.Pending, MaxAttempts: 5, ScheduledAt: now}
	fmt.Println("due now:", state.Decide(row, now))

	row.Attempts, row.NextAttemptAt = 1, now.Add(30*time.Second)
	fmt.Println("failed once:", state.Decide(row, now))

	row.State, row.LeasedUntil = state.Processing, now.Add(time.Minute)
	fmt.Println("at work:", state.Decide(row, now))
	fmt.Println("its worker died:", state.Decide(row, now.Add(time.Minute)))

	row.State = state.Sent
	fmt.Println("sent:", state.Decide(row, now))
	// Output:
	// due now: enviar
	// failed once: reintentar_luego
	// at work: esperar
	// its worker died: destrabar
	// sent: descartar
}

func ExampleBackoff_Delay() {
	backoff := state.DefaultBackoff()
	backoff.Jitter = 0
	for _, attempt := range []int{0, 1, 2, 6, 7, 1000} {
		wait, err := backoff.Delay(attempt)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(attempt, wait)
	}
	// Output:
	// 0 30s
	// 1 1m0s
	// 2 2m0s
	// 6 32m0s
	// 7 1h0m0s
	// 1000 1h0m0s
}

func ExampleClassify() {
	for _, outcome := range []state.Outcome{
		{OK: true, ExternalID: "49a3999c"},
		{Category: state.CategoryRateLimit, Code: "http_429"},
		{Category: state.CategoryNumber, Code: "131026"},
		{Category: "something_new"},
	} {
		fmt.Println(state.Classify(outcome))
	}
	// Output:
	// ok
	// transitorio
	// permanente
	// transitorio
}

func ExampleResolve() {
	policy := state.DefaultPolicy()
	policy.Backoff.Jitter = 0
	row := state.Row{State: state.Processing, Attempts: 2, MaxAttempts: 5}
	age := 4 * time.Minute

	for _, outcome := range []state.Outcome{
		{OK: true, ExternalID: "49a3999c"},
		{Category: state.CategoryNetwork, Code: "http_503"},
		{Category: state.CategoryRateLimit, Code: "http_429", RetryAfter: 10 * time.Minute},
		{Category: state.CategoryNetwork, Code: "dns", NotCalled: true},
		{Category: state.CategoryRejected, Code: "http_422"},
	} {
		t, err := state.Resolve(row, age, outcome, policy)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %s, wait %v, charged %v\n", t.Event, t.To, t.Wait, t.Charged())
	}
	// Output:
	// enviar: enviado, wait 0s, charged true
	// reintentar: pendiente, wait 1m0s, charged true
	// reintentar: pendiente, wait 10m0s, charged true
	// aplazar: pendiente, wait 2m0s, charged false
	// descartar: descartado, wait 0s, charged true
}

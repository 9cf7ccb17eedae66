package main

import "crypto/sha256"

// fault is what a server does to one attempt.
type fault string

const (
	none      fault = ""
	refuse    fault = "refused"    // "later": 451, 429
	cutBefore fault = "cut before" // the connection breaks and the message is lost
	cutAfter  fault = "cut after"  // the message is kept, but the connection breaks before the answer
)

// plan says what happens to the attempts of one message. It depends on nothing but the message's key, so that every run
// sees the same faults; from the third attempt on all goes well.
func plan(key string, attempt int) fault {
	plans := [][]fault{{refuse}, {refuse, refuse}, {cutBefore}, {cutAfter}, {refuse, cutAfter}}
	// Four messages of five see no fault.
	n := int(sha256.Sum256([]byte(key))[0]) % (5 * len(plans))
	if n >= len(plans) || attempt > len(plans[n]) {
		return none
	}
	return plans[n][attempt-1]
}

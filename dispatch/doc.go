// Package dispatch delivers what is in an outbox: it claims due messages, hands each to its channel's transport, and
// settles it by what came of it.
//
// The promise: every committed message is attempted until it is accepted, refused for good, out of attempts or past its
// time, and each claim is settled at most once. A message may be delivered more than once: when a call times out or its
// reply is lost, when a process dies between the provider's answer and the settlement, or when the database cannot be
// written for longer than a lease. After a crash at most the calls in flight and one group of settlements are repeated.
//
// Every channel has a lane of its own, so that a slow or dead provider holds up no other. [Worker.ProcessBatch] makes one
// pass, [Worker.Drain] goes on until nothing is due (for a cron), [Worker.Run] streams until its context ends (for a
// goroutine of a service). While a transport runs the worker holds no transaction and no connection.
//
// Within a channel what is due first goes first, whoever it belongs to. A tenant's backlog delays another's message by what
// was due before it, never by what comes due later, but no tenant has a share of his own: channels are all that is kept
// apart.
package dispatch

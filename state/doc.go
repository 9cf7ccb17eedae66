// Package state is the lifecycle of an outbox row: pure, without clock and without I/O.
//
// It promises that a row only ever moves along the events of one table (see [Next]), and that every other part of
// Recado (the SQL, the in-memory store, the worker, the diagram in the README) takes states and transitions from that
// table instead of spelling them again. It does not persist anything: a [Transition] says what a store has to write.
//
//	pendiente   waiting for its turn
//	procesando  claimed by a worker, under a lease
//	enviado     accepted by the provider (not: delivered)
//	fallido     attempts used up, or closed without a call
//	descartado  refused for good, or cancelled
//
// Four pure functions carry the decisions: [Decide] says what is due for a row, [Classify] what an outcome means,
// [Resolve] which transition an outcome asks for, and [Backoff.Delay] how long to wait before the next attempt.
package state

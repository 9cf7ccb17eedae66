// Package crash holds the tests in which what takes part dies, freezes or loses the other's answer: worker processes,
// database servers, the network between them, and the process that owns a SQLite file.
//
// They share their witnesses. A table that triggers on the server fill holds every change of every message; a receiver
// keeps a ledger of what it was called for and what it accepted; and the clients' own table, written in the transactions
// that enqueue, says which of those were committed. What is promised is checked against these alone.
package crash

// Package store is the contract between an outbox table and the worker: what a message is, what may be enqueued, and
// what every Store keeps, whatever lies underneath.
//
// The promise, for every Store that passes storetest: a committed message is never lost, it is claimed by one worker at
// a time, and each claim is settled at most once, behind a fence. It is not a promise of exactly-once delivery: when a
// lease ends, or a reply is lost, a message may be handed out again. Nor is there an order across rows.
//
// The required interface is [Store], three methods. Everything else a store can do is a small optional interface found
// by type assertion: [Enqueuer], [TxSettler], [Renewer], [DueTimer], [ChannelLister], [Operator].
//
// A store that reads and writes whole rows, each method in one atomic step, has the rules about a row from here:
// [ClaimParams.Take], [Message.Settle], [Message.Renew], [Message.Requeue], [Message.Cancel] and [Encoded.Message].
package store

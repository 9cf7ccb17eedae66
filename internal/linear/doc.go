// Package linear records what many goroutines see of one store and checks that it can be put into one order: that there is a
// sequence of the calls, each at a moment between its begin and its end, which a row of the contract would answer just so.
package linear

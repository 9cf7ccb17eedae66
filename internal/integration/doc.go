// Package integration holds the tests that need all the parts at once: real worker processes on a real database.
package integration

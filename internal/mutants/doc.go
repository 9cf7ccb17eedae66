// Package mutants tests the tests: it breaks the library in many small ways, one at a time, and names the test that
// notices each. A way to break a promise that no test notices is a failure here, and a missing test there.
package mutants

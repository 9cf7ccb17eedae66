// Command testreport turns the stream of `go test -json` on its standard input into what a person wants to read: one
// line per package as it ends, the whole output of what failed, every skipped test with its reason, and as the very
// last line the counts.
//
// It exits with 1 when a test or a package failed, did not build or never ended, or when no test ran at all; with
// -strict also when a test was skipped. A test and each of its subtests count as one.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	strict := flag.Bool("strict", false, "fail when a test was skipped")
	flag.Parse()
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.close(*strict) {
		os.Exit(1)
	}
}

// Command testreport turns the stream of `go test -json` on its standard input into what a person wants to read: one
// line per package as it ends, the whole output of what failed, every skipped test with its reason, and as the very
// last line the counts.
//
// It exits with 1 when a test or a package failed, did not build or never ended, or when no test ran at all; with
// -strict also when a test was skipped. A test and each of its subtests count as one. What storetest leaves out because a
// store lacks one of the abilities named with -absent is no skipped test; it is counted apart. What techniques of proof tell
// of themselves (see package proof) is summed up in a table.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	strict := flag.Bool("strict", false, "fail when a test was skipped")
	absent := flag.String("absent", "", "abilities, separated by commas, that a store may lack")
	seeds := flag.Bool("seeds", false, "print the seeds of random runs as they come")
	flag.Parse()
	r := newReport(os.Stdout)
	r.seeds = *seeds
	r.absent = strings.Split(*absent, ",")
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.close(*strict) {
		os.Exit(1)
	}
}

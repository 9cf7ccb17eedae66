package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/recado-dev/recado/internal/fakes"
	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/store"
)

// progress shows how far the delivery is: on a terminal a line that is written over, elsewhere a line per second.
type progress struct {
	out      io.Writer
	terminal bool
	begun    time.Time
	shown    time.Time
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, begun: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// every is how often it wants to be told.
func (p *progress) every() time.Duration {
	if p.terminal {
		return 100 * time.Millisecond
	}
	return time.Second
}

func (p *progress) show(stats []store.ChannelStats, retries int64) {
	if time.Since(p.shown) < p.every() {
		return
	}
	p.shown = time.Now()
	line := fmt.Sprintf("%4.1f s ", time.Since(p.begun).Seconds())
	for _, c := range stats {
		line += fmt.Sprintf(" %s: %d terminados, %d en cola ·", c.Channel, sum(c.Ended), sum(c.Live))
	}
	line += fmt.Sprintf(" %d reintentos", retries)
	if p.terminal {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		_, _ = fmt.Fprintln(p.out, line)
	}
}

// end leaves the line.
func (p *progress) end() {
	if p.terminal && !p.shown.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func sum(counts map[state.State]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// printStates prints the table of states per channel.
func printStates(out io.Writer, stats []store.ChannelStats) {
	line := fmt.Sprintf("\n%-10s", "canal")
	for _, s := range state.States() {
		line += fmt.Sprintf("%12s", s)
	}
	_, _ = fmt.Fprintf(out, "%s\n%s\n", line, strings.Repeat("─", len(line)-1))
	for _, c := range stats {
		line := fmt.Sprintf("%-10s", c.Channel)
		for _, s := range state.States() {
			line += fmt.Sprintf("%12d", c.Live[s]+c.Ended[s])
		}
		_, _ = fmt.Fprintln(out, line)
	}
	_, _ = fmt.Fprintln(out)
}

// printFaults prints what the doubles did wrong.
func printFaults(out io.Writer, doubles ...*double) {
	count := map[fakes.Fault]int{}
	for _, d := range doubles {
		if d != nil {
			for f, n := range d.record().Faults {
				count[f] += n
			}
		}
	}
	_, _ = fmt.Fprintf(out, "  fallas:    %d veces «más tarde» (429), %d errores del servidor (500) y %d conexiones cortadas\n",
		count[fakes.TooMany], count[fakes.Unavailable], count[fakes.CutBefore]+count[fakes.CutAfter])
}

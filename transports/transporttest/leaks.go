package transporttest

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/recado-dev/recado/state"
)

// How much each case sends to find a leak. Under go test -short it is a fifth.
const (
	sends       = 1000
	senders     = 100                    // at once
	stalledSend = 100 * time.Millisecond // what an attempt has where no answer will come
)

var leakCases = []testCase{
	{"accepted", func(k *kit) { k.leak(false) }},
	{"refused", func(k *kit) {
		k.provider.answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, page, http.StatusInternalServerError) }
		k.leak(false)
	}},
	{"stalls after its headers", func(k *kit) {
		k.provider.answer = func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		k.leak(true)
	}},
	{"never answers", func(k *kit) {
		k.provider.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		k.leak(true)
	}},
}

// leak sends a lot, and wants goroutines, sockets and files to be as many afterwards as before. Where answers come to
// their end, connections have to be used again.
func (k *kit) leak(stalls bool) {
	n := sends
	if testing.Short() {
		n /= 5
	}
	goroutines, files := runtime.NumGoroutine(), openFiles()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range n / senders {
				timeout := patience
				if stalls {
					timeout = stalledSend
				}
				ctx, cancel := context.WithTimeout(k.Context(), timeout)
				began := time.Now()
				o := k.transport.Send(ctx, k.subject.Message)
				cancel()
				if stalls && (o.OK || state.Classify(o) != state.ClassTransient) {
					k.Errorf("%+v", o)
				}
				if took := time.Since(began); took > patience {
					k.Errorf("a call took %v", took)
				}
			}
		})
	}
	all.Wait()
	if _, total := k.provider.connections(); !stalls && total > senders+senders/2 {
		k.Errorf("%d connections for %d senders: they are not used again", total, senders)
	}
	k.client.CloseIdleConnections()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		open, _ := k.provider.connections()
		g, f := runtime.NumGoroutine(), openFiles()
		if open == 0 && g <= goroutines && f <= files {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			k.Errorf("left behind: %d connections, %d goroutines, %d files", open, g-goroutines, f-files)
			return
		}
	}
}

// openFiles counts what the process has open, sockets included, where the system tells.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	return len(entries)
}

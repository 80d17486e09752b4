// Command server is an HTTP server with events, and its clients:
//
//	server -clients 10000 -for 2s -trace go.trace
//
// Each client is a goroutine with a connection of its own, each connection a goroutine of the
// server. Requests take a lock that one in two thousand holds for long: the others wait for it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	tompion "github.com/tompion/tompion/bindings/go"
)

type request struct {
	Number uint64
	Path   string
}

type answer struct {
	Number uint64
	Status int
}

type waited struct {
	Number uint64
	Took   time.Duration
}

var (
	requests = tompion.NewSpan[request]("server", "request")
	lookups  = tompion.NewSpan[request]("server", "lookup")
	answered = tompion.NewEvent[answer]("server", "answered", tompion.Info)
	lateLock = tompion.NewEvent[waited]("server", "late_lock", tompion.Warning)
	open     = tompion.NewCounter[int64]("server", "open")
)

// store is what requests share.
type store struct {
	lock    sync.Mutex
	visits  map[string]int
	number  atomic.Uint64
	waiting atomic.Int64
}

// lookup counts a visit. One in two thousand holds the lock while it waits, as if for a disk.
func (s *store) lookup(ctx context.Context, r request) int {
	_, span := lookups.Start(ctx, r)
	defer span.End()
	begin := time.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	if took := time.Since(begin); took > time.Millisecond {
		lateLock.Record(waited{r.Number, took})
	}
	if r.Number%2000 == 1999 {
		time.Sleep(20 * time.Millisecond)
	}
	s.visits[r.Path]++
	return s.visits[r.Path]
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	open.Set(s.waiting.Add(1))
	defer func() { open.Set(s.waiting.Add(-1)) }()
	fields := request{s.number.Add(1), r.URL.Path}
	ctx, span := requests.Start(r.Context(), fields)
	defer span.End()
	fmt.Fprintln(w, s.lookup(ctx, fields))
	answered.Record(answer{fields.Number, http.StatusOK})
}

// visit asks again and again until the time is over. It returns the number of answers.
func visit(address string, end time.Time) int {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	count := 0
	for time.Now().Before(end) {
		response, err := client.Get("http://" + address + "/orders")
		if err != nil {
			return count
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		count++
	}
	return count
}

func run() error {
	clients := flag.Int("clients", 100, "number of clients")
	duration := flag.Duration("for", time.Second, "how long they ask")
	traceFile := flag.String("trace", "", "write a trace of the run-time to this file")
	flag.Parse()
	if *traceFile != "" {
		file, err := os.Create(*traceFile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := trace.Start(file); err != nil {
			return err
		}
		defer trace.Stop()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &store{visits: map[string]int{}}, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	var group sync.WaitGroup
	var total atomic.Int64
	end := time.Now().Add(*duration)
	for range *clients {
		group.Add(1)
		go func() {
			defer group.Done()
			total.Add(int64(visit(listener.Addr().String(), end)))
		}()
	}
	group.Wait()
	fmt.Printf("%d requests of %d clients\n", total.Load(), *clients)
	return server.Close()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

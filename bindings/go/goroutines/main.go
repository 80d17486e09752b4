// Command goroutines converts what runtime/trace has recorded of a Go program to a trace on the
// clock of a recording, so that both are shown on one timeline:
//
//	goroutines [-process NAME] -o DIR RECORDING RUNTIME_TRACE
//
// Each thread has a span for each stretch in which it ran a goroutine, with the goroutine's number
// and named after its function, and one for each system call. Events tell why goroutines wait, and
// which thread made them runnable again.
//
// A program writes such a trace by runtime/trace, at best by its flight recorder (Go 1.25), or
// gives it to a client of net/http/pprof: `curl -o go.trace
// localhost:6060/debug/pprof/trace?seconds=5`.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/exp/trace"
)

func main() {
	output := flag.String("o", "", "write the trace to this folder, which must not exist")
	process := flag.String("process", "", "the process: a name in the recording's folder `user`")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: goroutines [-process NAME] -o DIR RECORDING RUNTIME_TRACE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 || *output == "" {
		flag.Usage()
		os.Exit(2)
	}
	told, err := run(*output, *process, flag.Arg(0), flag.Arg(1))
	if err != nil {
		fmt.Fprintf(os.Stderr, "goroutines: %v\n", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "goroutines: %s in %s; next: tompion view %s %s\n", told, *output, flag.Arg(0), *output)
}

// run converts a trace. It returns how much there was.
func run(output, process, recording, runtimeTrace string) (string, error) {
	circumstances, err := readCircumstances(recording, process)
	if err != nil {
		return "", err
	}
	file, err := os.Open(runtimeTrace)
	if err != nil {
		return "", err
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return "", fmt.Errorf("%s is no trace of Go 1.22 or later: %w", runtimeTrace, err)
	}
	if err := os.Mkdir(output, 0o755); err != nil {
		return "", err
	}
	w, err := newWriter(filepath.Join(output, "stream_0"), circumstances)
	if err != nil {
		return "", err
	}
	c := newConverter(w)
	for {
		event, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			// What was read before stays: a program may have been killed.
			fmt.Fprintf(os.Stderr, "goroutines: %s ends early: %v\n", runtimeTrace, err)
			break
		}
		if err := c.convert(&event); err != nil {
			return "", err
		}
	}
	if err := c.finish(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d events of %d goroutines", w.events, len(c.goroutines)), w.close(filepath.Join(output, "metadata"))
}

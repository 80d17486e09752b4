//go:build linux

package tompion_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	tompion "github.com/tompion/tompion/bindings/go"
)

type pair struct{ First, Second uint64 }

type pairWithText struct {
	First uint64
	Text  string
}

var (
	allocPair  = tompion.NewEvent[pair]("alloc", "pair")
	allocText  = tompion.NewEvent[pairWithText]("alloc", "text")
	allocSpans = tompion.NewSpan[pair]("alloc", "span")
)

// allocations returns how often each way to record allocates.
func allocations() string {
	ctx, long := context.Background(), strings.Repeat("x", 300)
	var counts []any
	for _, record := range []func(){
		func() { allocPair.Record(pair{1, 2}) },
		func() { allocText.Record(pairWithText{1, "orders"}) },
		func() { allocText.Record(pairWithText{1, long}) },
		func() { allocSpans.Begin(pair{1, 2}).End() },
		func() {
			_, span := allocSpans.Start(ctx, pair{1, 2})
			span.End()
		},
	} {
		counts = append(counts, testing.AllocsPerRun(1000, record))
	}
	return fmt.Sprint(counts...)
}

func init() {
	programs["allocations"] = func([]string) { fmt.Println(allocations()) }
}

func TestNothingIsAllocated(t *testing.T) {
	if found := allocations(); found != "0 0 0 0 0" {
		t.Errorf("without a recording: %s", found)
	}
	// The context that a span is put into is Go's own, with the span's number in it.
	for name, options := range map[string][]string{
		"direct": nil, "filtered": {"--filter", `first == 1 && (text == "orders" || second == 2 || text == "xx*")`},
	} {
		found := record(t, append(options, "--mode", "overwrite"), "allocations")
		if found.out != "0 0 0 0 2\n" && found.out != "0 0 0 0 1\n" {
			t.Errorf("%s: %s%s", name, found.out, found.err)
		}
	}
}

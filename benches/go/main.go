// Command cost measures what an event of the Go binding costs, beside runtime/trace, whose user
// logs are what Go has for the same purpose. The figure is the least mean of many batches: what
// other work on the machine adds is left out as far as possible.
package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/trace"
	"time"

	tompion "github.com/tompion/tompion/bindings/go"
)

const (
	batches = 400
	events  = 10_000
)

type two struct{ A, B uint64 }

type withText struct {
	A    uint64
	Text string
}

var (
	eventTwo  = tompion.NewEvent[two]("bench", "two")
	eventText = tompion.NewEvent[withText]("bench", "text")
	spans     = tompion.NewSpan[two]("bench", "span")
)

// cost returns the least mean of all batches in nanoseconds.
func cost(event func(i uint64)) float64 {
	least := time.Duration(1 << 62)
	for range batches {
		begin := time.Now()
		for i := range uint64(events) {
			event(i)
		}
		least = min(least, time.Since(begin))
	}
	return float64(least.Nanoseconds()) / events
}

func main() {
	runtime.LockOSThread()
	fmt.Printf("enabled %v\n", eventTwo.Enabled())
	fmt.Printf("two numbers     %6.1f ns\n", cost(func(i uint64) { eventTwo.Record(two{i, 2}) }))
	fmt.Printf("number and text %6.1f ns\n", cost(func(i uint64) { eventText.Record(withText{i, "orders_2026"}) }))
	fmt.Printf("span            %6.1f ns\n", cost(func(i uint64) { spans.Begin(two{i, 2}).End() }))
	ctx := context.Background()
	logs := func(uint64) { trace.Log(ctx, "orders", "2026") }
	regions := func(uint64) { trace.StartRegion(ctx, "query").End() }
	fmt.Printf("runtime/trace not running: log %.1f ns, region %.1f ns\n", cost(logs), cost(regions))
	if err := trace.Start(io.Discard); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("runtime/trace running: log %.1f ns, region %.1f ns\n", cost(logs), cost(regions))
	trace.Stop()
}

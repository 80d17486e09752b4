package tompion_test

import (
	"context"
	"testing"

	tompion "github.com/tompion/tompion/bindings/go"
)

type two struct{ A, B uint64 }
type withText struct {
	A    uint64
	Text string
}

var (
	benchTwo  = tompion.NewEvent[two]("bench", "two")
	benchText = tompion.NewEvent[withText]("bench", "text")
	benchSpan = tompion.NewSpan[two]("bench", "span")
)

func BenchmarkEvent(b *testing.B) {
	for i := range b.N {
		benchTwo.Record(two{uint64(i), 2})
	}
}

func BenchmarkText(b *testing.B) {
	for i := range b.N {
		benchText.Record(withText{uint64(i), "orders_2026"})
	}
}

func BenchmarkSpan(b *testing.B) {
	for i := range b.N {
		span := benchSpan.Begin(two{uint64(i), 2})
		span.End()
	}
}

func TestNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	for name, f := range map[string]func(){
		"event": func() { benchTwo.Record(two{1, 2}) },
		"text":  func() { benchText.Record(withText{1, "orders"}) },
		"span":  func() { benchSpan.Begin(two{1, 2}).End() },
		"start": func() {
			_, span := benchSpan.Start(ctx, two{1, 2})
			span.End()
		},
	} {
		limit := 0.0
		if name == "start" && benchSpan.Enabled() {
			// The context and the number in it.
			limit = 2
		}
		if found := testing.AllocsPerRun(100, f); found > limit {
			t.Errorf("%s: %v allocations", name, found)
		}
	}
}

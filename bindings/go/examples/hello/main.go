// Command hello is a program with events: the Go form of examples/hello.c.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	tompion "github.com/tompion/tompion/bindings/go"
)

// outcome says how a query went.
type outcome uint8

const (
	done outcome = iota
	empty
)

// TompionEnum names the values.
func (outcome) TompionEnum() (string, []tompion.Label) {
	return "outcome", tompion.Labels("Done", "Empty")
}

type query struct {
	Number uint64
	Table  string
}

type result struct {
	Rows    uint64
	Table   string
	Outcome outcome
}

type slow struct {
	Table string
	Us    uint64
}

var (
	queries   = tompion.NewSpan[query]("db", "query")
	queryDone = tompion.NewEvent[result]("db", "query_done", tompion.Info)
	slowQuery = tompion.NewEvent[slow]("db", "slow_query", tompion.Warning)
	rowsRead  = tompion.NewCounter[uint64]("db", "rows")
	requests  = tompion.NewFlow("db", "request")
)

func run(ctx context.Context, number uint64) uint64 {
	table := []string{"orders", "customers"}[number%2]
	requests.Step(number)
	_, span := queries.Start(ctx, query{number, table})
	defer span.End()
	rows, how := number*31, done
	if rows == 0 {
		how = empty
	}
	queryDone.Record(result{rows, table, how})
	if rows > 30 {
		slowQuery.Record(slow{table, 919})
	}
	return rows
}

func main() {
	count := uint64(100)
	if len(os.Args) > 1 {
		count, _ = strconv.ParseUint(os.Args[1], 10, 64)
	}
	total := uint64(0)
	for number := range count {
		total += run(context.Background(), number)
		rowsRead.Set(total)
	}
	fmt.Printf("%d rows in %d queries\n", total, count)
}

//go:build linux

package tompion_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	tompion "github.com/tompion/tompion/bindings/go"
)

// The test binary is also the programs that it records: programVariable says which.
const programVariable = "TOMPION_TEST_PROGRAM"

type state uint8

func (state) TompionEnum() (string, []tompion.Label) {
	return "state", []tompion.Label{{Low: 0, High: 0, Name: "idle"}, {Low: 1, High: 5, Name: "running"}}
}

type large uint64

func (large) TompionEnum() (string, []tompion.Label) {
	return "large", []tompion.Label{{Low: 1, High: 1, Name: "one"}, {Low: -2, High: -1, Name: "most"}}
}

type inner struct {
	Name  string
	Depth uint8
}

type everything struct {
	I8     int8
	I16    int16
	I32    int32
	I64    int64
	Int    int
	U8     uint8
	U16    uint16
	U32    uint32
	U64    uint64
	Uint   uint
	X32    uint32 `tompion:",hex"`
	Addr   uintptr
	Port   uint16 `tompion:",network"`
	F32    float32
	F64    float64
	Yes    bool
	No     bool
	State  state
	Large  large
	Text   string
	Bytes  []byte
	Chars  []byte `tompion:"chars,text"`
	Array  [3]int16
	Letter [4]byte `tompion:"letter,text"`
	List   []uint32
	Hexes  []uint16 `tompion:",hex"`
	Took   time.Duration
	Nest   inner
	Hidden chan int `tompion:"-"`
	User   uint64   `tompion:",context"`
	Last   string
}

type numbered struct {
	Thread uint32
	Number uint64
}

type named struct {
	Number uint64
	Name   string
}

type shortFields struct {
	A uint8
	B uint16
}

type arguments struct {
	Rows  int32
	Table string
	Load  float64
}

type nothing struct{}

var (
	all      = tompion.NewEvent[everything]("t", "all")
	empty    = tompion.NewEvent[nothing]("t", "empty")
	short    = tompion.NewEvent[shortFields]("t", "short")
	step     = tompion.NewEvent[numbered]("t", "step")
	text     = tompion.NewEvent[named]("t", "text")
	severe   = tompion.NewEvent[nothing]("t", "severe", tompion.Err)
	chatty   = tompion.NewEvent[nothing]("t", "chatty", tompion.Debug)
	initial  = tompion.NewEvent[named]("t", "initial", tompion.Init)
	work     = tompion.NewSpan[named]("t", "work")
	cycle    = tompion.NewJob[named]("t", "cycle")
	depth    = tompion.NewCounter[int64]("t", "depth")
	load     = tompion.NewCounter[float64]("t", "load")
	order    = tompion.NewFlow("t", "order")
	loaded   = tompion.NewMark[arguments]("loaded", "rows %d of '%s', %5.1f")
	programs = map[string]func(arguments []string){}
)

func TestMain(m *testing.M) {
	if name := os.Getenv(programVariable); name != "" {
		programs[name](os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func init() {
	programs["everything"] = func([]string) {
		all.Record(everything{
			I8: -8, I16: -16, I32: -32, I64: math.MinInt64, Int: -1, U8: 8, U16: 16, U32: 32, U64: math.MaxUint64,
			Uint: 1, X32: 0xbeef, Addr: 0x1000, Port: 0x901f, F32: 0.5, F64: -2.25, Yes: true, State: 3,
			Large: math.MaxUint64, Text: "orders", Bytes: []byte{1, 0xff}, Chars: []byte("chars"),
			Array: [3]int16{-1, 2, 3}, Letter: [4]byte{'a', 'b', 0, 'x'}, List: []uint32{7, 8}, Hexes: []uint16{0xa},
			Took: 1500, Nest: inner{"in", 2}, User: 42, Last: "last",
		})
		empty.Record(nothing{})
		short.Record(shortFields{1, 2})
		text.Record(named{1, ""})
		text.Record(named{2, "ends\x00here"})
		depth.Set(-3)
		load.Set(0.75)
		order.Step(0x2a)
		loaded.Record(arguments{4, "orders", 0.5})
	}
	programs["levels"] = func([]string) {
		severe.Record(nothing{})
		step.Record(numbered{})
		chatty.Record(nothing{})
	}
	programs["spans"] = func([]string) {
		ctx, outer := work.Start(context.Background(), named{1, "outer"})
		done := make(chan bool)
		go func() {
			_, span := work.Start(ctx, named{2, "inner"})
			span.End()
			done <- true
		}()
		<-done
		outer.End()
		runtime.LockOSThread()
		job := cycle.Begin(time.Millisecond, named{3, "job"})
		job.End()
		work.Begin(named{4, "alone"}).End()
		tompion.Span{}.End()
	}
	programs["sizes"] = func([]string) {
		for _, size := range []int{0, 1, 7, 8, 100, 128, 200, 497, 600, 5000, 60000, 70000} {
			text.Record(named{uint64(size), strings.Repeat("x", size)})
		}
	}
	// threads N M: N goroutines record M events each.
	programs["threads"] = func(a []string) {
		var group sync.WaitGroup
		for thread := range number(a[0]) {
			group.Add(1)
			go func() {
				defer group.Done()
				if thread%2 == 0 {
					runtime.LockOSThread()
				}
				for i := range number(a[1]) {
					step.Record(numbered{uint32(thread), uint64(i)})
				}
			}()
		}
		group.Wait()
	}
	programs["initial"] = func(a []string) {
		initial.Record(named{1, "settings"})
		programs["threads"](a)
	}
	programs["snapshot"] = func([]string) {
		step.Record(numbered{1, 1})
		fmt.Println(tompion.Snapshot())
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	// steps: a step for each line of standard input, and the line back.
	programs["steps"] = func([]string) {
		lines := bufio.NewScanner(os.Stdin)
		fmt.Println("ready")
		for lines.Scan() {
			n, _ := strconv.Atoi(lines.Text())
			step.Record(numbered{0, uint64(n)})
			text.Record(named{uint64(n), "name"})
			fmt.Println(n)
		}
	}
	programs["child"] = func(a []string) {
		step.Record(numbered{0, 0})
		command := exec.Command(os.Args[0], "1", "1")
		command.Env = append(os.Environ(), programVariable+"=threads")
		if err := command.Run(); err != nil {
			panic(err)
		}
		step.Record(numbered{9, 9})
	}
	programs["exits"] = func(a []string) {
		step.Record(numbered{1, 1})
		switch a[0] {
		case "exit":
			os.Exit(3)
		case "panic":
			panic("on purpose")
		case "signal":
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			time.Sleep(time.Minute)
		case "exec":
			_ = os.Setenv(programVariable, "levels")
			_ = syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ())
		}
	}
	programs["unrecorded"] = func([]string) {
		step.Record(numbered{1, 1})
		tasks, _ := os.ReadDir("/proc/self/task")
		stacks := make([]byte, 1<<16)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Println(step.Enabled(), len(tasks), strings.Count(string(stacks), "\ngoroutine ")+1)
	}
	// counted FILE N: N goroutines record, and each notes how far it is in memory that outlives it.
	programs["counted"] = func(a []string) {
		file, err := os.OpenFile(a[0], os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		memory, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			panic(err)
		}
		for thread := range number(a[1]) {
			done := (*atomic.Uint64)(unsafe.Pointer(&memory[thread*8]))
			go func() {
				for i := uint64(0); ; i++ {
					if i%3 == 0 {
						text.Record(named{uint64(thread)<<32 | i, "some text"})
					} else {
						step.Record(numbered{uint32(thread), i})
					}
					done.Store(i + 1)
				}
			}()
		}
		go func() {
			for {
				// Collections stop all goroutines, and move stacks.
				runtime.GC()
				_ = make([]byte, 1<<20)
			}
		}()
		select {}
	}
	// lasting: records until standard input ends, then says how many.
	programs["lasting"] = func([]string) {
		var isOver atomic.Bool
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			isOver.Store(true)
		}()
		fmt.Println("ready")
		count := 0
		for ; !isOver.Load(); count++ {
			step.Record(numbered{0, uint64(count)})
			time.Sleep(10 * time.Microsecond)
		}
		fmt.Println("still here", count > 0, step.Enabled())
	}
}

func readCounts(path string) []uint64 {
	bytes, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	counts := make([]uint64, len(bytes)/8)
	for i := range counts {
		counts[i] = binary.LittleEndian.Uint64(bytes[i*8:])
	}
	return counts
}

// Command conformance is the program in Go of the conformance suite of all bindings: it performs
// the case that its argument names, as bindings/conformance/cases.toml says.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"sync"
	"time"

	tompion "github.com/tompion/tompion/bindings/go"
)

type machine int64

// TompionEnum names the values.
func (machine) TompionEnum() (string, []tompion.Label) {
	return "machine", []tompion.Label{
		{Low: 0, High: 0, Name: "idle"}, {Low: 1, High: 1, Name: "running"}, {Low: -9, High: -1, Name: "failed"},
	}
}

type color uint8

// TompionEnum names the values.
func (color) TompionEnum() (string, []tompion.Label) {
	return "color", []tompion.Label{{Low: 1, High: 1, Name: "red"}, {Low: 255, High: 255, Name: "blue"}}
}

type (
	signedFields struct {
		A int8
		B int16
		C int32
		D int64
	}
	unsignedFields struct {
		A uint8
		B uint16
		C uint32
		D uint64
	}
	hexadecimalFields struct {
		A uint8  `tompion:",hex"`
		B uint16 `tompion:",hex"`
		C uint32 `tompion:",hex"`
		D uint64 `tompion:",hex"`
	}
	networkFields struct {
		A uint16 `tompion:",network"`
		B uint32 `tompion:",network"`
		C uint64 `tompion:",network"`
		D int16  `tompion:",network"`
		E uint32 `tompion:",network,hex"`
	}
	floatFields struct {
		A float32
		B float64
	}
	booleanFields struct{ Yes, No bool }
	textFields    struct{ A, B string }
	blobFields    struct{ A, B []byte }
	arrayFields   struct {
		A [3]uint16
		B []int32
		C []uint8 `tompion:",list"`
	}
	arrayTextFields struct {
		A [4]byte `tompion:",text"`
		B []byte  `tompion:",text"`
	}
	enumerationFields struct {
		A, B, C machine
		D       color
	}
	point struct {
		X int64
		Y string
	}
	structureFields struct{ A point }
	nothing         struct{}
	what            struct{ What string }
	depth           struct{ Depth int64 }
	number          struct{ Number int64 }
	kindOfNumber    struct {
		Number int64
		Kind   string
	}
	work    struct{ Thread, Number int64 }
	control struct{ Error float64 }
	loading struct {
		Rows  int64
		Of    float64
		Table string
	}
	torn struct {
		Number int64
		Text   string
		Again  int64
	}
)

var (
	signed       = tompion.NewEvent[signedFields]("suite", "signed")
	unsigned     = tompion.NewEvent[unsignedFields]("suite", "unsigned")
	hexadecimal  = tompion.NewEvent[hexadecimalFields]("suite", "hexadecimal")
	network      = tompion.NewEvent[networkFields]("suite", "network")
	floats       = tompion.NewEvent[floatFields]("suite", "floats")
	booleans     = tompion.NewEvent[booleanFields]("suite", "booleans")
	texts        = tompion.NewEvent[textFields]("suite", "texts")
	blobs        = tompion.NewEvent[blobFields]("suite", "blobs")
	arrays       = tompion.NewEvent[arrayFields]("suite", "arrays")
	arrayTexts   = tompion.NewEvent[arrayTextFields]("suite", "array_texts")
	enumerations = tompion.NewEvent[enumerationFields]("suite", "enumerations")
	structures   = tompion.NewEvent[structureFields]("suite", "structures")
	empty        = tompion.NewEvent[nothing]("suite", "empty")

	emergency = tompion.NewEvent[nothing]("suite", "emerg", tompion.Emerg)
	alert     = tompion.NewEvent[nothing]("suite", "alert", tompion.Alert)
	critical  = tompion.NewEvent[nothing]("suite", "crit", tompion.Crit)
	erroneous = tompion.NewEvent[nothing]("suite", "err", tompion.Err)
	warning   = tompion.NewEvent[nothing]("suite", "warning", tompion.Warning)
	notice    = tompion.NewEvent[nothing]("suite", "notice", tompion.Notice)
	info      = tompion.NewEvent[nothing]("suite", "info", tompion.Info)
	debug     = tompion.NewEvent[nothing]("suite", "debug", tompion.Debug)
	ordinary  = tompion.NewEvent[nothing]("suite", "ordinary")

	outer   = tompion.NewSpan[what]("suite", "outer")
	inner   = tompion.NewSpan[depth]("suite", "inner")
	queue   = tompion.NewCounter[int64]("suite", "queue")
	load    = tompion.NewCounter[float64]("suite", "load")
	request = tompion.NewFlow("suite", "request")
	loaded  = tompion.NewMark[loading]("loaded", "rows %ld of %.1f %% in '%s'")
	cycle   = tompion.NewJob[control]("suite", "cycle")

	numbered = tompion.NewEvent[kindOfNumber]("suite", "number")
	noise    = tompion.NewEvent[number]("suite", "noise")
	child    = tompion.NewEvent[what]("suite", "child")
	parent   = tompion.NewEvent[what]("suite", "parent")
	worked   = tompion.NewEvent[work]("suite", "work")
	last     = tompion.NewEvent[nothing]("suite", "last")
	begin    = tompion.NewEvent[nothing]("suite", "begin")
	step     = tompion.NewEvent[number]("suite", "step")
	numbers  = tompion.NewEvent[torn]("suite", "torn")
)

func fieldTypes() {
	signed.Record(signedFields{math.MinInt8, math.MinInt16, math.MinInt32, math.MinInt64})
	unsigned.Record(unsignedFields{math.MaxUint8, math.MaxUint16, math.MaxUint32, math.MaxUint64})
	hexadecimal.Record(hexadecimalFields{0xab, 0xabcd, 0xabcdef01, 0xabcdef0123456789})
	// As they stand in a packet, on a machine that puts the least significant byte first.
	network.Record(networkFields{0x3412, 0x78563412, 1 << 56, -257, 0xcdab0000})
	floats.Record(floatFields{0.5, -1.25e10})
	booleans.Record(booleanFields{Yes: true})
	texts.Record(textFields{"häuser \"x\"", ""})
	blobs.Record(blobFields{A: []byte{0, 1, 0xff}})
	arrays.Record(arrayFields{A: [3]uint16{1, 2, 65535}, B: []int32{-1, 0, 1}})
	arrayTexts.Record(arrayTextFields{[4]byte{'a', 'b'}, []byte("text")})
	enumerations.Record(enumerationFields{1, -5, 7, 255})
	structures.Record(structureFields{point{7, "in"}})
	empty.Record(nothing{})
}

func levels() {
	for _, event := range []*tompion.Event[nothing]{
		emergency, alert, critical, erroneous, warning, notice, info, debug, ordinary,
	} {
		event.Record(nothing{})
	}
}

func nest(n int64) {
	defer inner.Begin(depth{n}).End()
	if n > 0 {
		nest(n - 1)
	}
}

func others() {
	queue.Set(-3)
	load.Set(0.75)
	request.Step(0xfeed)
	loaded.Record(loading{42, 12.5, "orders"})
	cycle.Begin(500*time.Microsecond, control{0.5}).End()
}

func tenNumbers() {
	for n := range int64(10) {
		kind := "even"
		if n%2 == 1 {
			kind = "odd"
		}
		numbered.Record(kindOfNumber{n, kind})
		noise.Record(number{n})
	}
}

// forks starts two programs: Go has no fork without exec.
func forks() {
	parent.Record(what{"before"})
	for _, name := range []string{"forked", "executed"} {
		if err := exec.Command(os.Args[0], name).Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	parent.Record(what{"behind"})
}

func threads() {
	var group sync.WaitGroup
	for thread := range int64(4) {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range int64(1000) {
				worked.Record(work{thread, n})
			}
		}()
	}
	group.Wait()
}

func steps() {
	begin.Record(nothing{})
	lines := bufio.NewReader(os.Stdin)
	for n := int64(0); ; n++ {
		fmt.Println("ready")
		if _, err := lines.ReadString('\n'); err != nil {
			return
		}
		step.Record(number{n})
	}
}

func endless() {
	for n := int64(0); ; n++ {
		numbers.Record(torn{n, "a text that could be torn", n})
		if n == 10000 {
			fmt.Println("progress")
		}
	}
}

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	cases := map[string]func(){
		"field_types": fieldTypes, "levels": levels, "others": others, "numbers": tenNumbers, "forks": forks,
		"threads": threads, "steps": steps, "endless": endless,
		"spans": func() {
			defer outer.Begin(what{"all"}).End()
			nest(2)
		},
		"exit": func() {
			last.Record(nothing{})
			os.Exit(0)
		},
	}
	switch perform, ok := cases[os.Args[1]]; {
	case ok:
		perform()
	case os.Args[1] == "forked" || os.Args[1] == "executed":
		child.Record(what{os.Args[1]})
	default:
		os.Exit(2)
	}
}

package filter

import (
	"encoding/binary"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tompion/tompion/bindings/go/internal/record"
)

// sample is a record with a field of every kind: that of crates/filter/tests/support/mod.rs.
type sample struct {
	fields []Field
	fixed  []byte
	tails  [][]byte
}

func (s *sample) add(name string, ty Type, bytes string) {
	s.fields = append(s.fields, Field{Name: name, Type: ty})
	s.fixed = append(s.fixed, bytes...)
}

func (s *sample) addTail(name string, ty Type, bytes string) {
	if ty.Count < 0 {
		size := max(int(ty.Size), 1)
		s.fixed = binary.LittleEndian.AppendUint32(s.fixed, uint32(len(bytes)/size))
	}
	s.tails = append(s.tails, []byte(bytes))
	s.fields = append(s.fields, Field{Name: name, Type: ty})
}

func unsigned(size uint8) Type { return Type{Kind: Integer, Size: size} }
func signed(size uint8) Type   { return Type{Kind: Integer, Size: size, Signed: true} }
func network(ty Type) Type     { ty.Network = true; return ty }

func text(n uint64, size int) string {
	return string(binary.LittleEndian.AppendUint64(nil, n)[:size])
}

func enumeration(ty Type, labels ...Label) Type {
	ty.Kind, ty.Labels = Enumeration, labels
	return ty
}

func newSample() *sample {
	s := new(sample)
	s.add("rows", unsigned(8), text(250, 8))
	s.add("ret", signed(4), "\xfe\xff\xff\xff")
	s.add("small", signed(1), "\x80")
	s.add("flags", unsigned(2), "\xa5\x00")
	s.add("big", unsigned(8), text(math.MaxUint64, 8))
	s.add("least", signed(8), text(1<<63, 8))
	s.add("net16", network(unsigned(2)), "\x1f\x90")
	s.add("net32", network(signed(4)), "\xff\xff\xff\xfd")
	s.add("net64", network(unsigned(8)), "\x00\x00\x00\x00\x00\x00\x01\x00")
	s.add("ms", Type{Kind: Float, Size: 8}, text(math.Float64bits(2.5), 8))
	s.add("half", Type{Kind: Float, Size: 4}, text(uint64(math.Float32bits(0.5)), 4))
	s.add("nan", Type{Kind: Float, Size: 8}, text(math.Float64bits(math.NaN()), 8))
	s.add("ok", unsigned(1), "\x01")
	s.add("state", enumeration(unsigned(1), NewLabel(0, 0, false, "idle"), NewLabel(1, 5, false, "running"),
		NewLabel(5, 9, false, "runaway"), NewLabel(20, 20, false, "*")), "\x05")
	s.add("mode", enumeration(signed(8), NewLabel(-10, -1, false, "bad"), NewLabel(0, 99, false, "good")),
		text(^uint64(6), 8))
	s.add("service", enumeration(network(unsigned(2)), NewLabel(80, 80, false, "http"),
		NewLabel(443, 443, false, "https")), "\x01\xbb")
	s.addTail("table", Type{Kind: Text, Count: -1}, "orders_2026")
	s.addTail("again", Type{Kind: Text, Size: 1, Count: -1}, "orders_2026\x00rest")
	s.addTail("host", Type{Kind: Text, Size: 1, Count: 8}, "caf\xc3\xa9\x00\x00\x00")
	s.addTail("path", Type{Kind: Text, Count: -1}, `C:\*?`)
	s.addTail("empty", Type{Kind: Text, Count: -1}, "")
	list := func(ty Type, count int) Type { ty.Kind, ty.Count = List, count; return ty }
	s.addTail("bytes", list(unsigned(1), -1), "\x7fELF")
	s.addTail("array", list(signed(2), 3), "\xff\xff\x02\x00\x03\x00")
	s.addTail("ports", list(network(unsigned(2)), -1), "\x00\x50\x01\xbb")
	s.addTail("none", list(unsigned(4), -1), "")
	inner := Type{Kind: Structure, Members: []Field{{Name: "name", Type: Type{Kind: Text, Count: -1}},
		{Name: "depth", Type: unsigned(1)}}}
	s.fields = append(s.fields, Field{Name: "nest", Type: Type{Kind: Structure, Members: []Field{
		{Name: "x", Type: signed(2)}, {Name: "inner", Type: inner}, {Name: "list", Type: list(unsigned(1), 2)},
	}}})
	s.fixed = append(s.fixed, "\xfb\xff\x03\x00\x00\x00\x09"...)
	s.tails = append(s.tails, []byte("abc"), []byte{6, 7})
	s.add("last", unsigned(4), text(77, 4))
	s.addTail("end", Type{Kind: Text, Count: -1}, "done")
	return s
}

func (s *sample) values() *Values {
	values := &Values{Image: s.fixed, Thread: 12}
	for _, tail := range s.tails {
		values.Tails = append(values.Tails, record.Tail{Data: unsafe.Pointer(unsafe.SliceData(tail)), Size: uintptr(len(tail))})
	}
	return values
}

// verdictsOf returns the cases of a test file of Rust: pairs of a filter and its verdict.
func verdictsOf(t *testing.T, path string) map[string]Verdict {
	source, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the cases of crates/filter are not there: %v", err)
	}
	cases := map[string]Verdict{}
	pair := regexp.MustCompile(`(?m)^\s+\((r#"(.*?)"#|r"([^"]*)"|"((?:[^"\\]|\\.)*)"), (True|False|Unknown)\),$`)
	for _, found := range pair.FindAllStringSubmatch(string(source), -1) {
		filter := found[2] + found[3]
		if found[4] != "" {
			if filter, err = strconv.Unquote(`"` + found[4] + `"`); err != nil {
				t.Fatalf("%s: %v", found[4], err)
			}
		}
		cases[filter] = map[string]Verdict{"True": True, "False": False, "Unknown": Unknown}[found[5]]
	}
	return cases
}

func TestVerdictsAreThoseOfTheRecorder(t *testing.T) {
	cases := verdictsOf(t, "../../../../crates/filter/tests/verdicts.rs")
	if len(cases) < 140 {
		t.Fatalf("expected the cases of the language, found %d", len(cases))
	}
	sample := newSample()
	values := sample.values()
	for filter, expected := range cases {
		if strings.Contains(filter, "$comm") {
			// Only the session knows it.
			continue
		}
		program := Compile(filter, sample.fields)
		if program == nil {
			// It asks for nothing that the event has, and is not true without.
			if expected == True {
				t.Errorf("%s: expected True, found that it can't be", filter)
			}
			continue
		}
		if found := program.Evaluate(values); found != expected {
			t.Errorf("%s: expected %d, found %d", filter, expected, found)
		}
	}
}

func TestWhatOnlyTheSessionKnowsIsLeftToIt(t *testing.T) {
	sample := newSample()
	for filter, defers := range map[string]bool{
		"rows > 1 && $prio > 3": true, "missing > 1 && rows > 3": false, "$tid == 12": false, "$comm == \"x\"": true,
	} {
		if found := Compile(filter, sample.fields); found == nil || found.Defers() != defers {
			t.Errorf("%s: expected %v, found %v", filter, defers, found)
		}
	}
}

func TestFiltersThatDontFitAreRefused(t *testing.T) {
	sample := newSample()
	for _, filter := range []string{
		"", "rows >", "rows = 1", "table > 1", "table", "rows == \"x\"", "nest == 1", "ports == 1", "array[3] == 1",
		"state == \"walking\"", "ms & 1", "~ms", "rows == 1 1", "(rows", "rows)", "1.5B == 1", "9x", "\"x\" == \"x\"",
		"'ab' == 1", "rows == 18446744073709551616", "$", "$app.x == 1", "rows.x == 1", "08 == 8", "1e3K == 1",
		strings.Repeat("(", 70) + "1" + strings.Repeat(")", 70), strings.Repeat("x", 5000),
	} {
		if Compile(filter, sample.fields) != nil {
			t.Errorf("%.40q was understood", filter)
		}
	}
}

func TestRecordsThatEndEarlyAreUnknown(t *testing.T) {
	sample := newSample()
	program := Compile("rows == 250 && end == \"done\" && array[2] == 3", sample.fields)
	for length := range sample.fixed {
		values := Values{Image: sample.fixed[:length], Thread: 12}
		if found := program.Evaluate(&values); found != Unknown {
			t.Errorf("%d bytes: %d", length, found)
		}
	}
}

func TestEvaluationsDontAllocate(t *testing.T) {
	sample := newSample()
	values := sample.values()
	program := Compile(`rows > 4 && table == "o*_20??" && (state == "run*" || ms > 3) && $tid == 12`, sample.fields)
	if program.Evaluate(values) != True {
		t.Error("expected True")
	}
	if found := testing.AllocsPerRun(100, func() { program.Evaluate(values) }); found != 0 {
		t.Errorf("%v allocations", found)
	}
}

func FuzzFilters(f *testing.F) {
	f.Add(`rows > 4 && table == "o*" || nest.inner.depth == 9 && -ret << 3 == 16`)
	f.Add(`1.5ms / ~big - least * 'a' == $app."a:b"`)
	sample := newSample()
	values := sample.values()
	f.Fuzz(func(t *testing.T, filter string) {
		if program := Compile(filter, sample.fields); program != nil {
			program.Evaluate(values)
			program.Evaluate(&Values{})
		}
	})
}

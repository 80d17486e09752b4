package main

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/exp/trace"
)

// circumstances are what the trace has in common with the recording: its clock, the process, and
// other properties, as texts in its metadata's language.
type circumstances struct{ env, clock string }

var (
	envBlock   = regexp.MustCompile(`(?s)\nenv \{\n.*?\n\};`)
	clockBlock = regexp.MustCompile(`(?s)\nclock \{\n.*?\n\};`)
	// producerLine says how the process has appended, which says nothing of this trace.
	producerLine = regexp.MustCompile(`(?m)^\s*ring_producer = .*\n`)
)

// readCircumstances reads the metadata of a process in a recording.
func readCircumstances(recording, process string) (circumstances, error) {
	pattern := process
	if process == "" {
		pattern = "*"
	}
	found, err := filepath.Glob(filepath.Join(recording, "user", pattern, "metadata"))
	if err != nil {
		return circumstances{}, err
	}
	if len(found) != 1 {
		var names []string
		for _, path := range found {
			names = append(names, filepath.Base(filepath.Dir(path)))
		}
		return circumstances{}, fmt.Errorf("expected one process in %s, found %d (%s); choose by -process",
			filepath.Join(recording, "user"), len(found), strings.Join(names, ", "))
	}
	metadata, err := os.ReadFile(found[0])
	if err != nil {
		return circumstances{}, err
	}
	read := circumstances{string(producerLine.ReplaceAll(envBlock.Find(metadata), nil)), string(clockBlock.Find(metadata))}
	if read.env == "" || !strings.Contains(read.clock, `name = "monotonic"`) ||
		!strings.Contains(read.clock, "freq = 1000000000;") {
		return read, fmt.Errorf("%s is no metadata of a recording", found[0])
	}
	return read, nil
}

// Numbers of the event classes that every trace has. Spans have two more for each name.
const (
	classState = iota
	classPhase
	firstSpan
)

// maxPacket is the size at which a packet is written, in bytes.
const maxPacket = 256 << 10

// packetHeader is the size of a packet's header and context.
const packetHeader = 4 + 16 + 4 + 6*8

// writer writes one stream of a CTF 1.8 trace.
type writer struct {
	circumstances circumstances
	file          *os.File
	buffered      *bufio.Writer
	uuid          [16]byte
	packet        []byte
	first, last   uint64
	sequence      uint64
	events        uint64
	// spans are the numbers of the spans' classes, by their names, in order.
	spans map[string]uint32
	names []string
}

func newWriter(path string, c circumstances) (*writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	w := &writer{circumstances: c, file: file, buffered: bufio.NewWriter(file), spans: map[string]uint32{}}
	_, err = rand.Read(w.uuid[:])
	return w, err
}

// event begins an event, and writes the packet before if that is full.
func (w *writer) event(time uint64, thread trace.ThreadID, class uint32) error {
	if len(w.packet) > maxPacket {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.packet) == 0 {
		w.packet, w.first = make([]byte, packetHeader, maxPacket+4096), time
	}
	w.last = time
	w.events++
	const extended = 31
	w.packet = append(w.packet, extended)
	w.packet = binary.LittleEndian.AppendUint32(w.packet, class)
	w.packet = binary.LittleEndian.AppendUint64(w.packet, time)
	w.packet = binary.LittleEndian.AppendUint32(w.packet, uint32(thread))
	return nil
}

func (w *writer) number(n uint64) { w.packet = binary.LittleEndian.AppendUint64(w.packet, n) }

func (w *writer) text(text string) { w.packet = append(append(w.packet, text...), 0) }

// span returns the number of a span's begin; that of its end is one more.
func (w *writer) span(name string) uint32 {
	class, ok := w.spans[name]
	if !ok {
		class = firstSpan + 2*uint32(len(w.names))
		w.spans[name] = class
		w.names = append(w.names, name)
	}
	return class
}

func (w *writer) begin(time uint64, thread trace.ThreadID, name string, id trace.GoID) error {
	err := w.event(time, thread, w.span(name))
	w.number(uint64(id))
	return err
}

func (w *writer) end(time uint64, thread trace.ThreadID, name string, id trace.GoID) error {
	err := w.event(time, thread, w.span(name)+1)
	w.number(uint64(id))
	return err
}

func (w *writer) state(time uint64, thread trace.ThreadID, id trace.GoID, to trace.GoState, reason string) error {
	err := w.event(time, max(thread, 0), classState)
	w.number(uint64(id))
	w.packet = append(w.packet, uint8(to))
	w.text(reason)
	return err
}

func (w *writer) phase(time uint64, thread trace.ThreadID, name string, state uint8) error {
	err := w.event(time, max(thread, 0), classPhase)
	w.text(name)
	w.packet = append(w.packet, state)
	return err
}

// flush writes a packet.
func (w *writer) flush() error {
	if len(w.packet) == 0 {
		return nil
	}
	bits := uint64(len(w.packet)) * 8
	header := binary.LittleEndian.AppendUint32(w.packet[:0], 0xc1fc1fc1)
	header = append(header, w.uuid[:]...)
	header = binary.LittleEndian.AppendUint32(header, 0)
	for _, word := range []uint64{w.first, w.last, bits, bits, w.sequence, 0} {
		header = binary.LittleEndian.AppendUint64(header, word)
	}
	w.sequence++
	_, err := w.buffered.Write(w.packet)
	w.packet = w.packet[:0:0]
	return err
}

// close writes the last packet and the metadata.
func (w *writer) close(metadata string) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.buffered.Flush(); err != nil {
		return err
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	return os.WriteFile(metadata, []byte(w.metadata()), 0o644)
}

const (
	unsigned = "integer { size = %d; align = 8; signed = false; encoding = none; base = 10;%s }"
	clocked  = " map = clock.monotonic.value;"
)

func (w *writer) metadata() string {
	var out strings.Builder
	integer := func(bits int, more string) string { return fmt.Sprintf(unsigned, bits, more) }
	id := fmt.Sprintf("%x-%x-%x-%x-%x", w.uuid[:4], w.uuid[4:6], w.uuid[6:8], w.uuid[8:10], w.uuid[10:])
	fmt.Fprintf(&out, "/* CTF 1.8 */\ntrace {\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"%s\";\n\tbyte_order = le;\n", id)
	fmt.Fprintf(&out, "\tpacket.header := struct {\n\t\t%s magic;\n\t\t%s uuid[16];\n\t\t%s stream_id;\n\t} align(8);\n};\n",
		integer(32, ""), integer(8, ""), integer(32, ""))
	fmt.Fprintf(&out, "%s\n%s\n\nstream {\n\tid = 0;\n\tpacket.context := struct {\n", w.circumstances.env, w.circumstances.clock)
	for _, field := range []struct{ name, more string }{{"timestamp_begin", clocked}, {"timestamp_end", clocked},
		{"content_size", ""}, {"packet_size", ""}, {"packet_seq_num", ""}, {"events_discarded", ""}} {
		fmt.Fprintf(&out, "\t\t%s %s;\n", integer(64, field.more), field.name)
	}
	fmt.Fprintf(&out, `	} align(8);
	event.header := struct {
		enum : integer { size = 5; align = 1; signed = false; encoding = none; base = 10; } { "compact" = 0 ... 30, "extended" = 31, } id;
		variant <id> {
			struct {
				integer { size = 27; align = 1; signed = false; encoding = none; base = 10;%s } timestamp;
			} compact;
			struct {
				%s id;
				%s timestamp;
			} align(8) extended;
		} v;
	} align(8);
	event.context := struct {
		integer { size = 32; align = 8; signed = true; encoding = none; base = 10; } _vtid;
	} align(8);
};
`, clocked, integer(32, ""), integer(64, clocked))
	w.classes(&out)
	return out.String()
}

// classes writes the event classes.
func (w *writer) classes(out *strings.Builder) {
	number, octet := fmt.Sprintf(unsigned, 64, ""), fmt.Sprintf(unsigned, 8, "")
	class := func(id uint32, name, uri, fields string) {
		if uri != "" {
			uri = "\tmodel.emf.uri = \"tompion:" + uri + "\";\n"
		}
		fmt.Fprintf(out, "\nevent {\n\tname = %q;\n\tid = %d;\n\tstream_id = 0;\n\tloglevel = 13;\n%s\tfields := struct {\n%s\t} align(8);\n};\n",
			"go:"+name, id, uri, fields)
	}
	var states strings.Builder
	for state := trace.GoUndetermined; state <= trace.GoSyscall; state++ {
		fmt.Fprintf(&states, "%q = %d, ", state.String(), uint8(state))
	}
	goroutine := "\t\t" + number + " _goroutine;\n"
	class(classState, "state", "", goroutine+"\t\tenum : "+octet+" { "+states.String()+"} _state;\n\t\tstring _reason;\n")
	class(classPhase, "phase", "", "\t\tstring _name;\n\t\tenum : "+octet+" { \"begins\" = 0, \"ends\" = 1, } _state;\n")
	for i, name := range w.names {
		class(firstSpan+2*uint32(i), name+"_begin", "begin", goroutine)
		class(firstSpan+2*uint32(i)+1, name+"_end", "end", goroutine)
	}
}

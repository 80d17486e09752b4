package tompion

import (
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/tompion/tompion/bindings/go/internal/filter"
	"github.com/tompion/tompion/bindings/go/internal/protocol"
	"github.com/tompion/tompion/bindings/go/internal/record"
	"github.com/tompion/tompion/bindings/go/internal/ring"
)

// Bits of an event's enabled word, besides one for each recording: as crates/agent/src/site.rs.
const (
	recordingsMask = 1<<protocol.MaxRecordings - 1
	// endShift: the recording takes the event only as the end of a span that it has the begin of.
	endShift = 16
	pinned   = 1 << 30
	filtered = 1 << 29
	// indirect: a value of Go is not the image as it stands.
	indirect = 1 << 28
)

// slots are the recordings that this process is part of. The first is one whose events go the
// shortest way.
var slots [protocol.MaxRecordings]atomic.Pointer[ring.Recording]

// core is an event, whatever its fields are.
type core struct {
	enabled uint32
	// id is the event's number in records, set before it is enabled.
	id atomic.Uint32
	// isDirect: a value of Go is the image as it stands.
	isDirect bool
	plan
	extras      extras
	names       protocol.Names
	description []byte
	schema      []filter.Field
	filters     [protocol.MaxRecordings]atomic.Pointer[filter.Program]
}

// extras says which words an event has besides those of the program's value.
type extras uint8

const (
	noExtras extras = iota
	// prefixed: one word stands before the fields, a job's deadline.
	prefixed
	// oneSuffix and twoSuffixes stand behind the fixed part: a span's number, and its parent's.
	oneSuffix
	twoSuffixes
)

// Event is an event whose fields are those of the struct T.
//
// It is safe for use by any number of goroutines. Recording neither allocates nor blocks.
type Event[T any] struct{ core }

// NewEvent declares an event. Events are declared once, as variables of a package:
//
//	type queryDone struct {
//		Rows  uint64
//		Table string
//	}
//
//	var done = tompion.NewEvent[queryDone]("db", "query_done", tompion.Info)
//
// Fields may be integers, floating-point numbers, booleans, strings, slices and arrays of integers,
// integers with labels ([Enum]), and structs of all these. A tag `tompion:"name,hex"` names a field
// and says how it is shown: `hex`; `network` (its bytes are in network order); `text` (bytes that
// are text); `list` (bytes that are numbers); `context`. The name `-` leaves a field out. A
// declaration that can't be is a mistake in the program: it panics.
func NewEvent[T any](provider, name string, options ...Option) *Event[T] {
	e := new(Event[T])
	e.declare(protocol.Instant, provider, name, reflect.TypeFor[T](), noExtras, "", options)
	return e
}

// Enabled says whether some recording takes the event. Ask before values are computed that cost
// something.
func (e *Event[T]) Enabled() bool { return e.isEnabled() }

// Record records the event. Without a recording it costs a load and a branch.
func (e *Event[T]) Record(fields T) {
	if atomic.LoadUint32(&e.enabled) != 0 {
		e.record(unsafe.Pointer(&fields))
	}
}

// noEscape hides a pointer from escape analysis: the event path keeps no pointer.
//
//go:nosplit
func noEscape(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

func (c *core) isEnabled() bool {
	return atomic.LoadUint32(&c.enabled)&(recordingsMask|recordingsMask<<endShift) != 0
}

// declare fills in an event and adds it to those of the process.
func (c *core) declare(kind protocol.Kind, provider, name string, ty reflect.Type, extras extras, format string, options []Option) {
	settings := settingsOf(options)
	c.names = protocol.Names{Provider: provider, Name: name, Level: uint8(settings.level), Kind: kind}
	c.extras = extras
	var d describer
	if extras == prefixed {
		d.addNumber("deadline_ns", codeU64, 0)
	}
	if ty != nil {
		d.addFields(ty)
	}
	if extras >= oneSuffix {
		d.addNumber("span", codeU64, fieldContext)
	}
	if extras == twoSuffixes {
		d.addNumber("parent", codeU64, fieldContext)
	}
	if kind == protocol.Mark {
		nameArguments(format, d.schema)
	}
	c.plan, c.schema = d.plan, d.schema
	c.description = d.finish(c.names, settings.isInit, format)
	isWhole := len(d.steps) == 0 || len(d.steps) == 1 && d.steps[0].kind == copyBytes && d.steps[0].offset == 0
	c.isDirect = isWhole && extras == noExtras && d.fixed%8 == 0 && d.fixed <= ring.MaxImage
	addEvent(c, settings.isInit)
}

// record records an event without extras.
func (c *core) record(value unsafe.Pointer) {
	hidden := noEscape(value)
	enabled := atomic.LoadUint32(&c.enabled)
	if recording := slots[0].Load(); enabled == 1 && recording != nil {
		if outcome := ring.AppendImage(recording, hidden, c.fixed, c.id.Load()); outcome != 0 {
			recording.AppendOtherwise(c.id.Load(), hidden, c.fixed, outcome)
		}
		return
	}
	c.build(hidden, nil, enabled&recordingsMask, true)
}

// smallImage is the size of images that most events with texts have, in bytes.
const smallImage = 128

// build makes the record of an event and appends it to these recordings, if `isFiltered` to those
// that let it through. It returns the recordings.
func (c *core) build(value unsafe.Pointer, extra *[2]uint64, mask uint32, isFiltered bool) uint32 {
	if mask == 0 {
		return 0
	}
	if mask == 1 && atomic.LoadUint32(&c.enabled)&^indirect == 1 && c.recordSmall(value, extra) {
		return mask
	}
	if c.fixed > ring.MaxImage {
		return c.buildLarge(value, extra, mask, isFiltered)
	}
	if c.tails > smallTails {
		return c.buildMany(value, extra, mask, isFiltered)
	}
	var tails [smallTails]ring.Part
	total := c.collect(value, tails[:])
	if total > smallImage {
		return c.buildMedium(value, extra, mask, isFiltered)
	}
	var image [smallImage]byte
	return c.deliver(unsafe.Pointer(&image), value, extra, tails[:c.tails], total, mask, isFiltered)
}

// recordSmall records an event that only the first recording takes, and whose bytes are few, in one
// pass over its fields: the way of most events with texts. False if there is no such recording, or
// the event is larger.
func (c *core) recordSmall(value unsafe.Pointer, extra *[2]uint64) bool {
	recording := slots[0].Load()
	if recording == nil || c.fixed > smallImage {
		return false
	}
	var buffer [smallImage]byte
	image := noEscape(unsafe.Pointer(&buffer))
	at, end := image, c.fixed
	if c.extras == prefixed {
		*(*uint64)(at) = extra[0]
		at = unsafe.Add(at, 8)
	}
	for i := range c.steps {
		s := &c.steps[i]
		from := unsafe.Add(value, s.offset)
		if s.kind == copyBytes {
			copyFixed(at, from, s.size)
			at = unsafe.Add(at, s.size)
			continue
		}
		size := s.size
		if s.kind == copyString {
			text := *(*string)(from)
			from, size = unsafe.Pointer(unsafe.StringData(text)), uintptr(len(text))
		} else if s.kind == copySlice {
			list := *(*[]byte)(from)
			from, size = unsafe.Pointer(unsafe.SliceData(list)), uintptr(len(list))*s.size
		}
		if size > smallImage-end {
			return false
		}
		if s.kind != copyArray {
			*(*uint32)(at) = uint32(size / s.size)
			at = unsafe.Add(at, 4)
		}
		copy(unsafe.Slice((*byte)(unsafe.Add(image, end)), size), unsafe.Slice((*byte)(from), size))
		end += size
	}
	if c.extras >= oneSuffix {
		*(*uint64)(at) = extra[0]
	}
	if c.extras == twoSuffixes {
		*(*uint64)(unsafe.Add(at, 8)) = extra[1]
	}
	if outcome := ring.AppendImage(recording, image, end, c.id.Load()); outcome != 0 {
		recording.AppendOtherwise(c.id.Load(), image, end, outcome)
	}
	return true
}

// smallTails is the number of tails that most events have at most.
const smallTails = 6

// buildMedium is build for images of up to MaxImage bytes, and those with long tails.
//
//go:noinline
func (c *core) buildMedium(value unsafe.Pointer, extra *[2]uint64, mask uint32, isFiltered bool) uint32 {
	var tails [smallTails]ring.Part
	total := c.collect(value, tails[:])
	var image [ring.MaxImage]byte
	return c.deliver(unsafe.Pointer(&image), value, extra, tails[:c.tails], total, mask, isFiltered)
}

// buildMany is build for events with many tails.
//
//go:noinline
func (c *core) buildMany(value unsafe.Pointer, extra *[2]uint64, mask uint32, isFiltered bool) uint32 {
	var tails [maxTails]ring.Part
	total := c.collect(value, tails[:])
	var image [ring.MaxImage]byte
	return c.deliver(unsafe.Pointer(&image), value, extra, tails[:c.tails], total, mask, isFiltered)
}

// maxFixed is the largest fixed part: 1024 fields of 8 bytes, with the extras.
const maxFixed = (maxFields + 2) * 8

// buildLarge is build for events with a large fixed part.
//
//go:noinline
func (c *core) buildLarge(value unsafe.Pointer, extra *[2]uint64, mask uint32, isFiltered bool) uint32 {
	var tails [maxTails]ring.Part
	total := c.collect(value, tails[:])
	var image [maxFixed]byte
	return c.deliver(unsafe.Pointer(&image), value, extra, tails[:c.tails], total, mask, isFiltered)
}

// collect finds the tails of a value. Returns the length of the record's bytes.
func (p *plan) collect(value unsafe.Pointer, tails []ring.Part) uintptr {
	total, count := p.fixed, 0
	if p.tails == 0 {
		return total
	}
	for i := range p.steps {
		s := &p.steps[i]
		at := unsafe.Add(value, s.offset)
		var part ring.Part
		switch s.kind {
		case copyBytes:
			continue
		case copyString:
			text := *(*string)(at)
			part = ring.Part{Data: unsafe.Pointer(unsafe.StringData(text)), Size: uintptr(len(text))}
		case copySlice:
			list := *(*[]byte)(at)
			part = ring.Part{Data: unsafe.Pointer(unsafe.SliceData(list)), Size: uintptr(len(list)) * s.size}
		case copyArray:
			part = ring.Part{Data: at, Size: s.size}
		}
		tails[count] = part
		count++
		total += part.Size
	}
	return total
}

// fill writes the fixed part of a record.
func (c *core) fill(image, value unsafe.Pointer, extra *[2]uint64, tails []ring.Part) {
	at, count := uintptr(0), 0
	if c.extras == prefixed {
		*(*uint64)(image) = extra[0]
		at = 8
	}
	for i := range c.steps {
		s := &c.steps[i]
		to := unsafe.Add(image, at)
		switch s.kind {
		case copyBytes:
			copyFixed(to, unsafe.Add(value, s.offset), s.size)
			at += s.size
		case copyArray:
			count++
		default:
			*(*uint32)(to) = uint32(tails[count].Size / s.size)
			at += 4
			count++
		}
	}
	if c.extras >= oneSuffix {
		*(*uint64)(unsafe.Add(image, at)) = extra[0]
	}
	if c.extras == twoSuffixes {
		*(*uint64)(unsafe.Add(image, at+8)) = extra[1]
	}
}

func copyFixed(to, from unsafe.Pointer, size uintptr) {
	switch size {
	case 8:
		*(*[8]byte)(to) = *(*[8]byte)(from)
	case 16:
		*(*[16]byte)(to) = *(*[16]byte)(from)
	case 4:
		*(*[4]byte)(to) = *(*[4]byte)(from)
	case 1:
		*(*byte)(to) = *(*byte)(from)
	default:
		copy(unsafe.Slice((*byte)(to), size), unsafe.Slice((*byte)(from), size))
	}
}

// imageSize returns the room in which deliver makes an image of a record's length.
func imageSize(fixed, total uintptr) uintptr {
	switch {
	case fixed > ring.MaxImage:
		return maxFixed
	case total <= smallImage:
		return smallImage
	}
	return ring.MaxImage
}

// deliver fills the image and appends the record to the recordings that take it.
func (c *core) deliver(image, value unsafe.Pointer, extra *[2]uint64, tails []ring.Part, total uintptr, mask uint32, isFiltered bool) uint32 {
	image = noEscape(image)
	c.fill(image, value, extra, tails)
	if isFiltered && atomic.LoadUint32(&c.enabled)&filtered != 0 {
		if mask = c.passing(image, tails, mask); mask == 0 {
			return 0
		}
	}
	size := c.fixed
	room := imageSize(c.fixed, total)
	if len(tails) != 0 && total <= room && total <= ring.MaxImage {
		for i := range tails {
			if tails[i].Size != 0 {
				copy(unsafe.Slice((*byte)(unsafe.Add(image, size)), tails[i].Size),
					unsafe.Slice((*byte)(tails[i].Data), tails[i].Size))
				size += tails[i].Size
			}
		}
		tails = nil
	}
	id, isPinned := c.id.Load(), atomic.LoadUint32(&c.enabled)&pinned != 0
	for slot := range slots {
		if mask&(1<<slot) == 0 {
			continue
		}
		if recording := slots[slot].Load(); recording != nil {
			if len(tails) == 0 && !isPinned && size <= ring.MaxImage && recording.IsDirect() {
				if outcome := ring.AppendImage(recording, image, size, id); outcome != 0 {
					recording.AppendOtherwise(id, image, size, outcome)
				}
			} else {
				recording.Append(uint16(id), image, size, tails, isPinned)
			}
		}
	}
	return mask
}

// isTooLarge says whether a record has no room for one of the tails.
func isTooLarge(tails []ring.Part) bool {
	for i := range tails {
		if tails[i].Size > record.MaxSize {
			return true
		}
	}
	return false
}

// passing returns those of the recordings whose filters let an event through, or leave it to the
// session.
func (c *core) passing(image unsafe.Pointer, tails []ring.Part, mask uint32) uint32 {
	passing := mask
	for slot := range c.filters {
		if mask&(1<<slot) == 0 {
			continue
		}
		program := c.filters[slot].Load()
		if program == nil {
			continue
		}
		values := filter.Values{
			Image: unsafe.Slice((*byte)(image), c.fixed), Tails: tails, Thread: ring.ThreadID(),
		}
		switch program.Evaluate(&values) {
		case filter.False:
			passing &^= 1 << slot
		case filter.Unknown:
			// What is too large for a record is left to the writer, which counts it as lost.
			if !program.Defers() && !isTooLarge(tails) {
				passing &^= 1 << slot
			}
		}
	}
	return passing
}

// Snapshot asks every recording that is a flight recorder to save what it holds. It returns whether
// there is a recording.
func Snapshot() bool {
	isAsked := false
	for slot := range slots {
		if recording := slots[slot].Load(); recording != nil && recording.RequestSnapshot() {
			isAsked = true
		}
	}
	return isAsked
}

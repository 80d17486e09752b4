package tompion

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tompion/tompion/bindings/go/internal/protocol"
)

// Spans is a kind of span: a stretch of time with a name, and fields of the struct T that are
// recorded at its begin. The begin of `query` is the event `query_begin`, its end `query_end`.
//
// A span belongs to the work, not to a thread: each has a number, in the field `span` of both of
// its events, since a goroutine may run on another thread at the end. `parent` is the number of the
// enclosing span, or 0.
type Spans[T any] struct{ begin, end core }

// NewSpan declares a kind of span. The options are as for [NewEvent].
func NewSpan[T any](provider, name string, options ...Option) *Spans[T] {
	s := new(Spans[T])
	s.begin.declare(protocol.Begin, provider, name+"_begin", reflect.TypeFor[T](), twoSuffixes, "", options)
	s.end.declare(protocol.End, provider, name+"_end", nil, oneSuffix, "", options)
	return s
}

// Span is a span that has begun. Its zero value is one that is not recorded.
type Span struct {
	end        *core
	id         uint64
	recordings uint32
}

// lastSpan is the number of the last span of the process.
var lastSpan atomic.Uint64

// spanKey is the key of a context's span.
type spanKey struct{}

// Enabled says whether some recording takes such spans.
func (s *Spans[T]) Enabled() bool { return s.begin.isEnabled() }

// Begin begins a span without a parent. End it by [Span.End], on any goroutine:
//
//	defer query.Begin(queryFields{Table: table}).End()
func (s *Spans[T]) Begin(fields T) Span {
	if atomic.LoadUint32(&s.begin.enabled) == 0 {
		return Span{}
	}
	return s.begin.beginSpan(&s.end, unsafe.Pointer(&fields), 0)
}

// Start begins a span inside of the context's one, and returns a context that carries it. Where the
// span is not recorded, the context is the given one.
func (s *Spans[T]) Start(ctx context.Context, fields T) (context.Context, Span) {
	if atomic.LoadUint32(&s.begin.enabled) == 0 {
		return ctx, Span{}
	}
	parent, _ := ctx.Value(spanKey{}).(uint64)
	span := s.begin.beginSpan(&s.end, unsafe.Pointer(&fields), parent)
	if span.id == 0 {
		return ctx, span
	}
	return context.WithValue(ctx, spanKey{}, span.id), span
}

func (c *core) beginSpan(end *core, fields unsafe.Pointer, parent uint64) Span {
	extra := [2]uint64{lastSpan.Add(1), parent}
	recordings := c.build(noEscape(fields), &extra, atomic.LoadUint32(&c.enabled)&recordingsMask, true)
	if recordings == 0 {
		return Span{}
	}
	return Span{end, extra[0], recordings}
}

// End ends the span, in the recordings that have its begin.
func (s Span) End() {
	if s.recordings == 0 {
		return
	}
	enabled := atomic.LoadUint32(&s.end.enabled)
	extra := [2]uint64{s.id}
	s.end.build(nil, &extra, (enabled|enabled>>endShift)&s.recordings&recordingsMask, false)
}

// ID returns the span's number; 0 if it is not recorded.
func (s Span) ID() uint64 { return s.id }

// Jobs is a kind of span that is one activation of a periodic job, which must end within a
// deadline.
//
// Jobs belong to threads: call [runtime.LockOSThread] first, as a real-time loop does anyway.
type Jobs[T any] struct{ begin, end core }

// NewJob declares a kind of job. The options are as for [NewEvent].
func NewJob[T any](provider, name string, options ...Option) *Jobs[T] {
	j := new(Jobs[T])
	j.begin.declare(protocol.Job, provider, name+"_begin", reflect.TypeFor[T](), prefixed, "", options)
	j.end.declare(protocol.End, provider, name+"_end", nil, noExtras, "", options)
	return j
}

// Enabled says whether some recording takes such jobs.
func (j *Jobs[T]) Enabled() bool { return j.begin.isEnabled() }

// Begin begins a job. A deadline of 0 is none.
func (j *Jobs[T]) Begin(deadline time.Duration, fields T) Span {
	if atomic.LoadUint32(&j.begin.enabled) == 0 {
		return Span{}
	}
	extra := [2]uint64{uint64(max(deadline, 0))}
	value := noEscape(unsafe.Pointer(&fields))
	recordings := j.begin.build(value, &extra, atomic.LoadUint32(&j.begin.enabled)&recordingsMask, true)
	return Span{&j.end, 0, recordings}
}

// Number is a type of a counter's values.
type Number interface{ int64 | uint64 | float64 }

// Counter is a quantity that changes.
type Counter[V Number] struct{ core core }

// NewCounter declares a counter. The options are as for [NewEvent].
func NewCounter[V Number](provider, name string, options ...Option) *Counter[V] {
	c := new(Counter[V])
	c.core.declare(protocol.Counter, provider, name, reflect.TypeFor[struct{ Value V }](), noExtras, "", options)
	return c
}

// Enabled says whether some recording takes the counter.
func (c *Counter[V]) Enabled() bool { return c.core.isEnabled() }

// Set records the quantity's new value.
func (c *Counter[V]) Set(value V) {
	if atomic.LoadUint32(&c.core.enabled) != 0 {
		c.core.record(unsafe.Pointer(&value))
	}
}

// Flow is the way of something through goroutines, threads and processes.
type Flow struct{ core core }

// NewFlow declares a flow. The options are as for [NewEvent].
func NewFlow(provider, name string, options ...Option) *Flow {
	f := new(Flow)
	ty := reflect.TypeFor[struct {
		ID uint64 `tompion:"id,hex"`
	}]()
	f.core.declare(protocol.Flow, provider, name, ty, noExtras, "", options)
	return f
}

// Enabled says whether some recording takes the flow.
func (f *Flow) Enabled() bool { return f.core.isEnabled() }

// Step records a step of the thing with this number.
func (f *Flow) Step(id uint64) {
	if atomic.LoadUint32(&f.core.enabled) != 0 {
		f.core.record(unsafe.Pointer(&id))
	}
}

// Mark is a message with a format of C's printf, recorded as its arguments: the fields of T.
type Mark[T any] struct{ core core }

// NewMark declares a mark, the event `mark:NAME`. The format takes its arguments from the fields of
// T in order; their names are those before the conversions:
//
//	var loaded = tompion.NewMark[struct { Rows int; Table string }]("loaded", "rows %d table %s")
func NewMark[T any](name, format string, options ...Option) *Mark[T] {
	m := new(Mark[T])
	m.core.declare(protocol.Mark, "mark", name, argumentsOf(reflect.TypeFor[T]()), noExtras, format, options)
	return m
}

// Enabled says whether some recording takes the mark.
func (m *Mark[T]) Enabled() bool { return m.core.isEnabled() }

// Record records the mark with its arguments.
func (m *Mark[T]) Record(arguments T) {
	if atomic.LoadUint32(&m.core.enabled) != 0 {
		m.core.record(unsafe.Pointer(&arguments))
	}
}

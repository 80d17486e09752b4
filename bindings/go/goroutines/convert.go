package main

import (
	"strings"

	"golang.org/x/exp/trace"
)

// goroutine is what is known of a goroutine.
type goroutine struct {
	// name is that of its function; empty if it is unknown.
	name string
	// thread runs it, by this span's name; 0 if none does.
	thread   trace.ThreadID
	span     string
	isInside bool
}

// converter turns the run-time's events into ours.
type converter struct {
	writer     *writer
	goroutines map[trace.GoID]*goroutine
	// offset turns the trace's times into CLOCK_MONOTONIC. Before Go 1.25 they are that.
	offset int64
	last   uint64
}

func newConverter(w *writer) *converter {
	return &converter{writer: w, goroutines: map[trace.GoID]*goroutine{}}
}

// systemCall is the span of a system call.
const systemCall = "syscall"

func (c *converter) convert(event *trace.Event) error {
	switch event.Kind() {
	case trace.EventSync:
		if clocks := event.Sync().ClockSnapshot; clocks != nil {
			c.offset = int64(clocks.Mono) - int64(clocks.Trace)
		}
	case trace.EventStateTransition:
		transition := event.StateTransition()
		if transition.Resource.Kind == trace.ResourceGoroutine {
			return c.transition(event, &transition)
		}
	case trace.EventRangeBegin, trace.EventRangeEnd:
		return c.phase(event)
	}
	return nil
}

// time returns the time of an event on the recording's clock; it never goes back.
func (c *converter) time(event *trace.Event) uint64 {
	c.last = max(c.last, uint64(int64(event.Time())+c.offset))
	return c.last
}

// phase tells of a phase of the collector, or of a stop of all goroutines.
func (c *converter) phase(event *trace.Event) error {
	phase := event.Range()
	if phase.Scope.Kind != trace.ResourceNone && !strings.HasPrefix(phase.Name, "stop-the-world") {
		return nil
	}
	state := uint8(0)
	if event.Kind() == trace.EventRangeEnd {
		state = 1
	}
	return c.writer.phase(c.time(event), event.Thread(), phase.Name, state)
}

// transition tells of a goroutine's new state.
func (c *converter) transition(event *trace.Event, transition *trace.StateTransition) error {
	id := transition.Resource.Goroutine()
	g := c.goroutines[id]
	if g == nil {
		g = new(goroutine)
		c.goroutines[id] = g
	}
	if g.name == "" {
		g.name = functionOf(transition.Stack)
	}
	from, to := transition.Goroutine()
	now := c.time(event)
	isInside := to == trace.GoSyscall
	if g.isInside && !isInside {
		if err := c.writer.end(now, g.thread, systemCall, id); err != nil {
			return err
		}
		g.isInside = false
	}
	if g.thread != 0 && (!to.Executing() || event.Thread() != g.thread) {
		if err := c.writer.end(now, g.thread, g.span, id); err != nil {
			return err
		}
		g.thread = 0
	}
	if to.Executing() && g.thread == 0 && event.Thread() > 0 {
		g.thread, g.span = event.Thread(), g.name
		if g.span == "" {
			g.span = "goroutine"
		}
		if err := c.writer.begin(now, g.thread, g.span, id); err != nil {
			return err
		}
	}
	if isInside && g.thread != 0 {
		g.isInside = true
		if err := c.writer.begin(now, g.thread, systemCall, id); err != nil {
			return err
		}
	}
	if to.Executing() || from == trace.GoUndetermined {
		return nil
	}
	return c.writer.state(now, event.Thread(), id, to, transition.Reason)
}

// finish ends what has not ended.
func (c *converter) finish() error {
	for id, g := range c.goroutines {
		if g.isInside {
			if err := c.writer.end(c.last, g.thread, systemCall, id); err != nil {
				return err
			}
		}
		if g.thread != 0 {
			if err := c.writer.end(c.last, g.thread, g.span, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// functionOf returns the function with which a stack begins; empty if it is unknown.
func functionOf(stack trace.Stack) string {
	name := ""
	for frame := range stack.Frames() {
		name = frame.Func
	}
	// A colon separates providers from names.
	return strings.ReplaceAll(name, ":", ".")
}

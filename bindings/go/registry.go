//go:build linux && (amd64 || arm64)

package tompion

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tompion/tompion/bindings/go/internal/filter"
	"github.com/tompion/tompion/bindings/go/internal/protocol"
	"github.com/tompion/tompion/bindings/go/internal/ring"
)

// joined is a recording that this process is part of.
type joined struct {
	// name is that under which its session listens.
	name      string
	recording *ring.Recording
	socket    *socket
	rules     string
	// generation is that of the rules.
	generation uint32
	// described are the numbers of the events that its catalog has.
	described map[uint32]bool
	// isExported: its name was put into the environment.
	isExported bool
}

// registered is an event with what only the registry knows of it.
type registered struct {
	*core
	isInit bool
}

// registry has the events and recordings of the process. Its lock is never taken on the event path.
var registry struct {
	sync.Mutex
	events []registered
	// numbers are the events' numbers, by their descriptions.
	numbers    map[string]uint32
	recordings [protocol.MaxRecordings]*joined
}

// addEvent adds an event, and enables it where it is recorded. The first one starts the agent.
func addEvent(c *core, isInit bool) {
	startAgent()
	registry.Lock()
	defer registry.Unlock()
	event := registered{c, isInit}
	registry.events = append(registry.events, event)
	enable(&event)
}

// numberOf returns the number of an event. Events with one description are one event.
func numberOf(c *core) uint32 {
	if registry.numbers == nil {
		registry.numbers = map[string]uint32{}
	}
	number, ok := registry.numbers[string(c.description)]
	if !ok {
		number = uint32(len(registry.numbers))
		registry.numbers[string(c.description)] = number
	}
	return number
}

// enable describes an event to all recordings, and says which ones take it: its description first,
// then its number, then its bit, so that no record is without a description.
func enable(e *registered) {
	mask := uint32(0)
	for slot, j := range registry.recordings {
		if j == nil {
			continue
		}
		number := numberOf(e.core)
		if number >= ring.MaxEvents || !j.describe(number, e.description) {
			j.recording.CountLost(ring.LostCatalog)
			continue
		}
		e.id.Store(ring.EventID(number))
		if !protocol.Take(j.rules, &e.names) {
			continue
		}
		text := protocol.Filter(j.rules)
		if text == "" {
			e.filters[slot].Store(nil)
			mask |= 1 << slot
			continue
		}
		switch program := filter.Compile(text, e.schema); {
		case program != nil:
			e.filters[slot].Store(program)
			mask |= 1<<slot | filtered
		case e.names.Kind == protocol.End:
			// The filter can't be true for this event, but may have been for the span's begin.
			mask |= 1 << slot << endShift
		}
	}
	if mask != 0 && !e.isDirect {
		mask |= indirect
	}
	if mask&recordingsMask != 0 && e.isInit {
		mask |= pinned
	}
	atomic.StoreUint32(&e.enabled, mask)
}

func enableAll() {
	for i := range registry.events {
		enable(&registry.events[i])
	}
	for _, j := range registry.recordings {
		if j != nil {
			j.recording.AcknowledgeRules(j.generation)
		}
	}
}

func (j *joined) describe(number uint32, description []byte) bool {
	if !j.described[number] && !j.recording.Describe(number, description) {
		return false
	}
	j.described[number] = true
	return true
}

// refreshRules reads the rules again.
func (j *joined) refreshRules() {
	if rules, generation, ok := j.recording.Rules(); ok {
		j.rules, j.generation = rules, generation
	}
}

// beginRecording begins a recording in a free slot, with the files that its session has sent.
func beginRecording(name string, socket *socket, files []int) (int, error) {
	if len(files) < 2 || len(files) > 4 {
		return 0, fmt.Errorf("expected two memory files, got %d", len(files))
	}
	recording, err := ring.Begin(files[0], files[1], believes)
	if err != nil {
		return 0, err
	}
	if len(files) > 2 {
		recording.SelectByKernel(files[2])
	}
	first := 0
	if !recording.IsDirect() {
		// The first place is that of events that go the shortest way.
		first = 1
	}
	for slot := first; slot < protocol.MaxRecordings; slot++ {
		if registry.recordings[slot] != nil {
			continue
		}
		j := &joined{name: name, recording: recording, socket: socket, described: map[uint32]bool{}}
		j.refreshRules()
		registry.recordings[slot] = j
		slots[slot].Store(recording)
		enableAll()
		recording.AcknowledgeListening()
		// The rules may have changed before the session knew that it is heard.
		before := j.generation
		if j.refreshRules(); j.generation != before {
			enableAll()
		}
		return slot, nil
	}
	recording.End()
	return 0, fmt.Errorf("this process is part of too many recordings")
}

// endRecording leaves a recording whose session is gone.
func endRecording(slot int) {
	registry.Lock()
	defer registry.Unlock()
	j := registry.recordings[slot]
	registry.recordings[slot] = nil
	for i := range registry.events {
		// The word is only changed under the lock.
		mask := atomic.LoadUint32(&registry.events[i].enabled) &^ (1<<slot | 1<<slot<<endShift)
		if mask&(recordingsMask|recordingsMask<<endShift) == 0 {
			mask = 0
		}
		atomic.StoreUint32(&registry.events[i].enabled, mask)
	}
	slots[slot].Store(nil)
	j.recording.End()
	if j.isExported {
		unexport(j.name)
	}
}

// export puts a session's name into the environment, so that programs find it that this one starts.
func export(name string) bool {
	known := os.Getenv(protocol.SessionVariable)
	if hasName(known, name) {
		return false
	}
	if known != "" {
		known += ":"
	}
	return os.Setenv(protocol.SessionVariable, known+name) == nil
}

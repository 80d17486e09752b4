//go:build linux && (amd64 || arm64)

package ring

import "unsafe"

// maxAttempts is how often an append may find other threads faster, or itself on another CPU.
const maxAttempts = 10_000

// reservation is the space of a record.
type reservation struct {
	position, events uint64
	// opened is where a sub-buffer begins, if isOpening.
	opened     uint64
	isOpening  bool
	begin, end uint64
	time       uint64
}

// verdict of an attempt to reserve.
type verdict int

const (
	isReserved verdict = iota
	isAgain
	isLost
)

// appendReserved appends by reserve and commit, as crates/ring/src/reserve.rs.
func (r *Recording) appendReserved(id uint16, image unsafe.Pointer, size uintptr, tails []Part) {
	if r.hasEnded.Load() {
		return
	}
	_, cpu := r.moment()
	payload := payloadLen(size, tails)
	if uint64(payload)+reserveHeader > r.geometry.maxRecord() {
		r.lose(cpu, lostTooLarge)
		return
	}
	length := (reserveHeader + uint64(payload) + 7) &^ 7
	for range maxAttempts {
		if cpu >= r.geometry.cpus {
			r.CountLost(lostNoRseq)
			return
		}
		ring := r.ring(cpu)
		space, now, cause, verdict := r.reserve(ring, cpu, length)
		switch verdict {
		case isReserved:
			r.fill(ring, &space, id, image, size, tails)
			return
		case isLost:
			r.lose(cpu, cause)
			return
		}
		cpu = now
	}
	r.lose(cpu, lostRetries)
}

// reserve takes `length` bytes, with a sub-buffer's header before them where one begins. It also
// returns the CPU on which the thread runs.
func (r *Recording) reserve(ring unsafe.Pointer, cpu uint32, length uint64) (reservation, uint32, Cause, verdict) {
	// The clock is read behind the thread that moved the position here.
	position := word(ring, offsetWrite).Load()
	events := word(ring, offsetEvents).Load()
	space := reservation{position: position, events: events, begin: position}
	if position%8 != 0 {
		// The program has damaged its ring: what is written must stay inside it all the same.
		return space, cpu, lostRetries, isLost
	}
	size := r.geometry.subbufSize
	start := position &^ (size - 1)
	inside := position - start
	if inside == 0 {
		space.opened, space.isOpening = position, true
	} else if inside+length > size {
		space.opened, space.isOpening = start+size, true
	}
	if space.isOpening {
		if cause, ok := r.mayOpen(ring, space.opened); !ok {
			// Or has it been opened, and read, since the position was loaded?
			if word(ring, offsetWrite).Load() != position {
				return space, cpu, 0, isAgain
			}
			return space, cpu, cause, isLost
		}
		space.begin = space.opened + subbufReserve
	}
	var now uint32
	if space.time, now = r.moment(); now != cpu {
		return space, now, 0, isAgain
	}
	// The position waits for the clock, so that the processor can't move it before the clock was
	// read. (No clock shows 2^63.)
	space.end = space.begin + length + space.time>>63
	if !exchangePair(ring, position, events, space.end, events+1) {
		return space, cpu, 0, isAgain
	}
	return space, cpu, 0, isReserved
}

// mayOpen says whether the sub-buffer that begins at a position may be written, or why not.
func (r *Recording) mayOpen(ring unsafe.Pointer, start uint64) (Cause, bool) {
	if r.isOverwrite {
		committed := word(ring, r.place(start)+subbufComitted).Load()
		laps := start / r.geometry.ringSize()
		return lostUnfinished, committed == laps*r.geometry.subbufSize
	}
	// Pairs with the reader's fence when it withdraws room.
	fence()
	behind := start + r.geometry.subbufSize - word(ring, offsetConsumed).Load()
	return lostFull, behind <= r.geometry.ringSize()
}

// place returns the offset of a position in a ring.
func (r *Recording) place(position uint64) uintptr { return uintptr(offsetData + position&r.ringMask) }

// fill writes what was reserved, and commits it. All words but the commit words are published by
// these; Go's atomics order them.
func (r *Recording) fill(ring unsafe.Pointer, space *reservation, id uint16, image unsafe.Pointer, size uintptr, tails []Part) {
	committed := space.end - space.begin
	if space.isOpening {
		start := space.opened
		if start != space.position {
			word(ring, r.place(space.position)).Store(paddingStamp(space.position))
			r.count(ring, space.position, start-space.position)
		}
		place := unsafe.Add(ring, r.place(start))
		const head = recordSubbuf | subbufReserve/8<<16
		for index, value := range [...]uint64{head, space.time, start, lostIn(ring), space.events} {
			storePlain(place, 8+index*8, value)
		}
		word(place, 0).Store(stamp(start))
		committed += subbufReserve
	}
	place := unsafe.Add(ring, r.place(space.begin))
	length := space.end - space.begin
	storePlain(place, int(length)-8, 0)
	storePlain(place, 8, uint64(id)|length/8<<16|uint64(ThreadID())<<32)
	storePlain(place, 16, space.time)
	at := unsafe.Add(place, reserveHeader)
	copyIn(at, image, size)
	for i := range tails {
		at = unsafe.Add(at, size)
		size = tails[i].Size
		copyIn(at, tails[i].Data, size)
	}
	// A reader that sees the stamp sees the record.
	word(place, 0).Store(stamp(space.begin))
	r.count(ring, space.begin, committed)
}

func storePlain(base unsafe.Pointer, offset int, value uint64) {
	*(*uint64)(unsafe.Add(base, offset)) = value
}

// count counts bytes that were committed in the sub-buffer that holds a position.
func (r *Recording) count(ring unsafe.Pointer, position, length uint64) {
	start := position &^ (r.geometry.subbufSize - 1)
	word(ring, r.place(start)+subbufComitted).Add(length)
}

// lostIn returns the number of events that the ring has lost so far.
func lostIn(ring unsafe.Pointer) uint64 {
	sum := uint64(0)
	for cause := range uintptr(causes) {
		sum += word(ring, offsetLost+cause*8).Load()
	}
	return sum
}

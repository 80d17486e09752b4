//go:build linux

package ring

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Outcomes of a section.
const (
	isWritten uint32 = iota
	needsSubbuffer
	isRestartedTooOften
	hasNoRing
	isChanged
	hasNoArea
)

// maxSwitches is how often an append may find its sub-buffer full and look again.
const maxSwitches = 1000

// putRequest is the opening or padding of a sub-buffer.
type putRequest struct {
	ring                                       unsafe.Pointer
	expected, next, head, position, lost, time uint64
	cpu, given                                 uint32
}

// AppendImage appends a record that is an image alone, by the shortest way. The recording is
// direct, the image has at most MaxImage bytes and is readable up to the next multiple of 8. If the
// result is not 0, [Recording.AppendOtherwise] goes on with it.
//
//go:noescape
func AppendImage(r *Recording, image unsafe.Pointer, size uintptr, id uint32) uint32

//go:noescape
func appendParts(r *Recording, parts, end *Part, size uintptr, id, given uint32, time uint64) uint32

//go:noescape
func sectionPut(r *Recording, p *putRequest) uint32

func sectionCode() [3]uintptr
func threadArea() uintptr
func setThreadArea(area uintptr)

//go:noescape
func counterAndCPU() (ticks uint64, cpu uint32)

//go:noescape
func counter() uint64
func cpuid(leaf uint32) (a, b, c, d uint32)

// areaDistance is the distance of a thread's area from the thread pointer in a program with cgo.
var areaDistance uintptr

// descriptors is where the sections' descriptors stand, 32 bytes each, as `struct rseq_cs`.
var descriptors uintptr

// AppendOtherwise goes on where AppendImage could not.
//
//go:noinline
func (r *Recording) AppendOtherwise(id uint32, image unsafe.Pointer, size uintptr, outcome uint32) {
	parts := [1]Part{{Data: image, Size: size}}
	r.appendOtherwise(uint16(id), parts[:], size, 0, outcome)
}

// maxParts is the number of parts of an event that are taken without a copy.
const maxParts = 64

// appendBySection appends an event with tails, or a given time.
func (r *Recording) appendBySection(id uint16, image unsafe.Pointer, size uintptr, tails []Part) {
	payload := payloadLen(size, tails)
	if len(tails) >= maxParts || uint64(payload)+recordHeader > r.geometry.maxRecord() {
		inFlight.enter()
		if !r.hasEnded.Load() {
			r.lose(r.likelyCPU(), lostTooLarge)
		}
		inFlight.leave()
		return
	}
	var buffer [maxParts]Part
	buffer[0] = Part{Data: image, Size: size}
	parts := buffer[:1+copy(buffer[1:], tails)]
	var time uint64
	if r.isGivenTime {
		time = uint64(nanotime())
	}
	if outcome := r.tryParts(id, parts, payload, time); outcome != isWritten {
		r.appendOtherwise(id, parts, payload, time, outcome)
	}
}

func (r *Recording) tryParts(id uint16, parts []Part, payload uintptr, time uint64) uint32 {
	first := unsafe.Pointer(&parts[0])
	end := unsafe.Add(first, uintptr(len(parts))*unsafe.Sizeof(Part{}))
	given := uint32(0)
	if r.isGivenTime {
		given = 1
	}
	return appendParts(r, (*Part)(first), (*Part)(end), payload, uint32(id), given, time)
}

// appendOtherwise goes on where a section could not: makes room and tries again, or counts the
// loss.
func (r *Recording) appendOtherwise(id uint16, parts []Part, payload uintptr, time uint64, outcome uint32) {
	inFlight.enter()
	defer inFlight.leave()
	for range maxSwitches {
		if r.hasEnded.Load() {
			return
		}
		cause, isLost := Cause(0), false
		switch outcome {
		case isWritten:
			return
		case needsSubbuffer:
			cause, isLost = r.makeRoom((uint64(payload)+recordHeader+7)&^7, time)
		case isRestartedTooOften:
			cause, isLost = lostRetries, true
		case hasNoArea:
			registerThread()
		default:
			r.CountLost(lostNoRseq)
			return
		}
		if isLost {
			r.lose(r.likelyCPU(), cause)
			return
		}
		outcome = r.tryParts(id, parts, payload, time)
	}
	if !r.hasEnded.Load() {
		r.lose(r.likelyCPU(), lostRetries)
	}
}

// makeRoom pads the present CPU's sub-buffer, or opens the next one, whichever is due. What has
// changed meanwhile is left to the next attempt. It returns whether the event is lost, and why.
func (r *Recording) makeRoom(length, time uint64) (Cause, bool) {
	if length > r.geometry.maxRecord() {
		return lostTooLarge, true
	}
	if half(r.control.base, controlEnded).Load() != 0 {
		// The session has no reader any more. The next attempt finds no recording.
		r.hasEnded.Store(true)
		atomic.StoreUint32(&r.cpus, 0)
		return 0, false
	}
	cpu := r.likelyCPU()
	if cpu >= r.geometry.cpus {
		return 0, false
	}
	ring := r.ring(cpu)
	position := word(ring, offsetWrite).Load()
	if position%8 != 0 {
		// The program has written over it. Padding would reach beyond the sub-buffer.
		return lostFull, true
	}
	size := r.geometry.subbufSize
	inside := position & (size - 1)
	if inside != 0 && inside+length <= size {
		return 0, false
	}
	start := position
	if inside != 0 {
		start += size - inside
	}
	// Pairs with the reader's fence when it withdraws room.
	fence()
	behind := int64(start + size - word(ring, offsetConsumed).Load())
	if !r.isOverwrite && behind > int64(r.geometry.ringSize()) {
		return lostFull, true
	}
	put := putRequest{ring: ring, cpu: cpu, expected: position, next: start, position: start, lost: lostIn(ring), time: time}
	if r.isGivenTime {
		put.given = 1
	}
	if inside == 0 {
		put.next, put.head = start+subbufLen, recordSubbuf|subbufLen/8<<16
	}
	if sectionPut(r, &put) == isRestartedTooOften {
		return lostRetries, true
	}
	return 0, false
}

// likelyCPU returns the CPU on which the thread runs, or ran a moment ago; a number that no CPU has if
// the kernel has refused the thread's area.
func (r *Recording) likelyCPU() uint32 {
	if r.isReserve {
		_, cpu := counterAndCPU()
		return cpu
	}
	procPin()
	defer procUnpin()
	if threadArea() == 0 {
		registerThread()
	}
	return atomic.LoadUint32((*uint32)(unsafe.Add(pointer(threadArea()), 4)))
}

// moment returns the time on the recording's clock, and the CPU on which it was read. In section form
// the processor may lack the instruction that tells both.
func (r *Recording) moment() (time uint64, cpu uint32) {
	switch {
	case r.isReserve:
		time, cpu = counterAndCPU()
	case !r.isGivenTime:
		time, cpu = counter(), r.likelyCPU()
	default:
		cpu = r.likelyCPU()
	}
	if r.isGivenTime {
		time = uint64(nanotime())
	}
	return time, cpu
}

// checkProcessor says why rings in reserve form can't be written on this machine.
func checkProcessor() error {
	const exchanges, hasCounter = 1 << 13, 1 << 27
	_, _, c, _ := cpuid(1)
	most, _, _, _ := cpuid(0x80000000)
	var d uint32
	if most >= 0x80000001 {
		_, _, _, d = cpuid(0x80000001)
	}
	if c&exchanges == 0 || d&hasCounter == 0 {
		return errors.New("the processor lacks cmpxchg16b or rdtscp")
	}
	for range 8 {
		// The thread may move between the two questions.
		if _, cpu := counterAndCPU(); cpu == kernelCPU() {
			return nil
		}
	}
	return errors.New("rdtscp does not tell the CPU")
}

// Each thread has an area of 64 bytes: what the kernel knows of it (`struct rseq`), then its id.
const (
	areaSize  = 64
	areaID    = 32
	maxAreas  = 1 << 16
	signature = 0x53053053
)

// areas of all threads. They stay for good, since the kernel writes them.
var areas struct {
	memory mapping
	used   atomic.Uint32
	// without is the area of threads that the kernel refused: its CPU has no ring.
	without uintptr
	lock    sync.Mutex
}

// prepareSections finds out whether threads can have restartable sequences.
func prepareSections() Threads {
	because := func(reason string) Threads { return Threads{Reason: reason} }
	distance, ok := uint64(0), true
	if iscgo {
		distance, ok = libraryDistance()
	}
	switch {
	case offsetID == 0:
		return because("the layout of Go's threads is not known")
	case !ok:
		return because("the C library has no restartable sequences")
	case !iscgo && !hasFreeThreadWord():
		return because("no free word behind the thread pointer")
	}
	var table [3][4]uint64
	for index, code := range sectionCode() {
		descriptor, ok := describeSection(code)
		if !ok {
			return because("the sections' code has no marks")
		}
		table[index] = descriptor
	}
	memory, err := mapPrivate(areaSize * maxAreas)
	if err != nil {
		return because("no memory for threads' areas: " + err.Error())
	}
	const registerPrivateExpeditedRseq = 1 << 8
	if _, _, errno := syscall.RawSyscall(sysMembarrier, registerPrivateExpeditedRseq, 0, 0); errno != 0 {
		memory.unmap()
		return because("no section barrier: " + errno.Error())
	}
	// The first two places are the descriptors', the third is that of refused threads.
	for index, descriptor := range table {
		*(*[4]uint64)(unsafe.Add(memory.base, index*32)) = descriptor
	}
	areas.memory = memory
	areas.without = uintptr(unsafe.Add(memory.base, 2*areaSize))
	*(*uint32)(unsafe.Add(memory.base, 2*areaSize+4)) = ^uint32(0)
	areas.used.Store(3)
	descriptors = uintptr(memory.base)
	areaDistance = uintptr(distance)
	if !iscgo && !registerThread() {
		return because("the kernel registers no restartable sequences")
	}
	return Threads{Sections: true}
}

// hasFreeThreadWord says whether the thread pointer leads into the runtime's own storage for
// threads: six words, of which Go uses the first, before the pointer. The fourth is taken here.
func hasFreeThreadWord() bool {
	const getFS = 0x1003
	procPin()
	defer procUnpin()
	var pointerOfThread uint64
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, getFS, uintptr(unsafe.Pointer(&pointerOfThread)), 0)
	g := currentG()
	m := *(*uint64)(unsafe.Add(g, offsetM))
	if errno != 0 || pointerOfThread < m+8 || pointerOfThread+32 > m+bytesOfM {
		return false
	}
	words := (*[4]uint64)(unsafe.Add(pointer(uintptr(pointerOfThread)), -8))
	return words[0] == uint64(uintptr(g)) && words[1] == 0 && words[2] == 0 && words[3] == 0
}

// describeSection finds the marks of a section in its code, and returns its descriptor.
func describeSection(code uintptr) ([4]uint64, bool) {
	const size = 1024
	bytes, ok := readOwnMemory(uint64(code), size)
	if !ok {
		return [4]uint64{}, false
	}
	nop := func(number uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{0x0f, 0x1f, 0x84, 0x00}, number)
	}
	abort := binary.LittleEndian.AppendUint32([]byte{0x0f, 0xb9, 0x3d}, signature)
	begin, end, stop := indexOf(bytes, nop(0x54b31001)), indexOf(bytes, nop(0x54b31002)), indexOf(bytes, abort)
	if begin < 0 || end < begin || stop < end {
		return [4]uint64{}, false
	}
	start := uint64(code) + uint64(begin) + 8
	return [4]uint64{0, start, uint64(code) + uint64(end) - start, uint64(code) + uint64(stop) + 7}, true
}

func indexOf(bytes, part []byte) int {
	for at := 0; at+len(part) <= len(bytes); at++ {
		if string(bytes[at:at+len(part)]) == string(part) {
			return at
		}
	}
	return -1
}

// registerThread gives the calling thread an area, by one system call in its life. False if it has
// none that the kernel knows.
func registerThread() bool {
	procPin()
	defer procUnpin()
	if area := threadArea(); area != 0 {
		return area != areas.without
	}
	area := takeArea()
	if area == 0 {
		setThreadArea(areas.without)
		return false
	}
	*(*uint32)(unsafe.Add(pointer(area), areaID)) = kernelThreadID()
	const size = 32
	_, _, errno := syscall.RawSyscall6(sysRseq, area, size, 0, signature, 0, 0)
	if errno != 0 {
		setThreadArea(areas.without)
		return false
	}
	setThreadArea(area)
	return true
}

// takeArea returns an area that no thread has; 0 if there is none. Threads that have ended leave
// theirs behind, which are looked for once all have been used.
func takeArea() uintptr {
	if index := areas.used.Add(1) - 1; index < maxAreas {
		return uintptr(unsafe.Add(areas.memory.base, uintptr(index)*areaSize))
	}
	areas.used.Store(maxAreas)
	if !areas.lock.TryLock() {
		return 0
	}
	defer areas.lock.Unlock()
	for index := uintptr(3); index < maxAreas; index++ {
		area := unsafe.Add(areas.memory.base, index*areaSize)
		id := *(*uint32)(unsafe.Add(area, areaID))
		_, _, errno := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), uintptr(id), 0)
		if errno == syscall.ESRCH {
			*(*[4]uint64)(area) = [4]uint64{}
			return uintptr(area)
		}
	}
	return 0
}

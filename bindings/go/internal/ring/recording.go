//go:build linux && (amd64 || arm64)

package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/tompion/tompion/bindings/go/internal/record"
)

// Recording is one recording of this process, as the event path sees it. It never changes once it
// has begun, but for `cpus`: a thread that has found one knows all of it, even if it ends
// meanwhile.
type Recording struct {
	// cpus is the number of rings; 0 once the recording has ended, and in reserve form.
	cpus         uint32
	selectorMask uint32
	selector     unsafe.Pointer
	buffers      [2]unsafe.Pointer
	cpuStride    uint64
	subbufMask   uint64
	ringMask     uint64

	control, rings mapping
	geometry       geometry
	isReserve      bool
	isOverwrite    bool
	isGivenTime    bool
	isPrefault     bool
	hasEnded       atomic.Bool
	populated      uint64
}

// Part is a piece of an event's bytes.
type Part = record.Tail

// maxRings is the maximum address space of a recording's rings.
const maxRings = 1 << 40

// warmBytes are made present when a recording begins: of the present CPU's ring, with its header.
const warmBytes = 64*1024 + page

// Begin maps the files that a session has sent, checks them, and begins its recording.
//
// `believes` says which users may shorten a file that is not sealed.
func Begin(controlFile, ringFile int, believes func(uid uint32) bool) (*Recording, error) {
	size, err := checkFile(controlFile, []uint64{ControlSize}, believes)
	if err != nil {
		return nil, err
	}
	control, err := mapShared(controlFile, uintptr(size))
	if err != nil {
		return nil, err
	}
	r := &Recording{control: control}
	if err := r.readSetup(); err != nil {
		control.unmap()
		return nil, err
	}
	if err := r.mapRings(ringFile, believes); err != nil {
		control.unmap()
		return nil, fmt.Errorf("can't map the rings: %w", err)
	}
	if r.isPrefault {
		r.rings.populate(0, uint64(r.rings.size))
		r.control.populate(0, page)
		r.control.populate(controlPinned, controlPinnedSize)
	}
	r.rings.populate(r.geometry.cpuStride()*uint64(min(kernelCPU(), r.geometry.cpus-1)), warmBytes)
	return r, nil
}

// readSetup reads the control file's header.
func (r *Recording) readSetup() error {
	base := r.control.base
	if word(base, 0).Load() != controlMagic {
		return errMagic
	}
	if version := half(base, controlVersion).Load(); version != layoutVersion {
		return fmt.Errorf("expected memory layout %d, found %d", layoutVersion, version)
	}
	flags := half(base, controlFlags).Load()
	r.isReserve = flags&flagReserve != 0
	r.isOverwrite = flags&flagOverwrite != 0
	r.isGivenTime = flags&flagMonotonic != 0
	r.isPrefault = flags&flagPrefault != 0
	r.geometry = geometry{
		subbufSize:  word(base, controlSubbufSize).Load(),
		subbufCount: word(base, controlSubbufCount).Load(),
		cpus:        half(base, controlCPUs).Load(),
		buffers:     half(base, controlBuffers).Load(),
	}
	if err := r.geometry.check(); err != nil {
		return err
	}
	if !r.isReserve && !PrepareThreads().Sections {
		return errors.New("this process has no restartable sequences (rseq)")
	}
	if r.isReserve {
		return checkProcessor()
	}
	return nil
}

func (r *Recording) mapRings(file int, believes func(uid uint32) bool) error {
	size := r.geometry.fileSize()
	if size > maxRings {
		return fmt.Errorf("rings of more than %d GiB", maxRings>>30)
	}
	if _, err := checkFile(file, []uint64{size}, believes); err != nil {
		return err
	}
	var err error
	if r.rings, err = mapShared(file, uintptr(size)); err != nil {
		return err
	}
	g := r.geometry
	r.selector = unsafe.Add(r.control.base, controlSelector)
	r.selectorMask = g.buffers - 1
	second := uint64(0)
	if g.buffers == 2 {
		second = g.bufferStride()
	}
	r.buffers = [2]unsafe.Pointer{r.rings.base, unsafe.Add(r.rings.base, second)}
	r.cpuStride = g.cpuStride()
	r.subbufMask = ^(g.subbufSize - 1)
	r.ringMask = g.ringSize() - 1
	if !r.isReserve {
		atomic.StoreUint32(&r.cpus, g.cpus)
	}
	return nil
}

// IsDirect says whether events may go the shortest way: by sections that read the clock.
func (r *Recording) IsDirect() bool { return !r.isReserve && !r.isGivenTime }

// Append appends an event's record: its image, then its tails. A loss has been counted.
func (r *Recording) Append(id uint16, image unsafe.Pointer, size uintptr, tails []Part, isPinned bool) {
	if isPinned && r.isOverwrite && r.appendPinned(id, image, size, tails) {
		return
	}
	if r.isReserve {
		r.appendReserved(id, image, size, tails)
		return
	}
	r.appendBySection(id, image, size, tails)
}

// CountLost counts an event that no ring could take.
func (r *Recording) CountLost(cause Cause) {
	if inFlight.enter(); !r.hasEnded.Load() {
		word(r.control.base, controlLost+uintptr(cause)*8).Add(1)
	}
	inFlight.leave()
}

// lose counts a loss in the ring of the present CPU. The counters have several writers here, so
// they are added to atomically.
func (r *Recording) lose(cpu uint32, cause Cause) {
	if cpu >= r.geometry.cpus {
		r.CountLost(cause)
		return
	}
	word(r.ring(cpu), offsetLost+uintptr(cause)*8).Add(1)
}

// ring returns the ring of a CPU in the buffer that the session has selected.
func (r *Recording) ring(cpu uint32) unsafe.Pointer {
	buffer := (*atomic.Uint32)(r.selector).Load() & r.selectorMask
	return unsafe.Add(r.buffers[buffer&1], uint64(cpu)*r.cpuStride)
}

// RequestSnapshot asks the session to save what the rings hold. False if the recording has ended.
func (r *Recording) RequestSnapshot() bool {
	inFlight.enter()
	defer inFlight.leave()
	if r.hasEnded.Load() {
		return false
	}
	word(r.control.base, controlSnapshots).Add(1)
	return true
}

// Rules reads the rules: a text that the session may replace at any time. False if it never stood
// still, or can't be.
func (r *Recording) Rules() (text string, generation uint32, ok bool) {
	for range 1000 {
		before := word(r.control.base, controlGeneration).Load()
		generation, size := uint32(before), uintptr(before>>32)
		if generation%2 == 0 && size <= controlRulesSize {
			bytes := make([]byte, size)
			for at := range bytes {
				bytes[at] = *(*byte)(unsafe.Add(r.control.base, controlRules+at))
			}
			fence()
			if word(r.control.base, controlGeneration).Load() == before {
				return string(bytes), generation, true
			}
		}
		yield()
	}
	return "", 0, false
}

func yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// AcknowledgeRules tells the session that events are enabled by the rules of a generation.
func (r *Recording) AcknowledgeRules(generation uint32) {
	word(r.control.base, controlRulesSeen).Store(uint64(generation))
}

// AcknowledgeListening tells the session that this process hears what it says.
func (r *Recording) AcknowledgeListening() {
	word(r.control.base, controlListens).Store(1)
	fence()
}

// Describe adds an event's description to the catalog. False if there is no room. The caller makes
// sure that there is one at a time.
func (r *Recording) Describe(number uint32, description []byte) bool {
	used := word(r.control.base, controlCatalog)
	end := used.Load()
	size := (8 + uint64(len(description)) + 7) &^ 7
	if end > controlCatalogSize-8 || end+size > controlCatalogSize-8 {
		return false
	}
	var header [8]byte
	binary.LittleEndian.PutUint32(header[:], number)
	binary.LittleEndian.PutUint32(header[4:], uint32(len(description)))
	at := unsafe.Add(r.control.base, controlCatalog+8+end)
	copyIn(at, unsafe.Pointer(&header[0]), 8)
	copyIn(unsafe.Add(at, 8), unsafe.Pointer(&description[0]), uintptr(len(description)))
	// A session that sees the length sees the entry.
	used.Store(end + size)
	return true
}

// Populate makes pages of a ring present that the session says will be written next. Other requests
// are passed over: the kernel supplies those pages when they are touched.
func (r *Recording) Populate(offset, size uint64) {
	stride := r.geometry.cpuStride()
	if offset >= uint64(r.rings.size) {
		return
	}
	ring := unsafe.Add(r.rings.base, offset/stride*stride)
	size = r.geometry.ahead(offset, size, word(ring, offsetWrite).Load())
	if size != 0 && r.populated+size <= uint64(r.rings.size) {
		r.populated += size
		r.rings.populate(offset, size)
	}
}

// flights counts threads in the slow parts of appends, which nothing restarts.
type flights struct{ count atomic.Int64 }

func (f *flights) enter() { f.count.Add(1) }
func (f *flights) leave() { f.count.Add(-1) }

var inFlight flights

var (
	retiredLock sync.Mutex
	// retired is the memory of ended recordings that a thread may still write.
	retired []mapping
)

// End ends the recording. Afterwards no append reaches the session.
//
// A thread inside a section is restarted and finds no ring. A thread in a slow part is counted, and
// the memory stays, without the session's behind it, until there is none. In reserve form nothing
// tells whether a thread is inside an append: the addresses stay for good.
func (r *Recording) End() {
	r.hasEnded.Store(true)
	atomic.StoreUint32(&r.cpus, 0)
	isRestarted := !r.isReserve && restartSections() == nil
	fence()
	retiredLock.Lock()
	defer retiredLock.Unlock()
	r.control.retire()
	r.rings.retire()
	if isRestarted {
		retired = append(retired, r.control, r.rings)
	}
	if inFlight.count.Load() == 0 {
		for _, memory := range retired {
			memory.unmap()
		}
		retired = nil
	}
}

// restartSections restarts every section that runs at this moment.
func restartSections() error {
	const privateExpeditedRseq = 1 << 7
	_, _, errno := syscall.RawSyscall(sysMembarrier, privateExpeditedRseq, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// kernelCPU asks the kernel on which CPU the caller runs.
func kernelCPU() uint32 {
	var cpu uint32
	_, _, _ = syscall.RawSyscall(sysGetCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return cpu
}

// pinned events, see crates/layout/src/pinned.rs.
const (
	pinnedHint      = 0
	pinnedEntries   = 8
	pinnedHeader    = 40
	pinnedCheck     = 32
	pinnedCommitted = 1 << 63
)

// appendPinned stores an event where no ring overwrites it. False if there is no room.
func (r *Recording) appendPinned(id uint16, image unsafe.Pointer, size uintptr, tails []Part) bool {
	inFlight.enter()
	defer inFlight.leave()
	if r.hasEnded.Load() {
		return true
	}
	list := unsafe.Add(r.control.base, controlPinned)
	payload := payloadLen(size, tails)
	length := (pinnedHeader + uint64(payload) + 7) &^ 7
	if payload > record.MaxSize {
		return false
	}
	at, ok := claimPinned(list, length)
	if !ok {
		return false
	}
	time, cpu := r.moment()
	entry := unsafe.Add(list, at)
	word(entry, 8).Store(uint64(id-firstEvent) | uint64(cpu)<<32)
	word(entry, 16).Store(time)
	word(entry, 24).Store(uint64(ThreadID()) | uint64(payload)<<32)
	place := unsafe.Add(entry, pinnedHeader)
	copyIn(place, image, size)
	for i := range tails {
		place = unsafe.Add(place, size)
		size = tails[i].Size
		copyIn(place, tails[i].Data, size)
	}
	sum := at ^ 0x9e3779b97f4a7c15
	for offset := uint64(8); offset < length; offset += 8 {
		if offset != pinnedCheck {
			sum = (sum ^ word(entry, uintptr(offset)).Load()) * 0xbf58476d1ce4e5b9
			sum ^= sum >> 29
		}
	}
	word(entry, pinnedCheck).Store(sum | 1)
	// A reader that sees the commit sees the entry.
	word(entry, 0).Store(length | pinnedCommitted)
	hint := word(list, pinnedHint)
	for old := hint.Load(); old < at+length; old = hint.Load() {
		if hint.CompareAndSwap(old, at+length) {
			break
		}
	}
	return true
}

// claimPinned makes the first free bytes of the list the caller's.
func claimPinned(list unsafe.Pointer, length uint64) (uint64, bool) {
	const maxSkipped = 1 << 16
	at := max(word(list, pinnedHint).Load(), pinnedEntries)
	for range maxSkipped {
		if at%8 != 0 || at > controlPinnedSize || at+length > controlPinnedSize {
			return 0, false
		}
		if word(list, uintptr(at)).CompareAndSwap(0, length) {
			return at, true
		}
		taken := word(list, uintptr(at)).Load() &^ pinnedCommitted
		if taken%8 != 0 || taken < pinnedHeader || taken > controlPinnedSize-at {
			return 0, false
		}
		at += taken
	}
	return 0, false
}

func payloadLen(size uintptr, tails []Part) uintptr {
	for i := range tails {
		if size += tails[i].Size; size > record.MaxSize {
			return size
		}
	}
	return size
}

// EventID returns the id of an event's records by its number.
func EventID(number uint32) uint32 { return firstEvent + number }

// CPU returns the CPU on which the caller runs.
func CPU() uint32 { return kernelCPU() }

// HasCounter says whether this process may read the processor's counter.
func HasCounter() bool {
	const getTSC, isEnabled = 25, 1
	if runtime.GOARCH != "amd64" {
		return true
	}
	var state int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, getTSC, uintptr(unsafe.Pointer(&state)), 0)
	return errno != 0 || state == isEnabled
}

// SelectByKernel has a BPF program's array select the buffer, if that is what the descriptor is. It
// is called before the first event, and what is mapped stays for good.
func (r *Recording) SelectByKernel(array int) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", array))
	if err != nil || !strings.Contains(string(info), "map_type:\t2\n") {
		return
	}
	if base, err := mmap(0, page, syscall.PROT_READ, syscall.MAP_SHARED, array); err == nil {
		r.selector = base
	}
}

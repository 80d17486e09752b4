//go:build linux && (amd64 || arm64)

package ring

import (
	"encoding/binary"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// offsetM is the offset of a goroutine's thread structure (`runtime.m`) in its own (`runtime.g`).
// The linker depends on it, too, so it has been the same since Go 1.5. It is checked all the same.
const offsetM = 48

// bytesOfM is how much of a thread structure is looked at.
const bytesOfM = 512

// offsetID is the offset of a thread's id in its structure, or 0 if it was not found.
var offsetID uintptr

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

//go:linkname nanotime runtime.nanotime
func nanotime() int64

//go:linkname iscgo runtime.iscgo
var iscgo bool

//go:noescape
func currentG() unsafe.Pointer

//go:noescape
func knownThreadID() uint32

//go:noescape
func exchangePair(words unsafe.Pointer, old0, old1, new0, new1 uint64) bool

//go:noescape
func fence()

// ThreadID returns the calling thread's id. Without the runtime's copy it asks the kernel.
func ThreadID() uint32 {
	if offsetID != 0 {
		return knownThreadID()
	}
	return kernelThreadID()
}

func kernelThreadID() uint32 {
	id, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	return uint32(id)
}

// threadFacts are what a thread finds in its runtime structures.
type threadFacts struct {
	// words are the first bytes of its `runtime.m`.
	words []byte
	m, g  uint64
	id    uint32
	isOK  bool
}

// lookAtThread reads the structures of the calling thread, which is locked. It reads them by the
// kernel, so that another layout than the expected one is an error and not a fault.
func lookAtThread() threadFacts {
	facts := threadFacts{g: uint64(uintptr(currentG())), id: kernelThreadID()}
	word := func(address uint64) (uint64, bool) {
		bytes, ok := readOwnMemory(address, 8)
		if !ok {
			return 0, false
		}
		return binary.LittleEndian.Uint64(bytes), true
	}
	var ok bool
	if facts.m, ok = word(facts.g + offsetM); !ok {
		return facts
	}
	// A thread structure begins with a pointer to its scheduling goroutine, which points back.
	scheduler, ok := word(facts.m)
	if !ok {
		return facts
	}
	if back, ok := word(scheduler + offsetM); !ok || back != facts.m {
		return facts
	}
	facts.words, facts.isOK = readOwnMemory(facts.m, bytesOfM)
	return facts
}

// readOwnMemory copies bytes of this process; false if they are not all there.
func readOwnMemory(address uint64, size int) ([]byte, bool) {
	bytes := make([]byte, size)
	local := [2]uint64{uint64(uintptr(unsafe.Pointer(&bytes[0]))), uint64(size)}
	remote := [2]uint64{address, uint64(size)}
	n, _, _ := syscall.RawSyscall6(sysProcessVMReadv, uintptr(syscall.Getpid()),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	runtime.KeepAlive(bytes)
	return bytes, int(n) == size
}

// Threads says what is known of the threads of this process.
type Threads struct {
	// Sections says whether threads have restartable sequences.
	Sections bool
	// Reason says why not.
	Reason string
}

var (
	threadsOnce sync.Once
	threads     Threads
)

// PrepareThreads finds out, once, where threads keep their ids, and whether they can have
// restartable sequences. It is called when there is a recording to join.
func PrepareThreads() Threads {
	threadsOnce.Do(func() {
		first, second := lookAtTwoThreads()
		offsetID = commonIDOffset(first, second)
		threads = prepareSections()
	})
	return threads
}

// lookAtTwoThreads looks at two threads: a number that equals one's id may do so by chance.
func lookAtTwoThreads() (first, second threadFacts) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first = lookAtThread()
	done := make(chan threadFacts)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- lookAtThread()
	}()
	second = <-done
	return first, second
}

// commonIDOffset returns the first offset at which both threads have their ids; 0 if there is none.
func commonIDOffset(first, second threadFacts) uintptr {
	if !first.isOK || !second.isOK || first.id == second.id {
		return 0
	}
	for at := 8; at+8 <= bytesOfM; at += 8 {
		if binary.LittleEndian.Uint64(first.words[at:]) == uint64(first.id) &&
			binary.LittleEndian.Uint64(second.words[at:]) == uint64(second.id) {
			return uintptr(at)
		}
	}
	return 0
}

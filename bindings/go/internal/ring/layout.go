// Package ring appends records to the rings that a session shares with this process.
//
// The bytes are those of crates/layout, and docs/design/ring.md has the argument why an append is
// safe. Two forms exist. In section form, on amd64, an append is a restartable sequence: the
// kernel sends a thread that is preempted, migrated or interrupted back to its beginning. In
// reserve form, any number of threads write a ring at once, by a compare-and-swap of 16 bytes.
//
// The event path makes no system call, takes no lock and does not allocate. The one exception: a
// thread's first append registers the thread's restartable-sequence area, once.
package ring

import (
	"errors"
	"fmt"

	"github.com/tompion/tompion/bindings/go/internal/record"
)

// Version of the shared memory's layout, see crates/layout/src/lib.rs.
const layoutVersion = 2

const page = 4096

// Offsets in a ring's header page, see crates/layout/src/ring.rs.
const (
	offsetWrite    = 0
	offsetEvents   = 8
	offsetLost     = 16
	offsetConsumed = 192
	offsetData     = page
)

// Bounds of sizes.
const (
	minSubbuf      = 4096
	maxSubbuf      = 256 << 20
	minSubbufCount = 2
	maxSubbufCount = 4096
	maxRing        = 1 << 32
	maxAhead       = 16 << 20
	maxCPUs        = 8192
	// MaxImage is the maximum size of an image that is built on the stack, in bytes.
	MaxImage = 512
)

// Offsets in the control file, see crates/layout/src/control.rs.
const (
	controlMagic       = uint64(0x314c5443504d4f54) // "TOMPCTL1"
	controlVersion     = 8
	controlFlags       = 12
	controlSubbufSize  = 16
	controlSubbufCount = 24
	controlCPUs        = 32
	controlBuffers     = 36
	controlSelector    = 128
	controlEnded       = 132
	controlGeneration  = 192
	controlLost        = 256
	controlSnapshots   = 384
	controlRulesSeen   = 392
	controlListens     = 400
	controlRules       = page
	controlRulesSize   = 16 * page
	controlCatalog     = controlRules + controlRulesSize
	controlCatalogSize = 2 << 20
	controlPinned      = controlCatalog + controlCatalogSize
	controlPinnedSize  = 1 << 20
	// ControlSize is the size of the control file that this agent knows: without triggers.
	ControlSize = controlPinned + controlPinnedSize
)

// Flags of a control file.
const (
	flagOverwrite  = 1
	flagMonotonic  = 2
	flagReserve    = 8
	flagPrefault   = 64
	recordHeader   = 16
	firstEvent     = 16
	recordSubbuf   = 1
	subbufLen      = 40
	subbufReserve  = subbufLen + 16
	subbufComitted = 8 + subbufLen
	reserveHeader  = 8 + recordHeader
)

// MaxEvents is the number of events that a process can describe.
const MaxEvents = 0xffff - firstEvent

// Cause is a cause of loss, see crates/layout/src/loss.rs.
type Cause uint32

// Causes that this agent counts.
const (
	lostFull       Cause = 0
	lostTooLarge   Cause = 1
	lostRetries    Cause = 2
	lostNoRseq     Cause = 3
	LostCatalog    Cause = 5
	lostUnfinished Cause = 8
	causes               = 16
)

// Geometry of a ring file.
type geometry struct {
	subbufSize, subbufCount uint64
	cpus, buffers           uint32
}

func (g geometry) check() error {
	power := func(n uint64) bool { return n != 0 && n&(n-1) == 0 }
	switch {
	case !power(g.subbufSize) || g.subbufSize < minSubbuf || g.subbufSize > maxSubbuf:
		return fmt.Errorf("a sub-buffer has a power of two from 4K to 256M bytes, not %d", g.subbufSize)
	case !power(g.subbufCount) || g.subbufCount < minSubbufCount || g.subbufCount > maxSubbufCount:
		return fmt.Errorf("a ring has a power of two from 2 to 4096 sub-buffers, not %d", g.subbufCount)
	case g.ringSize() > maxRing:
		return fmt.Errorf("a ring has at most 4G bytes, not %d", g.ringSize())
	case g.cpus == 0 || g.cpus > maxCPUs:
		return fmt.Errorf("a recording has 1 to %d CPUs, not %d", maxCPUs, g.cpus)
	case g.buffers != 1 && g.buffers != 2:
		return fmt.Errorf("a recording has 1 or 2 buffers, not %d", g.buffers)
	}
	return nil
}

func (g geometry) ringSize() uint64     { return g.subbufSize * g.subbufCount }
func (g geometry) cpuStride() uint64    { return offsetData + g.ringSize() }
func (g geometry) bufferStride() uint64 { return g.cpuStride() * uint64(g.cpus) }
func (g geometry) fileSize() uint64     { return g.bufferStride() * uint64(g.buffers) }

func (g geometry) maxRecord() uint64 { return min(g.subbufSize/2, record.MaxSize) }

// ahead returns how many bytes of a range may be made present, as `Geometry::ahead` in Rust. What a
// session asks for is not believed.
func (g geometry) ahead(offset, length, write uint64) uint64 {
	inside := offset % g.cpuStride()
	if offset >= g.fileSize() || inside < offsetData {
		return 0
	}
	begin := inside - offsetData
	end := begin + length
	next := (write+g.subbufSize)&^(g.subbufSize-1) + g.subbufSize
	if end < begin || write == 0 || end > g.ringSize() || end > next {
		return 0
	}
	end = min(end, write+maxAhead)
	if end < begin {
		return 0
	}
	return end - begin
}

var errMagic = errors.New("the control file is none of a session")

// mixed mixes the bits of a position, and clears the lowest two.
func mixed(position uint64) uint64 {
	word := position + 0x9e3779b97f4a7c15
	word = (word ^ word>>30) * 0xbf58476d1ce4e5b9
	word = (word ^ word>>27) * 0x94d049bb133111eb
	return (word ^ word>>31) << 2
}

func stamp(position uint64) uint64        { return mixed(position) | 1 }
func paddingStamp(position uint64) uint64 { return mixed(position) | 2 }

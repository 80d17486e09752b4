//go:build !linux || !(amd64 || arm64)

package ring

import (
	"unsafe"

	"github.com/tompion/tompion/bindings/go/internal/record"
)

// Recording is never there: no session reaches this platform.
type Recording struct{}

// Part is a piece of an event's bytes.
type Part = record.Tail

// IsDirect says whether events may go the shortest way.
func (*Recording) IsDirect() bool { return false }

// AppendImage does nothing.
func AppendImage(*Recording, unsafe.Pointer, uintptr, uint32) uint32 { return 0 }

// AppendOtherwise does nothing.
func (*Recording) AppendOtherwise(uint32, unsafe.Pointer, uintptr, uint32) {}

// Append does nothing.
func (*Recording) Append(uint16, unsafe.Pointer, uintptr, []Part, bool) {}

// RequestSnapshot does nothing.
func (*Recording) RequestSnapshot() bool { return false }

// ThreadID is unknown.
func ThreadID() uint32 { return 0 }

// Package record has what rings and filters both know of a record.
package record

import "unsafe"

// MaxSize is the maximum size of a record, including its header, in bytes.
const MaxSize = 64 * 1024

// Tail is a variable part of an event that is being recorded: bytes in the program's memory.
type Tail struct {
	Data unsafe.Pointer
	Size uintptr
}

// Bytes returns the tail's bytes.
func (t Tail) Bytes() []byte {
	if t.Size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Data), t.Size)
}

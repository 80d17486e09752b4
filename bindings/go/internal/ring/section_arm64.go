//go:build linux

package ring

import (
	"errors"
	"unsafe"
)

//go:noescape
func counter() uint64

// prepareSections: threads have no restartable sequences here, so that all rings are in reserve
// form.
func prepareSections() Threads {
	return Threads{Reason: "sections are written for amd64 only"}
}

// AppendImage is never called: no recording is direct.
func AppendImage(r *Recording, image unsafe.Pointer, size uintptr, id uint32) uint32 { return 1 }

// AppendOtherwise is never called.
func (r *Recording) AppendOtherwise(id uint32, image unsafe.Pointer, size uintptr, outcome uint32) {}

func (r *Recording) appendBySection(uint16, unsafe.Pointer, uintptr, []Part) { r.CountLost(lostNoRseq) }

// moment returns the time on the recording's clock, and the number of a ring. arm64 has no way to
// learn the CPU without a system call: it is a number of the run-time's processor, so that threads
// spread over the rings.
func (r *Recording) moment() (time uint64, cpu uint32) {
	cpu = uint32(procPin()) % r.geometry.cpus
	procUnpin()
	if r.isGivenTime {
		return uint64(nanotime()), cpu
	}
	return counter(), cpu
}

// checkProcessor says why rings in reserve form can't be written on this machine.
func checkProcessor() error {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return errors.New("expected a processor of 64 bits")
	}
	return nil
}

//go:build linux && (amd64 || arm64)

package ring

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// mapping is memory that was mapped, and no Go memory.
type mapping struct {
	base unsafe.Pointer
	size uintptr
}

func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func mmap(address uintptr, size uintptr, protection, flags, fd int) (unsafe.Pointer, error) {
	result, _, errno := syscall.Syscall6(syscall.SYS_MMAP, address, size, uintptr(protection), uintptr(flags),
		uintptr(fd), 0)
	if errno != 0 {
		return nil, errno
	}
	return pointer(result), nil
}

// mapShared maps a whole file that was checked.
func mapShared(fd int, size uintptr) (mapping, error) {
	const readWrite = syscall.PROT_READ | syscall.PROT_WRITE
	base, err := mmap(0, size, readWrite, syscall.MAP_SHARED, fd)
	return mapping{base, size}, err
}

// mapPrivate maps memory of this process's own.
func mapPrivate(size uintptr) (mapping, error) {
	const readWrite = syscall.PROT_READ | syscall.PROT_WRITE
	base, err := mmap(0, size, readWrite, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, -1)
	return mapping{base, size}, err
}

// retire puts private memory in the place of the shared one. What threads still write there
// reaches no session.
func (m mapping) retire() {
	const flags = syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_NORESERVE | syscall.MAP_FIXED
	_, _ = mmap(uintptr(m.base), m.size, syscall.PROT_READ|syscall.PROT_WRITE, flags, -1)
}

func (m mapping) unmap() {
	_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, uintptr(m.base), m.size, 0)
}

// populate makes pages present, so that events need not wait for them. Without the kernel's help
// (before Linux 5.14) they come when they are touched.
func (m mapping) populate(offset, size uint64) {
	const populateWrite = 23
	if offset >= uint64(m.size) {
		return
	}
	size = min(size, uint64(m.size)-offset)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(unsafe.Add(m.base, offset)), uintptr(size), populateWrite)
}

func word(base unsafe.Pointer, offset uintptr) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(base, offset))
}

func half(base unsafe.Pointer, offset uintptr) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(base, offset))
}

// copyIn copies bytes into shared memory. Readers may see them in any order, until a word says
// that they are there.
func copyIn(to, from unsafe.Pointer, size uintptr) {
	if size != 0 {
		copy(unsafe.Slice((*byte)(to), size), unsafe.Slice((*byte)(from), size))
	}
}

// checkFile checks a file of a session before it is mapped: neither the session nor another user
// may make it shorter. `believes` says which users may.
func checkFile(fd int, sizes []uint64, believes func(uid uint32) bool) (uint64, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return 0, err
	}
	size := uint64(stat.Size)
	known := false
	for _, one := range sizes {
		known = known || one == size
	}
	if !known {
		return 0, fmt.Errorf("expected a memory file of %d bytes, found %d", sizes[len(sizes)-1], size)
	}
	const getSeals, sizeSeals = 1034, 2 | 4
	seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), getSeals, 0)
	if errno == 0 && seals&sizeSeals == sizeSeals {
		return size, nil
	}
	isReserved := stat.Mode&syscall.S_IFMT == syscall.S_IFREG && uint64(stat.Blocks)*512 >= size
	if !isReserved || stat.Mode&(syscall.S_IWGRP|syscall.S_IWOTH) != 0 {
		return 0, fmt.Errorf("the memory file is not sealed")
	}
	if !believes(stat.Uid) {
		return 0, fmt.Errorf("its memory would be a file of user %d, who could make it shorter", stat.Uid)
	}
	return size, nil
}

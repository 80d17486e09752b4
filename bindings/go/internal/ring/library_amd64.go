//go:build linux

package ring

import (
	"bytes"
	"encoding/binary"
	"os"
	"sync/atomic"
	"unsafe"
)

// libraryDistance returns the distance of threads' restartable-sequence areas from their thread
// pointers, as glibc tells in `__rseq_offset` (rseq(2), glibc 2.35). False in a program with cgo
// whose C library has none.
//
// The symbol is in the dynamic loader, which the kernel has mapped at the address AT_BASE. All is
// read by the kernel: what is not as expected is an error and no fault.
func libraryDistance() (uint64, bool) {
	base, ok := loaderBase()
	if !ok {
		return 0, false
	}
	distance, ok := symbolValue(base, "__rseq_offset", 8)
	size, okToo := symbolValue(base, "__rseq_size", 4)
	if !ok || !okToo || size == 0 {
		return 0, false
	}
	// Threads must be registered in fact: the kernel tells the CPU.
	for range 8 {
		procPin()
		area := threadArea() + uintptr(distance)
		cpu := atomic.LoadUint32((*uint32)(unsafe.Add(pointer(area), 4)))
		isSame := cpu == kernelCPU()
		procUnpin()
		if isSame {
			return distance, true
		}
	}
	return 0, false
}

// loaderBase returns where the dynamic loader is mapped.
func loaderBase() (uint64, bool) {
	const auxBase = 7
	vector, err := os.ReadFile("/proc/self/auxv")
	for ; err == nil && len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) == auxBase {
			base := binary.LittleEndian.Uint64(vector[8:])
			return base, base != 0
		}
	}
	return 0, false
}

// symbolValue returns the number that a symbol of the object at an address has now.
func symbolValue(base uint64, name string, size int) (uint64, bool) {
	tables, ok := dynamicTables(base)
	if !ok {
		return 0, false
	}
	const symbolSize, maxSymbols = 24, 4096
	for index := uint64(0); index < min((tables.texts-tables.symbols)/symbolSize, maxSymbols); index++ {
		symbol, ok := readOwnMemory(tables.symbols+index*symbolSize, symbolSize)
		if !ok {
			return 0, false
		}
		text, ok := readOwnMemory(tables.texts+uint64(binary.LittleEndian.Uint32(symbol)), len(name)+1)
		if !ok || !bytes.Equal(text, append([]byte(name), 0)) {
			continue
		}
		value, ok := readOwnMemory(base+binary.LittleEndian.Uint64(symbol[8:]), size)
		if !ok {
			return 0, false
		}
		return binary.LittleEndian.Uint64(append(value, make([]byte, 8)...)), true
	}
	return 0, false
}

// tables are where an object has its dynamic symbols, and their names.
type tables struct{ symbols, texts uint64 }

// dynamicTables finds the tables of the object at an address. The names stand behind the symbols,
// as every linker puts them.
func dynamicTables(base uint64) (tables, bool) {
	const headerSize, programSize, dynamic = 64, 56, 2
	header, ok := readOwnMemory(base, headerSize)
	if !ok || string(header[:4]) != "\x7fELF" {
		return tables{}, false
	}
	place := base + binary.LittleEndian.Uint64(header[32:])
	for range binary.LittleEndian.Uint16(header[56:]) {
		program, ok := readOwnMemory(place, programSize)
		if !ok {
			return tables{}, false
		}
		if binary.LittleEndian.Uint32(program) == dynamic {
			return readDynamic(base, base+binary.LittleEndian.Uint64(program[16:]))
		}
		place += programSize
	}
	return tables{}, false
}

// readDynamic reads the entries of a dynamic section. The loader has turned its own offsets into
// addresses, or has not: small numbers are offsets.
func readDynamic(base, place uint64) (tables, bool) {
	const entrySize, maxEntries, texts, symbols = 16, 256, 5, 6
	var found tables
	absolute := func(value uint64) uint64 {
		if value < base {
			return base + value
		}
		return value
	}
	for range maxEntries {
		entry, ok := readOwnMemory(place, entrySize)
		if !ok {
			return tables{}, false
		}
		value := binary.LittleEndian.Uint64(entry[8:])
		switch binary.LittleEndian.Uint64(entry) {
		case 0:
			return found, found.symbols != 0 && found.texts > found.symbols
		case texts:
			found.texts = absolute(value)
		case symbols:
			found.symbols = absolute(value)
		}
		place += entrySize
	}
	return tables{}, false
}

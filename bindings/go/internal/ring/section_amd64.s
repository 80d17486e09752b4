//go:build linux

// Restartable sections for amd64, as crates/ring/src/section/x86_64.rs has them for C.
//
// Go's assembler has no labels that other code can name, so the places that the kernel must know
// are found by marks: an instruction of 8 bytes that does nothing, with a number in it.
// section_amd64.go looks for them once, and without them there are no sections.
//
// Registers: R12 the recording, R11 the thread's area, R10 the ring, R9 the record, R8 the length
// behind the header, R13 the number of restarts that are left. An abort changes none of them, and
// what else a restart needs is loaded again.

#include "textflag.h"
#include "go_asm.h"

#define WRITTEN 0
#define NEEDS_SUBBUFFER 1
#define RESTARTED 2
#define NO_RING 3
#define CHANGED 4
#define NO_AREA 5

#define MAX_RESTARTS 10000

// NOPL number(AX)(AX*1): the begin of a section, its end, and the mark of an abort, which is the
// signature that the kernel looks for.
#define MARK_BEGIN BYTE $0x0f; BYTE $0x1f; BYTE $0x84; BYTE $0x00; LONG $0x54b31001
#define MARK_END BYTE $0x0f; BYTE $0x1f; BYTE $0x84; BYTE $0x00; LONG $0x54b31002
#define MARK_ABORT BYTE $0x0f; BYTE $0xb9; BYTE $0x3d; LONG $0x53053053

// The calling thread's area -> R11; 0 if it has none. Without cgo, its address stands 16 bytes behind
// the thread pointer. With cgo that word of the C library is the thread pointer itself, from which
// the area has a distance.
#define AREA \
	BYTE $0x64; BYTE $0x4c; BYTE $0x8b; BYTE $0x1c; BYTE $0x25; LONG $0x10; \
	ADDQ ·areaDistance(SB), R11

// The line a kilobyte ahead is asked for: PREFETCHW 1024(R9).
#define PREFETCH BYTE $0x41; BYTE $0x0f; BYTE $0x0d; BYTE $0x89; LONG $0x400

// Arms the section whose descriptor stands at an offset. Clobbers AX.
#define ARM(offset) \
	MOVQ ·descriptors(SB), AX; \
	ADDQ $offset, AX; \
	MOVQ AX, 8(R11)

// The current CPU's ring in the selected buffer -> R10. Clobbers AX. Flags of an unsigned
// comparison of the CPU with the number of CPUs.
#define COMPARE_CPU \
	MOVL 4(R11), R10; \
	CMPL R10, Recording_cpus(R12)

#define FIND_RING \
	MOVQ Recording_selector(R12), AX; \
	MOVL (AX), AX; \
	ANDL Recording_selectorMask(R12), AX; \
	IMULQ Recording_cpuStride(R12), R10; \
	ADDQ Recording_buffers(R12)(AX*8), R10

// The last byte of the record -> X0, then compares its sub-buffer with that of the byte before the
// record. Clobbers AX, DX.
#define COMPARE_SUBBUFFER \
	MOVQ (R10), R9; \
	LEAQ 15(R9)(R8*1), DX; \
	MOVQ DX, X0; \
	LEAQ -1(R9), AX; \
	XORQ DX, AX; \
	TESTQ AX, Recording_subbufMask(R12)

// The new position and number of events -> X0, the record's place -> R9. Clobbers X1.
#define RESERVE \
	MOVHPS 8(R10), X0; \
	PCMPEQL X1, X1; \
	PSUBQ X1, X0; \
	ANDQ Recording_ringMask(R12), R9; \
	LEAQ const_offsetData(R10)(R9*1), R9; \
	PREFETCH

#define READ_CLOCK \
	RDTSC; \
	SHLQ $32, DX; \
	ORQ DX, AX

// The first word of a record of R8 bytes behind its header, of the event in AX -> CX. Clobbers BX.
#define HEAD \
	MOVQ TLS, BX; \
	MOVQ 0(BX)(TLS*1), BX; \
	MOVQ const_offsetM(BX), BX; \
	ADDQ ·offsetID(SB), BX; \
	MOVL (BX), CX; \
	SHLQ $32, CX; \
	ORQ AX, CX; \
	LEAQ const_recordHeader(R8), AX; \
	SHLQ $13, AX; \
	ORQ AX, CX

// The ends of an append that did not reach the commit, and where the kernel goes on after an abort.
#define OTHER_ENDS(result) \
needs_subbuffer: \
	MOVL $NEEDS_SUBBUFFER, result; \
	RET; \
no_ring: \
	MOVL $NO_RING, result; \
	RET; \
no_area: \
	MOVL $NO_AREA, result; \
	RET; \
	MARK_ABORT; \
	DECQ R13; \
	JNE restart; \
	MOVL $RESTARTED, result; \
	RET

// func AppendImage(r *Recording, image unsafe.Pointer, size uintptr, id uint32) uint32
TEXT ·AppendImage(SB), NOSPLIT|NOFRAME, $0-36
	MOVQ r+0(FP), R12
	MOVQ image+8(FP), SI
	MOVQ size+16(FP), R8
	ADDQ $7, R8
	ANDQ $~7, R8
	MOVL id+24(FP), AX
	HEAD
	AREA
	TESTQ R11, R11
	JEQ no_area
	MOVQ $MAX_RESTARTS, R13
restart:
	ARM(0)
	MARK_BEGIN
	COMPARE_CPU
	JCC no_ring
	FIND_RING
	COMPARE_SUBBUFFER
	JNE needs_subbuffer
	RESERVE
	MOVQ CX, (R9)
	MOVQ R8, DX
	SUBQ $16, DX
	JCS rest
copy:
	MOVQ (SI)(DX*1), AX
	MOVQ AX, 16(R9)(DX*1)
	MOVQ 8(SI)(DX*1), AX
	MOVQ AX, 24(R9)(DX*1)
	SUBQ $16, DX
	JCC copy
rest:
	TESTB $8, DX
	JEQ clock
	MOVQ (SI), AX
	MOVQ AX, 16(R9)
clock:
	READ_CLOCK
	MOVQ AX, 8(R9)
	MOVAPS X0, (R10)	// the record is there
	MARK_END
	MOVL $WRITTEN, ret+32(FP)
	RET
	OTHER_ENDS(ret+32(FP))

// func appendParts(r *Recording, parts, end *Part, size uintptr, id uint32, given uint32, time uint64) uint32
TEXT ·appendParts(SB), NOSPLIT|NOFRAME, $0-52
	AREA
	TESTQ R11, R11
	JEQ no_area
	MOVQ r+0(FP), R12
	MOVQ size+24(FP), R8
	ADDQ $7, R8
	ANDQ $~7, R8
	MOVQ $MAX_RESTARTS, R13
restart:
	MOVL id+32(FP), AX
	HEAD
	ARM(32)
	MARK_BEGIN
	COMPARE_CPU
	JCC no_ring
	FIND_RING
	COMPARE_SUBBUFFER
	JNE needs_subbuffer
	RESERVE
	MOVQ CX, (R9)
	MOVQ $0, 8(R9)(R8*1)	// padding of the last word
	LEAQ const_recordHeader(R9), DI
	MOVQ parts+8(FP), BX
parts:
	CMPQ BX, end+16(FP)
	JEQ clock
	MOVQ (BX), SI
	MOVQ 8(BX), CX
	REP; MOVSB
	ADDQ $16, BX
	JMP parts
clock:
	MOVQ time+40(FP), AX
	CMPL given+36(FP), $0
	JNE store
	READ_CLOCK
store:
	MOVQ AX, 8(R9)
	MOVAPS X0, (R10)	// the record is there
	MARK_END
	MOVL $WRITTEN, ret+48(FP)
	RET
	OTHER_ENDS(ret+48(FP))

// func sectionPut(r *Recording, p *putRequest) uint32
TEXT ·sectionPut(SB), NOSPLIT|NOFRAME, $0-20
	AREA
	TESTQ R11, R11
	JEQ no_area
	MOVQ r+0(FP), R12
	MOVQ p+8(FP), SI
	MOVQ $MAX_RESTARTS, R13
restart:
	ARM(64)
	MARK_BEGIN
	MOVL 4(R11), AX
	CMPL AX, putRequest_cpu(SI)
	JNE changed
	MOVQ putRequest_ring(SI), R10
	MOVQ putRequest_expected(SI), AX
	CMPQ AX, (R10)
	JNE changed
	ANDQ Recording_ringMask(R12), AX
	LEAQ const_offsetData(R10)(AX*1), R9
	MOVQ putRequest_head(SI), AX
	MOVQ AX, (R9)
	TESTQ AX, AX
	JEQ position	// padding has nothing but its first word, which is zero
	MOVQ putRequest_position(SI), AX
	MOVQ AX, 16(R9)
	MOVQ putRequest_lost(SI), AX
	MOVQ AX, 24(R9)
	MOVQ 8(R10), AX
	MOVQ AX, 32(R9)
	MOVQ putRequest_time(SI), AX
	CMPL putRequest_given(SI), $0
	JNE time
	READ_CLOCK
time:
	MOVQ AX, 8(R9)
position:
	MOVQ putRequest_next(SI), AX
	MOVQ AX, (R10)
	MARK_END
	MOVL $WRITTEN, ret+16(FP)
	RET
changed:
	MOVL $CHANGED, ret+16(FP)
	RET
no_area:
	MOVL $NO_AREA, ret+16(FP)
	RET
	MARK_ABORT
	DECQ R13
	JNE restart
	MOVL $RESTARTED, ret+16(FP)
	RET

// func sectionCode() [3]uintptr
TEXT ·sectionCode(SB), NOSPLIT|NOFRAME, $0-24
	LEAQ ·AppendImage(SB), AX
	MOVQ AX, ret_0+0(FP)
	LEAQ ·appendParts(SB), AX
	MOVQ AX, ret_1+8(FP)
	LEAQ ·sectionPut(SB), AX
	MOVQ AX, ret_2+16(FP)
	RET

// func threadArea() uintptr
TEXT ·threadArea(SB), NOSPLIT|NOFRAME, $0-8
	AREA
	MOVQ R11, ret+0(FP)
	RET

// func setThreadArea(area uintptr)
TEXT ·setThreadArea(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ area+0(FP), R11
	// MOVQ R11, 16(FS)
	BYTE $0x64; BYTE $0x4c; BYTE $0x89; BYTE $0x1c; BYTE $0x25; LONG $0x10
	RET

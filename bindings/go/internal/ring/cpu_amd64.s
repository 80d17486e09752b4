//go:build linux

#include "textflag.h"
#include "go_asm.h"

// func currentG() unsafe.Pointer
TEXT ·currentG(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ TLS, AX
	MOVQ 0(AX)(TLS*1), AX
	MOVQ AX, ret+0(FP)
	RET

// func knownThreadID() uint32
TEXT ·knownThreadID(SB), NOSPLIT|NOFRAME, $0-4
	MOVQ TLS, AX
	MOVQ 0(AX)(TLS*1), AX
	MOVQ const_offsetM(AX), AX
	ADDQ ·offsetID(SB), AX
	MOVL (AX), AX
	MOVL AX, ret+0(FP)
	RET

// func counterAndCPU() (ticks uint64, cpu uint32)
//
// RDTSCP reads the counter after all loads before it.
TEXT ·counterAndCPU(SB), NOSPLIT|NOFRAME, $0-12
	RDTSCP
	SHLQ $32, DX
	ORQ DX, AX
	ANDL $0xfff, CX
	MOVQ AX, ticks+0(FP)
	MOVL CX, cpu+8(FP)
	RET

// func counter() uint64
TEXT ·counter(SB), NOSPLIT|NOFRAME, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func exchangePair(words unsafe.Pointer, old0, old1, new0, new1 uint64) bool
TEXT ·exchangePair(SB), NOSPLIT|NOFRAME, $0-41
	MOVQ words+0(FP), DI
	MOVQ old0+8(FP), AX
	MOVQ old1+16(FP), DX
	MOVQ new0+24(FP), BX
	MOVQ new1+32(FP), CX
	LOCK
	CMPXCHG16B (DI)
	SETEQ ret+40(FP)
	RET

// func fence()
TEXT ·fence(SB), NOSPLIT|NOFRAME, $0-0
	MFENCE
	RET

// func cpuid(leaf uint32) (a, b, c, d uint32)
TEXT ·cpuid(SB), NOSPLIT|NOFRAME, $0-24
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, a+8(FP)
	MOVL BX, b+12(FP)
	MOVL CX, c+16(FP)
	MOVL DX, d+20(FP)
	RET

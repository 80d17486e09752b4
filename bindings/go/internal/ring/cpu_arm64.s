//go:build linux

#include "textflag.h"
#include "go_asm.h"

// func currentG() unsafe.Pointer
TEXT ·currentG(SB), NOSPLIT|NOFRAME, $0-8
	MOVD g, ret+0(FP)
	RET

// func knownThreadID() uint32
TEXT ·knownThreadID(SB), NOSPLIT|NOFRAME, $0-4
	MOVD const_offsetM(g), R0
	MOVD ·offsetID(SB), R1
	MOVWU (R0)(R1), R0
	MOVW R0, ret+0(FP)
	RET

// func counter() uint64
//
// The barrier puts the reading behind all before it.
TEXT ·counter(SB), NOSPLIT|NOFRAME, $0-8
	ISB $15
	MRS CNTVCT_EL0, R0
	MOVD R0, ret+0(FP)
	RET

// func exchangePair(words unsafe.Pointer, old0, old1, new0, new1 uint64) bool
//
// What the exclusive load finds is of one moment only if the store succeeds, so that an unequal
// pair is stored as it was.
TEXT ·exchangePair(SB), NOSPLIT|NOFRAME, $0-41
	MOVD words+0(FP), R0
	LDP old0+8(FP), (R1, R2)
	LDP new0+24(FP), (R3, R4)
	LDAXP (R0), (R5, R6)
	CMP R1, R5
	BNE other
	CMP R2, R6
	BNE other
	STLXP (R3, R4), (R0), R7
	CBNZ R7, failed
	MOVD $1, R8
	MOVB R8, ret+40(FP)
	RET
other:
	CLREX
failed:
	MOVB ZR, ret+40(FP)
	RET

// func fence()
TEXT ·fence(SB), NOSPLIT|NOFRAME, $0-0
	DMB $11
	RET

/*
 * Filters: a condition that the recorder has compiled for each event (crates/kernel/src/filter),
 * and put in the place of `passes` before the programs are loaded. It is evaluated before room is
 * reserved: a rejected event takes no room, moves no position, and can push nothing else out.
 */
#ifndef TOMPION_BPF_FILTER_H
#define TOMPION_BPF_FILTER_H

#include "kernel.h"

/* Whether there is one. Where there is none, the verifier takes out all that belongs to it. */
const volatile u32 filtered = 0;

/*
 * Whether an event is wanted; `extra` is what stands beside the event's number in its record.
 * `image` is its fixed part, as it would stand in the record, of a system call the six arguments;
 * `first` and `second` are texts. A pointer that the condition has no use for may be null.
 *
 * This body only keeps the place: FILTER_PLACE instructions that do nothing, which are replaced
 * whole.
 */
static NOINLINE int passes(u32 event, u32 extra, const char *image, const char *first, const char *second)
{
	int verdict = 1;
	asm volatile(".rept 8192\n\tgoto +0\n\t.endr"
		     : "+r"(verdict)
		     : "r"(event), "r"(extra), "r"(image), "r"(first), "r"(second)
		     : "memory");
	return verdict;
}

#endif

/*
 * What the injector's programs and its owner share: arrays that are mapped into the owner, whose
 * readers and writers are crates/injector/src/lib.rs and interruptions.rs. Times are
 * CLOCK_MONOTONIC, in nanoseconds.
 *
 *   orders         by the low bits of a thread's number: its order and the result (struct order)
 *   interruptions  an entry for each CPU (struct interruptions)
 */
#ifndef TOMPION_BPF_INJECTOR_H
#define TOMPION_BPF_INJECTOR_H

#include "kernel.h"

/* A longer one is cut: no thread of the machine's shall wait for more than this. */
#define MAX_NS 1000000

enum place {
	NOWHERE,
	INTERRUPTS_OFF, /* where the thread arms a timer */
	PREEMPTION_OFF, /* where it enters a system call */
	HARD_INTERRUPT, /* where a timer's interrupt is about to wake it */
	SOFT_INTERRUPT, /* where a soft interrupt runs on top of it */
	IDLE_EXIT,      /* where a CPU leaves idling: ordered for thread 0 */
};

#define ORDERS 4096

struct order {
	u32 tid;   /* the owner */
	u32 place; /* the owner: `enum place` */
	u64 delay; /* the owner, last of all; 0: nothing is ordered. Programs set it back before they begin */
	u64 count; /* programs: how often it was done, after it ended */
	u64 begun; /* programs: the last one */
	u64 ended; /* programs: the same one's end */
	u64 unused[3];
};

struct interruptions {
	u64 since_switch; /* programs: interrupts since a real-time thread was switched to */
	u64 unused[7];
};

_Static_assert(sizeof(struct interruptions) == 64, "as the owner has it");
_Static_assert(sizeof(struct order) == 64, "as the owner has it");

#endif

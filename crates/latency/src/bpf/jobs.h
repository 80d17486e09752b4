/*
 * What the programs that watch jobs share with their reader, crates/latency/src/jobs/kernel.rs, whose numbers are these.
 * Times are CLOCK_MONOTONIC, in nanoseconds.
 *
 *   sleepers  by the low bits of a thread's number: a thread that has a job, and its last wake-up (struct sleeper)
 *   told      the kernel's ring for messages (struct message)
 *   tally     one number: messages for which there was no room
 */
#ifndef TOMPION_BPF_JOBS_H
#define TOMPION_BPF_JOBS_H

#include "monitor.h"

#define SLEEPERS 16384

struct sleeper {
	u32 tid;      /* the reader, or the program at a job's begin; 0: none */
	u32 is_open;  /* it was woken, and does not run yet */
	u64 woken;
	u64 asked;    /* the time for which its timer was set, also where that had passed; 0: no timer */
	u64 intended; /* the same; where it had passed, when the timer was set */
	u64 fired;
};

enum message_kind {
	RAN = 1,  /* a thread that was woken runs */
	BEGAN,    /* a job's begin was passed */
	ENDED,    /* its end */
	AWAKE,    /* a thread was woken that runs still; it may never get to sleep */
};

struct message {
	u64 time;
	u64 woken, asked, intended, fired; /* of RAN and AWAKE */
	u32 tid, pid;
	u32 cpu;
	u16 kind;
	u16 job; /* of BEGAN and ENDED */
};

_Static_assert(sizeof(struct sleeper) == 40 && sizeof(struct message) == 56, "as the reader has it");

#endif

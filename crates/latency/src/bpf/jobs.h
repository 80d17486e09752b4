/*
 * Maps that the programs for jobs share with their reader, crates/latency/src/jobs/kernel.rs,
 * which repeats these offsets. Times are CLOCK_MONOTONIC, in nanoseconds.
 *
 *   sleepers  by the low bits of a thread's number: a thread that has a job, and its last wakeup
 *             (struct sleeper)
 *   messages  ring buffer of messages (struct message)
 *   tally     one number: messages that were lost because the ring was full
 */
#ifndef TOMPION_BPF_JOBS_H
#define TOMPION_BPF_JOBS_H

#include "monitor.h"

#define SLEEPERS 16384

struct sleeper {
	u32 tid;      /* set by the reader, or at a probed job's begin; 0: none */
	u32 is_open;  /* woken, and not running yet */
	u64 woken;
	u64 asked;    /* time for which its timer was set, even if past; 0: no timer */
	u64 intended; /* the same; if past, the time at which the timer was set */
	u64 fired;
};

enum message_kind {
	RAN = 1,  /* a thread that was woken runs */
	BEGAN,    /* a probe at a job's begin was hit */
	ENDED,    /* a probe at its end */
	AWAKE,    /* a thread was woken that still runs; it may never sleep */
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

/*
 * Maps shared by the attribution programs and their reader, whose numbers are the same:
 * crates/latency/src/threshold/mapped_buffers.rs. Times are CLOCK_MONOTONIC, in nanoseconds.
 *
 *   settings   one entry: the current half, and the thresholds
 *   sides      per CPU two buffer halves (struct side): one is written, the other waits to be saved
 *   stacks     per CPU and half STACKS slots
 *   selector   one entry: the current half again, read-only for user-space programs
 *   crossings  ring buffer: a message for each wakeup that swapped the halves (struct crossing)
 *   cpu_states private to the programs, by CPU
 *   firmware_counts  by CPU its counter of system management interrupts, if it has one
 *
 *   event │ time │ place │ what, priority │ first, second │ word │ name │   48 bytes
 */
#ifndef TOMPION_BPF_ATTRIBUTION_H
#define TOMPION_BPF_ATTRIBUTION_H

#include "monitor.h"

#define EVENTS 4096
#define STACKS 64
#define DEPTH 30
#define RULES 16

enum what {
	/*                  first        second        word                 priority     name */
	SWITCH = 1,      /* next thread  previous one  its priority, state  the next's   the next's */
	HARD_ENTRY,      /* number       vector        priority, running                the handler's */
	HARD_EXIT,       /* number       vector */
	SOFT_ENTRY,      /* vector */
	SOFT_EXIT,       /* vector */
	TIMER_ENTRY,     /* intended, low and high     its function         1: soft */
	TIMER_EXIT,      /*                                                 1: soft */
	WOKEN_THREAD,    /* thread       its CPU       priority, running    its          its */
	MIGRATION,       /* thread       from          to                   its          its */
	IDLE,            /* state; ~0: its end */
	STACK,           /* number */
	FIRMWARE,        /* how many                   since when */
};

/* Bias of the running thread's priority, which may have changed since its switch; 0 is none. */
#define PRIORITY_BIAS 1000

/* `second` in HARD_ENTRY and HARD_EXIT: interrupts without a number. */
enum vector { DEVICE, LOCAL_TIMER, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK };

struct event {
	u64 time;
	u32 place; /* the position's low half, and 1; 0 while it is written */
	u16 what;
	short priority;
	u32 first, second;
	u64 word;
	char name[16];
};

struct side {
	u64 head;   /* free-running; programs; reset by the reader while the other half is written */
	u64 stacks; /* the same */
	struct event events[EVENTS];
};

struct stack {
	u64 number; /* and 1 */
	s64 size;   /* in bytes; an error below 0 */
	u64 addresses[DEPTH];
};

/* Begin of the interval that a rule's threshold applies to. */
enum since { EITHER, WOKEN, INTENDED };

/* Threshold of some threads. The first rule that matches a thread applies. */
struct rule {
	u64 limit;   /* 0: there are no more */
	u64 mask[2]; /* of the thread's name, what of it counts */
	u64 name[2]; /* the same, what it must be */
	/* a bit for each of WAKEUP, SHARED, PREEMPTED; TIMER_WAKEUP_ALL: the thread had not slept */
	u32 kinds;
	u32 since;
};

struct settings {
	u32 side;       /* its lowest bit; programs */
	u32 armed;      /* 1: a late wakeup swaps the halves; the reader sets it, programs clear it */
	u64 not_before; /* the reader: none is saved before that */
	u64 lowest;     /* the reader: the lowest limit */
	u64 late;       /* programs: wake-ups that were late */
	u64 not_saved;  /* programs: of these, while no swap was possible */
	u64 since[2];   /* programs: from when on each side was written last */
	u64 begun;      /* the reader: earlier wakeups are not compared */
	struct rule rules[RULES];
};

/* A latency above its limit. */
struct late {
	u64 woken, intended, fired, end;
	u64 limit;
	u32 tid, pid;
	s32 priority;
	u32 cpu;
	u32 kind;
	u32 side; /* that was written until then */
	u32 other_tid;
	s32 other_priority;
	char name[16], other_name[16];
	u32 since; /* WOKEN or INTENDED: what the limit is of */
	u32 unused;
};

struct crossing {
	struct late late;
	s64 stack_size; /* in bytes; an error below 0 */
	u64 stack[DEPTH];
};

_Static_assert(sizeof(struct event) == 48 && sizeof(struct side) == 16 + 48 * EVENTS, "as the reader has it");
_Static_assert(sizeof(struct stack) == 256 && sizeof(struct rule) == 48, "as the reader has it");
_Static_assert(sizeof(struct settings) == 64 + 48 * RULES && sizeof(struct crossing) == 360, "as the reader has it");

#endif

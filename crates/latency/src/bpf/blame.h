/*
 * What the programs that catch late wake-ups share with their reader, crates/latency/src/watch/memory.rs, whose numbers
 * are these. Times are CLOCK_MONOTONIC, in nanoseconds.
 *
 *   settings   one entry: which side is written, who is late from when on
 *   sides      for each CPU two rings of moments (struct side): one is written, the other waits to be saved
 *   stacks     for each CPU and side STACKS places
 *   selector   one entry: the settings' side once more, for programs of user space, who may only read it
 *   crossings  the kernel's ring for messages: one for each late wake-up that flipped the sides (struct crossing)
 *   nows       programs' own, by CPU: what they know of each other
 *   firmware_counts  by CPU the processor's counter of system management interrupts, where it has one
 *
 *   moment     │ time │ place │ what, priority │ first, second │ word │ name │   48 bytes
 */
#ifndef TOMPION_BPF_BLAME_H
#define TOMPION_BPF_BLAME_H

#include "monitor.h"

#define MOMENTS 4096
#define STACKS 64
#define DEPTH 30
#define RULES 16

enum what {
	/*                  first        second        word                 priority     name */
	SWITCH = 1,      /* next thread  previous one  its priority, state  the next's   the next's */
	HARD_ENTRY,      /* number       vector        who is interrupted                the handler's */
	HARD_EXIT,       /* number       vector */
	SOFT_ENTRY,      /* vector */
	SOFT_EXIT,       /* vector */
	TIMER_ENTRY,     /* intended, low and high     its function         1: soft */
	TIMER_EXIT,      /*                                                 1: soft */
	WOKEN_THREAD,    /* thread       its CPU       who wakes it         its          its */
	MIGRATION,       /* thread       from          to                   its          its */
	IDLE,            /* state; ~0: its end */
	STACK,           /* number */
	FIRMWARE,        /* how many                   since when */
};

/* Added to the priority of the thread that runs, which may have changed since it was switched to; 0 is none. */
#define TOLD_PRIORITY 1000

/* Of `second` in HARD_ENTRY and HARD_EXIT: what has no number of its own. */
enum vector { DEVICE, LOCAL_TIMER, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK };

struct moment {
	u64 time;
	u32 place; /* the position's low half, and 1; 0 while it is written */
	u16 what;
	short priority;
	u32 first, second;
	u64 word;
	char name[16];
};

struct side {
	u64 head;   /* free-running; programs; 0 by the reader while the other side is written */
	u64 stacks; /* the same */
	struct moment moments[MOMENTS];
};

struct stack {
	u64 number; /* and 1 */
	s64 size;   /* in bytes; an error below 0 */
	u64 addresses[DEPTH];
};

/* From when to when a latency is measured that a rule is about. */
enum since { EITHER, WOKEN, INTENDED };

/* Who is late from when on. The first that fits a thread decides. */
struct rule {
	u64 limit;   /* 0: there are no more */
	u64 mask[2]; /* of the thread's name, what of it counts */
	u64 name[2]; /* the same, what it must be */
	u32 kinds;   /* a bit for each of WAKEUP, SHARED, PREEMPTED, and TIMER_WAKEUP_ALL: who did not get to sleep */
	u32 since;
};

struct settings {
	u32 side;       /* its lowest bit; programs */
	u32 armed;      /* 1: the next late wake-up flips the sides; the reader sets it, programs clear it */
	u64 not_before; /* the reader: none is saved before that */
	u64 lowest;     /* the reader: the lowest limit */
	u64 late;       /* programs: wake-ups that were late */
	u64 not_saved;  /* programs: of these, while the sides could not be flipped */
	u64 since[2];   /* programs: from when on each side was written last */
	u64 begun;      /* the reader: wake-ups before that are nobody's */
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

_Static_assert(sizeof(struct moment) == 48 && sizeof(struct side) == 16 + 48 * MOMENTS, "as the reader has it");
_Static_assert(sizeof(struct stack) == 256 && sizeof(struct rule) == 48, "as the reader has it");
_Static_assert(sizeof(struct settings) == 64 + 48 * RULES && sizeof(struct crossing) == 360, "as the reader has it");

#endif

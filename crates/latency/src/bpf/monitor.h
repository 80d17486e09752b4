/*
 * What the monitor's programs and their readers share: nine arrays that are mapped into readers. Programs write them,
 * each field by the program that is named; the readers are crates/latency/src/memory.rs and groups/memory.rs, whose
 * numbers are these.
 * Times are CLOCK_MONOTONIC, in nanoseconds. Counters never go back: readers subtract what they knew before.
 *
 *   control     one entry (struct control)
 *   processors  an entry for each CPU (struct processor)
 *   histograms  for each CPU and kind BUCKETS numbers: 0 us, 1 us, ... 10,240 us, more
 *   worsts      for each CPU, set and slot the longest latency (struct worst)
 *   wakes       by the low bits of a thread's number: the wake-up that has not ended yet (struct wake)
 *   threads     a row for each real-time thread (struct thread)
 *   groups       whose wake-ups are counted by themselves, too (struct group)
 *   group_places for each group and kind BUCKETS numbers, as in `histograms`
 *   group_worsts for each CPU, group and slot the longest latency (struct worst)
 *
 * and one that is the programs' own:
 *
 *   armed       by the low bits of its address: a timer that was armed after its time (struct armed)
 *
 * and a hash table:
 *
 *   cgroups     by a cgroup's number: a bit for each group that it belongs to; readers and programs
 *
 * and one for who compares wake-ups one by one, which has but one entry otherwise:
 *
 *   logged_wakes  wake-ups in the order in which they ended (struct logged); the first entry's `intended` counts the others
 */
#ifndef TOMPION_BPF_MONITOR_H
#define TOMPION_BPF_MONITOR_H

#include "kernel.h"

/* Of this layout. Readers of another one leave the arrays alone. */
#define LAYOUT_VERSION 7

/* Priorities below this are real-time; those of SCHED_DEADLINE are below 0 (include/linux/sched/prio.h). */
#define FIRST_ORDINARY 100
#define SCHED_DEADLINE 6
/* Of the kernel's threads that stop a CPU (migration/N). They come before those of SCHED_DEADLINE, whatever they say. */
#define BEFORE_ALL (-2)
#define PF_KTHREAD 0x00200000

enum kind {
	WAKEUP,            /* woken to running, of a thread that had the CPU's highest priority meanwhile */
	SHARED,            /* the same, where one of the same priority ran meanwhile */
	PREEMPTED,         /* the same, where one of a higher priority ran meanwhile */
	MISSED_TIMER,      /* intended expiry to the timer's handler, of timers that wake real-time threads */
	TIMER_WAKEUP,      /* intended expiry to running, where the wake-up was of the first kind */
	TIMER_WAKEUP_ALL,  /* the same of all wake-ups by timers, also of threads that did not get to sleep */
	KINDS
};

#define BUCKETS 10242

/*
 * Each slot of a CPU is written by programs that never interrupt each other there. Handlers of soft timers are
 * interrupted by those of hard ones, so they have one of their own.
 */
enum { MISSED_SOFT_TIMER = KINDS, WORST_SLOTS };

/*
 * Of all since the last reset; and of an interval of the history's, in two sets by turns, so that the one that has ended
 * can be read at leisure.
 */
enum worst_set { SINCE_RESET, OF_INTERVAL, OF_OTHER_INTERVAL, WORST_SETS };

/* WAKING is the sum of TOP to DISPLACED and of what has not ended yet, always. */
enum count {
	WAKING,      /* a thread was woken */
	TOP,         /* it ran: kind WAKEUP */
	WAS_SHARED,  /* it ran: kind SHARED */
	WAS_PREEMPTED, /* it ran: kind PREEMPTED */
	NOT_SLEPT,   /* it was running still: woken before it got to sleep */
	REPLACED,    /* it was woken again, and nobody saw it run */
	DISPLACED,   /* another thread with the same low bits was woken */
	EXPIRED,     /* a timer of a real-time thread's went off */
	WITHOUT_ROW, /* a latency of a thread for which there is no row: counted by CPU alone */
	COUNTS
};

struct control {
	u64 begun;     /* the loader: when counting began */
	u32 version;   /* the loader */
	u32 epoch;     /* readers: a change makes all maxima begin anew */
	u32 kinds;     /* readers: a bit for each kind that is counted */
	u32 interval;  /* readers: the history's; a change makes its maxima begin anew; 0: nobody keeps one yet */
	u32 groups;    /* readers: a bit for each of `groups` that is counted */
	u32 by_name;   /* readers: of these, those of threads of a name; the others are of cgroups */
	u32 unlisted;  /* both: cgroups for which there was no room in `cgroups` */
	u32 unused[7]; /* the last one: the loader, which build it is (memory.rs) */
};

/* A timer whose handler runs. */
struct expiry {
	u64 timer;
	u64 intended; /* 0: nobody's deadline */
	u64 fired;
	u64 owner;    /* the thread in which it runs */
	u64 unclear;  /* not 0: whose timer it is will be known when a real-time thread is woken */
};

/* A real-time thread that ran. */
struct ran {
	u64 end;
	s32 priority;
	u32 tid;
};

#define REMEMBERED 8

/* The wake-up that ended last: what programs ask about that are attached behind the one that counts it. They write nothing here. */
struct ended {
	u64 woken;
	u64 intended;
	u64 fired;
	u32 tid;
	u32 kind; /* WAKEUP, SHARED, PREEMPTED; TIMER_WAKEUP_ALL: the thread did not get to sleep */
};

/* What a slot's longest latencies are at least: one below it is not looked up in `worsts`, which lies far away. */
struct bar {
	u64 of; /* the epoch and the interval; in those before it says nothing */
	u64 latency;
};

struct processor {
	struct expiry hard, soft;
	u64 head; /* how many real-time threads were switched away from */
	struct ran ran[REMEMBERED];
	u64 counts[16]; /* by `enum count` */
	u64 sums[KINDS]; /* of all latencies, in nanoseconds */
	struct ended ended;
	struct bar bars[WORST_SLOTS];
};

#define WORST_DEPTH 16

/* The stack is where it ended: at the switch, or in the timer's interrupt, with what was interrupted below it. */
struct worst {
	u32 sequence; /* odd while it is written */
	u32 epoch;    /* of the reset, or the interval */
	u64 latency;
	u64 end;
	u64 intended; /* 0: no timer */
	u64 fired;
	u64 woken;    /* 0: of a timer, before anybody was woken */
	s32 tid, priority;
	s32 other_tid, other_priority; /* who had the CPU until then */
	char name[16], other_name[16];
	s64 size;     /* of the stack, in bytes; an error: 0 or below */
	u64 stack[WORST_DEPTH];
};

#define WAKES 65536

struct wake {
	u32 tid;
	u32 unused;
	u64 woken;    /* 0: ended */
	u64 intended; /* 0: not by a timer, or by one that is nobody's deadline */
	u64 fired;
};

#define THREADS 1024
#define PROBES 8
/* 128 ns each below 2,048 ns, then 16 for each power of two, up to 17 s. */
#define PLACE_SHIFT 7
#define STEP_BITS 4
#define LARGEST_BITS 27
#define PLACES 384

struct thread {
	u64 key; /* 0: free; else the thread's number, and its beginning, shifted */
	u32 tid;
	s32 priority;
	u32 cpu;
	u32 epoch; /* of `worst` */
	u64 count;
	u64 not_slept; /* of these: woken before it got to sleep */
	u64 last;
	u64 worst;
	u64 worst_end; /* when the worst one ended */
	u64 misses;    /* timers that it armed when they should have gone off already */
	u64 slept;     /* how often it had slept before the first of these, by the scheduler's own count */
	char name[16];
	u64 places[PLACES];
};

#define GROUPS 8
#define CGROUPS 4096
#define NAME_WORDS 32

/* Threads that are counted by themselves, too: of a name, or in a cgroup of a path and below it. */
struct group {
	u64 begun; /* the reader: since when; it tells one group from the next in this place */
	u64 unused;
	u64 sums[KINDS];      /* programs, of any CPU: of all latencies, in nanoseconds */
	u64 mask[NAME_WORDS]; /* the reader: of the name or path, what counts */
	u64 name[NAME_WORDS]; /* the reader: what that must be */
};

#define ARMED 4096

struct armed {
	u64 timer;
	u64 time;
};

struct logged {
	u64 intended; /* 0: no timer */
	u64 woken;
	u64 running;
	u32 tid;
	u16 cpu;
	u16 slot;     /* of `worsts`: of timers' wake-ups TIMER_WAKEUP or TIMER_WAKEUP_ALL */
};

_Static_assert(sizeof(struct control) == 64 && sizeof(struct processor) == 536, "as the reader has it");
_Static_assert(sizeof(struct worst) == 232 && sizeof(struct wake) == 32, "as the reader has it");
_Static_assert(sizeof(struct thread) == 3168 && sizeof(struct logged) == 32, "as the reader has it");
_Static_assert(sizeof(struct group) == 576, "as the reader has it");

/* Who comes before whom. No other thread of the kernel's says that it is rt 99 (kernel/stop_machine.c, sched_set_stop_task). */
static ALWAYS_INLINE s32 priority_of(struct task_struct *task)
{
	s32 priority = task->prio;
	return priority == 0 && task->flags & PF_KTHREAD ? BEFORE_ALL : priority;
}

/*
 * The timer whose handler runs here; none if no handler does. A soft one's is a thread on real-time kernels, and others run before it ends; what a thread has left
 * behind from which the CPU was switched away is nobody's.
 */
static ALWAYS_INLINE struct expiry *expiry_here(struct processor *processor)
{
	u64 current = (u64)bpf_get_current_task_btf();
	if (processor->hard.timer && processor->hard.owner == current)
		return &processor->hard;
	return processor->soft.timer && processor->soft.owner == current ? &processor->soft : 0;
}

#define ARRAY(name, entry, entries)                                                                          \
	struct {                                                                                             \
		NUMBER(type, BPF_MAP_TYPE_ARRAY);                                                            \
		NUMBER(map_flags, BPF_F_MMAPABLE);                                                           \
		NUMBER(max_entries, entries);                                                                \
		TYPE(key, u32);                                                                              \
		TYPE(value, entry);                                                                          \
	} name SECTION(".maps")

#endif

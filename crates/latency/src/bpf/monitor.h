/*
 * Maps shared by the monitor's programs and their readers, whose numbers are the same:
 * crates/latency/src/mapped_counters.rs and groups/mapped_groups.rs. Nine are arrays that readers
 * map. Programs write them, each field by the program that is named.
 * Times are CLOCK_MONOTONIC, in nanoseconds. Counters never go back; readers subtract earlier ones.
 *
 *   control     one entry (struct control)
 *   processors  an entry per CPU (struct processor)
 *   histograms  per CPU and kind BUCKETS counts: 0 us, 1 us, ... 10,240 us, more
 *   worsts      per CPU, set and slot the longest latency (struct max_sample)
 *   wakes       by the low bits of a thread's number: the pending wakeup (struct wake)
 *   threads     a slot for each real-time thread (struct thread)
 *   groups       groups of threads that are also counted separately (struct group)
 *   group_places per group and kind BUCKETS counts, as in `histograms`
 *   group_worsts per CPU, group and slot the longest latency (struct max_sample)
 *
 * One array is private to the programs:
 *
 *   armed       by the low bits of its address: timer armed too late (struct armed)
 *
 * One hash table:
 *
 *   cgroups     by a cgroup's number: a bit for each group it belongs to; readers and programs
 *
 * One array for comparisons of single wakeups; without these it has one entry:
 *
 *   logged_wakes  wakeups in the order of their ends (struct logged); `intended` of the first entry
 *                 counts the others
 */
#ifndef TOMPION_BPF_MONITOR_H
#define TOMPION_BPF_MONITOR_H

#include "kernel.h"

/* Version of this layout. Readers of another version don't touch the arrays. */
#define LAYOUT_VERSION 7

/* Priorities below this are real-time; SCHED_DEADLINE is below 0 (include/linux/sched/prio.h). */
#define FIRST_ORDINARY 100
#define SCHED_DEADLINE 6
/* Priority of the kernel's stop threads (migration/N), which precede SCHED_DEADLINE. */
#define BEFORE_ALL (-2)
#define PF_KTHREAD 0x00200000

enum kind {
	WAKEUP,            /* wakeup to running, while the thread had the CPU's highest priority */
	SHARED,            /* the same, while a thread of equal priority ran */
	PREEMPTED,         /* the same, while a thread of higher priority ran */
	MISSED_TIMER,      /* intended expiry to the handler, of timers that wake real-time threads */
	TIMER_WAKEUP,      /* intended expiry to running, for wakeups of the first kind */
	TIMER_WAKEUP_ALL,  /* the same for all wakeups by timers, also of threads that had not slept */
	KINDS
};

#define BUCKETS 10242

/*
 * Each slot of a CPU is written by programs that never interrupt each other. Hard timers interrupt
 * handlers of soft ones, so soft timers have a slot of their own.
 */
enum { MISSED_SOFT_TIMER = KINDS, WORST_SLOTS };

/*
 * Maxima since the last reset, and maxima of an interval of the history. The latter alternate
 * between two sets, so that a finished interval can be read later.
 */
enum worst_set { SINCE_RESET, OF_INTERVAL, OF_OTHER_INTERVAL, WORST_SETS };

/* WAKING is always the sum of TOP to EVICTED and the pending wakeups. */
enum count {
	WAKING,      /* a thread was woken */
	TOP,         /* it ran: kind WAKEUP */
	WAS_SHARED,  /* it ran: kind SHARED */
	WAS_PREEMPTED, /* it ran: kind PREEMPTED */
	NOT_SLEPT,   /* it was still running: woken before it slept */
	REWOKEN,    /* it was woken again before its switch was seen */
	EVICTED,   /* another thread with the same low bits took its entry */
	EXPIRED,     /* a timer of a real-time thread expired */
	NO_THREAD_SLOT, /* a latency of a thread without a slot: counted by CPU alone */
	COUNTS
};

struct control {
	u64 begun;     /* the loader: start of counting */
	u32 version;   /* the loader */
	u32 epoch;     /* readers: a change restarts all maxima */
	u32 kinds;     /* readers: a bit for each kind that is counted */
	u32 interval;  /* readers: of the history; a change restarts its maxima; 0: no history yet */
	u32 groups;    /* readers: a bit for each of `groups` that is counted */
	u32 by_name;   /* readers: of these, groups by thread name; the others are cgroups */
	u32 unlisted;  /* both: cgroups that did not fit into `cgroups` */
	u32 unused[7]; /* the last one: the loader, its build (mapped_counters.rs) */
};

/* Timer whose handler runs. */
struct expiry {
	u64 timer;
	u64 intended; /* 0: no thread's deadline */
	u64 fired;
	u64 owner;    /* the thread in which it runs */
	u64 unclear;  /* not 0: its thread is known once it wakes one */
};

/* Real-time thread that ran. */
struct ran {
	u64 end;
	s32 priority;
	u32 tid;
};

#define REMEMBERED 8

/* Wakeup that ended last, for programs attached behind the counting ones. They only read it. */
struct ended {
	u64 woken;
	u64 intended;
	u64 fired;
	u32 tid;
	u32 kind; /* WAKEUP, SHARED, PREEMPTED; TIMER_WAKEUP_ALL: the thread had not slept */
};

/* Lower bound of a slot's maxima: a latency below it needs no access to `worsts`. */
struct max_threshold {
	u64 of; /* epoch and interval for which it is valid */
	u64 latency;
};

struct processor {
	struct expiry hard, soft;
	u64 head; /* number of switches from real-time threads */
	struct ran ran[REMEMBERED];
	u64 counts[16]; /* by `enum count` */
	u64 sums[KINDS]; /* of all latencies, in nanoseconds */
	struct ended ended;
	struct max_threshold bars[WORST_SLOTS];
};

#define WORST_DEPTH 16

/* Longest latency. The stack is of its end: the switch, or the timer interrupt. */
struct max_sample {
	u32 sequence; /* odd while it is written */
	u32 epoch;    /* of the reset, or the interval */
	u64 latency;
	u64 end;
	u64 intended; /* 0: no timer */
	u64 fired;
	u64 woken;    /* 0: a timer, before any wakeup */
	s32 tid, priority;
	s32 other_tid, other_priority; /* the thread that had the CPU before */
	char name[16], other_name[16];
	s64 size;     /* of the stack, in bytes; an error: 0 or below */
	u64 stack[WORST_DEPTH];
};

#define WAKES 65536

struct wake {
	u32 tid;
	u32 unused;
	u64 woken;    /* 0: ended */
	u64 intended; /* 0: not by a timer, or by one that is no thread's deadline */
	u64 fired;
};

#define THREADS 1024
#define PROBES 8
/* 128 ns each below 2,048 ns, then 16 for each power of two, up to 17 s. */
#define PLACE_SHIFT 7
#define STEP_BITS 4
#define MAX_BITS 27
#define PLACES 384

struct thread {
	u64 key; /* 0: free; else the thread's number, and its start, shifted */
	u32 tid;
	s32 priority;
	u32 cpu;
	u32 epoch; /* of `worst` */
	u64 count;
	u64 not_slept; /* of these: woken before it slept */
	u64 last;
	u64 worst;
	u64 worst_end; /* end of the longest one */
	u64 misses;    /* timers that it armed after their intended expiry */
	u64 slept;     /* sleeps before the first of these, by the scheduler's count */
	char name[16];
	u64 places[PLACES];
};

#define GROUPS 8
#define CGROUPS 4096
#define NAME_WORDS 32

/* Threads that are also counted separately: by name, or by the path of a cgroup. */
struct group {
	u64 begun; /* the reader: start, which identifies the group in this slot */
	u64 unused;
	u64 sums[KINDS];      /* programs on any CPU: of all latencies, in nanoseconds */
	u64 mask[NAME_WORDS]; /* the reader: relevant bits of the name or path */
	u64 name[NAME_WORDS]; /* the reader: their required value */
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
	u16 slot;     /* of `worsts`: for wakeups by timers TIMER_WAKEUP or TIMER_WAKEUP_ALL */
};

_Static_assert(sizeof(struct control) == 64 && sizeof(struct processor) == 536, "as the reader has it");
_Static_assert(sizeof(struct max_sample) == 232 && sizeof(struct wake) == 32, "as the reader has it");
_Static_assert(sizeof(struct thread) == 3168 && sizeof(struct logged) == 32, "as the reader has it");
_Static_assert(sizeof(struct group) == 576, "as the reader has it");

/* Effective priority. Only the kernel's stop threads have rt 99 (kernel/stop_machine.c). */
static ALWAYS_INLINE s32 priority_of(struct task_struct *task)
{
	s32 priority = task->prio;
	return priority == 0 && task->flags & PF_KTHREAD ? BEFORE_ALL : priority;
}

/*
 * Timer whose handler runs here; none if no handler does. On real-time kernels, soft timers run in
 * a thread that can be preempted: an entry of another thread doesn't count.
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

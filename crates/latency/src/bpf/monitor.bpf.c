/*
 * The latency monitor: every wake-up of every real-time thread, measured where it happens. What is counted how, and
 * why, is docs/design/latency.md.
 *
 *   hrtimer_start ─► armed      hrtimer_expire_entry ─► expiry      sched_waking ─► wake      sched_switch ─► counted
 */
#include "monitor.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* What the loader found in the running kernel: addresses of timers' handlers; 0 where there is none. */
const volatile u64 wakes_sleeper = 0;   /* hrtimer_wakeup */
const volatile u64 ticks = 0;           /* tick_nohz_handler, before Linux 6.8 tick_sched_timer */
const volatile u64 ends_throttling = 0; /* dl_task_timer */

/* Whether this kernel has control groups. Where it has none, the verifier removes all of that. */
const volatile u32 has_cgroups = 0;

/* How many wake-ups are kept one by one. Where it is 0, the verifier removes all of that from the programs. */
const volatile u32 log_entries = 0;

ARRAY(control, struct control, 1);
ARRAY(processors, struct processor, 1);
ARRAY(histograms, u64, 1);
ARRAY(worsts, struct worst, 1);
ARRAY(wakes, struct wake, WAKES);
ARRAY(threads, struct thread, THREADS);
ARRAY(armed, struct armed, ARMED);
ARRAY(logged_wakes, struct logged, 1);
ARRAY(groups, struct group, GROUPS);
ARRAY(group_places, u64, GROUPS *KINDS *BUCKETS);
ARRAY(group_worsts, struct worst, 1);

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, CGROUPS);
	TYPE(key, u64);
	TYPE(value, u32);
} cgroups SECTION(".maps");

/* Reads a field behind a pointer that the verifier doesn't know. */
#define READ(field)                                                                                          \
	({                                                                                                   \
		typeof(field) value = 0;                                                                     \
		bpf_probe_read_kernel(&value, sizeof(value), &(field));                                      \
		value;                                                                                       \
	})

/* A latency that has ended, with all that is told of it. */
struct sample {
	struct processor *processor;
	struct control *settings;
	u32 cpu;
	u32 slot; /* of `worsts` */
	u64 end;
	u64 intended;
	u64 fired;
	u64 woken;
	struct task_struct *task, *other;
	s32 tid, priority;
	void *context; /* of the program */
};

static ALWAYS_INLINE struct processor *processor_of(u32 cpu)
{
	return bpf_map_lookup_elem(&processors, &cpu);
}

static ALWAYS_INLINE struct wake *wake_of(u32 tid)
{
	u32 place = tid & (WAKES - 1);
	return bpf_map_lookup_elem(&wakes, &place);
}

/*
 * Adds to a CPU's own number. An atomic instruction costs as much as all else that is done for one, so it is for programs
 * alone that are interrupted by others which add to the same: those of soft timers.
 */
static ALWAYS_INLINE void plus(u64 *number, u64 value, int is_interrupted)
{
	if (is_interrupted)
		__sync_fetch_and_add(number, value);
	else
		*(volatile u64 *)number += value;
}

static ALWAYS_INLINE void count(struct processor *processor, enum count which, int is_interrupted)
{
	plus(&processor->counts[which], 1, is_interrupted);
}

/* Where a sample begins; false if nothing can be counted. */
static ALWAYS_INLINE int prepare(struct sample *sample)
{
	u32 zero = 0;
	sample->cpu = bpf_get_smp_processor_id();
	sample->processor = processor_of(sample->cpu);
	sample->settings = bpf_map_lookup_elem(&control, &zero);
	return sample->processor && sample->settings;
}

static ALWAYS_INLINE u64 expiry_of(struct hrtimer *timer)
{
	return timer->node.expires - timer->base->offset;
}

/*
 * Keeps a latency if it is the longest, and returns whether it is. Who reads it meanwhile sees an odd sequence, or another one than
 * before. It stays odd until `keep_code`: functions that are verified by themselves can't ask for stacks.
 */
static ALWAYS_INLINE int keep_longest(struct worst *worst, const struct sample *sample, u64 latency, u32 epoch)
{
	if (worst->epoch == epoch && worst->latency >= latency)
		return 0;
	__sync_fetch_and_add(&worst->sequence, 1);
	worst->epoch = epoch;
	worst->latency = latency;
	worst->end = sample->end;
	worst->intended = sample->intended;
	worst->fired = sample->fired;
	worst->woken = sample->woken;
	worst->tid = sample->tid;
	worst->priority = sample->priority;
	worst->other_tid = READ(sample->other->pid);
	worst->other_priority = READ(sample->other->prio);
	bpf_probe_read_kernel(worst->name, sizeof(worst->name), sample->task->comm);
	bpf_probe_read_kernel(worst->other_name, sizeof(worst->other_name), sample->other->comm);
	return 1;
}

/* What had the CPU, of one that was kept. */
static ALWAYS_INLINE void keep_code(struct worst *worst, void *context)
{
	worst->size = bpf_get_stack(context, worst->stack, sizeof(worst->stack), 0);
	__sync_fetch_and_add(&worst->sequence, 1);
}

/* The same of a set; returns the longest. */
static ALWAYS_INLINE u64 keep_longest_of(const struct sample *sample, u64 latency, u32 epoch, enum worst_set set)
{
	u32 place = (sample->cpu * WORST_SETS + set) * WORST_SLOTS + sample->slot;
	struct worst *worst = bpf_map_lookup_elem(&worsts, &place);
	if (!worst)
		return 0;
	if (keep_longest(worst, sample, latency, epoch))
		keep_code(worst, sample->context);
	return worst->latency;
}

/* Keeps a latency that may be the longest since the reset, or of the interval. */
static ALWAYS_INLINE void keep_worst(const struct sample *sample, u64 latency)
{
	u32 epoch = sample->settings->epoch, interval = sample->settings->interval, slot = sample->slot;
	asm volatile("" : "+r"(slot));
	if (slot >= WORST_SLOTS)
		return;
	struct bar *bar = &sample->processor->bars[slot];
	u64 of = (u64)epoch << 32 | interval;
	if (bar->of == of && bar->latency >= latency)
		return;
	u64 least = keep_longest_of(sample, latency, epoch, SINCE_RESET);
	if (interval) {
		enum worst_set set = interval & 1 ? OF_OTHER_INTERVAL : OF_INTERVAL;
		u64 other = keep_longest_of(sample, latency, interval, set);
		least = other < least ? other : least;
	}
	bar->of = of;
	bar->latency = least;
}

/* Whole microseconds. A division takes as long as all the rest of it: this factor is right for numbers of 32 bits. */
static ALWAYS_INLINE u32 bucket_of(u64 latency)
{
	return latency < (BUCKETS - 1) * 1000 ? latency * 274877907 >> 38 : BUCKETS - 1;
}

/* Counts a latency: from `since` to the sample's end. */
static ALWAYS_INLINE void add(enum kind kind, const struct sample *sample, u64 since)
{
	int is_interrupted = sample->slot == MISSED_SOFT_TIMER;
	if (!(sample->settings->kinds >> kind & 1))
		return;
	/* Timers go off early by less than the clock's step. */
	u64 latency = sample->end > since ? sample->end - since : 0;
	u32 place = (sample->cpu * KINDS + kind) * BUCKETS + bucket_of(latency);
	u64 *number = bpf_map_lookup_elem(&histograms, &place);
	if (number)
		plus(number, 1, is_interrupted);
	plus(&sample->processor->sums[kind], latency, is_interrupted);
	keep_worst(sample, latency);
}

/*
 * The row of a thread, a new one if need be. A thread is known by its number and its beginning. Rows are given back, so its own may
 * stand behind a free one. `woken`: it has slept once for what is counted now.
 */
static ALWAYS_INLINE struct thread *row_of(struct task_struct *task, int woken)
{
	u64 key = task->start_time << 22 | task->pid;
	u32 first = key * 0x9e3779b97f4a7c15ull >> 54;
	u32 unused = THREADS;
	for (u32 probe = 0; probe < PROBES; probe++) {
		u32 place = (first + probe) & (THREADS - 1);
		struct thread *row = bpf_map_lookup_elem(&threads, &place);
		if (!row)
			return 0;
		if (row->key == key)
			return row;
		if (!row->key && unused == THREADS)
			unused = place;
	}
	struct thread *row = bpf_map_lookup_elem(&threads, &unused);
	/* Another CPU may take it at the same time for another thread, which is as if there were none. */
	if (!row || __sync_val_compare_and_swap(&row->key, 0, key))
		return 0;
	row->slept = task->nvcsw - woken;
	row->tid = task->pid;
	return row;
}

/* Where a latency is counted in a thread's row. */
static ALWAYS_INLINE u32 place_of(u64 latency)
{
	u64 value = latency >> PLACE_SHIFT;
	if (value >> LARGEST_BITS)
		return PLACES - 1;
	if (value < 1 << STEP_BITS)
		return value;
	u32 bits = 0, rest = value;
	if (rest >> 16) { bits += 16; rest >>= 16; }
	if (rest >> 8) { bits += 8; rest >>= 8; }
	if (rest >> 4) { bits += 4; rest >>= 4; }
	if (rest >> 2) { bits += 2; rest >>= 2; }
	bits += rest >> 1;
	return ((bits - STEP_BITS + 1) << STEP_BITS) + (value >> (bits - STEP_BITS) & ((1 << STEP_BITS) - 1));
}

/* Accounts a wake-up to its thread: from the intended expiry if there is one. */
static ALWAYS_INLINE void add_to_thread(const struct sample *sample)
{
	struct thread *row = row_of(sample->task, sample->task != sample->other);
	if (!row) {
		count(sample->processor, WITHOUT_ROW, 0);
		return;
	}
	u64 since = sample->intended ? sample->intended : sample->woken;
	u64 latency = sample->end > since ? sample->end - since : 0;
	u64 place = place_of(latency);
	/* The verifier may have lost sight of that. */
	asm volatile("" : "+r"(place));
	if (place >= PLACES)
		return;
	row->places[place]++;
	row->count++;
	row->not_slept += sample->task == sample->other;
	row->last = latency;
	row->priority = sample->priority;
	row->cpu = sample->cpu;
	if (row->epoch == sample->settings->epoch && row->worst >= latency)
		return;
	row->epoch = sample->settings->epoch;
	row->worst = latency;
	row->worst_end = sample->end;
	bpf_probe_read_kernel(row->name, sizeof(row->name), sample->task->comm);
}

static ALWAYS_INLINE u64 number_of(struct cgroup *cgroup)
{
	struct kernfs_node *node = READ(cgroup->kn);
	return READ(node->id);
}

/* Whether a group's name is this one, of so many words, as far as it counts. */
static ALWAYS_INLINE int is_of(u32 number, const u64 *name, u32 words)
{
	struct group *group = bpf_map_lookup_elem(&groups, &number);
	u64 differs = 0;
	if (!group)
		return 0;
	for (u32 word = 0; word < words; word++)
		differs |= (name[word] & group->mask[word]) ^ group->name[word];
	return !differs;
}

/* A bit for each group that a thread belongs to now. */
static ALWAYS_INLINE u32 groups_of(const struct control *settings, struct task_struct *task)
{
	u32 wanted = settings->groups, by_name = wanted & settings->by_name, found = 0;
	if (has_cgroups && wanted != by_name) {
		struct css_set *set = READ(task->cgroups);
		u64 number = number_of(READ(set->dfl_cgrp));
		u32 *bits = bpf_map_lookup_elem(&cgroups, &number);
		found = bits ? *bits & wanted & ~by_name : 0;
	}
	if (!by_name)
		return found;
	u64 name[2] = {};
	bpf_probe_read_kernel(name, sizeof(name), task->comm);
#pragma clang loop unroll(disable)
	for (u32 number = 0; number < GROUPS; number++)
		if (by_name >> number & 1 && is_of(number, name, 2))
			found |= 1u << number;
	return found;
}

/* Where the longest latency of this CPU, a group and a kind is kept. */
static ALWAYS_INLINE u32 place_of_longest(const struct sample *sample, u32 number, u32 kind)
{
	u32 slot = kind == MISSED_TIMER ? sample->slot : kind;
	return (sample->cpu * GROUPS + number) * WORST_SLOTS + slot;
}

/*
 * Counts a latency for a group; returns whether it is the longest. CPUs do so at once, so it is done atomically; the longest is kept by
 * each CPU.
 *
 * A function that is not static is verified by itself, once, and lies out of the way of threads that are in no group. What it is given
 * are bytes to the verifier, no pointers.
 */
NOINLINE int add_to_group(const struct sample *sample, u32 number, u32 kind)
{
	u32 zero = 0;
	struct group *group = bpf_map_lookup_elem(&groups, &number);
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	if (!sample || !group || !settings || kind >= KINDS)
		return 0;
	u64 since = kind <= PREEMPTED ? sample->woken : sample->intended;
	u64 latency = sample->end > since ? sample->end - since : 0;
	u32 place = (number * KINDS + kind) * BUCKETS + bucket_of(latency);
	u64 *count = bpf_map_lookup_elem(&group_places, &place);
	if (count)
		__sync_fetch_and_add(count, 1);
	__sync_fetch_and_add(&group->sums[kind], latency);
	place = place_of_longest(sample, number, kind);
	struct worst *worst = bpf_map_lookup_elem(&group_worsts, &place);
	return worst && keep_longest(worst, sample, latency, settings->epoch);
}

/*
 * Counts what has ended, a bit for each kind, for the groups that the thread belongs to; returns where the first latency stands that is
 * the longest, plus one. As above.
 */
NOINLINE int count_for_groups(const struct sample *sample, u32 kinds)
{
	u32 zero = 0, first = 0;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	if (!sample || !settings)
		return 0;
	u32 found = groups_of(settings, sample->task);
	kinds &= settings->kinds;
#pragma clang loop unroll(disable)
	for (u32 number = 0; number < GROUPS; number++) {
		if (!(found >> number & 1))
			continue;
#pragma clang loop unroll(disable)
		for (u32 kind = 0; kind < KINDS; kind++)
			if (kinds >> kind & 1 && add_to_group(sample, number, kind) && !first)
				first = place_of_longest(sample, number, kind) + 1;
	}
	return first;
}

/* Gives all that were kept for groups just now the code of the first one. As above. */
NOINLINE int share_code(const struct sample *sample, u32 place)
{
	struct worst *first = bpf_map_lookup_elem(&group_worsts, &place);
	if (!sample || !first)
		return 0;
#pragma clang loop unroll(disable)
	for (u32 number = 0; number < GROUPS * KINDS; number++) {
		place = place_of_longest(sample, number / KINDS, number % KINDS);
		struct worst *worst = bpf_map_lookup_elem(&group_worsts, &place);
		if (!worst || !(worst->sequence & 1) || worst->end != sample->end)
			continue;
		worst->size = first->size;
		__builtin_memcpy(worst->stack, first->stack, sizeof(worst->stack));
		__sync_fetch_and_add(&worst->sequence, 1);
	}
	return 0;
}

/* The same, with the code of the longest. */
static ALWAYS_INLINE void add_to_groups(const struct sample *sample, u32 kinds)
{
	if (!sample->settings->groups)
		return;
	/* To the verifier, a function that is given the sample may have changed it. */
	void *context = sample->context;
	u32 place = count_for_groups(sample, kinds);
	if (!place--)
		return;
	struct worst *first = bpf_map_lookup_elem(&group_worsts, &place);
	if (!first)
		return;
	first->size = bpf_get_stack(context, first->stack, sizeof(first->stack), 0);
	share_code(sample, place);
}

/* Keeps a wake-up, as long as there is room. */
static ALWAYS_INLINE void keep(const struct sample *sample)
{
	u32 place = 0;
	struct logged *head = log_entries ? bpf_map_lookup_elem(&logged_wakes, &place) : 0;
	if (!head)
		return;
	place = __sync_fetch_and_add(&head->intended, 1) + 1;
	struct logged *entry = bpf_map_lookup_elem(&logged_wakes, &place);
	if (!entry)
		return;
	entry->intended = sample->intended;
	entry->woken = sample->woken;
	entry->running = sample->end;
	entry->tid = sample->tid;
	entry->cpu = sample->cpu;
	entry->slot = sample->slot;
}

/* Remembers timers that are armed when they should have gone off already: that is not the kernel's latency. */
SECTION("tp_btf/hrtimer_start") int arm(u64 *arguments)
{
	struct hrtimer *timer = (void *)arguments[0];
	u64 handler = (u64)timer->function;
	if (handler == ticks)
		return 0;
	/* Who sleeps arms it: what ordinary threads sleep for is nobody's latency here. */
	struct task_struct *current = bpf_get_current_task_btf();
	if (handler == wakes_sleeper && current->prio >= FIRST_ORDINARY)
		return 0;
	u32 place = (u64)timer >> 3 & (ARMED - 1);
	struct armed *entry = bpf_map_lookup_elem(&armed, &place);
	if (!entry)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (expiry_of(timer) > now) {
		if (entry->timer == (u64)timer)
			entry->timer = 0;
		return 0;
	}
	entry->time = now;
	entry->timer = (u64)timer;
	/* A thread that sleeps until a time (HRTIMER_MODE_REL is 1) which has passed is behind its own plan. */
	if (handler != wakes_sleeper || arguments[1] & 1)
		return 0;
	struct thread *row = row_of(current, 0);
	if (row)
		row->misses++;
	return 0;
}

/* When a timer was to go off: as it says, but not before it was armed. */
static ALWAYS_INLINE u64 intended_of(struct hrtimer *timer)
{
	u64 intended = expiry_of(timer);
	u32 place = (u64)timer >> 3 & (ARMED - 1);
	struct armed *entry = bpf_map_lookup_elem(&armed, &place);
	if (!entry || entry->timer != (u64)timer)
		return intended;
	entry->timer = 0;
	return entry->time > intended ? entry->time : intended;
}

/* A thread is to run from now on. */
static ALWAYS_INLINE struct wake *begin(
	struct processor *processor, u32 tid, struct expiry *expiry, int is_interrupted)
{
	struct wake *wake = wake_of(tid);
	if (!wake)
		return 0;
	count(processor, WAKING, is_interrupted);
	if (wake->woken)
		count(processor, wake->tid == tid ? REPLACED : DISPLACED, is_interrupted);
	wake->tid = tid;
	wake->intended = expiry ? expiry->intended : 0;
	wake->fired = wake->intended ? expiry->fired : 0;
	wake->woken = bpf_ktime_get_ns();
	return wake;
}

/*
 * A SCHED_DEADLINE thread that waits for its next period (sched_yield) is never woken: its timer ends the waiting. That thread; none
 * if it doesn't wait. Timers of deadline servers (Linux 6.8) are not in a thread: what lies around them is none.
 */
static ALWAYS_INLINE struct task_struct *replenish(
	struct processor *processor, struct hrtimer *timer, struct expiry *expiry)
{
	struct task_struct *task = (void *)timer - OFFSET_OF(struct task_struct, dl.dl_timer);
	if (READ(task->policy) != SCHED_DEADLINE || READ(task->prio) >= 0 || READ(task->on_rq) != 1)
		return 0;
	begin(processor, READ(task->pid), expiry, 0);
	return task;
}

/* Counts how late a timer was of which it is known by now whose it is. */
static ALWAYS_INLINE void add_timer(struct sample *sample)
{
	count(sample->processor, EXPIRED, sample->slot == MISSED_SOFT_TIMER);
	add(MISSED_TIMER, sample, sample->intended);
	add_to_groups(sample, 1u << MISSED_TIMER);
}

static ALWAYS_INLINE int expire(u64 *context, int soft)
{
	struct hrtimer *timer = (void *)context[0];
	if (!!timer->is_soft != soft)
		return 0;
	struct sample sample = {.slot = soft ? MISSED_SOFT_TIMER : MISSED_TIMER, .context = context};
	if (!prepare(&sample))
		return 0;
	struct processor *processor = sample.processor;
	struct expiry *expiry = soft ? &processor->soft : &processor->hard;
	u64 handler = (u64)timer->function;
	sample.other = bpf_get_current_task_btf();
	sample.end = sample.fired = bpf_ktime_get_ns();
	sample.intended = handler == ticks ? 0 : intended_of(timer);
	expiry->intended = sample.intended;
	expiry->fired = sample.fired;
	expiry->owner = (u64)sample.other;
	expiry->timer = (u64)timer;
	if (handler == wakes_sleeper)
		sample.task = READ(((struct hrtimer_sleeper *)timer)->task);
	else if (handler == ends_throttling && handler)
		sample.task = replenish(processor, timer, expiry);
	expiry->unclear = !sample.task && handler != wakes_sleeper && handler != ticks;
	if (!sample.task)
		return 0;
	sample.priority = READ(sample.task->prio);
	if (sample.priority >= FIRST_ORDINARY)
		return 0;
	sample.tid = READ(sample.task->pid);
	add_timer(&sample);
	return 0;
}

/*
 * Hard and soft timers have programs of their own: a hard one's interrupt that comes amidst a soft one's program
 * would be lost to the kernel's guard, which is one for each program.
 */
SECTION("tp_btf/hrtimer_expire_entry") int expire_hard(u64 *arguments)
{
	return expire(arguments, 0);
}

SECTION("tp_btf/hrtimer_expire_entry") int expire_soft(u64 *arguments)
{
	return expire(arguments, 1);
}

/* The handler has returned. Its timer may be gone: the address is only compared. */
static ALWAYS_INLINE int expired(u64 timer)
{
	struct processor *processor = processor_of(bpf_get_smp_processor_id());
	if (!processor)
		return 0;
	if (processor->hard.timer == timer)
		processor->hard.timer = 0;
	if (processor->soft.timer == timer)
		processor->soft.timer = 0;
	return 0;
}

/*
 * Twice the same, and one behind the other: where an interrupt comes amidst one of them, and a timer goes off in it, the kernel's guard
 * lets only the other one run for that.
 */
SECTION("tp_btf/hrtimer_expire_exit") int expired_first(u64 *arguments)
{
	return expired(arguments[0]);
}

SECTION("tp_btf/hrtimer_expire_exit") int expired_second(u64 *arguments)
{
	return expired(arguments[0]);
}

/* The timer in whose handler a thread is woken is that thread's, whatever else it does; once, however many it wakes. */
static ALWAYS_INLINE void add_timer_of(const struct sample *waking, struct task_struct *task, struct expiry *expiry)
{
	/* A copy: functions that are given it may change it, to the verifier. */
	struct sample sample = *waking;
	expiry->unclear = 0;
	sample.slot = expiry == &waking->processor->soft ? MISSED_SOFT_TIMER : MISSED_TIMER;
	sample.intended = expiry->intended;
	sample.end = sample.fired = expiry->fired;
	sample.task = task;
	sample.other = bpf_get_current_task_btf();
	sample.tid = task->pid;
	sample.priority = task->prio;
	add_timer(&sample);
}

SECTION("tp_btf/sched_waking") int waking(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	if (task->prio >= FIRST_ORDINARY)
		return 0;
	struct sample sample = {.slot = TIMER_WAKEUP_ALL, .context = arguments};
	if (!prepare(&sample))
		return 0;
	struct processor *processor = sample.processor;
	struct task_struct *current = bpf_get_current_task_btf();
	struct expiry *expiry = expiry_here(processor);
	/* Who wakes itself was on its way to sleep. Interrupts are off only where somebody else is woken. */
	int is_interrupted = task == current;
	struct wake *wake = begin(processor, task->pid, expiry, is_interrupted);
	if (expiry && expiry->unclear)
		add_timer_of(&sample, task, expiry);
	if (!wake || !is_interrupted)
		return 0;
	/* It goes on at once. */
	sample.end = wake->woken;
	wake->woken = 0;
	count(processor, NOT_SLEPT, is_interrupted);
	if (!wake->intended)
		return 0;
	sample.intended = wake->intended;
	sample.fired = wake->fired;
	sample.woken = sample.end;
	sample.task = sample.other = task;
	sample.tid = task->pid;
	sample.priority = task->prio;
	processor->ended = (struct ended){sample.woken, sample.intended, sample.fired, sample.tid, TIMER_WAKEUP_ALL};
	add(TIMER_WAKEUP_ALL, &sample, sample.intended);
	add_to_thread(&sample);
	keep(&sample);
	add_to_groups(&sample, 1u << TIMER_WAKEUP_ALL);
	return 0;
}

/* Who of the other real-time threads ran here since this one was woken? */
static ALWAYS_INLINE enum kind class_of(struct processor *processor, u64 woken, u32 tid, s32 priority)
{
	enum kind kind = WAKEUP;
	for (u32 back = 1; back <= REMEMBERED; back++) {
		struct ran *ran = &processor->ran[(processor->head - back) & (REMEMBERED - 1)];
		if (ran->end <= woken)
			return kind;
		/* Woken by another CPU on its way to sleep. */
		if (ran->tid == tid)
			continue;
		if (ran->priority < priority)
			return PREEMPTED;
		if (ran->priority == priority)
			kind = SHARED;
	}
	/* More of them than are remembered. */
	return PREEMPTED;
}

static ALWAYS_INLINE void runs(struct processor *processor, struct wake *wake, struct sample *sample)
{
	enum kind kind = class_of(processor, wake->woken, sample->tid, sample->priority);
	sample->intended = wake->intended;
	sample->fired = wake->fired;
	sample->woken = wake->woken;
	processor->ended = (struct ended){wake->woken, wake->intended, wake->fired, sample->tid, kind};
	wake->woken = 0;
	count(processor, TOP + kind, 0);
	sample->slot = kind;
	add(kind, sample, sample->woken);
	if (sample->intended) {
		sample->slot = TIMER_WAKEUP_ALL;
		add(TIMER_WAKEUP_ALL, sample, sample->intended);
	}
	if (sample->intended && kind == WAKEUP) {
		sample->slot = TIMER_WAKEUP;
		add(TIMER_WAKEUP, sample, sample->intended);
	}
	add_to_thread(sample);
	keep(sample);
	u32 by_timer = 1u << TIMER_WAKEUP_ALL | (kind == WAKEUP) << TIMER_WAKEUP;
	add_to_groups(sample, 1u << kind | (sample->intended ? by_timer : 0));
}

SECTION("tp_btf/sched_switch") int switched(u64 *arguments)
{
	struct task_struct *previous = (void *)arguments[1], *next = (void *)arguments[2];
	s32 before = previous->prio, after = next->prio;
	/* Most switches end here. */
	if (before >= FIRST_ORDINARY && after >= FIRST_ORDINARY)
		return 0;
	struct sample sample = {.context = arguments};
	if (!prepare(&sample))
		return 0;
	struct processor *processor = sample.processor;
	sample.end = bpf_ktime_get_ns();
	if (before < FIRST_ORDINARY) {
		struct ran *ran = &processor->ran[processor->head++ & (REMEMBERED - 1)];
		ran->end = sample.end;
		ran->priority = priority_of(previous);
		ran->tid = previous->pid;
		/* Woken before it got to sleep. Else it may be on its way there, and woken by another CPU already. */
		int stays = arguments[0] & 1 || !previous->__state;
		struct wake *wake = stays ? wake_of(previous->pid) : 0;
		if (wake && wake->tid == previous->pid && wake->woken) {
			wake->woken = 0;
			count(processor, NOT_SLEPT, 0);
		}
	}
	if (after >= FIRST_ORDINARY)
		return 0;
	struct wake *wake = wake_of(next->pid);
	/* Else it goes on after another one ran. */
	if (!wake || wake->tid != next->pid || !wake->woken)
		return 0;
	sample.task = next;
	sample.other = previous;
	sample.tid = next->pid;
	sample.priority = after;
	runs(processor, wake, &sample);
	return 0;
}

/* The cgroup of the second version's tree that a tracepoint is about; none of another tree, or if nobody wants to know. */
static ALWAYS_INLINE struct cgroup *counted(u64 *arguments, struct control **settings)
{
	struct cgroup *cgroup = (void *)arguments[0];
	u32 zero = 0;
	*settings = bpf_map_lookup_elem(&control, &zero);
	if (!has_cgroups || !*settings || (*settings)->groups == (*settings)->by_name)
		return 0;
	struct cgroup_root *root = READ(cgroup->root);
	return READ(root->hierarchy_id) ? 0 : cgroup;
}

/* A cgroup was made: it belongs to what the one above it does, and to groups that have its path. */
SECTION("tp_btf/cgroup_mkdir") int cgroup_made(u64 *arguments)
{
	struct control *settings;
	struct cgroup *made = counted(arguments, &settings);
	if (!made)
		return 0;
	u32 wanted = settings->groups & ~settings->by_name;
	struct cgroup_subsys_state *above = READ(made->self.parent);
	u64 number = number_of((void *)above - OFFSET_OF(struct cgroup, self));
	u32 *inherited = bpf_map_lookup_elem(&cgroups, &number);
	u32 bits = inherited ? *inherited & wanted : 0;
	u64 path[NAME_WORDS] = {};
	bpf_probe_read_kernel_str(path, sizeof(path), (const void *)arguments[1]);
#pragma clang loop unroll(disable)
	for (u32 group = 0; group < GROUPS; group++)
		if (wanted >> group & 1 && is_of(group, path, NAME_WORDS))
			bits |= 1u << group;
	if (!bits)
		return 0;
	number = number_of(made);
	if (bpf_map_update_elem(&cgroups, &number, &bits, 0))
		__sync_fetch_and_add(&settings->unlisted, 1);
	return 0;
}

SECTION("tp_btf/cgroup_rmdir") int cgroup_removed(u64 *arguments)
{
	struct control *settings;
	struct cgroup *removed = counted(arguments, &settings);
	if (!removed)
		return 0;
	u64 number = number_of(removed);
	bpf_map_delete_elem(&cgroups, &number);
	return 0;
}

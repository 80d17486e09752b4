/*
 * Latency monitor: measures every wakeup of every real-time thread where it happens.
 * docs/design/latency.md explains what is counted, and why.
 *
 *   hrtimer_start ─► armed           hrtimer_expire_entry ─► expiry
 *   sched_waking ─► wake             sched_switch ─► counted
 */
#include "monitor.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* Addresses of timer handlers, set by the loader; 0 if the kernel has none. */
const volatile u64 wakes_sleeper = 0;   /* hrtimer_wakeup */
const volatile u64 ticks = 0;           /* tick_nohz_handler, before Linux 6.8 tick_sched_timer */
const volatile u64 ends_throttling = 0; /* dl_task_timer */

/* Whether this kernel has cgroups. Without them, the verifier removes this code. */
const volatile u32 has_cgroups = 0;

/* Number of wakeups that are logged one by one. If it is 0, the verifier removes this code. */
const volatile u32 log_entries = 0;

ARRAY(control, struct control, 1);
ARRAY(processors, struct processor, 1);
ARRAY(histograms, u64, 1);
ARRAY(worsts, struct max_sample, 1);
ARRAY(wakes, struct wake, WAKES);
ARRAY(threads, struct thread, THREADS);
ARRAY(armed, struct armed, ARMED);
ARRAY(logged_wakes, struct logged, 1);
ARRAY(groups, struct group, GROUPS);
ARRAY(group_places, u64, GROUPS *KINDS *BUCKETS);
ARRAY(group_worsts, struct max_sample, 1);

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

/* Finished latency with its details. */
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
 * Adds to a counter of this CPU. An atomic addition costs as much as all the rest, so only programs
 * that may be interrupted by another writer of the counter use it: those of soft timers.
 */
static ALWAYS_INLINE void counter_add(u64 *number, u64 value, int is_interrupted)
{
	if (is_interrupted)
		__sync_fetch_and_add(number, value);
	else
		*(volatile u64 *)number += value;
}

static ALWAYS_INLINE void count(struct processor *processor, enum count which, int is_interrupted)
{
	counter_add(&processor->counts[which], 1, is_interrupted);
}

/* Begins a sample; false if nothing can be counted. */
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
 * Stores a latency if it is the longest, and returns whether it is. A reader meanwhile sees an odd
 * or a changed sequence. It stays odd until `store_stack`: global functions can't take stacks.
 */
static ALWAYS_INLINE int update_max(struct max_sample *worst, const struct sample *sample, u64 latency, u32 epoch)
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

/* Adds the stack to a stored maximum. */
static ALWAYS_INLINE void store_stack(struct max_sample *worst, void *context)
{
	worst->size = bpf_get_stack(context, worst->stack, sizeof(worst->stack), 0);
	__sync_fetch_and_add(&worst->sequence, 1);
}

/* Updates the maximum of one set and returns it. */
static ALWAYS_INLINE u64 update_max_of_set(const struct sample *sample, u64 latency, u32 epoch, enum worst_set set)
{
	u32 place = (sample->cpu * WORST_SETS + set) * WORST_SLOTS + sample->slot;
	struct max_sample *worst = bpf_map_lookup_elem(&worsts, &place);
	if (!worst)
		return 0;
	if (update_max(worst, sample, latency, epoch))
		store_stack(worst, sample->context);
	return worst->latency;
}

/* Updates the maxima of the reset and of the interval. */
static ALWAYS_INLINE void update_maxima(const struct sample *sample, u64 latency)
{
	u32 epoch = sample->settings->epoch, interval = sample->settings->interval, slot = sample->slot;
	asm volatile("" : "+r"(slot));
	if (slot >= WORST_SLOTS)
		return;
	struct max_threshold *bar = &sample->processor->bars[slot];
	u64 of = (u64)epoch << 32 | interval;
	if (bar->of == of && bar->latency >= latency)
		return;
	u64 least = update_max_of_set(sample, latency, epoch, SINCE_RESET);
	if (interval) {
		enum worst_set set = interval & 1 ? OF_OTHER_INTERVAL : OF_INTERVAL;
		u64 other = update_max_of_set(sample, latency, interval, set);
		least = other < least ? other : least;
	}
	bar->of = of;
	bar->latency = least;
}

/*
 * Converts to whole microseconds. A division would cost as much as all the rest; this factor is
 * exact for numbers of 32 bits.
 */
static ALWAYS_INLINE u32 bucket_of(u64 latency)
{
	return latency < (BUCKETS - 1) * 1000 ? latency * 274877907 >> 38 : BUCKETS - 1;
}

/* Counts a latency: from `since` to the end of the sample. */
static ALWAYS_INLINE void add(enum kind kind, const struct sample *sample, u64 since)
{
	int is_interrupted = sample->slot == MISSED_SOFT_TIMER;
	if (!(sample->settings->kinds >> kind & 1))
		return;
	/* Timers expire early by less than the clock's resolution. */
	u64 latency = sample->end > since ? sample->end - since : 0;
	u32 place = (sample->cpu * KINDS + kind) * BUCKETS + bucket_of(latency);
	u64 *number = bpf_map_lookup_elem(&histograms, &place);
	if (number)
		counter_add(number, 1, is_interrupted);
	counter_add(&sample->processor->sums[kind], latency, is_interrupted);
	update_maxima(sample, latency);
}

/*
 * Returns the slot of a thread, a new one if needed. A thread is identified by its number and
 * start. Slots are released, so its own may follow a free one. `woken`: it slept once for the
 * current wakeup.
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
	/* Another CPU may take it for another thread at the same time; then there is none. */
	if (!row || __sync_val_compare_and_swap(&row->key, 0, key))
		return 0;
	row->slept = task->nvcsw - woken;
	row->tid = task->pid;
	return row;
}

/* Index of a latency in a thread's histogram. */
static ALWAYS_INLINE u32 place_of(u64 latency)
{
	u64 value = latency >> PLACE_SHIFT;
	if (value >> MAX_BITS)
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

/* Counts a wakeup for its thread: from the intended expiry if there is one. */
static ALWAYS_INLINE void add_to_thread(const struct sample *sample)
{
	struct thread *row = row_of(sample->task, sample->task != sample->other);
	if (!row) {
		count(sample->processor, NO_THREAD_SLOT, 0);
		return;
	}
	u64 since = sample->intended ? sample->intended : sample->woken;
	u64 latency = sample->end > since ? sample->end - since : 0;
	u64 place = place_of(latency);
	/* The verifier may have lost track of the range. */
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

/* Returns whether a group's pattern matches a name of this many words. */
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

/* Returns a bit for each group that a thread belongs to now. */
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

/* Index of the maximum of this CPU, a group and a kind. */
static ALWAYS_INLINE u32 place_of_longest(const struct sample *sample, u32 number, u32 kind)
{
	u32 slot = kind == MISSED_TIMER ? sample->slot : kind;
	return (sample->cpu * GROUPS + number) * WORST_SLOTS + slot;
}

/*
 * Counts a latency for a group; returns whether it is the longest. The counts are shared by all
 * CPUs and therefore atomic; each CPU has its own maximum.
 *
 * A global function is verified once by itself, and lies outside the path of threads without a
 * group. Its arguments are bytes to the verifier, not pointers.
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
	struct max_sample *worst = bpf_map_lookup_elem(&group_worsts, &place);
	return worst && update_max(worst, sample, latency, settings->epoch);
}

/*
 * Counts a finished wakeup in each kind of the bitmask, for the groups of its thread. Returns the
 * index of the first new maximum plus one, or 0. Global for the same reasons.
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

/* Copies the stack of the first new maximum to the others. Global for the same reasons. */
NOINLINE int share_stack(const struct sample *sample, u32 place)
{
	struct max_sample *first = bpf_map_lookup_elem(&group_worsts, &place);
	if (!sample || !first)
		return 0;
#pragma clang loop unroll(disable)
	for (u32 number = 0; number < GROUPS * KINDS; number++) {
		place = place_of_longest(sample, number / KINDS, number % KINDS);
		struct max_sample *worst = bpf_map_lookup_elem(&group_worsts, &place);
		if (!worst || !(worst->sequence & 1) || worst->end != sample->end)
			continue;
		worst->size = first->size;
		__builtin_memcpy(worst->stack, first->stack, sizeof(worst->stack));
		__sync_fetch_and_add(&worst->sequence, 1);
	}
	return 0;
}

/* Counts for groups, with the stack of the maximum. */
static ALWAYS_INLINE void add_to_groups(const struct sample *sample, u32 kinds)
{
	if (!sample->settings->groups)
		return;
	/* The verifier assumes that a function may change the sample passed to it. */
	void *context = sample->context;
	u32 place = count_for_groups(sample, kinds);
	if (!place--)
		return;
	struct max_sample *first = bpf_map_lookup_elem(&group_worsts, &place);
	if (!first)
		return;
	first->size = bpf_get_stack(context, first->stack, sizeof(first->stack), 0);
	share_stack(sample, place);
}

/* Logs a wakeup while there is space. */
static ALWAYS_INLINE void log_wakeup(const struct sample *sample)
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

/* Records timers armed after their intended expiry: that delay is not the kernel's latency. */
SECTION("tp_btf/hrtimer_start") int arm(u64 *arguments)
{
	struct hrtimer *timer = (void *)arguments[0];
	u64 handler = (u64)timer->function;
	if (handler == ticks)
		return 0;
	/* A sleeping thread arms its own timer; sleeps of ordinary threads are not counted. */
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
	/* A thread that sleeps until a past time (HRTIMER_MODE_REL is 1) overran its period. */
	if (handler != wakes_sleeper || arguments[1] & 1)
		return 0;
	struct thread *row = row_of(current, 0);
	if (row)
		row->misses++;
	return 0;
}

/* Intended expiry of a timer, but not before it was armed. */
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

/* Starts a wakeup: the thread must run from now on. */
static ALWAYS_INLINE struct wake *begin(
	struct processor *processor, u32 tid, struct expiry *expiry, int is_interrupted)
{
	struct wake *wake = wake_of(tid);
	if (!wake)
		return 0;
	count(processor, WAKING, is_interrupted);
	if (wake->woken)
		count(processor, wake->tid == tid ? REWOKEN : EVICTED, is_interrupted);
	wake->tid = tid;
	wake->intended = expiry ? expiry->intended : 0;
	wake->fired = wake->intended ? expiry->fired : 0;
	wake->woken = bpf_ktime_get_ns();
	return wake;
}

/*
 * Returns the SCHED_DEADLINE thread that waits for its next period (sched_yield), if the timer is
 * of one. It is never woken: its timer ends the wait. Timers of deadline servers (Linux 6.8) are
 * not part of a thread; what surrounds them is none.
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

/* Counts the lateness of a timer whose thread is known by now. */
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
 * Hard and soft timers have programs of their own: the kernel's recursion guard, one per program,
 * would drop a hard timer's interrupt during the program of a soft one.
 */
SECTION("tp_btf/hrtimer_expire_entry") int expire_hard(u64 *arguments)
{
	return expire(arguments, 0);
}

SECTION("tp_btf/hrtimer_expire_entry") int expire_soft(u64 *arguments)
{
	return expire(arguments, 1);
}

/* The handler has returned. Its timer may be freed: only the address is compared. */
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
 * Two equal programs, one after the other: if an interrupt with a timer comes during one of them,
 * the recursion guard skips only that one.
 */
SECTION("tp_btf/hrtimer_expire_exit") int expired_first(u64 *arguments)
{
	return expired(arguments[0]);
}

SECTION("tp_btf/hrtimer_expire_exit") int expired_second(u64 *arguments)
{
	return expired(arguments[0]);
}

/*
 * Attributes the timer of the running handler to the thread that it wakes, once, however many it
 * wakes.
 */
static ALWAYS_INLINE void add_timer_of(const struct sample *waking, struct task_struct *task, struct expiry *expiry)
{
	/* A copy: the verifier assumes that functions may change their argument. */
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
	/*
	 * A thread that wakes itself was about to sleep. Interrupts are off only when another one is
	 * woken.
	 */
	int is_interrupted = task == current;
	struct wake *wake = begin(processor, task->pid, expiry, is_interrupted);
	if (expiry && expiry->unclear)
		add_timer_of(&sample, task, expiry);
	if (!wake || !is_interrupted)
		return 0;
	/* It continues at once. */
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
	log_wakeup(&sample);
	add_to_groups(&sample, 1u << TIMER_WAKEUP_ALL);
	return 0;
}

/* Which other real-time threads ran here since this one was woken? */
static ALWAYS_INLINE enum kind class_of(struct processor *processor, u64 woken, u32 tid, s32 priority)
{
	enum kind kind = WAKEUP;
	for (u32 back = 1; back <= REMEMBERED; back++) {
		struct ran *ran = &processor->ran[(processor->head - back) & (REMEMBERED - 1)];
		if (ran->end <= woken)
			return kind;
		/* Woken by another CPU while going to sleep. */
		if (ran->tid == tid)
			continue;
		if (ran->priority < priority)
			return PREEMPTED;
		if (ran->priority == priority)
			kind = SHARED;
	}
	/* More than are remembered. */
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
	log_wakeup(sample);
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
		/*
		 * Woken before it slept. Else it may be going to sleep, and already be woken by another
		 * CPU.
		 */
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
	/* Else it continues after another one ran. */
	if (!wake || wake->tid != next->pid || !wake->woken)
		return 0;
	sample.task = next;
	sample.other = previous;
	sample.tid = next->pid;
	sample.priority = after;
	runs(processor, wake, &sample);
	return 0;
}

/*
 * Returns the number of a tracepoint's cgroup in the unified hierarchy; none of others, or if no
 * group needs it.
 */
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

/*
 * A cgroup was created: it inherits the groups of its parent and joins those that match its path.
 */
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

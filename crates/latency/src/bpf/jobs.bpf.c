/*
 * Jobs: wakeups of threads that have jobs, and begins and ends of probed jobs.
 * docs/design/jobs.md.
 *
 * These programs are loaded only while jobs are monitored. They are attached behind those that
 * count (monitor.bpf.c), whose map `processors` says which timer's handler runs.
 */
#include "jobs.h"
#include "processors.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* The reader polls; it needs no wakeup. */
#define BPF_RB_NO_WAKEUP 1

ARRAY(sleepers, struct sleeper, SLEEPERS);
ARRAY(tally, u64, 1);

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, 1 << 20);
} messages SECTION(".maps");

struct task_struct___running {
	s32 on_cpu;
} __attribute__((preserve_access_index));

/* Reads a field through a pointer that the verifier can't check. */
#define READ(field)                                                                                          \
	({                                                                                                   \
		typeof(field) value = 0;                                                                     \
		bpf_probe_read_kernel(&value, sizeof(value), &(field));                                      \
		value;                                                                                       \
	})

static ALWAYS_INLINE struct sleeper *slot_of(u32 tid)
{
	u32 slot = tid & (SLEEPERS - 1);
	return bpf_map_lookup_elem(&sleepers, &slot);
}

/* Slot of a thread; none for a thread without a job. */
static ALWAYS_INLINE struct sleeper *sleeper_of(u32 tid)
{
	struct sleeper *sleeper = slot_of(tid);
	return sleeper && sleeper->tid == tid ? sleeper : 0;
}

static ALWAYS_INLINE struct message *reserve_message(enum message_kind kind, u64 time)
{
	struct message *message = bpf_ringbuf_reserve(&messages, sizeof(*message), 0);
	u32 zero = 0;
	if (!message) {
		u64 *lost = bpf_map_lookup_elem(&tally, &zero);
		if (lost)
			__sync_fetch_and_add(lost, 1);
		return 0;
	}
	*message = (struct message){.time = time, .cpu = bpf_get_smp_processor_id(), .kind = kind};
	return message;
}

/* Reports a wakeup: the thread runs now, or still runs. */
static ALWAYS_INLINE void report_wakeup(enum message_kind kind, u64 time, const struct sleeper *sleeper)
{
	struct message *message = reserve_message(kind, time);
	if (!message)
		return;
	message->woken = sleeper->woken;
	message->asked = sleeper->asked;
	message->intended = sleeper->intended;
	message->fired = sleeper->fired;
	message->tid = sleeper->tid;
	bpf_ringbuf_submit(message, BPF_RB_NO_WAKEUP);
}

static ALWAYS_INLINE struct processor *processor_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&processors, &cpu);
}

/* Adds the timer whose handler runs here, if any; the running handler keeps the timer alive. */
static ALWAYS_INLINE void add_timer(struct sleeper *sleeper, struct processor *processor)
{
	struct expiry *expiry = expiry_here(processor);
	if (!expiry || !expiry->intended)
		return;
	sleeper->intended = expiry->intended;
	sleeper->fired = expiry->fired;
	struct hrtimer *timer = (void *)expiry->timer;
	struct hrtimer_clock_base *base = READ(timer->base);
	sleeper->asked = READ(timer->node.expires) - READ(base->offset);
}

SECTION("tp_btf/sched_waking") int wakes(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	struct sleeper *sleeper = sleeper_of(task->pid);
	struct processor *processor = sleeper ? processor_here() : 0;
	if (!processor)
		return 0;
	sleeper->woken = bpf_ktime_get_ns();
	sleeper->asked = sleeper->intended = sleeper->fired = 0;
	add_timer(sleeper, processor);
	sleeper->is_open = 1;
	struct task_struct___running *running = (void *)task;
	if (HAS_FIELD(running->on_cpu) && running->on_cpu)
		report_wakeup(AWAKE, sleeper->woken, sleeper);
	return 0;
}

SECTION("tp_btf/sched_switch") int runs(u64 *arguments)
{
	struct task_struct *next = (void *)arguments[2];
	struct sleeper *sleeper = sleeper_of(next->pid);
	if (!sleeper)
		return 0;
	/*
	 * A SCHED_DEADLINE thread that waited for its next period was not woken: the programs that
	 * count say when it continued.
	 */
	struct processor *processor = next->prio < 0 ? processor_here() : 0;
	if (!sleeper->is_open && processor && processor->ended.tid == next->pid &&
	    processor->ended.woken > sleeper->woken) {
		sleeper->woken = processor->ended.woken;
		sleeper->asked = sleeper->intended = processor->ended.intended;
		sleeper->fired = processor->ended.fired;
		sleeper->is_open = 1;
	}
	if (!sleeper->is_open)
		return 0;
	sleeper->is_open = 0;
	report_wakeup(RAN, bpf_ktime_get_ns(), sleeper);
	return 0;
}

static ALWAYS_INLINE int report_probe(void *context, enum message_kind kind)
{
	u64 time = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	u32 tid = id;
	struct sleeper *sleeper = slot_of(tid);
	/* Reports its wakeups from now on. The last of two threads with equal low bits has the slot. */
	if (sleeper && sleeper->tid != tid) {
		sleeper->is_open = 0;
		sleeper->tid = tid;
	}
	struct message *message = reserve_message(kind, time);
	if (!message)
		return 0;
	message->tid = tid;
	message->pid = id >> 32;
	message->job = bpf_get_attach_cookie(context);
	bpf_ringbuf_submit(message, BPF_RB_NO_WAKEUP);
	return 0;
}

SECTION("uprobe") int job_begins(void *context) { return report_probe(context, BEGAN); }
SECTION("uprobe") int job_ends(void *context) { return report_probe(context, ENDED); }

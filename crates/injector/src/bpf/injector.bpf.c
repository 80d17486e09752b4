/*
 * Delays on purpose: a chosen thread keeps its CPU busy for a while, once for each order, at a
 * place where the kernel has interrupts or preemption off. No module, no patch; a delay ends by the
 * clock and by a count, whatever happens.
 */
#include "injector.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* Address of the handler of sleepers' timers, found by the loader. */
const volatile u64 wakes_sleeper = 0;

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, ORDERS);
	TYPE(key, u32);
	TYPE(value, struct order);
} orders SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct interruptions);
} interruptions SECTION(".maps");

/* Linux 5.17. */
static long (*const bpf_loop)(u32 times, void *body, void *context, u64 flags) = (void *)181;

/* Each round reads the clock, which takes 20 ns and more: an order of MAX_NS is done before. */
#define MAX_ROUNDS (1 << 16)

struct until {
	u64 end;
};

static long is_over(u64 round, struct until *until)
{
	return bpf_ktime_get_ns() >= until->end;
}

/* Does what is ordered for a thread at this place, if anything is. */
static ALWAYS_INLINE int delay(u32 tid, enum place place)
{
	u32 low = tid & (ORDERS - 1);
	struct order *order = bpf_map_lookup_elem(&orders, &low);
	if (!order || order->tid != tid || order->place != place || !order->delay)
		return 0;
	/* Taken once, also where programs of two places look at it. */
	u64 length = __sync_val_compare_and_swap(&order->delay, order->delay, 0);
	if (!length)
		return 0;
	u64 begun = bpf_ktime_get_ns();
	struct until until = {.end = begun + (length < MAX_NS ? length : MAX_NS)};
	bpf_loop(MAX_ROUNDS, is_over, &until, 0);
	order->begun = begun;
	order->ended = bpf_ktime_get_ns();
	/* Orders memory: a reader that sees the new count sees the times, too. */
	__sync_fetch_and_add(&order->count, 1);
	return 0;
}

static ALWAYS_INLINE u32 current_tid(void)
{
	return (u32)bpf_get_current_pid_tgid();
}

SECTION("tp_btf/hrtimer_start") int with_interrupts_off(u64 *arguments)
{
	return delay(current_tid(), INTERRUPTS_OFF);
}

SECTION("tp_btf/sys_enter") int with_preemption_off(u64 *arguments)
{
	return delay(current_tid(), PREEMPTION_OFF);
}

SECTION("tp_btf/softirq_entry") int in_soft_interrupt(u64 *arguments)
{
	return delay(current_tid(), SOFT_INTERRUPT);
}

SECTION("tp_btf/hrtimer_expire_entry") int in_hard_interrupt(u64 *arguments)
{
	struct hrtimer *timer = (void *)arguments[0];
	if (timer->is_soft || (u64)timer->function != wakes_sleeper)
		return 0;
	struct hrtimer_sleeper *sleeper = (void *)timer;
	struct task_struct *task = 0;
	bpf_probe_read_kernel(&task, sizeof(task), &sleeper->task);
	if (!task)
		return 0;
	s32 tid = 0;
	bpf_probe_read_kernel(&tid, sizeof(tid), &task->pid);
	return delay(tid, HARD_INTERRUPT);
}

/* The state ~0 marks that idling ends. The idle thread's number is 0 on all CPUs: the test that
 * orders a delay keeps the others from idling. */
SECTION("tp_btf/cpu_idle") int while_leaving_idle(u64 *arguments)
{
	return (u32)arguments[0] == ~0u ? delay(0, IDLE_EXIT) : 0;
}

static ALWAYS_INLINE struct interruptions *interruptions_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&interruptions, &cpu);
}

/* Priorities below this are real-time (include/linux/sched/prio.h). */
#define FIRST_ORDINARY 100

SECTION("tp_btf/sched_switch") int restarts_count(u64 *arguments)
{
	struct task_struct *next = (void *)arguments[2];
	struct interruptions *here = next->prio < FIRST_ORDINARY ? interruptions_here() : 0;
	if (here)
		here->since_switch = 0;
	return 0;
}

#define COUNTS(name)                                                                                         \
	SECTION("tp_btf/" #name) int counts_##name(u64 *arguments)                                           \
	{                                                                                                    \
		struct interruptions *here = interruptions_here();                                           \
		if (here)                                                                                    \
			__sync_fetch_and_add(&here->since_switch, 1);                                        \
		return 0;                                                                                    \
	}

COUNTS(local_timer_entry)
COUNTS(reschedule_entry)
COUNTS(call_function_entry)
COUNTS(call_function_single_entry)
COUNTS(irq_work_entry)
COUNTS(irq_handler_entry)
COUNTS(softirq_entry)

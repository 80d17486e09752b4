/*
 * Which context a wake-up comes from: the thread that runs, or an interrupt within it. A wake-up's
 * own event cannot tell: the thread that runs is in its head either way. So programs of a few
 * instructions count the handlers that have begun and not ended on each CPU. They write no records.
 */
#ifndef TOMPION_BPF_WAKERS_H
#define TOMPION_BPF_WAKERS_H

#include "process.h"

/* The values of the field `waker_context` (crates/kernel/src/events.rs). */
enum waker_context { FROM_UNKNOWN, FROM_THREAD, FROM_SOFTIRQ, FROM_INTERRUPT, FROM_TIMER, FROM_OWN_TIMER };

/* The address of the kernel's hrtimer_wakeup, which ends the sleep of the timer's thread; 0 where
 * that is hidden. */
const volatile u64 wakes_sleeper = 0;

/* A timer whose handler runs, and the thread that sleeps until it expires; 0 if it wakes something
 * else. */
struct expiring {
	u64 timer, sleeper;
};

/* Only this CPU's programs write it. */
struct handlers {
	u32 known; /* by who loads the programs: all of them are attached */
	u32 hard;  /* interrupts that have begun and not ended */
	u32 soft;  /* whether a soft interrupt has */
	u32 unused;
	struct expiring timers[2]; /* in a hard and in a soft interrupt */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct handlers);
} handlers SECTION(".maps");

static ALWAYS_INLINE struct handlers *handlers_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&handlers, &cpu);
}

static ALWAYS_INLINE int interrupt_begins(void)
{
	struct handlers *here = handlers_here();
	if (here)
		here->hard++;
	return 0;
}

/* A loader that attaches the programs that see ends first may see one without its begin. */
static ALWAYS_INLINE int interrupt_ends(void)
{
	struct handlers *here = handlers_here();
	if (here && here->hard)
		here->hard--;
	return 0;
}

#define WATCHED_INTERRUPT(name, tracepoint)                                                                    \
	SECTION("tp_btf/" #tracepoint "_entry") int name##_begins(u64 *ctx) { return interrupt_begins(); }     \
	SECTION("tp_btf/" #tracepoint "_exit") int name##_ends(u64 *ctx) { return interrupt_ends(); }

WATCHED_INTERRUPT(device, irq_handler)
WATCHED_INTERRUPT(ipi, ipi)
WATCHED_INTERRUPT(local_timer, local_timer)
WATCHED_INTERRUPT(call_function, call_function)
WATCHED_INTERRUPT(call_function_single, call_function_single)
WATCHED_INTERRUPT(irq_work, irq_work)

static ALWAYS_INLINE int soft_changes(u32 soft)
{
	struct handlers *here = handlers_here();
	if (here)
		here->soft = soft;
	return 0;
}

SECTION("tp_btf/softirq_entry") int soft_begins(u64 *ctx) { return soft_changes(1); }
SECTION("tp_btf/softirq_exit") int soft_ends(u64 *ctx) { return soft_changes(0); }

SECTION("tp_btf/hrtimer_expire_entry") int timer_begins(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	struct handlers *here = handlers_here();
	if (!here)
		return 0;
	struct expiring *expiring = &here->timers[timer->is_soft ? 1 : 0];
	struct hrtimer_sleeper *sleeper = (void *)timer;
	u64 task = 0;
	if (wakes_sleeper && (u64)timer->function == wakes_sleeper)
		bpf_probe_read_kernel(&task, sizeof task, &sleeper->task);
	expiring->sleeper = task;
	expiring->timer = ctx[0];
	return 0;
}

SECTION("tp_btf/hrtimer_expire_exit") int timer_ends(u64 *ctx)
{
	struct handlers *here = handlers_here();
	if (!here)
		return 0;
	for (u32 which = 0; which < 2; which++)
		if (here->timers[which].timer == ctx[0])
			here->timers[which].timer = 0;
	return 0;
}

static ALWAYS_INLINE u32 waker_context(struct task_struct *woken)
{
	struct handlers *here = handlers_here();
	if (!here || !here->known)
		return FROM_UNKNOWN;
	const struct expiring *hard = &here->timers[0], *soft = &here->timers[1];
	if (hard->timer)
		return hard->sleeper == (u64)woken ? FROM_OWN_TIMER : FROM_TIMER;
	if (here->hard)
		return FROM_INTERRUPT;
	if (soft->timer)
		return soft->sleeper == (u64)woken ? FROM_OWN_TIMER : FROM_TIMER;
	return here->soft ? FROM_SOFTIRQ : FROM_THREAD;
}

#endif

/*
 * Records the scheduling events of each CPU into one half of a buffer, for the attribution of late
 * wakeups. The switch that ends a latency above its threshold swaps the halves, so that the events
 * before it stay for the reader. docs/design/blame.md.
 *
 * These programs are attached only while a process watches, behind the counting programs
 * (monitor.bpf.c). Those store the wakeup that just ended and a timer's intended expiry in
 * `processors`.
 */
#include "attribution.h"
#include "processors.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* Whether the CPU counts system management interrupts. Else the verifier removes this code. */
const volatile u32 counts_firmware = 0;

#define BPF_RB_FORCE_WAKEUP 2
#define BPF_F_CURRENT_CPU 0xffffffffull
/* A timer takes a stack if it is later than the lowest threshold divided by this. */
#define STACK_THRESHOLD_DIVISOR 4

/* State of a CPU, shared by the programs. */
struct cpu_state {
	u32 expected; /* another CPU has woken a real-time thread for this one */
	u32 hard;     /* number of running interrupt handlers */
	u64 firmware; /* last reading of the counter */
	u64 checked;  /* its time; 0: none yet */
	u64 handled;  /* `woken` of the wakeup compared last */
};

ARRAY(settings, struct settings, 1);
ARRAY(sides, struct side, 2);
ARRAY(stacks, struct stack, 2);
ARRAY(cpu_states, struct cpu_state, 1);
ARRAY(selector, u64, 1);

struct {
	NUMBER(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} firmware_counts SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, 65536);
} crossings SECTION(".maps");

/* Settings and buffer half of this CPU. */
struct target {
	struct settings *settings;
	struct side *side;
	u32 index; /* of the side */
	u32 cpu;
};

/* Event in the middle of a write. */
struct open_event {
	struct event *event;
	u32 place;
};

static ALWAYS_INLINE int find_target(struct target *target)
{
	u32 zero = 0;
	target->cpu = bpf_get_smp_processor_id();
	target->settings = bpf_map_lookup_elem(&settings, &zero);
	if (!target->settings)
		return 0;
	target->index = target->cpu * 2 + (*(volatile u32 *)&target->settings->side & 1);
	target->side = bpf_map_lookup_elem(&sides, &target->index);
	return target->side != 0;
}

/* Publishes the current half to user-space programs that follow the selector. */
static ALWAYS_INLINE void select(struct settings *settings)
{
	u32 zero = 0, side = *(volatile u32 *)&settings->side;
	volatile u32 *selected = bpf_map_lookup_elem(&selector, &zero);
	if (selected && *selected != side)
		*selected = side;
}

/* Reserves a slot. A nested interrupt takes the next one. */
static ALWAYS_INLINE struct open_event begin(const struct target *target, enum what what)
{
	u64 position = __sync_fetch_and_add(&target->side->head, 1);
	struct event *event = &target->side->events[position & (EVENTS - 1)];
	*(volatile u32 *)&event->place = 0;
	event->time = bpf_ktime_get_ns();
	event->what = what;
	event->priority = 0;
	return (struct open_event){event, position + 1};
}

/* Publishes an event. After a swap the reader waits until no program writes: no barrier needed. */
static ALWAYS_INLINE void commit(struct open_event open)
{
	asm volatile("" ::: "memory");
	*(volatile u32 *)&open.event->place = open.place;
}

static ALWAYS_INLINE u64 priority_here(void)
{
	return priority_of(bpf_get_current_task_btf()) + PRIORITY_BIAS;
}

static ALWAYS_INLINE struct cpu_state *cpu_state_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

/* Counts the start (1) or the end (-1) of an interrupt handler. */
static ALWAYS_INLINE void count_hard(u32 cpu, s32 change)
{
	struct cpu_state *now = cpu_state_of(cpu);
	if (now && (change > 0 || now->hard))
		now->hard += change;
}

/* Records system management interrupts since the last reading. Interrupts are off. */
static ALWAYS_INLINE void record_firmware(const struct target *target)
{
	struct cpu_state *now = counts_firmware ? cpu_state_of(target->cpu) : 0;
	if (!now)
		return;
	u64 count = bpf_perf_event_read(&firmware_counts, BPF_F_CURRENT_CPU);
	/* Negative numbers are errors: the CPU was offline when the counters were opened. */
	if ((s64)count < 0)
		return;
	u64 came = count - now->firmware, since = now->checked;
	now->firmware = count;
	now->checked = bpf_ktime_get_ns();
	if (!since || !came)
		return;
	struct open_event open = begin(target, FIRMWARE);
	open.event->first = came;
	open.event->word = since;
	commit(open);
}

static ALWAYS_INLINE int record(enum what what, u32 first, u32 second)
{
	struct target target;
	if (!find_target(&target))
		return 0;
	struct open_event open = begin(&target, what);
	open.event->first = first;
	open.event->second = second;
	open.event->word = what == HARD_ENTRY ? priority_here() : 0;
	commit(open);
	if (what == HARD_ENTRY || what == HARD_EXIT)
		count_hard(target.cpu, what == HARD_ENTRY ? 1 : -1);
	return 0;
}

/* Records the stack of the running or interrupted code. */
static ALWAYS_INLINE void record_stack(void *ctx, const struct target *target)
{
	u64 number = __sync_fetch_and_add(&target->side->stacks, 1);
	u32 place = target->index * STACKS + (number & (STACKS - 1));
	struct stack *stack = bpf_map_lookup_elem(&stacks, &place);
	if (!stack)
		return;
	stack->number = 0;
	stack->size = bpf_get_stack(ctx, stack->addresses, sizeof(stack->addresses), 0);
	stack->number = number + 1;
	struct open_event open = begin(target, STACK);
	open.event->first = number;
	commit(open);
}

static ALWAYS_INLINE int is_idle(void)
{
	return bpf_get_current_task_btf()->pid == 0;
}

/* Interrupts without a device handler. */
#define INTERRUPT(name, vector)                                                                              \
	SECTION("tp_btf/" #name "_entry") int name##_begins(u64 *arguments)                                  \
	{                                                                                                    \
		return record(HARD_ENTRY, arguments[0], vector);                                               \
	}                                                                                                    \
	SECTION("tp_btf/" #name "_exit") int name##_ends(u64 *arguments)                                     \
	{                                                                                                    \
		return record(HARD_EXIT, arguments[0], vector);                                                \
	}

SECTION("tp_btf/local_timer_entry") int local_timer_begins(u64 *arguments)
{
	struct target target;
	if (counts_firmware && find_target(&target))
		record_firmware(&target);
	return record(HARD_ENTRY, arguments[0], LOCAL_TIMER);
}

SECTION("tp_btf/local_timer_exit") int local_timer_ends(u64 *arguments)
{
	return record(HARD_EXIT, arguments[0], LOCAL_TIMER);
}

INTERRUPT(call_function, CALL_FUNCTION)
INTERRUPT(call_function_single, CALL_FUNCTION_SINGLE)
INTERRUPT(irq_work, IRQ_WORK)

/* Another CPU asks this one to reschedule. For a real-time thread, records the interrupted code. */
SECTION("tp_btf/reschedule_entry") int reschedule_begins(u64 *arguments)
{
	struct target target;
	if (!find_target(&target))
		return 0;
	struct open_event open = begin(&target, HARD_ENTRY);
	open.event->first = arguments[0];
	open.event->second = RESCHEDULE;
	open.event->word = priority_here();
	commit(open);
	count_hard(target.cpu, 1);
	struct cpu_state *now = cpu_state_of(target.cpu);
	if (now && now->expected) {
		now->expected = 0;
		if (!is_idle())
			record_stack(arguments, &target);
	}
	return 0;
}

SECTION("tp_btf/reschedule_exit") int reschedule_ends(u64 *arguments)
{
	return record(HARD_EXIT, arguments[0], RESCHEDULE);
}

SECTION("tp_btf/irq_handler_entry") int device_begins(u64 *arguments)
{
	struct irqaction *action = (void *)arguments[1];
	struct target target;
	if (!find_target(&target))
		return 0;
	struct open_event open = begin(&target, HARD_ENTRY);
	open.event->first = arguments[0];
	open.event->second = DEVICE;
	open.event->word = priority_here();
	bpf_probe_read_kernel_str(open.event->name, sizeof(open.event->name), action->name);
	commit(open);
	count_hard(target.cpu, 1);
	return 0;
}

SECTION("tp_btf/irq_handler_exit") int device_ends(u64 *arguments)
{
	return record(HARD_EXIT, arguments[0], DEVICE);
}

SECTION("tp_btf/softirq_entry") int soft_begins(u64 *arguments) { return record(SOFT_ENTRY, arguments[0], 0); }
SECTION("tp_btf/softirq_exit") int soft_ends(u64 *arguments) { return record(SOFT_EXIT, arguments[0], 0); }
SECTION("tp_btf/cpu_idle") int idle_changes(u64 *arguments) { return record(IDLE, arguments[0], 0); }

static ALWAYS_INLINE int timer_begins(u64 *arguments, int soft)
{
	struct hrtimer *timer = (void *)arguments[0];
	struct target target;
	if (!!timer->is_soft != soft || !find_target(&target))
		return 0;
	struct processor *processor = bpf_map_lookup_elem(&processors, &target.cpu);
	if (!processor)
		return 0;
	/* Found by the counting programs just before; 0: no thread's deadline, such as the tick. */
	struct expiry *expiry = soft ? &processor->soft : &processor->hard;
	u64 intended = expiry->timer == (u64)timer ? expiry->intended : 0;
	if (!intended)
		intended = timer->node.expires - timer->base->offset;
	struct open_event open = begin(&target, TIMER_ENTRY);
	s64 late = open.event->time - intended;
	open.event->first = intended;
	open.event->second = intended >> 32;
	open.event->word = (u64)timer->function;
	open.event->priority = soft;
	commit(open);
	if (late > (s64)(target.settings->lowest / STACK_THRESHOLD_DIVISOR) && !is_idle())
		record_stack(arguments, &target);
	return 0;
}

/* Two programs, because a hard timer may interrupt a soft one. */
SECTION("tp_btf/hrtimer_expire_entry") int hard_timer_begins(u64 *arguments) { return timer_begins(arguments, 0); }
SECTION("tp_btf/hrtimer_expire_entry") int soft_timer_begins(u64 *arguments) { return timer_begins(arguments, 1); }
SECTION("tp_btf/hrtimer_expire_exit") int timer_ends(u64 *arguments) { return record(TIMER_EXIT, 0, 0); }

/* Returns the threshold that a wakeup exceeds, or 0; `since` is the begin of its interval. */
static ALWAYS_INLINE u64 limit_of(
	struct settings *settings, const struct ended *ended, const u64 *name, u64 now, u32 *since)
{
	for (u32 number = 0; number < RULES; number++) {
		struct rule *rule = &settings->rules[number];
		if (!rule->limit)
			return 0;
		if (!(rule->kinds >> (ended->kind & 31) & 1) || (name[0] & rule->mask[0]) != rule->name[0] ||
		    (name[1] & rule->mask[1]) != rule->name[1])
			continue;
		if (rule->since == INTENDED && !ended->intended)
			continue;
		*since = rule->since != WOKEN && ended->intended ? INTENDED : WOKEN;
		u64 begin = *since == INTENDED ? ended->intended : ended->woken;
		return now - begin >= rule->limit ? rule->limit : 0;
	}
	return 0;
}

/* Swaps the halves: the latency that ends here is above its threshold. The events so far stay. */
static ALWAYS_INLINE void swap(u64 *arguments, const struct target *target, struct late *of)
{
	struct settings *settings = target->settings;
	__sync_fetch_and_add(&settings->late, 1);
	if (of->end < settings->not_before || !__sync_val_compare_and_swap(&settings->armed, 1, 0)) {
		__sync_fetch_and_add(&settings->not_saved, 1);
		return;
	}
	struct crossing *crossing = bpf_ringbuf_reserve(&crossings, sizeof(*crossing), 0);
	if (!crossing) {
		/* The message would be lost. The next one may have room. */
		__sync_fetch_and_add(&settings->not_saved, 1);
		*(volatile u32 *)&settings->armed = 1;
		return;
	}
	of->side = *(volatile u32 *)&settings->side & 1;
	settings->since[!of->side] = of->end;
	__sync_fetch_and_add(&settings->side, 1);
	select(settings);
	crossing->late = *of;
	crossing->stack_size = bpf_get_stack(arguments, crossing->stack, sizeof(crossing->stack), 0);
	bpf_ringbuf_submit(crossing, BPF_RB_FORCE_WAKEUP);
}

/*
 * Compares the wakeup that just ended here with its threshold, once. The counting programs' record
 * of it is not changed: other watchers use it, too.
 */
static ALWAYS_INLINE void compare(u64 *arguments, const struct target *target, struct task_struct *task,
				  struct task_struct *before, u64 now)
{
	struct cpu_state *known = cpu_state_of(target->cpu);
	struct processor *processor = bpf_map_lookup_elem(&processors, &target->cpu);
	if (!known || !processor || processor->ended.tid != task->pid || processor->ended.woken == known->handled)
		return;
	struct ended ended = processor->ended;
	/* A wakeup ends where the thread is woken only if the thread had not slept yet. */
	if ((ended.kind == TIMER_WAKEUP_ALL) != (task == before))
		return;
	known->handled = ended.woken;
	u64 since = ended.intended ? ended.intended : ended.woken;
	if (ended.woken < target->settings->begun || (s64)(now - since) < (s64)target->settings->lowest)
		return;
	u64 name[2] = {};
	u32 of = 0;
	bpf_probe_read_kernel(name, sizeof(name), task->comm);
	u64 limit = limit_of(target->settings, &ended, name, now, &of);
	if (!limit)
		return;
	/* A thread that had not slept may have interrupts on. */
	if (task != before)
		record_firmware(target);
	struct late late = {
		.woken = ended.woken, .intended = ended.intended, .fired = ended.fired, .end = now,
		.limit = limit, .tid = task->pid, .pid = task->tgid, .priority = task->prio, .cpu = target->cpu,
		.kind = ended.kind, .other_tid = before->pid, .other_priority = before->prio, .since = of,
	};
	bpf_probe_read_kernel(late.name, sizeof(late.name), task->comm);
	bpf_probe_read_kernel(late.other_name, sizeof(late.other_name), before->comm);
	swap(arguments, target, &late);
}

SECTION("tp_btf/sched_waking") int woken(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	struct target target;
	if (!find_target(&target))
		return 0;
	u32 cpu = cpu_of(task);
	struct task_struct *current = bpf_get_current_task_btf();
	struct open_event open = begin(&target, WOKEN_THREAD);
	u64 time = open.event->time;
	open.event->first = task->pid;
	open.event->second = cpu;
	open.event->word = priority_here();
	open.event->priority = task->prio;
	bpf_probe_read_kernel(open.event->name, sizeof(open.event->name), task->comm);
	commit(open);
	if (task->prio >= FIRST_ORDINARY)
		return 0;
	/* Interrupted code is recorded; of a waking thread the name is enough. */
	struct cpu_state *now = cpu_state_of(target.cpu);
	if (now && now->hard && !is_idle())
		record_stack(arguments, &target);
	struct cpu_state *there = cpu == target.cpu ? 0 : cpu_state_of(cpu);
	if (there)
		there->expected = 1;
	/* It continues at once: it was about to sleep. */
	if (task == current)
		compare(arguments, &target, task, current, time);
	return 0;
}

SECTION("tp_btf/sched_migrate_task") int migrates(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	struct target target;
	if (task->prio >= FIRST_ORDINARY || !find_target(&target))
		return 0;
	struct open_event open = begin(&target, MIGRATION);
	open.event->first = task->pid;
	open.event->second = cpu_of(task);
	open.event->word = arguments[1];
	open.event->priority = task->prio;
	bpf_probe_read_kernel(open.event->name, sizeof(open.event->name), task->comm);
	commit(open);
	return 0;
}

SECTION("tp_btf/sched_switch") int switches(u64 *arguments)
{
	struct task_struct *previous = (void *)arguments[1], *next = (void *)arguments[2];
	struct target target;
	if (!find_target(&target))
		return 0;
	/* The monitor may have swapped the halves itself. */
	select(target.settings);
	struct open_event open = begin(&target, SWITCH);
	u64 now = open.event->time;
	open.event->first = next->pid;
	open.event->second = previous->pid;
	u64 state = arguments[0] & 1 ? 0 : previous->__state;
	open.event->word = (u32)priority_of(previous) | state << 32;
	/* No switch happens within an interrupt; a missed end is corrected here. */
	struct cpu_state *current = cpu_state_of(target.cpu);
	if (current)
		current->hard = 0;
	open.event->priority = priority_of(next);
	bpf_probe_read_kernel(open.event->name, sizeof(open.event->name), next->comm);
	commit(open);
	if (next->prio < FIRST_ORDINARY)
		compare(arguments, &target, next, previous, now);
	return 0;
}

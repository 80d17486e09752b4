/*
 * Who made a real-time thread late? Each CPU has a ring of the moments that tell; the switch in which a latency above its
 * limit ends flips the rings, so that the moments before it stay for the reader. docs/design/blame.md.
 *
 * These programs are there only while somebody watches. They are attached behind those that count (monitor.bpf.c), whose
 * `processors` tell which wake-up has just ended and for when a timer was intended.
 */
#include "blame.h"
#include "processors.h"

const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";

/* Whether the processor counts system management interrupts. Else the verifier removes all of that. */
const volatile u32 counts_firmware = 0;

#define BPF_RB_FORCE_WAKEUP 2
#define BPF_F_CURRENT_CPU 0xffffffffull
/* A timer this share of the lowest limit late is worth a stack. */
#define WORTH_A_STACK 4

/* What programs of a CPU know of each other. */
struct now {
	u32 expected; /* another CPU has woken a real-time thread for this one */
	u32 hard;     /* so many handlers of interrupts run */
	u64 firmware; /* what the counter said */
	u64 looked;   /* and when; 0: nobody has looked yet */
	u64 handled;  /* when the thread was woken whose wake-up was compared last */
};

ARRAY(settings, struct settings, 1);
ARRAY(sides, struct side, 2);
ARRAY(stacks, struct stack, 2);
ARRAY(nows, struct now, 1);
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

/* Where a program notes something. */
struct here {
	struct settings *settings;
	struct side *side;
	u32 index; /* of the side */
	u32 cpu;
};

/* A moment that is being written. */
struct open {
	struct moment *moment;
	u32 place;
};

static ALWAYS_INLINE int look_around(struct here *here)
{
	u32 zero = 0;
	here->cpu = bpf_get_smp_processor_id();
	here->settings = bpf_map_lookup_elem(&settings, &zero);
	if (!here->settings)
		return 0;
	here->index = here->cpu * 2 + (*(volatile u32 *)&here->settings->side & 1);
	here->side = bpf_map_lookup_elem(&sides, &here->index);
	return here->side != 0;
}

/* Has programs of user space write the buffer of the side that is written, if they look here. */
static ALWAYS_INLINE void select(struct settings *settings)
{
	u32 zero = 0, side = *(volatile u32 *)&settings->side;
	volatile u32 *selected = bpf_map_lookup_elem(&selector, &zero);
	if (selected && *selected != side)
		*selected = side;
}

/* Takes a place. An interrupt that comes now takes the next one. */
static ALWAYS_INLINE struct open begin(const struct here *here, enum what what)
{
	u64 position = __sync_fetch_and_add(&here->side->head, 1);
	struct moment *moment = &here->side->moments[position & (MOMENTS - 1)];
	*(volatile u32 *)&moment->place = 0;
	moment->time = bpf_ktime_get_ns();
	moment->what = what;
	moment->priority = 0;
	return (struct open){moment, position + 1};
}

/* The reader looks a moment after the sides were flipped, when nobody writes there any more; it needs no barrier. */
static ALWAYS_INLINE void done(struct open open)
{
	asm volatile("" ::: "memory");
	*(volatile u32 *)&open.moment->place = open.place;
}

static ALWAYS_INLINE u64 priority_here(void)
{
	return priority_of(bpf_get_current_task_btf()) + TOLD_PRIORITY;
}

static ALWAYS_INLINE struct now *now_of(u32 cpu)
{
	return bpf_map_lookup_elem(&nows, &cpu);
}

/* A handler of an interrupt begins (1) or ends (-1). */
static ALWAYS_INLINE void count_hard(u32 cpu, s32 change)
{
	struct now *now = now_of(cpu);
	if (now && (change > 0 || now->hard))
		now->hard += change;
}

/* Whether firmware had the processor since somebody looked. Interrupts are off. */
static ALWAYS_INLINE void look_for_firmware(const struct here *here)
{
	struct now *now = counts_firmware ? now_of(here->cpu) : 0;
	if (!now)
		return;
	u64 count = bpf_perf_event_read(&firmware_counts, BPF_F_CURRENT_CPU);
	/* The highest numbers are errors: of a CPU that was off when counters were opened. */
	if ((s64)count < 0)
		return;
	u64 came = count - now->firmware, since = now->looked;
	now->firmware = count;
	now->looked = bpf_ktime_get_ns();
	if (!since || !came)
		return;
	struct open open = begin(here, FIRMWARE);
	open.moment->first = came;
	open.moment->word = since;
	done(open);
}

static ALWAYS_INLINE int note(enum what what, u32 first, u32 second)
{
	struct here here;
	if (!look_around(&here))
		return 0;
	struct open open = begin(&here, what);
	open.moment->first = first;
	open.moment->second = second;
	open.moment->word = what == HARD_ENTRY ? priority_here() : 0;
	done(open);
	if (what == HARD_ENTRY || what == HARD_EXIT)
		count_hard(here.cpu, what == HARD_ENTRY ? 1 : -1);
	return 0;
}

/* Which code runs here, or was interrupted. */
static ALWAYS_INLINE void note_stack(void *ctx, const struct here *here)
{
	u64 number = __sync_fetch_and_add(&here->side->stacks, 1);
	u32 place = here->index * STACKS + (number & (STACKS - 1));
	struct stack *stack = bpf_map_lookup_elem(&stacks, &place);
	if (!stack)
		return;
	stack->number = 0;
	stack->size = bpf_get_stack(ctx, stack->addresses, sizeof(stack->addresses), 0);
	stack->number = number + 1;
	struct open open = begin(here, STACK);
	open.moment->first = number;
	done(open);
}

static ALWAYS_INLINE int is_idle(void)
{
	return bpf_get_current_task_btf()->pid == 0;
}

/* Interrupts that have no handler of a device's. */
#define INTERRUPT(name, vector)                                                                              \
	SECTION("tp_btf/" #name "_entry") int name##_begins(u64 *arguments)                                  \
	{                                                                                                    \
		return note(HARD_ENTRY, arguments[0], vector);                                               \
	}                                                                                                    \
	SECTION("tp_btf/" #name "_exit") int name##_ends(u64 *arguments)                                     \
	{                                                                                                    \
		return note(HARD_EXIT, arguments[0], vector);                                                \
	}

SECTION("tp_btf/local_timer_entry") int local_timer_begins(u64 *arguments)
{
	struct here here;
	if (counts_firmware && look_around(&here))
		look_for_firmware(&here);
	return note(HARD_ENTRY, arguments[0], LOCAL_TIMER);
}

SECTION("tp_btf/local_timer_exit") int local_timer_ends(u64 *arguments)
{
	return note(HARD_EXIT, arguments[0], LOCAL_TIMER);
}

INTERRUPT(call_function, CALL_FUNCTION)
INTERRUPT(call_function_single, CALL_FUNCTION_SINGLE)
INTERRUPT(irq_work, IRQ_WORK)

/* Another CPU wants this one to switch: if it wants that for a real-time thread, what runs here matters. */
SECTION("tp_btf/reschedule_entry") int reschedule_begins(u64 *arguments)
{
	struct here here;
	if (!look_around(&here))
		return 0;
	struct open open = begin(&here, HARD_ENTRY);
	open.moment->first = arguments[0];
	open.moment->second = RESCHEDULE;
	open.moment->word = priority_here();
	done(open);
	count_hard(here.cpu, 1);
	struct now *now = now_of(here.cpu);
	if (now && now->expected) {
		now->expected = 0;
		if (!is_idle())
			note_stack(arguments, &here);
	}
	return 0;
}

SECTION("tp_btf/reschedule_exit") int reschedule_ends(u64 *arguments)
{
	return note(HARD_EXIT, arguments[0], RESCHEDULE);
}

SECTION("tp_btf/irq_handler_entry") int device_begins(u64 *arguments)
{
	struct irqaction *action = (void *)arguments[1];
	struct here here;
	if (!look_around(&here))
		return 0;
	struct open open = begin(&here, HARD_ENTRY);
	open.moment->first = arguments[0];
	open.moment->second = DEVICE;
	open.moment->word = priority_here();
	bpf_probe_read_kernel_str(open.moment->name, sizeof(open.moment->name), action->name);
	done(open);
	count_hard(here.cpu, 1);
	return 0;
}

SECTION("tp_btf/irq_handler_exit") int device_ends(u64 *arguments)
{
	return note(HARD_EXIT, arguments[0], DEVICE);
}

SECTION("tp_btf/softirq_entry") int soft_begins(u64 *arguments) { return note(SOFT_ENTRY, arguments[0], 0); }
SECTION("tp_btf/softirq_exit") int soft_ends(u64 *arguments) { return note(SOFT_EXIT, arguments[0], 0); }
SECTION("tp_btf/cpu_idle") int idle_changes(u64 *arguments) { return note(IDLE, arguments[0], 0); }

static ALWAYS_INLINE int timer_begins(u64 *arguments, int soft)
{
	struct hrtimer *timer = (void *)arguments[0];
	struct here here;
	if (!!timer->is_soft != soft || !look_around(&here))
		return 0;
	struct processor *processor = bpf_map_lookup_elem(&processors, &here.cpu);
	if (!processor)
		return 0;
	/* What the programs that count have just found; 0 is nobody's deadline, such as the tick. */
	struct expiry *expiry = soft ? &processor->soft : &processor->hard;
	u64 intended = expiry->timer == (u64)timer ? expiry->intended : 0;
	if (!intended)
		intended = timer->node.expires - timer->base->offset;
	struct open open = begin(&here, TIMER_ENTRY);
	s64 late = open.moment->time - intended;
	open.moment->first = intended;
	open.moment->second = intended >> 32;
	open.moment->word = (u64)timer->function;
	open.moment->priority = soft;
	done(open);
	if (late > (s64)(here.settings->lowest / WORTH_A_STACK) && !is_idle())
		note_stack(arguments, &here);
	return 0;
}

/* Two programs, because a hard timer's interrupt may come amidst a soft one's. */
SECTION("tp_btf/hrtimer_expire_entry") int hard_timer_begins(u64 *arguments) { return timer_begins(arguments, 0); }
SECTION("tp_btf/hrtimer_expire_entry") int soft_timer_begins(u64 *arguments) { return timer_begins(arguments, 1); }
SECTION("tp_btf/hrtimer_expire_exit") int timer_ends(u64 *arguments) { return note(TIMER_EXIT, 0, 0); }

/* What a rule says of a wake-up that is over at a time: the limit, if it was passed, and from when on it is. */
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

/* The latency that ends here is above its limit: what was noted so far is kept. */
static ALWAYS_INLINE void flip(u64 *arguments, const struct here *here, struct late *of)
{
	struct settings *settings = here->settings;
	__sync_fetch_and_add(&settings->late, 1);
	if (of->end < settings->not_before || !__sync_val_compare_and_swap(&settings->armed, 1, 0)) {
		__sync_fetch_and_add(&settings->not_saved, 1);
		return;
	}
	struct crossing *crossing = bpf_ringbuf_reserve(&crossings, sizeof(*crossing), 0);
	if (!crossing) {
		/* Nobody would hear of it. The next one may have room. */
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
 * Compares the wake-up of a thread that has ended here just now with its limit, if it has not been. What the programs that count know of
 * it is left as it is: others ask, too.
 */
static ALWAYS_INLINE void compare(u64 *arguments, const struct here *here, struct task_struct *task,
				  struct task_struct *before, u64 now)
{
	struct now *known = now_of(here->cpu);
	struct processor *processor = bpf_map_lookup_elem(&processors, &here->cpu);
	if (!known || !processor || processor->ended.tid != task->pid || processor->ended.woken == known->handled)
		return;
	struct ended ended = processor->ended;
	/* Only of who did not get to sleep it ends where the thread is woken. */
	if ((ended.kind == TIMER_WAKEUP_ALL) != (task == before))
		return;
	known->handled = ended.woken;
	u64 since = ended.intended ? ended.intended : ended.woken;
	if (ended.woken < here->settings->begun || (s64)(now - since) < (s64)here->settings->lowest)
		return;
	u64 name[2] = {};
	u32 of = 0;
	bpf_probe_read_kernel(name, sizeof(name), task->comm);
	u64 limit = limit_of(here->settings, &ended, name, now, &of);
	if (!limit)
		return;
	/* Who did not get to sleep may have interrupts on. */
	if (task != before)
		look_for_firmware(here);
	struct late late = {
		.woken = ended.woken, .intended = ended.intended, .fired = ended.fired, .end = now,
		.limit = limit, .tid = task->pid, .pid = task->tgid, .priority = task->prio, .cpu = here->cpu,
		.kind = ended.kind, .other_tid = before->pid, .other_priority = before->prio, .since = of,
	};
	bpf_probe_read_kernel(late.name, sizeof(late.name), task->comm);
	bpf_probe_read_kernel(late.other_name, sizeof(late.other_name), before->comm);
	flip(arguments, here, &late);
}

SECTION("tp_btf/sched_waking") int woken(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	struct here here;
	if (!look_around(&here))
		return 0;
	u32 cpu = cpu_of(task);
	struct task_struct *current = bpf_get_current_task_btf();
	struct open open = begin(&here, WOKEN_THREAD);
	u64 time = open.moment->time;
	open.moment->first = task->pid;
	open.moment->second = cpu;
	open.moment->word = priority_here();
	open.moment->priority = task->prio;
	bpf_probe_read_kernel(open.moment->name, sizeof(open.moment->name), task->comm);
	done(open);
	if (task->prio >= FIRST_ORDINARY)
		return 0;
	/* What is interrupted matters; a thread that wakes another one says enough by its name. */
	struct now *now = now_of(here.cpu);
	if (now && now->hard && !is_idle())
		note_stack(arguments, &here);
	struct now *there = cpu == here.cpu ? 0 : now_of(cpu);
	if (there)
		there->expected = 1;
	/* It goes on at once: it was on its way to sleep. */
	if (task == current)
		compare(arguments, &here, task, current, time);
	return 0;
}

SECTION("tp_btf/sched_migrate_task") int migrates(u64 *arguments)
{
	struct task_struct *task = (void *)arguments[0];
	struct here here;
	if (task->prio >= FIRST_ORDINARY || !look_around(&here))
		return 0;
	struct open open = begin(&here, MIGRATION);
	open.moment->first = task->pid;
	open.moment->second = cpu_of(task);
	open.moment->word = arguments[1];
	open.moment->priority = task->prio;
	bpf_probe_read_kernel(open.moment->name, sizeof(open.moment->name), task->comm);
	done(open);
	return 0;
}

SECTION("tp_btf/sched_switch") int switches(u64 *arguments)
{
	struct task_struct *previous = (void *)arguments[1], *next = (void *)arguments[2];
	struct here here;
	if (!look_around(&here))
		return 0;
	/* The monitor may have flipped the sides itself. */
	select(here.settings);
	struct open open = begin(&here, SWITCH);
	u64 now = open.moment->time;
	open.moment->first = next->pid;
	open.moment->second = previous->pid;
	u64 state = arguments[0] & 1 ? 0 : previous->__state;
	open.moment->word = (u32)priority_of(previous) | state << 32;
	/* Nobody switches amidst an interrupt; what ended unseen is over. */
	struct now *current = now_of(here.cpu);
	if (current)
		current->hard = 0;
	open.moment->priority = priority_of(next);
	bpf_probe_read_kernel(open.moment->name, sizeof(open.moment->name), next->comm);
	done(open);
	if (next->prio < FIRST_ORDINARY)
		compare(arguments, &here, next, previous, now);
	return 0;
}

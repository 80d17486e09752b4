/* The scheduler's decisions. Priorities as LTTng has them: 20 is an ordinary task's, below 0
 * real-time. */
#ifndef TOMPION_BPF_SCHEDULER_H
#define TOMPION_BPF_SCHEDULER_H

#include "process.h"
#include "wakers.h"

struct sched_switch {
	s32 prev_tid, prev_prio;
	s64 prev_state;
	s32 next_tid, next_prio;
	char prev_comm[16], next_comm[16];
};

/* States that are told (TASK_REPORT in include/linux/sched.h), and the one above them: preempted.
 * */
#define REPORTED_STATES 0x7f
#define PREEMPTED 0x100
#define STATE_IDLE 0x402 /* TASK_UNINTERRUPTIBLE | TASK_NOLOAD */
#define REPORTED_IDLE 0x80
#define STATE_RTLOCK 0x1000
#define UNINTERRUPTIBLE 2

/* The state as traces tell it (__task_state_index). */
static ALWAYS_INLINE s64 switch_state(int preempted, u32 state)
{
	if (preempted)
		return PREEMPTED;
	if ((state & STATE_IDLE) == STATE_IDLE)
		return REPORTED_IDLE;
	if (state & STATE_RTLOCK)
		return UNINTERRUPTIBLE;
	state &= REPORTED_STATES;
	/* The highest bit alone. */
	state |= state >> 1;
	state |= state >> 2;
	state |= state >> 4;
	return state - (state >> 1);
}

static ALWAYS_INLINE int task_switch(u64 *ctx, u32 state)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	RECORD(struct sched_switch, SCHED_SWITCH)
		record->prev_tid = prev->pid;
		record->prev_prio = prev->prio - 100;
		record->prev_state = switch_state(ctx[0] & 1, state | prev->exit_state);
		record->next_tid = next->pid;
		record->next_prio = next->prio - 100;
		read_comm(record->prev_comm, prev);
		read_comm(record->next_comm, next);
	DONE
}

/* The state is the fourth argument from Linux 5.18 on: by now the task may have been woken
 * elsewhere. */
SECTION("tp_btf/sched_switch") int sched_switch(u64 *ctx)
{
	return task_switch(ctx, ctx[3]);
}

SECTION("tp_btf/sched_switch") int sched_switch_old(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	return task_switch(ctx, prev->__state);
}

struct sched_wakeup {
	s32 tid, prio, target_cpu;
	char comm[16];
};

static ALWAYS_INLINE int wakeup(u64 *ctx, u16 event)
{
	struct task_struct *task = (void *)ctx[0];
	RECORD(struct sched_wakeup, event)
		record->tid = task->pid;
		record->prio = task->prio - 100;
		record->target_cpu = cpu_of(task);
		read_comm(record->comm, task);
	DONE
}

struct sched_waking {
	s32 tid, prio, target_cpu;
	u32 waker_context;
	char comm[16];
};

SECTION("tp_btf/sched_waking") int sched_waking(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	RECORD(struct sched_waking, SCHED_WAKING)
		record->tid = task->pid;
		record->prio = task->prio - 100;
		record->target_cpu = cpu_of(task);
		record->waker_context = waker_context(task);
		read_comm(record->comm, task);
	DONE
}

SECTION("tp_btf/sched_wakeup") int sched_wakeup(u64 *ctx) { return wakeup(ctx, SCHED_WAKEUP); }
SECTION("tp_btf/sched_wakeup_new") int sched_wakeup_new(u64 *ctx) { return wakeup(ctx, SCHED_WAKEUP_NEW); }

struct sched_migrate {
	s32 tid, prio, orig_cpu, dest_cpu;
	char comm[16];
};

SECTION("tp_btf/sched_migrate_task") int sched_migrate_task(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	RECORD(struct sched_migrate, SCHED_MIGRATE_TASK)
		record->tid = task->pid;
		record->prio = task->prio - 100;
		record->orig_cpu = cpu_of(task);
		record->dest_cpu = ctx[1];
		read_comm(record->comm, task);
	DONE
}

#endif

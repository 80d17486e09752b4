/* The lives of processes, and the set of those whose system calls are recorded. */
#ifndef TOMPION_BPF_PROCESS_H
#define TOMPION_BPF_PROCESS_H

#include "events.h"
#include "text.h"

/* Whether only processes in `followed` have their system calls recorded. */
const volatile u32 follow = 0;
/*
 * A bit for each process id that a kernel can give (PID_MAX_LIMIT): a system call asks in a few
 * instructions, and there is always room for one more.
 */
#define PIDS (4 << 20)

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, PIDS / 64);
	TYPE(key, u32);
	TYPE(value, u64);
} followed SECTION(".maps");

static ALWAYS_INLINE u64 *follow_word(u32 pid)
{
	u32 key = pid / 64;
	return bpf_map_lookup_elem(&followed, &key);
}

static ALWAYS_INLINE u64 follow_bit(u32 pid)
{
	return 1ull << (pid % 64);
}

static ALWAYS_INLINE int is_in_set(u32 pid)
{
	u64 *word = follow_word(pid);
	return word && *(volatile u64 *)word & follow_bit(pid);
}

/* Bits of events that are recorded, by number: following needs some programs anyway. They change
 * while it is recorded. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} wanted SECTION(".maps");

static ALWAYS_INLINE int is_wanted(u32 event)
{
	u32 first = 0;
	u64 *bits = bpf_map_lookup_elem(&wanted, &first);
	return bits && *(volatile u64 *)bits >> event & 1;
}

/*
 * Copies the 16 bytes of a name, to an address that is a multiple of 4. The verifier knows the
 * kernel's objects, so plain loads do, which cost a small part of the helper that reads any memory.
 */
static ALWAYS_INLINE void copy_name(char *to, const u64 *name)
{
	u64 first = name[0], second = name[1];
	u32 *words = (u32 *)to;
	words[0] = first;
	words[1] = first >> 32;
	words[2] = second;
	words[3] = second >> 32;
}

static ALWAYS_INLINE void read_comm(char *to, struct task_struct *task)
{
	copy_name(to, (u64 *)&task->comm);
}

static ALWAYS_INLINE void follow_child(struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	if (!follow || from == to || !is_in_set(from))
		return;
	u64 *word = follow_word(to);
	if (word)
		__sync_fetch_and_or(word, follow_bit(to));
}

static ALWAYS_INLINE void leave(u32 pid)
{
	u64 *word = follow_word(pid);
	if (word)
		__sync_fetch_and_and(word, ~follow_bit(pid));
}

struct process_fork {
	s32 parent_tid, parent_pid, child_tid, child_pid;
	char parent_comm[16], child_comm[16];
};

SECTION("tp_btf/sched_process_fork") int process_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	follow_child(parent, child);
	if (!is_wanted(SCHED_PROCESS_FORK))
		return 0;
	RECORD(struct process_fork, SCHED_PROCESS_FORK)
		record->parent_tid = parent->pid;
		record->parent_pid = parent->tgid;
		record->child_tid = child->pid;
		record->child_pid = child->tgid;
		read_comm(record->parent_comm, parent);
		read_comm(record->child_comm, child);
	DONE
}

struct process_exec {
	u32 filename_length;
	s32 tid, old_tid;
	char filename[];
};

SECTION("tp_btf/sched_process_exec") int process_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct linux_binprm *program = (void *)ctx[2];
	struct texts *text = texts_of(TEXT_OF_EXEC);
	if (!text)
		return 0;
	u32 length = text_length(bpf_probe_read_kernel_str(text->first, MAX_TEXT, program->filename));
	struct process_exec image = {length, task->pid, ctx[1]};
	if (filtered && !passes(SCHED_PROCESS_EXEC, 0, (char *)&image, ended(text->first, length), 0))
		return 0;
	struct place place;
	u32 size = WHOLE_WORDS(sizeof(struct head) + sizeof(struct process_exec) + length);
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, event_here(SCHED_PROCESS_EXEC, 0));
	struct process_exec *record = (void *)(place.at + sizeof(struct head));
	*record = image;
	copy_text(record->filename, length, text->first);
	commit(&place, size);
	return 0;
}

/* The status of a process that goes on: this was not its last thread. */
#define GOES_ON (-1)

/* Status that a parent gets by waiting. Source: `wait_task_zombie` in kernel/exit.c. */
static ALWAYS_INLINE s32 wait_status(struct task_struct *task)
{
	const u32 group_exit = 4; /* SIGNAL_GROUP_EXIT */
	struct signal_struct *signal = task->signal;
	if (signal->live.counter != 0)
		return GOES_ON;
	return signal->flags & group_exit ? signal->group_exit_code : task->group_leader->exit_code;
}

struct process_exit {
	s32 tid, prio, wait_status;
	char comm[16];
};

SECTION("tp_btf/sched_process_exit") int process_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	/* The process's last thread. */
	if (follow && task->signal->live.counter == 0)
		leave(task->tgid);
	if (!is_wanted(SCHED_PROCESS_EXIT))
		return 0;
	RECORD(struct process_exit, SCHED_PROCESS_EXIT)
		record->tid = task->pid;
		record->prio = task->prio - 100;
		record->wait_status = wait_status(task);
		read_comm(record->comm, task);
	DONE
}

struct process_free {
	s32 tid, prio;
	char comm[16];
};

SECTION("tp_btf/sched_process_free") int process_free(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	RECORD(struct process_free, SCHED_PROCESS_FREE)
		record->tid = task->pid;
		record->prio = task->prio - 100;
		read_comm(record->comm, task);
	DONE
}

#endif

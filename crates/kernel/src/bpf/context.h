/*
 * Context of events: the thread and its state, and the stacks that led there. It stands behind a
 * record's payload, in the order of `enum context`; a context that is not selected takes no room,
 * and its code is left out when a program is loaded.
 *
 * A stack is described once, in a record of its own (STACK), and events have a number made of its
 * addresses. Whether it was described is looked up in `known_stacks`: a word for each CPU and some
 * bits of the number, with the rest of the number and where in the ring that was. Words are read
 * and written whole, and no lock is taken, so all this may interrupt itself anywhere; at worst a
 * stack is described twice.
 *
 *   - A stack that was described too far back is described again, so that a flight recorder doesn't
 *     overwrite it.
 *   - It is described before the word says so, and in the ring of the event's CPU: what interrupts
 *     finds it described, or tells it.
 *   - Two stacks that share a word take turns and are described again. Two that share all bits of
 *     it: the second isn't described, and its number, which differs, means nothing to the reader,
 *     which counts it as missing. No event gets another's.
 *   - A recorder that takes over from one that was killed knows none of the stacks before: it sets
 *     all words to 0.
 */
#ifndef TOMPION_BPF_CONTEXT_H
#define TOMPION_BPF_CONTEXT_H

#include "ring.h"

/* Number of a stack in rings; what kind of stack stands beside it. */
#define STACK 66

/* Bits of `contexts` (crates/kernel/src/context.rs). */
enum context { WITH_KERNEL_STACK = 1, WITH_USER_STACK = 2, WITH_CGROUP = 4, WITH_PRIORITY = 8, WITH_COMM = 16 };

const volatile u32 contexts = 0;
/* After so many sub-buffers a stack is described again. */
const volatile u32 stacks_last = 0;

/* In the place of a stack's number. */
enum { NO_STACK = 0, STACK_MISSED = 1 };

#define MAX_FRAMES 127
#define KNOWN_STACKS 16384 /* for each CPU */

/*
 * Where a stack is put together before room is reserved. Programs interrupt each other; each takes
 * a place of its CPU, as probes do (probes.h).
 */
#define STACK_SCRATCHES 8

struct stack_scratch {
	u64 is_taken;
	u64 count;
	u64 frames[MAX_FRAMES + 1];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, STACK_SCRATCHES);
	TYPE(key, u32);
	TYPE(value, struct stack_scratch);
} stack_scratches SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} known_stacks SECTION(".maps");

/* Flag of bpf_get_stack(2); also what stands beside STACK. */
#define OF_PROGRAM (1u << 8)

struct stack_record {
	u64 number;
	u64 frames[];
};

/* Takes a place; its key, or one that there isn't. */
NOINLINE u32 take_stack_scratch(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	for (u32 which = 0; which < STACK_SCRATCHES; which++) {
		u32 key = cpu * STACK_SCRATCHES + which;
		struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &key);
		if (scratch && __sync_val_compare_and_swap(&scratch->is_taken, 0, 1) == 0)
			return key;
	}
	return ~0u;
}

/* How many frames there are; read from memory each time, by which the verifier doesn't follow each
 * number by itself. */
static ALWAYS_INLINE u64 frames_of(struct stack_scratch *scratch)
{
	u64 count = *(volatile u64 *)&scratch->count;
	asm volatile("" : "+r"(count));
	return count <= MAX_FRAMES ? count : 0;
}

static ALWAYS_INLINE u64 number_of(struct stack_scratch *scratch, u32 kind)
{
	u64 number = 0x9e3779b97f4a7c15ull + kind, count = frames_of(scratch);
	for (u32 which = 0; which < MAX_FRAMES; which++) {
		if (which >= count)
			break;
		number = (number ^ scratch->frames[which]) * 0xff51afd7ed558ccdull;
		number ^= number >> 32;
	}
	return number > STACK_MISSED ? number : number + 2;
}

/* Tells of a stack. False if there was no room. */
static ALWAYS_INLINE int tell_stack(struct stack_scratch *scratch, u64 number, u32 kind, u64 *position)
{
	struct place place;
	u64 bytes = 8 * frames_of(scratch);
	u32 size = sizeof(struct head) + sizeof(struct stack_record) + bytes;
	if (!reserve_bytes(&place, size, NO_EVENT))
		return 0;
	write_head(&place, event_here(STACK, kind));
	struct stack_record *record = (void *)(place.at + sizeof(struct head));
	record->number = number;
	/* Said once more for the verifier. */
	asm volatile("" : "+r"(bytes));
	if (bytes <= sizeof scratch->frames)
		bpf_probe_read_kernel(record->frames, bytes, scratch->frames);
	commit_bytes(&place, NO_EVENT);
	*position = place.position;
	return 1;
}

/* Tells of a stack if that is due. False if it should be described and there was no room. */
static ALWAYS_INLINE int ensure_described(struct stack_scratch *scratch, u64 number, u32 kind, u32 cpu)
{
	u32 key = cpu * KNOWN_STACKS + ((u32)number & (KNOWN_STACKS - 1));
	u64 *word = bpf_map_lookup_elem(&known_stacks, &key);
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!word || !ring)
		return 0;
	u64 described = *(volatile u64 *)word, position = *(volatile u64 *)&ring->write;
	u32 since = (u32)(position >> SUBBUF_SHIFT) - (u32)described;
	if (described >> 32 == number >> 32 && since <= stacks_last)
		return 1;
	if (!tell_stack(scratch, number, kind, &position))
		return 0;
	*(volatile u64 *)word = number >> 32 << 32 | (u32)(position >> SUBBUF_SHIFT);
	return 1;
}

/*
 * The number of the stack that is in a place; the place is given back. `bytes` is what the helper
 * said.
 *
 * This function and the one that takes places are for all to see, by which the verifier looks at
 * each by itself: what they return is any number to it, and not one more way to go on.
 */
NOINLINE u64 stack_number(u32 key, s64 bytes, u32 kind)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &key);
	if (!scratch)
		return STACK_MISSED;
	u64 number = bytes == 0 ? NO_STACK : STACK_MISSED;
	if (bytes > 0) {
		scratch->count = (u64)bytes / 8;
		number = number_of(scratch, kind);
		if (!ensure_described(scratch, number, kind, cpu))
			number = STACK_MISSED;
	}
	/* An exchange is a full barrier: the next owner finds no reader of it. */
	u64 before = __sync_lock_test_and_set(&scratch->is_taken, 0);
	asm volatile("" ::"r"(before) : "memory");
	return number;
}

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

/* Whether the thread has a program: kernel threads have none, and an exiting thread has it no more.
 * */
static ALWAYS_INLINE int has_program(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	return task->mm && !(task->flags & PF_KTHREAD);
}

/* The number of the stack that led here. */
static ALWAYS_INLINE u64 take_stack(void *ctx, u32 kind)
{
	u32 key = take_stack_scratch();
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &key);
	s64 bytes = 0;
	if (scratch && (kind != OF_PROGRAM || has_program()))
		bytes = bpf_get_stack(ctx, scratch->frames, 8 * MAX_FRAMES, kind);
	return stack_number(key, bytes, kind);
}

static ALWAYS_INLINE u32 context_size(void)
{
	u32 size = 0;
	size += contexts & WITH_KERNEL_STACK ? 8 : 0;
	size += contexts & WITH_USER_STACK ? 8 : 0;
	size += contexts & WITH_CGROUP ? 8 : 0;
	size += contexts & WITH_PRIORITY ? 8 : 0;
	size += contexts & WITH_COMM ? 16 : 0;
	return size;
}

/* Reserves a place for an event of `size` bytes, a multiple of 8. False if it is lost, which is
 * counted. */
static ALWAYS_INLINE int reserve(void *ctx, struct place *place, u32 size)
{
	place->kernel_stack = contexts & WITH_KERNEL_STACK ? take_stack(ctx, 0) : NO_STACK;
	place->user_stack = contexts & WITH_USER_STACK ? take_stack(ctx, OF_PROGRAM) : NO_STACK;
	return reserve_bytes(place, size + context_size(), AN_EVENT);
}

static ALWAYS_INLINE void write_context(struct place *place, u64 size)
{
	/* Said once more for the verifier. */
	asm volatile("" : "+r"(size));
	if (size > MAX_RECORD)
		return;
	char *to = place->at + size;
	if (contexts & WITH_KERNEL_STACK) {
		*(u64 *)to = place->kernel_stack;
		to += 8;
	}
	if (contexts & WITH_USER_STACK) {
		*(u64 *)to = place->user_stack;
		to += 8;
	}
	if (contexts & WITH_CGROUP) {
		*(u64 *)to = bpf_get_current_cgroup_id();
		to += 8;
	}
	if (contexts & WITH_PRIORITY) {
		*(s64 *)to = bpf_get_current_task_btf()->prio - 100;
		to += 8;
	}
	if (contexts & WITH_COMM)
		bpf_get_current_comm(to, 16);
}

/* The event of `size` bytes is complete. */
static ALWAYS_INLINE void commit(struct place *place, u32 size)
{
	if (contexts)
		write_context(place, size);
	commit_bytes(place, AN_EVENT);
}

#endif

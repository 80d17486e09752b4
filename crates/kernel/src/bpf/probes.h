/*
 * Probes that users ask for: at functions and marks of programs (uprobe, USDT), and of the kernel
 * (kprobe). One program serves them all; its cookie says which place it is, and `probe_sites` what
 * is to be read there.
 */
#ifndef TOMPION_BPF_PROBES_H
#define TOMPION_BPF_PROBES_H

#include "syscalls.h"

/* Number of all these events in rings; which of them it is stands beside it. */
#define PROBE 65
#define MAX_PROBE_ARGUMENTS 12
#define MAX_PROBE_TEXT 256
#define PROBE_TEXTS 2048
/* In the place of a text's length: there was no more room. */
#define LEFT_OUT 0xfffffffdu

/* How an argument is found (crates/kernel/src/probes/value.rs). */
enum probe_how { IS_CONSTANT, IN_REGISTER, IN_MEMORY };
enum probe_type { IS_UNSIGNED, IS_SIGNED, IS_TEXT, IS_TEXT_OF_PROGRAM };
#define NO_REGISTER 0xffff

struct probe_argument {
	u64 number;      /* the constant; what is added to the address */
	u16 base, index; /* where the registers stand among the saved ones */
	u8 shift;        /* of the index */
	u8 how, size, type;
};

struct probe_site {
	u32 event, count;
	u32 of_everybody; /* not only of the processes that are followed */
	u32 in_kernel;
	struct probe_argument arguments[MAX_PROBE_ARGUMENTS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct probe_site);
} probe_sites SECTION(".maps");

/*
 * Scratch memory in which arguments are put together before room is reserved. At a probe in a
 * program a task may be preempted, and the next one hit a probe on the same CPU. So the kernel's
 * guard, by which other programs have such memory for themselves, isn't there. There are some such
 * places for each CPU, and a run marks the one that it takes. It goes on where it was interrupted,
 * on the same CPU, and gives it back. A run that finds none is counted as nested.
 */
#define PROBE_SCRATCHES 4

struct probe_scratch {
	u64 is_taken;
	u64 values[MAX_PROBE_ARGUMENTS];
	char texts[PROBE_TEXTS + MAX_PROBE_TEXT];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, PROBE_SCRATCHES);
	TYPE(key, u32);
	TYPE(value, struct probe_scratch);
} probe_scratches SECTION(".maps");

#if defined(__TARGET_ARCH_x86)
#define PLACE_OF_IP 128
#else
#define PLACE_OF_IP 256
#endif

static ALWAYS_INLINE struct probe_scratch *take_scratch(u32 cpu)
{
	for (u32 which = 0; which < PROBE_SCRATCHES; which++) {
		u32 key = cpu * PROBE_SCRATCHES + which;
		struct probe_scratch *scratch = bpf_map_lookup_elem(&probe_scratches, &key);
		if (scratch && __sync_val_compare_and_swap(&scratch->is_taken, 0, 1) == 0)
			return scratch;
	}
	return 0;
}

/* An exchange is a full barrier: the next owner finds no reader of it. */
static ALWAYS_INLINE void give_back(struct probe_scratch *scratch)
{
	u64 before = __sync_lock_test_and_set(&scratch->is_taken, 0);
	asm volatile("" ::"r"(before) : "memory");
}

static ALWAYS_INLINE u64 saved_register(const char *registers, u16 place)
{
	u64 value = 0;
	if (place != NO_REGISTER)
		bpf_probe_read_kernel(&value, sizeof value, registers + place);
	return value;
}

static ALWAYS_INLINE u64 to_width(u64 value, u32 size, int is_signed)
{
	u32 shift = (64 - 8 * size) & 63;
	return is_signed ? (u64)((s64)(value << shift) >> shift) : value << shift >> shift;
}

/* The argument as a number; for a text, its address. */
static ALWAYS_INLINE u64 find(const char *registers, struct probe_argument *argument, u32 in_kernel)
{
	u64 value = argument->number;
	if (argument->how == IS_CONSTANT)
		return value;
	if (argument->how == IN_REGISTER) {
		value = saved_register(registers, argument->base);
	} else {
		u64 address = value + saved_register(registers, argument->base);
		address += saved_register(registers, argument->index) << (argument->shift & 7);
		u32 size = argument->size <= 8 ? argument->size : 8;
		value = 0;
		if (in_kernel)
			bpf_probe_read_kernel(&value, size, (void *)address);
		else
			bpf_probe_read_user(&value, size, (void *)address);
	}
	return to_width(value, argument->size, argument->type == IS_SIGNED);
}

/* Reads a text behind the others. Its length with the NUL, or what is said in its place. */
static ALWAYS_INLINE u32 read_text(char *texts, u32 at, u64 address, int of_kernel)
{
	if (!address)
		return NO_TEXT;
	/* The compiler must not forget which of its registers was compared: the verifier of 6.1 doesn't
	 * guess. */
	u64 place = at;
	asm volatile("" : "+r"(place));
	if (place > PROBE_TEXTS - MAX_PROBE_TEXT)
		return LEFT_OUT;
	char *to = texts + place;
	long length = of_kernel ? bpf_probe_read_kernel_str(to, MAX_PROBE_TEXT, (void *)address)
				: bpf_probe_read_user_str(to, MAX_PROBE_TEXT, (void *)address);
	return length > 0 && length <= MAX_PROBE_TEXT ? length : UNREADABLE;
}

struct probe_record {
	u64 ip;
	u64 values[];
};

static ALWAYS_INLINE int write_probe(void *ctx, struct probe_site *site, struct probe_scratch *scratch, u32 text_bytes)
{
	struct place place;
	u32 count = site->count <= MAX_PROBE_ARGUMENTS ? site->count : MAX_PROBE_ARGUMENTS;
	text_bytes = text_bytes <= PROBE_TEXTS ? text_bytes : 0;
	u32 size = WHOLE_WORDS(sizeof(struct head) + sizeof(struct probe_record) + 8 * count + text_bytes);
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, event_here(PROBE, site->event));
	struct probe_record *record = (void *)(place.at + sizeof(struct head));
	record->ip = saved_register(ctx, PLACE_OF_IP);
	for (u32 which = 0; which < MAX_PROBE_ARGUMENTS; which++) {
		if (which >= count)
			break;
		record->values[which] = scratch->values[which];
	}
	/* Said once more for the verifier, which may have lost sight of it. */
	if (text_bytes && text_bytes <= PROBE_TEXTS)
		bpf_probe_read_kernel((char *)(record + 1) + 8 * count, text_bytes, scratch->texts);
	commit(&place, size);
	return 0;
}

/* The verifier looks at this by itself: what it returns is any number, and not some more ways to go
 * on. */
NOINLINE u32 is_followed_here(u32 pid)
{
	return is_followed(pid);
}

static ALWAYS_INLINE int probe(void *ctx)
{
	u32 key = bpf_get_attach_cookie(ctx), cpu = bpf_get_smp_processor_id();
	struct probe_site *site = bpf_map_lookup_elem(&probe_sites, &key);
	if (!site || !(site->of_everybody || is_followed_here(bpf_get_current_pid_tgid() >> 32)))
		return 0;
	struct probe_scratch *scratch = take_scratch(cpu);
	if (!scratch) {
		struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
		return ring ? lose(ring, NESTED) : 0;
	}
	u32 text_bytes = 0, in_kernel = site->in_kernel;
	for (u32 which = 0; which < MAX_PROBE_ARGUMENTS; which++) {
		if (which >= site->count)
			break;
		struct probe_argument *argument = &site->arguments[which];
		u64 value = find(ctx, argument, in_kernel);
		if (argument->type >= IS_TEXT) {
			int of_kernel = in_kernel && argument->type == IS_TEXT;
			value = read_text(scratch->texts, text_bytes, value, of_kernel);
			text_bytes += value <= MAX_PROBE_TEXT ? value : 0;
		}
		scratch->values[which] = value;
	}
	if (!filtered || passes(PROBE, site->event, (char *)scratch->values, 0, 0))
		write_probe(ctx, site, scratch, text_bytes);
	give_back(scratch);
	return 0;
}

SECTION("uprobe") int probe_in_program(void *ctx) { return probe(ctx); }
SECTION("kprobe") int probe_in_kernel(void *ctx) { return probe(ctx); }

#endif

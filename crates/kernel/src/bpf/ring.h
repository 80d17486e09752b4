/*
 * Rings for probes, which nothing can restart: reserve, fill, commit. models/reserve.pml is this
 * file's model, function by function; docs/design/kernel.md is the argument. The reader is
 * crates/kernel-objects/src/ring.rs.
 *
 *   rings   one entry for each CPU: positions, counters (struct ring)
 *   data    one entry for each sub-buffer: 64 KiB of records, and room behind them that is never
 *           used, by which the verifier sees that no record passes the entry's end
 *
 *   record head (24 bytes), payload, to a multiple of 8 bytes, context (context.h); never across
 *   sub-buffers
 *
 * Events go by `reserve` and `commit` of context.h, which add the context.
 */
#ifndef TOMPION_BPF_RING_H
#define TOMPION_BPF_RING_H

#include "filter.h"

#define SUBBUF_SHIFT 16
#define SUBBUF_SIZE (1u << SUBBUF_SHIFT)
#define MAX_SUBBUFS 1024
/* What perf gives programs ends at 8 KiB; the head of ours takes the place of its first bytes, and
 * some more. */
#define MAX_RECORD 8208
/* What context.h puts behind it. */
#define MAX_CONTEXT 48
#define PADDING 0
/* A probe is only ever disturbed by what interrupts it, which is over when it goes on. */
#define MAX_ATTEMPTS 8

/* Numbers of tompion_layout::loss::Cause. */
enum cause { FULL = 0, TOO_LARGE = 1, RETRIES = 2, UNFINISHED = 8, NESTED = 10, NO_RING = 11 };

struct ring {
	u64 write;    /* free-running; writers, by compare-and-swap */
	u64 events;   /* writers; in overwrite mode only */
	u64 lost[16]; /* writers */
	u64 losing;   /* writers: those that announce a loss for want of room */
	u64 rest[5];
	u64 consumed; /* the reader */
	u64 unused[7];
	u64 commit[MAX_SUBBUFS]; /* writers: bytes committed to the sub-buffer, over all laps */
	/* Writers: events lost for want of room in front of a sub-buffer. The reader sets it to 0 when
	 * it takes that one. Those of two laps are apart: the reader may have as many to take when the
	 * next lap is full. */
	u64 lost_before[2 * MAX_SUBBUFS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct ring);
} rings SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 2);
	NUMBER(key_size, 4);
	NUMBER(value_size, SUBBUF_SIZE + MAX_RECORD + MAX_CONTEXT);
} data SECTION(".maps");

/* Settings that the loader of the programs decides. */
const volatile u32 cpus = 1;
const volatile u32 subbufs = 2; /* of each ring, a power of two */
const volatile u32 overwrite = 0;

struct head {
	u16 size;
	u16 number; /* of the event; PADDING */
	u32 tid;
	u64 time;
	u32 pid;
	u32 extra; /* the number of a system call */
};

/* A reserved place. */
struct place {
	u64 kernel_stack, user_stack; /* context.h */
	struct ring *ring;
	char *at;
	u64 position;
	u64 time;
	u32 size; /* of all that is reserved */
};

static ALWAYS_INLINE u32 subbuf_at(u64 position)
{
	return (position >> SUBBUF_SHIFT) & (subbufs - 1) & (MAX_SUBBUFS - 1);
}

static ALWAYS_INLINE u64 *commit_counter(struct ring *ring, u64 position)
{
	return &ring->commit[subbuf_at(position)];
}

static ALWAYS_INLINE char *data_at(u32 cpu, u64 position)
{
	u32 index = cpu * subbufs + ((u32)(position >> SUBBUF_SHIFT) & (subbufs - 1));
	char *subbuf = bpf_map_lookup_elem(&data, &index);
	return subbuf ? subbuf + (position & (SUBBUF_SIZE - 8)) : 0;
}

/* A fetching addition is a full barrier on every architecture, so that a reader that sees the sum
 * sees the bytes. */
static ALWAYS_INLINE void add_to(u64 *counter, u64 amount)
{
	u64 before = __sync_fetch_and_add(counter, amount);
	/* As long as the former value is used, the addition is one that fetches. */
	asm volatile("" ::"r"(before) : "memory");
}

static ALWAYS_INLINE int lose(struct ring *ring, enum cause cause)
{
	add_to(&ring->lost[cause], 1);
	return 0;
}

/* Counts an event that is lost before room was looked for. */
static ALWAYS_INLINE void lose_here(enum cause cause)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	if (ring)
		lose(ring, cause);
}

/* Whether the sub-buffer that a record is about to enter still waits for a writer of an earlier
 * lap. */
static ALWAYS_INLINE int is_unfinished(struct ring *ring, u64 place)
{
	u64 ring_size = (u64)subbufs << SUBBUF_SHIFT;
	u64 laps = place / ring_size;
	if (place % SUBBUF_SIZE != 0 || laps == 0)
		return 0;
	return *(volatile u64 *)commit_counter(ring, place) != laps * SUBBUF_SIZE;
}

/*
 * Whether there is no room. By whole sub-buffers: not even the first byte of one while any of its
 * last lap is to be read.
 */
static ALWAYS_INLINE int is_full(struct ring *ring, u64 end)
{
	u64 subbuf_end = (end + SUBBUF_SIZE - 1) & ~(u64)(SUBBUF_SIZE - 1);
	u64 consumed = *(volatile u64 *)&ring->consumed;
	return (s64)(subbuf_end - consumed) > (s64)((u64)subbufs << SUBBUF_SHIFT);
}

/* The rest of a sub-buffer is committed by the writer that leaves it. */
static ALWAYS_INLINE void pad(struct ring *ring, u32 cpu, u64 position, u32 size)
{
	struct head *head = (struct head *)data_at(cpu, position);
	if (!head)
		return;
	head->size = size;
	head->number = PADDING;
	add_to(commit_counter(ring, position), size);
}

/*
 * Closes the rest of a sub-buffer behind which a ring is full. No smaller event goes there behind
 * one that was lost, so the lost ones all lie between this sub-buffer and the next. False if
 * another writer has moved the position.
 */
static ALWAYS_INLINE int close_subbuf(struct ring *ring, u32 cpu, u64 old, u32 rest)
{
	if (__sync_val_compare_and_swap(&ring->write, old, old + rest) != old)
		return 0;
	pad(ring, cpu, old, rest);
	return 1;
}

/*
 * Loses an event for want of room at a position, where a sub-buffer would begin. False if there is
 * room by now, or another writer has moved the position.
 *
 * Announced before it is decided: where the reader finds nothing announced in a moment at which
 * writers are in the next sub-buffer, the losses in front of that are counted.
 */
static ALWAYS_INLINE int lose_for_room(struct ring *ring, u32 cpu, u64 position, u32 rest)
{
	add_to(&ring->losing, 1);
	int is_lost = is_full(ring, position + 1) && (!rest || close_subbuf(ring, cpu, position - rest, rest));
	if (is_lost) {
		u32 subbuf = (position >> SUBBUF_SHIFT) & (2 * subbufs - 1) & (2 * MAX_SUBBUFS - 1);
		add_to(&ring->lost_before[subbuf], 1);
		lose(ring, FULL);
	}
	add_to(&ring->losing, -1);
	return is_lost;
}

/* What is reserved: only events are counted. */
enum what { AN_EVENT, NO_EVENT };

static ALWAYS_INLINE int no_place(struct ring *ring, enum what what, enum cause cause)
{
	return what == AN_EVENT ? lose(ring, cause) : 0;
}

/*
 * Reserves `size` bytes, a multiple of 8 up to MAX_RECORD + MAX_CONTEXT. False if there is no
 * place; if it was for an event, that is counted.
 */
static ALWAYS_INLINE int reserve_bytes(struct place *place, u32 size, enum what what)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring) {
		cpu = 0;
		ring = bpf_map_lookup_elem(&rings, &cpu);
		return ring ? no_place(ring, what, NO_RING) : 0;
	}
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		u64 old = *(volatile u64 *)&ring->write;
		u32 left = SUBBUF_SIZE - (old & (SUBBUF_SIZE - 1));
		u32 rest = left < size ? left : 0;
		u64 position = old + rest;
		if (overwrite ? is_unfinished(ring, position) : is_full(ring, position + size)) {
			/* What was found belongs to `old` only as long as that is the position. */
			if (*(volatile u64 *)&ring->write != old)
				continue;
			if (overwrite || what != AN_EVENT)
				return no_place(ring, what, UNFINISHED);
			if (!lose_for_room(ring, cpu, position, rest))
				continue;
			return 0;
		}
		place->time = bpf_ktime_get_ns();
		if (__sync_val_compare_and_swap(&ring->write, old, position + size) != old)
			continue;
		if (rest)
			pad(ring, cpu, old, rest);
		place->ring = ring;
		place->size = size;
		place->position = position;
		place->at = data_at(cpu, position);
		return place->at != 0;
	}
	return no_place(ring, what, RETRIES);
}

static ALWAYS_INLINE void commit_bytes(struct place *place, enum what what)
{
	if (overwrite && what == AN_EVENT)
		add_to(&place->ring->events, 1);
	add_to(commit_counter(place->ring, place->position), place->size);
}

/* A record's event: what its head says beside its size and its time. */
struct subject {
	u64 thread; /* as bpf_get_current_pid_tgid tells it */
	u32 extra;
	u16 number;
};

static ALWAYS_INLINE void write_head(struct place *place, struct subject of)
{
	struct head *head = (struct head *)place->at;
	head->size = place->size;
	head->number = of.number;
	head->tid = of.thread;
	head->time = place->time;
	head->pid = of.thread >> 32;
	head->extra = of.extra;
}

/* An event of the thread that runs. */
static ALWAYS_INLINE struct subject event_here(u16 number, u32 extra)
{
	return (struct subject){bpf_get_current_pid_tgid(), extra, number};
}

#define WHOLE_WORDS(size) (((size) + 7) & ~7u)

/*
 * RECORD(type, number) { statements that fill `record` } DONE: one event of a fixed size. Without a
 * filter it is filled in its place in the ring, with one in an image that the filter sees first. (A
 * place that isn't reserved yet is zeros: the compiler keeps it in registers meanwhile, and the
 * verifier refuses to see unwritten ones moved.)
 */
#define RECORD(type, event)                                                                                    \
	{                                                                                                      \
		struct place place = {};                                                                       \
		const u16 number = event;                                                                      \
		const u32 size = WHOLE_WORDS(sizeof(struct head) + sizeof(type));                              \
		_Alignas(8) type image;                                                                        \
		type *record = &image;                                                                         \
		if (filtered) {                                                                                \
			__builtin_memset(&image, 0, sizeof image);                                             \
		} else {                                                                                       \
			if (!reserve(ctx, &place, size))                                                       \
				return 0;                                                                      \
			write_head(&place, event_here(number, 0));                                             \
			record = (type *)(place.at + sizeof(struct head));                                     \
		}

#define DONE                                                                                                   \
	if (filtered) {                                                                                        \
		if (!passes(number, 0, (char *)&image, 0, 0) || !reserve(ctx, &place, size))                   \
			return 0;                                                                              \
		write_head(&place, event_here(number, 0));                                                     \
		__builtin_memcpy(__builtin_assume_aligned(place.at + sizeof(struct head), 8), &image,          \
				 sizeof image);                                                                \
	}                                                                                                      \
	commit(&place, size);                                                                                  \
	return 0;                                                                                              \
	}

#endif

/*
 * Rings for probes, which nothing can restart: reserve, fill, commit. models/reserve.pml is this file's model,
 * function by function; docs/design/kernel.md is the argument. The reader is crates/kernel/src/ring.rs.
 *
 *   rings   one entry for each CPU: positions, counters (struct ring)
 *   data    one entry for each sub-buffer: 64 KiB of records, and room behind them that is never used, by which
 *           the verifier sees that no record passes the entry's end
 *
 *   record  head (24 bytes), payload, to a multiple of 8 bytes; never across sub-buffers
 */
#ifndef TOMPION_BPF_RING_H
#define TOMPION_BPF_RING_H

#include "kernel.h"

#define SUBBUF_SHIFT 16
#define SUBBUF_SIZE (1u << SUBBUF_SHIFT)
#define MOST_SUBBUFS 1024
#define LARGEST_RECORD 2304
#define PADDING 0
/* A probe is only ever disturbed by what interrupts it, which is over when it goes on. */
#define MOST_ATTEMPTS 16

/* Numbers of tompion_layout::loss::Cause. */
enum cause { FULL = 0, RETRIES = 2, UNFINISHED = 8, NO_RING = 11 };

struct ring {
	u64 write;    /* free-running; writers, by compare-and-swap */
	u64 events;   /* writers; in overwrite mode only */
	u64 lost[16]; /* writers */
	u64 rest[6];
	u64 consumed; /* the reader */
	u64 unused[7];
	u64 commit[MOST_SUBBUFS]; /* writers: bytes committed to the sub-buffer, over all laps */
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
	NUMBER(value_size, SUBBUF_SIZE + LARGEST_RECORD);
} data SECTION(".maps");

/* What who loads the programs decides. */
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
	struct ring *ring;
	char *at;
	u64 position;
	u64 time;
};

static ALWAYS_INLINE u64 *commit_counter(struct ring *ring, u64 position)
{
	return &ring->commit[(position >> SUBBUF_SHIFT) & (subbufs - 1) & (MOST_SUBBUFS - 1)];
}

static ALWAYS_INLINE char *data_at(u32 cpu, u64 position)
{
	u32 index = cpu * subbufs + ((u32)(position >> SUBBUF_SHIFT) & (subbufs - 1));
	char *subbuf = bpf_map_lookup_elem(&data, &index);
	return subbuf ? subbuf + (position & (SUBBUF_SIZE - 8)) : 0;
}

/* A fetching addition is a full barrier on every architecture, so that who sees the sum sees the bytes. */
static ALWAYS_INLINE void add_to(u64 *counter, u64 amount)
{
	u64 before = __sync_fetch_and_add(counter, amount);
	/* As long as somebody uses what was there, the addition is one that fetches. */
	asm volatile("" ::"r"(before) : "memory");
}

static ALWAYS_INLINE int lose(struct ring *ring, enum cause cause)
{
	add_to(&ring->lost[cause], 1);
	return 0;
}

/* Whether the sub-buffer that a record is about to enter still waits for somebody of an earlier lap. */
static ALWAYS_INLINE int is_unfinished(struct ring *ring, u64 place)
{
	u64 ring_size = (u64)subbufs << SUBBUF_SHIFT;
	u64 laps = place / ring_size;
	if (place % SUBBUF_SIZE != 0 || laps == 0)
		return 0;
	return *(volatile u64 *)commit_counter(ring, place) != laps * SUBBUF_SIZE;
}

/*
 * Whether there is no room. By whole sub-buffers: not even the first byte of one while any of its last lap is to
 * be read.
 */
static ALWAYS_INLINE int is_full(struct ring *ring, u64 end)
{
	u64 subbuf_end = (end + SUBBUF_SIZE - 1) & ~(u64)(SUBBUF_SIZE - 1);
	u64 consumed = *(volatile u64 *)&ring->consumed;
	return (s64)(subbuf_end - consumed) > (s64)((u64)subbufs << SUBBUF_SHIFT);
}

/* What is left of a sub-buffer is committed by who leaves it. */
static ALWAYS_INLINE void pad(struct ring *ring, u32 cpu, u64 position, u32 size)
{
	struct head *head = (struct head *)data_at(cpu, position);
	if (!head)
		return;
	head->size = size;
	head->number = PADDING;
	add_to(commit_counter(ring, position), size);
}

/* Reserves `size` bytes, a multiple of 8 up to LARGEST_RECORD. False if the event is lost, which is counted. */
static ALWAYS_INLINE int reserve(struct place *place, u32 size)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring) {
		cpu = 0;
		ring = bpf_map_lookup_elem(&rings, &cpu);
		return ring ? lose(ring, NO_RING) : 0;
	}
	for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
		u64 old = *(volatile u64 *)&ring->write;
		u32 left = SUBBUF_SIZE - (old & (SUBBUF_SIZE - 1));
		u32 rest = left < size ? left : 0;
		u64 position = old + rest;
		if (overwrite ? is_unfinished(ring, position) : is_full(ring, position + size)) {
			/* What was found belongs to `old` only as long as that is the position. */
			if (*(volatile u64 *)&ring->write != old)
				continue;
			return lose(ring, overwrite ? UNFINISHED : FULL);
		}
		place->time = bpf_ktime_get_ns();
		if (__sync_val_compare_and_swap(&ring->write, old, position + size) != old)
			continue;
		if (rest)
			pad(ring, cpu, old, rest);
		place->ring = ring;
		place->position = position;
		place->at = data_at(cpu, position);
		return place->at != 0;
	}
	return lose(ring, RETRIES);
}

static ALWAYS_INLINE void commit(struct place *place, u32 size)
{
	if (overwrite)
		add_to(&place->ring->events, 1);
	add_to(commit_counter(place->ring, place->position), size);
}

static ALWAYS_INLINE void write_head(struct place *place, u32 size, u16 number, u32 extra)
{
	struct head *head = (struct head *)place->at;
	u64 both = bpf_get_current_pid_tgid();
	head->size = size;
	head->number = number;
	head->tid = both;
	head->time = place->time;
	head->pid = both >> 32;
	head->extra = extra;
}

#define WHOLE_WORDS(size) (((size) + 7) & ~7u)

/*
 * RECORD(type, number) { statements that fill `record` } DONE: one event of a fixed size. Its payload is
 * `record->is`.
 */
#define RECORD(type, event)                                                                                    \
	{                                                                                                      \
		struct place place;                                                                            \
		const u32 size = WHOLE_WORDS(sizeof(struct head) + sizeof(type));                              \
		if (!reserve(&place, size))                                                                    \
			return 0;                                                                              \
		write_head(&place, size, event, 0);                                                            \
		type *record = (type *)(place.at + sizeof(struct head));

#define DONE                                                                                                   \
	commit(&place, size);                                                                                  \
	return 0;                                                                                              \
	}

#endif

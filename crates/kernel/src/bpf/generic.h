/*
 * One program for all tracepoints that have none of their own: it copies the record that the kernel
 * makes for perf. What a record consists of, its reader knows from tracefs (src/tracepoints).
 *
 * All programs of this kind share one guard for each CPU: an event in the middle of another one's
 * run is not seen, and counted by the kernel.
 */
#ifndef TOMPION_BPF_GENERIC_H
#define TOMPION_BPF_GENERIC_H

#include "text.h"

/* Number in rings; which tracepoint it is stands beside it. */
#define TRACEPOINT 64
/* At a record's beginning programs find an address of the kernel, which is none of the record and
 * is not recorded. */
#define COMMON_PART 8

/*
 * What a cookie says: the tracepoint, the end of its records' fixed part, and where the word stands
 * that tells of the last variable field, with which records end (0 if there is none; offset and
 * length, 16 bits each).
 */
#define COOKIE_TRACEPOINT(cookie) ((u16)(cookie))
#define COOKIE_FIXED_END(cookie) ((u16)((cookie) >> 16))
#define COOKIE_LAST_WORD(cookie) ((u16)((cookie) >> 32))
#define COOKIE_RELATIVE(cookie) ((cookie) >> 48 & 1)

static ALWAYS_INLINE u32 record_end(char *record, u64 cookie)
{
	u32 end = COOKIE_FIXED_END(cookie), last = COOKIE_LAST_WORD(cookie), word = 0;
	if (!last || bpf_probe_read_kernel(&word, sizeof word, record + last))
		return end;
	u32 variable_end = (word & 0xffff) + (word >> 16) + (COOKIE_RELATIVE(cookie) ? last + sizeof word : 0);
	return variable_end > end ? variable_end : end;
}

/*
 * What the program returns. The kernel takes 0 for a filter's answer: then perf events of others at
 * the same tracepoint would not be counted or recorded while we record.
 */
#define GO_ON 1

/* Bytes of a record's fixed part that a filter sees. */
#define FILTERED_BYTES 512

static ALWAYS_INLINE int tracepoint_passes(char *ctx, u64 cookie)
{
	struct texts *image = texts_of(TEXT_OF_TRACEPOINT);
	u32 length = COOKIE_FIXED_END(cookie) - COMMON_PART;
	length = length <= FILTERED_BYTES ? length : FILTERED_BYTES;
	asm volatile("" : "+r"(length));
	if (!image || length > FILTERED_BYTES || bpf_probe_read_kernel(image->first, length, ctx + COMMON_PART))
		return 1;
	return passes(TRACEPOINT, COOKIE_TRACEPOINT(cookie), image->first, 0, 0);
}

SECTION("tracepoint") int any_tracepoint(char *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	if (filtered && !tracepoint_passes(ctx, cookie))
		return GO_ON;
	u32 length = record_end(ctx, cookie) - COMMON_PART;
	if (length > MAX_RECORD - sizeof(struct head)) {
		lose_here(TOO_LARGE);
		return GO_ON;
	}
	struct place place;
	u32 size = WHOLE_WORDS(sizeof(struct head) + length);
	if (!reserve(ctx, &place, size))
		return GO_ON;
	write_head(&place, event_here(TRACEPOINT, COOKIE_TRACEPOINT(cookie)));
	bpf_probe_read_kernel(place.at + sizeof(struct head), length, ctx + COMMON_PART);
	commit(&place, size);
	return GO_ON;
}

#endif

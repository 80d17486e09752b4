/* Texts of any length, read into memory of the program before room is reserved for them. */
#ifndef TOMPION_BPF_TEXT_H
#define TOMPION_BPF_TEXT_H

#include "context.h"

#define MAX_TEXT 1024

/*
 * One entry for each program that needs one: the kernel never starts a program on a CPU where it
 * runs already, so it has no other writer.
 */
enum text_user { TEXT_OF_ENTRY, TEXT_OF_EXIT, TEXT_OF_EXEC, TEXT_OF_INTERRUPT, TEXT_OF_TRACEPOINT, TEXT_USERS };

struct texts {
	char first[MAX_TEXT];
	char second[MAX_TEXT];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, TEXT_USERS);
	TYPE(key, u32);
	TYPE(value, struct texts);
} texts SECTION(".maps");

static ALWAYS_INLINE struct texts *texts_of(enum text_user user)
{
	u32 key = user;
	return bpf_map_lookup_elem(&texts, &key);
}

/* The length with its NUL of what a reading helper returned; 0 if it could not read. */
static ALWAYS_INLINE u32 text_length(long result)
{
	return result > 0 && result <= MAX_TEXT ? result : 0;
}

/*
 * A length that is at most MAX_TEXT, or 0. The verifier may have lost sight of that, so it is said
 * once more; and of what the compiler makes of two comparisons, or of a half of a register, those
 * of 6.1 and before learn nothing.
 */
static ALWAYS_INLINE u64 bounded(u64 length)
{
	asm volatile("" : "+r"(length));
	return length <= MAX_TEXT ? length : 0;
}

/* The text for a filter: an empty one where none could be read, and not what was read before. */
static ALWAYS_INLINE char *ended(char *text, u32 length)
{
	if (!length)
		text[0] = 0;
	return text;
}

/* Copies a text that was read. */
static ALWAYS_INLINE void copy_text(char *to, u32 length, const char *from)
{
	bpf_probe_read_kernel(to, bounded(length), from);
}

#endif

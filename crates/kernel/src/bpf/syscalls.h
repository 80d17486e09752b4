/* System calls, with the paths and the sockets' addresses among their arguments. */
#ifndef TOMPION_BPF_SYSCALLS_H
#define TOMPION_BPF_SYSCALLS_H

#include "process.h"

/* Entries of `calls`; the last is for all numbers that have none. */
#define CALLS 1024
/* What an entry says. */
#define FIRST_PATH(call) ((call) & 15)         /* number of the argument, from 1; 0 if there is none */
#define SECOND_PATH(call) ((call) >> 4 & 15)
#define REPLACES_MEMORY (1 << 8) /* exec: what an argument pointed to is gone when it returns */
#define WANT_ENTRY (1 << 9)
#define WANT_EXIT (1 << 10)
#define ADDRESS(call) ((call) >> 11 & 7) /* argument, from 1, with a socket's address; its size follows */
/* Likewise, of an address that the call returns; a pointer to its size follows. */
#define RETURNED_ADDRESS(call) ((call) >> 14 & 7)

/* Bytes of an address that are recorded: `struct sockaddr_storage`. */
#define MAX_ADDRESS 128

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, CALLS);
	TYPE(key, u32);
	TYPE(value, u32);
} calls SECTION(".maps");

/*
 * Threads in a call whose paths could not be read at its entry: the pages were not there yet. Some
 * never return from it; the oldest make room.
 */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, u64[2]);
} unread SECTION(".maps");

struct address_buffer {
	u64 address;
	u64 size;
};

/*
 * Threads in a call that returns a socket's address, and where. The call overwrites the size of the
 * buffer with that of the address, which may be larger: only the entry can tell what was written.
 */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, struct address_buffer);
} address_buffers SECTION(".maps");

/* The recorder, whose own system calls are not to be recorded. Another one may take its place. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} recorder SECTION(".maps");

/* In the place of a text's length. */
#define NO_TEXT 0xffffffffu
#define UNREADABLE 0xfffffffeu
/* In the place of a call's number, beside it: a 32-bit program on a 64-bit kernel. */
#define COMPATIBLE 0x80000000u

struct path_lengths {
	u32 first, second;
};

static ALWAYS_INLINE int is_followed(u32 pid)
{
	u32 first = 0;
	if (follow && !is_in_set(pid))
		return 0;
	/* It is there. Its absence leads nowhere, which gives the verifier no more to follow. */
	u64 *own = bpf_map_lookup_elem(&recorder, &first);
	return own && *(volatile u64 *)own != pid;
}

/*
 * Everything that is asked of the thread comes from one call of a helper: where the kernel makes
 * returns safe, each call costs as much as a dozen instructions.
 */
static ALWAYS_INLINE u64 thread_of(struct task_struct *task)
{
	return (u64)(u32)task->tgid << 32 | (u32)task->pid;
}

static ALWAYS_INLINE u32 compatible(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	const u32 compat = 2; /* TS_COMPAT */
	return task->thread_info.status & compat ? COMPATIBLE : 0;
#else
	return 0;
#endif
}

/* What is known of a call. */
static ALWAYS_INLINE u32 call_of(u32 number)
{
	u32 key = number < CALLS - 1 ? number : CALLS - 1;
	u32 *call = bpf_map_lookup_elem(&calls, &key);
	return call ? *call : 0;
}

static ALWAYS_INLINE u64 argument(struct pt_regs *regs, u32 which)
{
	switch (which) {
	case 1: return ARGUMENT_0(regs);
	case 2: return ARGUMENT_1(regs);
	case 3: return ARGUMENT_2(regs);
	case 4: return ARGUMENT_3(regs);
	case 5: return ARGUMENT_4(regs);
	case 6: return ARGUMENT_5(regs);
	default: return 0;
	}
}

/* Reads a path. Its length with the NUL, or UNREADABLE. A null pointer is no path. */
static ALWAYS_INLINE u32 read_path(char *to, u64 address)
{
	if (!address)
		return NO_TEXT;
	u32 length = text_length(bpf_probe_read_user_str(to, MAX_TEXT, (void *)address));
	return length ? length : UNREADABLE;
}

/* Reads a socket's address as read_path() reads a path. */
static ALWAYS_INLINE u32 read_address(char *to, u64 address, u64 length)
{
	if (!address || !(u32)length)
		return NO_TEXT;
	length = (u32)length;
	asm volatile("" : "+r"(length));
	length = length <= MAX_ADDRESS ? length : MAX_ADDRESS;
	return bpf_probe_read_user(to, length, (void *)address) ? UNREADABLE : length;
}

static ALWAYS_INLINE u64 bytes_of(u32 length)
{
	return bounded(length);
}

/* Appends the lengths and the texts behind a record's fixed part. */
static ALWAYS_INLINE void append_paths(char *to, struct path_lengths lengths, struct texts *text)
{
	u64 first = bytes_of(lengths.first), second = bytes_of(lengths.second);
	*(struct path_lengths *)to = lengths;
	to += sizeof lengths;
	copy_text(to, first, text->first);
	copy_text(to + first, second, text->second);
}

struct syscall_entry {
	u64 arguments[6];
};

static ALWAYS_INLINE void read_arguments(u64 *to, struct pt_regs *regs)
{
	to[0] = ARGUMENT_0(regs);
	to[1] = ARGUMENT_1(regs);
	to[2] = ARGUMENT_2(regs);
	to[3] = ARGUMENT_3(regs);
	to[4] = ARGUMENT_4(regs);
	to[5] = ARGUMENT_5(regs);
}

/* What a filter sees in the place of a path that isn't there: what the trace has in that place. */
static ALWAYS_INLINE char *shown(char *text, u32 length)
{
	if (length == NO_TEXT)
		__builtin_memcpy(text, "<null>\0", 8);
	if (length == UNREADABLE)
		__builtin_memcpy(text, "<unreadable>\0\0\0", 16);
	return text;
}

static ALWAYS_INLINE int entry_passes(struct subject entry, struct pt_regs *regs, struct path_lengths lengths,
				      struct texts *text)
{
	u64 image[6];
	read_arguments(image, regs);
	char *first = shown(text->first, lengths.first), *second = shown(text->second, lengths.second);
	return passes(SYSCALL_ENTRY, entry.extra, (char *)image, first, second);
}

static ALWAYS_INLINE int exit_passes(struct subject exit, s64 ret)
{
	return passes(SYSCALL_EXIT, exit.extra, (char *)&ret, 0, 0);
}

static ALWAYS_INLINE int entry_without_paths(u64 *ctx, struct subject entry, struct pt_regs *regs)
{
	struct place place;
	const u32 size = sizeof(struct head) + sizeof(struct syscall_entry);
	if (filtered) {
		struct path_lengths none = {NO_TEXT, NO_TEXT};
		struct texts *text = texts_of(TEXT_OF_ENTRY);
		if (!text || !entry_passes(entry, regs, none, text))
			return 0;
	}
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, entry);
	struct syscall_entry *record = (void *)(place.at + sizeof(struct head));
	read_arguments(record->arguments, regs);
	commit(&place, size);
	return 0;
}

static ALWAYS_INLINE void note_unread(u32 tid, struct path_lengths lengths, u64 first, u64 second)
{
	u64 value[2] = {lengths.first == UNREADABLE ? first : 0, lengths.second == UNREADABLE ? second : 0};
	if (value[0] || value[1])
		bpf_map_update_elem(&unread, &tid, value, 0);
}

static ALWAYS_INLINE int entry_with_paths(u64 *ctx, struct subject entry, struct pt_regs *regs, u32 call)
{
	struct texts *text = texts_of(TEXT_OF_ENTRY);
	if (!text)
		return 0;
	struct path_lengths lengths = {NO_TEXT, NO_TEXT};
	if (ADDRESS(call)) {
		u64 size = argument(regs, ADDRESS(call) + 1);
		lengths.first = read_address(text->first, argument(regs, ADDRESS(call)), size);
	} else {
		u64 first = argument(regs, FIRST_PATH(call)), second = argument(regs, SECOND_PATH(call));
		lengths.first = read_path(text->first, first);
		if (SECOND_PATH(call))
			lengths.second = read_path(text->second, second);
		note_unread(entry.thread, lengths, first, second);
	}
	if (filtered && !entry_passes(entry, regs, lengths, text))
		return 0;
	struct place place;
	u32 size = sizeof(struct head) + sizeof(struct syscall_entry) + sizeof lengths;
	size = WHOLE_WORDS(size + bytes_of(lengths.first) + bytes_of(lengths.second));
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, entry);
	struct syscall_entry *record = (void *)(place.at + sizeof(struct head));
	read_arguments(record->arguments, regs);
	append_paths((char *)(record + 1), lengths, text);
	commit(&place, size);
	return 0;
}

/* Notes the buffer for the address that a call returns. Most calls that may have one have none. */
static ALWAYS_INLINE void note_address_buffer(u32 tid, struct pt_regs *regs, u32 call)
{
	struct address_buffer buffer = {argument(regs, RETURNED_ADDRESS(call)), 0};
	u32 size = 0;
	if (!buffer.address)
		return;
	if (bpf_probe_read_user(&size, sizeof size, (void *)argument(regs, RETURNED_ADDRESS(call) + 1))) {
		bpf_map_delete_elem(&address_buffers, &tid);
		return;
	}
	buffer.size = size;
	bpf_map_update_elem(&address_buffers, &tid, &buffer, 0);
}

SECTION("tp_btf/sys_enter") int syscall_entry(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_followed(task->tgid))
		return 0;
	u32 number = ctx[1], compat = compatible(task);
	u32 call = call_of(compat ? CALLS : number);
	if (RETURNED_ADDRESS(call))
		note_address_buffer(task->pid, regs, call);
	if (!(call & WANT_ENTRY))
		return 0;
	struct subject entry = {thread_of(task), number | compat, SYSCALL_ENTRY};
	if (FIRST_PATH(call) || ADDRESS(call))
		return entry_with_paths(ctx, entry, regs, call);
	return entry_without_paths(ctx, entry, regs);
}

struct syscall_exit {
	s64 ret;
};

/* Reads once more what could not be read at the entry. False if nothing was to be read. */
static ALWAYS_INLINE int read_again(u32 call, s64 ret, struct path_lengths *lengths, struct texts *text)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 *addresses = bpf_map_lookup_elem(&unread, &tid);
	if (!addresses)
		return 0;
	u64 first = addresses[0], second = addresses[1];
	bpf_map_delete_elem(&unread, &tid);
	if (call & REPLACES_MEMORY && ret == 0)
		return 0;
	lengths->first = read_path(text->first, first);
	lengths->second = read_path(text->second, second);
	return 1;
}

/*
 * Reads the address that a call returned, and its size, which is larger than what was read if the
 * buffer was too small. False if there is none, or if the entry was not seen.
 */
static ALWAYS_INLINE int read_returned(u32 call, s64 ret, struct pt_regs *regs, struct path_lengths *lengths,
				       struct texts *text)
{
	u32 tid = bpf_get_current_pid_tgid(), size = 0;
	u64 address = argument(regs, RETURNED_ADDRESS(call));
	if (!address)
		return 0;
	struct address_buffer *noted = bpf_map_lookup_elem(&address_buffers, &tid);
	if (!noted)
		return 0;
	struct address_buffer buffer = *noted;
	bpf_map_delete_elem(&address_buffers, &tid);
	if (ret < 0 || buffer.address != address)
		return 0;
	if (bpf_probe_read_user(&size, sizeof size, (void *)argument(regs, RETURNED_ADDRESS(call) + 1)))
		return 0;
	lengths->first = read_address(text->first, address, size < buffer.size ? size : buffer.size);
	*(u32 *)text->second = size;
	lengths->second = sizeof size;
	return lengths->first != NO_TEXT && lengths->first != UNREADABLE;
}

static ALWAYS_INLINE int exit_without_paths(u64 *ctx, struct subject exit, s64 ret)
{
	struct place place;
	const u32 size = sizeof(struct head) + sizeof(struct syscall_exit);
	if (filtered && !exit_passes(exit, ret))
		return 0;
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, exit);
	struct syscall_exit *record = (void *)(place.at + sizeof(struct head));
	record->ret = ret;
	commit(&place, size);
	return 0;
}

static ALWAYS_INLINE int exit_with_paths(u64 *ctx, struct subject exit, s64 ret, struct path_lengths lengths, struct texts *text)
{
	struct place place;
	u32 size = sizeof(struct head) + sizeof(struct syscall_exit) + sizeof lengths;
	size = WHOLE_WORDS(size + bytes_of(lengths.first) + bytes_of(lengths.second));
	if (filtered && !exit_passes(exit, ret))
		return 0;
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, exit);
	struct syscall_exit *record = (void *)(place.at + sizeof(struct head));
	record->ret = ret;
	append_paths((char *)(record + 1), lengths, text);
	commit(&place, size);
	return 0;
}

SECTION("tp_btf/sys_exit") int syscall_exit(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_followed(task->tgid))
		return 0;
	u32 number = SYSCALL_NUMBER(regs), compat = compatible(task);
	u32 call = call_of(compat ? CALLS : number);
	struct subject exit = {thread_of(task), number | compat, SYSCALL_EXIT};
	struct path_lengths lengths = {NO_TEXT, NO_TEXT};
	if (FIRST_PATH(call)) {
		struct texts *text = texts_of(TEXT_OF_EXIT);
		if (text && read_again(call, ctx[1], &lengths, text) && call & WANT_EXIT)
			return exit_with_paths(ctx, exit, ctx[1], lengths, text);
	}
	if (RETURNED_ADDRESS(call)) {
		struct texts *text = texts_of(TEXT_OF_EXIT);
		if (text && read_returned(call, ctx[1], regs, &lengths, text))
			return exit_with_paths(ctx, exit, ctx[1], lengths, text);
	}
	return call & WANT_EXIT ? exit_without_paths(ctx, exit, ctx[1]) : 0;
}

#endif

/*
 * Memory of events that are described while the program runs. It is never given back: a thread may
 * be using it. Not the program's allocator, which may be what is traced.
 *
 * The memory has the name `tompion-events` in /proc/PID/maps, where `tompion list PID` finds the
 * descriptions of a running process.
 */
#ifndef TOMPION_PRELOAD_ARENA_H
#define TOMPION_PRELOAD_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* The piece that allocations are cut from. Only used under the lock of the library. */
static char *arena, *arena_end;

/* Memory for a piece. A private mapping of a file that nothing else has: a child of a fork gets a
 * copy, as of any memory. Without files, nameless memory. */
static char *map_piece(size_t size)
{
    struct rlimit limit;
    const int file = memfd_create("tompion-events", MFD_CLOEXEC);
    void *start = MAP_FAILED;
    if (file >= 0) {
        /* A file beyond the limit would be a signal to the program. */
        if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= size && ftruncate(file, (off_t)size) == 0)
            start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        close(file);
    }
    if (start == MAP_FAILED)
        start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Zeroed memory, aligned to 16 bytes; NULL if the kernel has none. */
static void *take(size_t size)
{
    char *start;
    size = (size + 15) & ~(size_t)15;
    if ((size_t)(arena_end - arena) < size) {
        const size_t piece = ((size > 256 * 1024 ? size : 256 * 1024) + 4095) & ~(size_t)4095;
        start = map_piece(piece);
        if (!start)
            return NULL;
        arena = start;
        arena_end = start + piece;
    }
    start = arena;
    arena += size;
    return start;
}

/* Bytes that grow: a description in the making. */
struct bytes {
    char *at;
    size_t size, room;
    int failed;
};

static void append(struct bytes *to, const void *data, size_t size)
{
    if (to->failed)
        return;
    if (to->room - to->size < size) {
        const size_t room = (to->size + size) * 2 + 256;
        char *larger = take(room);
        if (!larger) {
            to->failed = 1;
            return;
        }
        if (to->size)
            memcpy(larger, to->at, to->size);
        to->at = larger;
        to->room = room;
    }
    memcpy(to->at + to->size, data, size);
    to->size += size;
}

static void append_name(struct bytes *to, const char *name)
{
    append(to, name, strlen(name) + 1);
}

/* Writes the size of a structure that begins at `start` into its second word. */
static void set_size(struct bytes *of, size_t start)
{
    const uint32_t size = (uint32_t)(of->size - start);
    if (!of->failed)
        memcpy(of->at + start + 4, &size, sizeof size);
}

#endif

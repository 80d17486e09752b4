/*
 * libtompion-malloc.so: the C library's allocations as events, without recompiling the program.
 *
 *     LD_PRELOAD=libtompion-malloc.so ./program        (`tompion record --preload malloc` does it)
 *
 * Built with
 *
 *     cc -std=gnu11 -O2 -fPIC -shared -fno-builtin -ftls-model=initial-exec -Iinclude malloc.c
 *        -o libtompion-malloc.so -L… -ltompion -ldl -Wl,-soname,libtompion-malloc.so
 *        '-Wl,-rpath,$ORIGIN' -Wl,--auxiliary=libtompion.so.0
 *
 * The last option puts libtompion before all other libraries, where its vfork, clone and others
 * must stand.
 *
 * Events have the names and fields that LTTng's libc wrapper gives them, provider lttng_ust_libc,
 * so that analyses made for those work; reallocarray and aligned_alloc, which it does not know,
 * follow their manner. free is recorded before the memory goes back, so that no other thread's
 * record of getting the same memory can come first; all others are recorded after the call, with
 * its result.
 *
 * Functions of the program behave as without this library: same results, same errno. No lock is
 * held at any time, so fork() needs no care. Recording allocates nothing from here (the library has
 * a heap of its own), so no call comes back to us. valloc, pvalloc and malloc_usable_size are not
 * touched.
 *
 * The next library's functions are looked up at the first call, which may come before any
 * constructor of ours. dlsym itself may allocate: these calls are served from a small block that is
 * never freed. Calls before our constructor, from constructors of the program's libraries, can't be
 * recorded. They are counted, and the event `unrecorded` says how many there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WRAPPER_IS_PASSIVE
#include "wrapper.h"

#define EXPORT __attribute__((visibility("default")))

/* -- The block for dlsym's own needs -- */

static _Alignas(16) char early[16384];
static atomic_size_t early_used; /* bytes; never less than before */

/* Zeroed memory, its size (a size_t) in the 16 bytes before it; or NULL with errno. */
static void *early_alloc(size_t alignment, size_t size)
{
    size_t start, used = 0;
    if (alignment < 16)
        alignment = 16;
    if (alignment <= sizeof early / 2 && size <= sizeof early / 2)
        used = atomic_fetch_add(&early_used, alignment + 16 + (size + 15) / 16 * 16);
    start = (size_t)(((uintptr_t)early + used + 16 + alignment - 1) / alignment * alignment - (uintptr_t)early);
    if (alignment > sizeof early / 2 || size > sizeof early / 2 || used > sizeof early ||
        start + size > sizeof early) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(early + start - 16, &size, sizeof size);
    return early + start;
}

static int is_early(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)early < sizeof early;
}

static size_t early_size(const void *pointer)
{
    size_t size;
    memcpy(&size, (const char *)pointer - 16, sizeof size);
    return size;
}

/* -- The next library's functions -- */

static struct {
    _Atomic(void *(*)(size_t)) malloc;
    _Atomic(void (*)(void *)) free;
    _Atomic(void *(*)(size_t, size_t)) calloc;
    _Atomic(void *(*)(void *, size_t)) realloc;
    _Atomic(void *(*)(size_t, size_t)) memalign;
    _Atomic(void *(*)(size_t, size_t)) aligned_alloc;
    _Atomic(int (*)(void **, size_t, size_t)) posix_memalign;
} next;

/* Set in the thread that looks the functions up: its allocations are dlsym's. */
static THREAD_LOCAL int looking_up;

/* Threads may look up at the same time: all find the same. */
static void look_up(void)
{
    const int error = errno;
    looking_up = 1;
    next.free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next.calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next.realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next.memalign = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
    next.aligned_alloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
    next.posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    next.malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    looking_up = 0;
    errno = error;
}

#define LOAD(pointer) atomic_load_explicit(&(pointer), memory_order_relaxed)
#define NEXT(function) LOAD(next.function)
/* Whether the function is there; looks it up if not yet done. */
#define HAVE(function) \
    (__builtin_expect(NEXT(function) != NULL, 1) || (!looking_up && (look_up(), NEXT(function) != NULL)))

/* realloc without its event. */
static void *resize(void *in_ptr, size_t size)
{
    if (__builtin_expect(is_early(in_ptr), 0)) {
        const size_t old = early_size(in_ptr);
        void *ptr = HAVE(malloc) ? NEXT(malloc)(size) : early_alloc(16, size);
        return ptr ? memcpy(ptr, in_ptr, old < size ? old : size) : NULL;
    }
    if (!HAVE(realloc))
        return in_ptr ? (errno = ENOMEM, NULL) : early_alloc(16, size);
    return NEXT(realloc)(in_ptr, size);
}

/* -- Calls before our constructor -- */

enum { MALLOC, FREE, CALLOC, REALLOC, ALIGNED, KINDS };

static _Atomic uint64_t unrecorded[KINDS];
/* Whether calls are recorded, if a session records. Written once, by the constructor. */
static atomic_int has_begun;

static __attribute__((noinline, cold)) void count_unrecorded(int kind)
{
    atomic_fetch_add_explicit(&unrecorded[kind], 1, memory_order_relaxed);
}

/* dlsym's own calls are no calls of the program. */
#define CALLED(kind)                                                                                      \
    do {                                                                                                  \
        if (__builtin_expect(!LOAD(has_begun), 0) && !looking_up)                                         \
            count_unrecorded(kind);                                                                       \
    } while (0)

/* Behind the constructor that registers the events, whose priority is 101. */
__attribute__((constructor(102))) static void begin(void)
{
    uint64_t calls[KINDS], all = 0;
    atomic_store_explicit(&has_begun, 1, memory_order_relaxed);
    for (int kind = 0; kind < KINDS; kind++)
        all += calls[kind] = LOAD(unrecorded[kind]);
    if (all)
        TOMPION_EVENT(lttng_ust_libc, unrecorded, (u64, mallocs, calls[MALLOC]), (u64, frees, calls[FREE]),
                      (u64, callocs, calls[CALLOC]), (u64, reallocs, calls[REALLOC]),
                      (u64, aligned, calls[ALIGNED]));
}

/* -- What the program calls -- */

EXPORT void *malloc(size_t size)
{
    CALLED(MALLOC);
    void *ptr = HAVE(malloc) ? NEXT(malloc)(size) : early_alloc(16, size);
    TOMPION_EVENT(lttng_ust_libc, malloc, (u64, size, size), (x64, ptr, ptr));
    return ptr;
}

EXPORT void free(void *ptr)
{
    CALLED(FREE);
    TOMPION_EVENT(lttng_ust_libc, free, (x64, ptr, ptr));
    if (__builtin_expect(is_early(ptr), 0))
        return;
    if (HAVE(free))
        NEXT(free)(ptr);
}

EXPORT void *calloc(size_t nmemb, size_t size)
{
    size_t bytes;
    void *ptr;
    CALLED(CALLOC);
    if (HAVE(calloc))
        ptr = NEXT(calloc)(nmemb, size);
    else if (__builtin_mul_overflow(nmemb, size, &bytes))
        ptr = (errno = ENOMEM, NULL);
    else
        ptr = early_alloc(16, bytes);
    TOMPION_EVENT(lttng_ust_libc, calloc, (u64, nmemb, nmemb), (u64, size, size), (x64, ptr, ptr));
    return ptr;
}

EXPORT void *realloc(void *in_ptr, size_t size)
{
    const uint64_t old = (uintptr_t)in_ptr; /* the pointer itself must not be used after the call */
    CALLED(REALLOC);
    void *ptr = resize(in_ptr, size);
    TOMPION_EVENT(lttng_ust_libc, realloc, (x64, in_ptr, old), (u64, size, size), (x64, ptr, ptr));
    return ptr;
}

/* The C library's would call realloc, which would record it a second time. */
EXPORT void *reallocarray(void *in_ptr, size_t nmemb, size_t size)
{
    const uint64_t old = (uintptr_t)in_ptr;
    size_t bytes;
    CALLED(REALLOC);
    void *ptr = __builtin_mul_overflow(nmemb, size, &bytes) ? (errno = ENOMEM, NULL) : resize(in_ptr, bytes);
    TOMPION_EVENT(lttng_ust_libc, reallocarray, (x64, in_ptr, old), (u64, nmemb, nmemb), (u64, size, size),
                  (x64, ptr, ptr));
    return ptr;
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    CALLED(ALIGNED);
    void *ptr = HAVE(memalign) ? NEXT(memalign)(alignment, size) : early_alloc(alignment, size);
    TOMPION_EVENT(lttng_ust_libc, memalign, (u64, alignment, alignment), (u64, size, size), (x64, ptr, ptr));
    return ptr;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    CALLED(ALIGNED);
    void *ptr = HAVE(aligned_alloc) ? NEXT(aligned_alloc)(alignment, size) : early_alloc(alignment, size);
    TOMPION_EVENT(lttng_ust_libc, aligned_alloc, (u64, alignment, alignment), (u64, size, size),
                  (x64, ptr, ptr));
    return ptr;
}

/* A failed call leaves *out_ptr as it was, and that is what is recorded, as LTTng does. */
EXPORT int posix_memalign(void **out_ptr, size_t alignment, size_t size)
{
    int result;
    CALLED(ALIGNED);
    if (HAVE(posix_memalign)) {
        result = NEXT(posix_memalign)(out_ptr, alignment, size);
    } else {
        void *ptr = early_alloc(alignment, size);
        result = ptr ? 0 : ENOMEM;
        if (ptr)
            *out_ptr = ptr;
    }
    TOMPION_EVENT(lttng_ust_libc, posix_memalign, (x64, out_ptr, *out_ptr), (u64, alignment, alignment),
                  (u64, size, size), (i32, result, result));
    return result;
}

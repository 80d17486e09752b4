/*
 * What the headers in place of Tracy's call: functions of libtompion-tracy.so.
 *
 * Part of <tracy/Tracy.hpp> and <tracy/TracyC.h>. Programs do not include it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_LIBRARY_H
#define TOMPION_TRACY_LIBRARY_H

#pragma GCC system_header

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A zone's place in the source, or a lock's. There is one for each macro, as long as its object is
 * loaded. The library writes the last two members, by the first use.
 */
struct tompion_tracy_source {
    const char *name; /* NULL: the function's */
    const char *function, *file;
    uint32_t line, color; /* RGB; 0: none */
    const void *event;
    const uint32_t *enabled; /* what a disabled zone looks at; NULL before the first use */
};

/* A zone that was begun. All zeros: one that is not recorded. */
struct tompion_tracy_zone {
    const void *end;
    uint32_t recordings; /* that have the begin */
    int32_t active;
};

/* Prepares a place for its first use. */
void tompion_tracy_prepare(struct tompion_tracy_source *source);
struct tompion_tracy_zone tompion_tracy_begin(const struct tompion_tracy_source *source);
/* A zone with a name that is only known now. */
struct tompion_tracy_zone tompion_tracy_begin_transient(const char *name, size_t size, uint32_t color);
void tompion_tracy_end(struct tompion_tracy_zone zone);

/* Of the innermost zone: as events within it. */
void tompion_tracy_zone_text(const char *text, size_t size);
void tompion_tracy_zone_name(const char *name, size_t size);
void tompion_tracy_zone_value(uint64_t value);
void tompion_tracy_zone_color(uint32_t color);
void tompion_tracy_zone_format(int is_name, const char *format, va_list arguments);

void tompion_tracy_frame(const char *name);
void tompion_tracy_frame_start(const char *name);
void tompion_tracy_frame_end(const char *name);
void tompion_tracy_plot_i64(const char *name, int64_t value);
void tompion_tracy_plot_f64(const char *name, double value);
void tompion_tracy_message(const char *text, size_t size, uint32_t color);
void tompion_tracy_app_info(const char *text, size_t size);
void tompion_tracy_thread_name(const char *name); /* the calling thread's */
void tompion_tracy_alloc(const void *pointer, size_t size, const char *pool);
void tompion_tracy_free(const void *pointer, const char *pool);
void tompion_tracy_discard(const char *pool);
void tompion_tracy_fiber_enter(const char *name);
void tompion_tracy_fiber_leave(void);

/* Steps of a lock, which is known by its address, or by what `announce_lock` returned. */
enum tompion_tracy_step {
    tompion_tracy_WAIT,
    tompion_tracy_ACQUIRED,
    tompion_tracy_RELEASED,
    tompion_tracy_WAIT_SHARED,
    tompion_tracy_ACQUIRED_SHARED,
    tompion_tracy_RELEASED_SHARED
};
const void *tompion_tracy_announce_lock(const char *name);
void tompion_tracy_lock_named(const void *lock, const char *name, size_t size);
void tompion_tracy_lock(const void *lock, enum tompion_tracy_step step);

/* Whether something is recorded of the program. */
int tompion_tracy_is_recorded(void);

#define TOMPION_TRACY_INLINE static __inline__ __attribute__((__always_inline__, __unused__))

/* Begins a zone: two loads and two branches where it is not recorded. */
TOMPION_TRACY_INLINE struct tompion_tracy_zone tompion_tracy_zone_begin(struct tompion_tracy_source *source,
                                                                        int active)
{
    struct tompion_tracy_zone none = {0, 0, 0};
    /* Acquire: pairs with the release in `tompion_tracy_prepare`. */
    const uint32_t *enabled = __atomic_load_n(&source->enabled, __ATOMIC_ACQUIRE);
    if (!active)
        return none;
    if (__builtin_expect(!enabled, 0)) {
        tompion_tracy_prepare(source);
        enabled = source->enabled;
    }
    if (!enabled || __builtin_expect(__atomic_load_n(enabled, __ATOMIC_RELAXED) == 0, 1)) {
        none.active = 1;
        return none;
    }
    return tompion_tracy_begin(source);
}

TOMPION_TRACY_INLINE void tompion_tracy_zone_end(struct tompion_tracy_zone zone)
{
    if (__builtin_expect(zone.recordings != 0, 0))
        tompion_tracy_end(zone);
}

#ifdef __cplusplus
}
#endif

#ifndef TracyConcat
#define TracyConcat(x, y) TracyConcatIndirect(x, y)
#endif
#ifndef TracyConcatIndirect
#define TracyConcatIndirect(x, y) x##y
#endif
#ifndef TracyFile
#define TracyFile __FILE__
#endif
#ifndef TracyLine
#define TracyLine __LINE__
#endif

/* Defines a place of the source. */
#define TOMPION_TRACY_SOURCE(name, function, color)                                                   \
    static struct tompion_tracy_source TracyConcat(tompion_tracy_source_, TracyLine) = {              \
        name, function, TracyFile, (uint32_t)(TracyLine), color, 0, 0}
#define TOMPION_TRACY_THIS_SOURCE (&TracyConcat(tompion_tracy_source_, TracyLine))

#endif

/*
 * libtompion-tracy.so: what the headers in place of Tracy's (include/tracy) call.
 *
 *     c++ game.cpp $(pkg-config --cflags --libs tompion-tracy)
 *
 * docs/design/marks.md says what becomes of each mark.
 */
#define _GNU_SOURCE
#define MARKS_ORIGIN "Tracy"
#include <stdarg.h>

#include "../../../include/tracy/tracy/private/library.h"
#include "marks/named.h"

#pragma GCC visibility push(default)

static const struct shape_field color_fields[] = {{"color", tompion_priv_code_x32}};
static const struct shape_field i64_fields[] = {{"value", tompion_priv_code_i64}};
static const struct shape_field f64_fields[] = {{"value", tompion_priv_code_f64}};
static const struct shape_field transient_fields[] = {{"name", tompion_priv_code_strn}};

static const struct shape zone_shape = {tompion_priv_kind_BEGIN, 0, NULL, 0, NULL};
static const struct shape colored_zone_shape = {tompion_priv_kind_BEGIN, 0, color_fields, 1, NULL};
static const struct shape transient_shape = {tompion_priv_kind_BEGIN, 0, transient_fields, 1, NULL};
static const struct shape i64_shape = {tompion_priv_kind_COUNTER, 0, i64_fields, 1, NULL};
static const struct shape f64_shape = {tompion_priv_kind_COUNTER, 0, f64_fields, 1, NULL};

/* The provider of all of Tracy's marks, and the name of zones beyond the limit of names. */
static struct text *own_provider, *zone_name;

__attribute__((constructor(103))) static void make_own_texts(void)
{
    own_provider = own_text("tracy");
    zone_name = own_text("zone");
}

/* -- Zones -- */

void tompion_tracy_prepare(struct tompion_tracy_source *source)
{
    const char *name = source->name ? source->name : source->function;
    const struct named_event *event =
        event_of(own_provider, given_text(name), source->color ? &colored_zone_shape : &zone_shape);
    if (!event)
        return;
    source->event = event;
    /* Release: pairs with the acquire in `tompion_tracy_zone_begin`. */
    __atomic_store_n(&source->enabled, &event->site.enabled, __ATOMIC_RELEASE);
}

static struct tompion_tracy_zone begin_zone(const struct named_event *event, struct record *record)
{
    struct tompion_tracy_zone zone = {&event->end, 0, 1};
    zone.recordings = begin_record(&event->site, record);
    return zone;
}

struct tompion_tracy_zone tompion_tracy_begin(const struct tompion_tracy_source *source)
{
    const struct named_event *event = source->event;
    struct record record;
    record.size = record.tail_count = 0;
    if (event->shape == &colored_zone_shape)
        put_u32(&record, source->color);
    return begin_zone(event, &record);
}

struct tompion_tracy_zone tompion_tracy_begin_transient(const char *name, size_t size, uint32_t color)
{
    const struct text *text = text_of(name, size, MADE_UP);
    const struct shape *shape = !text ? &transient_shape : color ? &colored_zone_shape : &zone_shape;
    const struct named_event *event = event_of(own_provider, text ? text : zone_name, shape);
    const struct tompion_tracy_zone none = {NULL, 0, 1};
    struct record record;
    if (!event)
        event = event_of(own_provider, zone_name, shape = &transient_shape);
    if (!event || !is_wanted(&event->site))
        return none;
    record.size = record.tail_count = 0;
    if (shape == &transient_shape)
        put_elements(&record, name, size, 1);
    else if (color)
        put_u32(&record, color);
    return begin_zone(event, &record);
}

void tompion_tracy_end(struct tompion_tracy_zone zone)
{
    tompion_priv_finish(zone.end, zone.recordings);
}

void tompion_tracy_zone_text(const char *text, size_t size)
{
    TOMPION_EVENT(tracy, zone_text, (strn, text, text, size));
}
void tompion_tracy_zone_name(const char *name, size_t size)
{
    TOMPION_EVENT(tracy, zone_name, (strn, name, name, size));
}
void tompion_tracy_zone_value(uint64_t value)
{
    TOMPION_EVENT(tracy, zone_value, (u64, value, value));
}
void tompion_tracy_zone_color(uint32_t color)
{
    TOMPION_EVENT(tracy, zone_color, (x32, color, color));
}
void tompion_tracy_zone_format(int is_name, const char *format, va_list arguments)
{
    char text[1024];
    const int size = vsnprintf(text, sizeof text, format, arguments);
    const size_t written = size < 0 ? 0 : (size_t)size < sizeof text ? (size_t)size : sizeof text - 1;
    if (is_name)
        tompion_tracy_zone_name(text, written);
    else
        tompion_tracy_zone_text(text, written);
}

/* -- Frames -- */

void tompion_tracy_frame(const char *name)
{
    TOMPION_EVENT(tracy, frame, (str, name, name ? name : ""));
}

static const struct named_event *frame_of(const char *name)
{
    return event_of(own_provider, given_text(name ? name : "frame"), &zone_shape);
}
void tompion_tracy_frame_start(const char *name)
{
    const struct named_event *event = frame_of(name);
    struct record record;
    record.size = record.tail_count = 0;
    if (event && is_wanted(&event->site))
        append_record(&event->site, &record);
}
void tompion_tracy_frame_end(const char *name)
{
    const struct named_event *event = frame_of(name);
    struct record record;
    record.size = record.tail_count = 0;
    if (event && is_wanted(&event->end))
        append_record(&event->end, &record);
}

/* -- Plots, messages, memory -- */

static void plot(const char *name, const struct shape *shape, const void *value)
{
    const struct named_event *event = event_of(own_provider, given_text(name), shape);
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put(&record, value, sizeof(uint64_t));
    append_record(&event->site, &record);
}
void tompion_tracy_plot_i64(const char *name, int64_t value)
{
    plot(name, &i64_shape, &value);
}
void tompion_tracy_plot_f64(const char *name, double value)
{
    plot(name, &f64_shape, &value);
}
void tompion_tracy_message(const char *text, size_t size, uint32_t color)
{
    TOMPION_EVENT(tracy, message, (strn, text, text, size), (x32, color, color));
}
void tompion_tracy_app_info(const char *text, size_t size)
{
    TOMPION_EVENT_INIT(tracy, app_info, (strn, text, text, size));
}
void tompion_tracy_thread_name(const char *name)
{
    TOMPION_EVENT_INIT(tracy, thread_name, (str, name, name));
}
void tompion_tracy_alloc(const void *pointer, size_t size, const char *pool)
{
    TOMPION_EVENT(tracy, alloc, (x64, ptr, pointer), (u64, size, size), (str, pool, pool));
}
void tompion_tracy_free(const void *pointer, const char *pool)
{
    TOMPION_EVENT(tracy, free, (x64, ptr, pointer), (str, pool, pool));
}
void tompion_tracy_discard(const char *pool)
{
    TOMPION_EVENT(tracy, discard, (str, pool, pool));
}

/* -- Locks, fibers -- */

/* A number that no other lock of the process has: no address of user space has its highest bit. */
const void *tompion_tracy_announce_lock(const char *name)
{
    static uint64_t count;
    const uint64_t number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    const void *lock = (const void *)(uintptr_t)(number | UINT64_C(1) << 63);
    tompion_tracy_lock_named(lock, name, strlen(name));
    return lock;
}
void tompion_tracy_lock_named(const void *lock, const char *name, size_t size)
{
    TOMPION_EVENT_INIT(tracy, lock_name, (x64, lock, lock), (strn, name, name, size));
}
void tompion_tracy_lock(const void *lock, enum tompion_tracy_step step)
{
    switch (step) {
    case tompion_tracy_WAIT: TOMPION_EVENT(tracy, lock_wait, (x64, lock, lock)); break;
    case tompion_tracy_ACQUIRED: TOMPION_EVENT(tracy, lock_acquired, (x64, lock, lock)); break;
    case tompion_tracy_RELEASED: TOMPION_EVENT(tracy, lock_released, (x64, lock, lock)); break;
    case tompion_tracy_WAIT_SHARED: TOMPION_EVENT(tracy, lock_shared_wait, (x64, lock, lock)); break;
    case tompion_tracy_ACQUIRED_SHARED: TOMPION_EVENT(tracy, lock_shared_acquired, (x64, lock, lock)); break;
    case tompion_tracy_RELEASED_SHARED: TOMPION_EVENT(tracy, lock_shared_released, (x64, lock, lock)); break;
    }
}
void tompion_tracy_fiber_enter(const char *name)
{
    TOMPION_EVENT(tracy, fiber_enter, (str, name, name));
}
void tompion_tracy_fiber_leave(void)
{
    TOMPION_EVENT(tracy, fiber_leave);
}

int tompion_tracy_is_recorded(void)
{
    return TOMPION_EVENT_ENABLED(tracy, message) != 0;
}

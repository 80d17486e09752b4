/*
 * libtompion-itt.so: records the marks of programs that use Intel's Instrumentation and Tracing
 * Technology API (ittnotify).
 *
 *     INTEL_LIBITTNOTIFY64=/usr/lib/libtompion-itt.so ./program     (`tompion record --marks itt`)
 *
 * The static part of ittnotify, which programs are linked with, loads the library that the variable
 * names, and calls `__itt_api_init` with a list of its functions: each has a name, and a pointer
 * through which the program calls it. This file puts its own functions there. docs/design/marks.md
 * says what becomes of each mark.
 *
 * What is declared here is the interface of ittnotify 3 as its documentation and users show it.
 */
#define _GNU_SOURCE
#define MARKS_ORIGIN "ITT"
#include <time.h>

#include "itt/shapes.h"
#include "marks/thread.h"

/* -- Names -- */

/* Not 0 between the program's pause and resume: nothing new is recorded. */
static uint32_t is_paused;

/* A span that begins during a pause: only its end is to be found. */
static void open_unrecorded(const void *group)
{
    open_span(NULL, group, 0);
}

/* Whether there is something to do for a call. */
static inline int is_on(void)
{
    return !__atomic_load_n(&is_paused, __ATOMIC_RELAXED);
}

/* Texts that this library uses itself, made by the constructor. */
static struct text *own_domain, *frame_name, *function_name, *relation_name, *unnamed;

/* What a program gets beyond the limit of names: it may use a domain without looking. */
static struct itt_domain other_domain = {1, "itt", NULL, 0, NULL, NULL};
static struct itt_string other_string = {"unnamed", NULL, 0, NULL, NULL};

__attribute__((constructor(103))) static void make_own_texts(void)
{
    own_domain = own_text("itt");
    frame_name = own_text("frame");
    function_name = own_text("function");
    relation_name = own_text("relation");
    unnamed = own_text("unnamed");
    other_domain.extra2 = own_domain;
    other_string.extra2 = unnamed;
}

static const struct text *domain_text(const struct itt_domain *domain)
{
    const struct text *text;
    if (!domain)
        return own_domain;
    text = domain->extra2 ? domain->extra2 : given_text(domain->name);
    return text ? text : own_domain;
}

static const struct text *string_text(const struct itt_string *string)
{
    const struct text *text;
    if (!string)
        return unnamed;
    text = string->extra2 ? string->extra2 : given_text(string->text);
    return text ? text : unnamed;
}

static struct itt_domain *domain_create(const char *name)
{
    static struct itt_domain *domains;
    struct text *text = given_text(name);
    struct itt_domain *domain;
    sigset_t before;
    if (!name || !text)
        return name ? &other_domain : NULL;
    lock_names(&before);
    for (domain = domains; domain && domain->extra2 != text; domain = domain->next)
        ;
    if (!domain && (domain = take(sizeof *domain))) {
        domain->flags = 1;
        domain->name = text->bytes;
        domain->extra2 = text;
        domain->next = domains;
        domains = domain;
    }
    unlock_names(&before);
    return domain ? domain : &other_domain;
}

static struct itt_string *string_create(const char *name)
{
    static struct itt_string *strings[TEXT_PLACES];
    struct text *text = given_text(name);
    struct itt_string **place, *string;
    sigset_t before;
    if (!name || !text)
        return name ? &other_string : NULL;
    place = &strings[text->hash % TEXT_PLACES];
    lock_names(&before);
    for (string = *place; string && string->extra2 != text; string = string->next)
        ;
    if (!string && (string = take(sizeof *string))) {
        string->text = text->bytes;
        string->extra2 = text;
        string->next = *place;
        *place = string;
    }
    unlock_names(&before);
    return string ? string : &other_string;
}

/* -- Tasks -- */

static int is_null(struct itt_id id)
{
    return !id.d1 && !id.d2;
}

static void put_ids(struct record *to, struct itt_id id)
{
    put_u64(to, id.d1);
    put_u64(to, id.d2);
}

static void begin_task(const struct itt_domain *domain, const struct text *name, struct itt_id id, struct itt_id parent)
{
    const struct text *provider = domain_text(domain);
    const int has_ids = !is_null(id) || !is_null(parent);
    const struct named_event *event = event_of(provider, name, has_ids ? &task_id_shape : &task_shape);
    struct record record;
    record.size = record.tail_count = 0;
    if (!event) {
        open_unrecorded(provider);
        return;
    }
    if (has_ids && is_wanted(&event->site)) {
        put_ids(&record, id);
        put_ids(&record, parent);
    }
    begin_span(event, provider, &record);
}

static void task_begin(const struct itt_domain *domain, struct itt_id id, struct itt_id parent, struct itt_string *name)
{
    if (is_on())
        begin_task(domain, string_text(name), id, parent);
    else
        open_unrecorded(domain_text(domain));
}

static void task_begin_fn(const struct itt_domain *domain, struct itt_id id, struct itt_id parent, void *function)
{
    const struct text *provider = domain_text(domain);
    const struct named_event *event = is_on() ? event_of(provider, function_name, &function_shape) : NULL;
    struct record record;
    record.size = record.tail_count = 0;
    if (!event) {
        open_unrecorded(provider);
        return;
    }
    if (is_wanted(&event->site)) {
        put_u64(&record, (uintptr_t)function);
        put_ids(&record, id);
        put_ids(&record, parent);
    }
    begin_span(event, provider, &record);
}

static void task_end(const struct itt_domain *domain)
{
    close_innermost(domain_text(domain));
}

/* Times of the program's own clock are not taken: events have the time of the call. */
static void task_begin_ex(const struct itt_domain *domain, void *clock, unsigned long long time, struct itt_id id,
                          struct itt_id parent, struct itt_string *name)
{
    (void)clock, (void)time;
    task_begin(domain, id, parent, name);
}
static void task_begin_fn_ex(const struct itt_domain *domain, void *clock, unsigned long long time, struct itt_id id,
                             struct itt_id parent, void *function)
{
    (void)clock, (void)time;
    task_begin_fn(domain, id, parent, function);
}
static void task_end_ex(const struct itt_domain *domain, void *clock, unsigned long long time)
{
    (void)clock, (void)time;
    task_end(domain);
}

/* -- Tasks and regions that overlap -- */

/* Names of open ones by their ids: an id has some places, and takes a free one. */
enum { OPEN_PLACES = 8192, PLACES_OF_ID = 16 };
static struct open_flow {
    uint32_t state; /* 0: free; 1: is being written or read; 2: has an id */
    uint32_t event;
    unsigned long long d1, d2;
    const struct text *domain;
} open_flows[OPEN_PLACES];

static uint32_t flow_place(const struct text *domain, struct itt_id id)
{
    return (uint32_t)((id.d1 * 0x9e3779b97f4a7c15u ^ id.d2 * 0xc2b2ae3d27d4eb4fu ^ (uintptr_t)domain) >> 32) % OPEN_PLACES;
}

static void note_flow(const struct text *domain, struct itt_id id, uint32_t event)
{
    const uint32_t first = flow_place(domain, id);
    uint32_t i;
    for (i = 0; i < PLACES_OF_ID; ++i) {
        struct open_flow *place = &open_flows[(first + i) % OPEN_PLACES];
        uint32_t free = 0;
        /* Acquire: pairs with the release in `forget_flow`. */
        if (__atomic_compare_exchange_n(&place->state, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            place->event = event;
            place->d1 = id.d1;
            place->d2 = id.d2;
            place->domain = domain;
            /* Release: pairs with the acquire in `forget_flow`. */
            __atomic_store_n(&place->state, 2, __ATOMIC_RELEASE);
            return;
        }
    }
}

/* The event of an open flow, which is forgotten; NULL if it is not known. */
static const struct named_event *forget_flow(const struct text *domain, struct itt_id id)
{
    const uint32_t first = flow_place(domain, id);
    uint32_t i;
    for (i = 0; i < PLACES_OF_ID; ++i) {
        struct open_flow *place = &open_flows[(first + i) % OPEN_PLACES];
        uint32_t used = 2;
        int is_it;
        const struct named_event *event;
        /* Acquire: pairs with the release in `note_flow`. */
        if (!__atomic_compare_exchange_n(&place->state, &used, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        is_it = place->d1 == id.d1 && place->d2 == id.d2 && place->domain == domain;
        event = event_by_number[place->event];
        __atomic_store_n(&place->state, is_it ? 0 : 2, __ATOMIC_RELEASE);
        if (is_it)
            return event;
    }
    return NULL;
}

static void append_flow(const struct named_event *event, uint8_t step, struct itt_id id, struct itt_id parent)
{
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_step(&record, id.d1, step);
    put_u64(&record, id.d2);
    if (event->shape == &child_flow_shape)
        put_ids(&record, parent);
    append_record(&event->site, &record);
}

static void task_begin_overlapped(const struct itt_domain *domain, struct itt_id id, struct itt_id parent,
                                  struct itt_string *name)
{
    const struct text *provider = domain_text(domain);
    const struct shape *shape = is_null(parent) ? &flow_shape : &child_flow_shape;
    const struct named_event *event = is_on() ? event_of(provider, string_text(name), shape) : NULL;
    if (!event)
        return;
    note_flow(provider, id, event->number);
    append_flow(event, STEP_START, id, parent);
}

/* The end has no parent. */
static void task_end_overlapped(const struct itt_domain *domain, struct itt_id id)
{
    const struct named_event *start = forget_flow(domain_text(domain), id);
    if (start)
        append_flow(event_of(start->provider, start->name, &flow_shape), STEP_END, id, id);
}

static void task_begin_overlapped_ex(const struct itt_domain *domain, void *clock, unsigned long long time,
                                     struct itt_id id, struct itt_id parent, struct itt_string *name)
{
    (void)clock, (void)time;
    task_begin_overlapped(domain, id, parent, name);
}
static void task_end_overlapped_ex(const struct itt_domain *domain, void *clock, unsigned long long time, struct itt_id id)
{
    (void)clock, (void)time;
    task_end_overlapped(domain, id);
}

/* -- Frames -- */

static void begin_frame(const struct text *provider, const struct itt_id *id)
{
    static const struct itt_id none = {0, 0, 0};
    const struct named_event *event = is_on() ? event_of(provider, frame_name, id ? &task_id_shape : &task_shape) : NULL;
    struct record record;
    record.size = record.tail_count = 0;
    if (!event) {
        open_unrecorded(&provider->bytes);
        return;
    }
    if (id && is_wanted(&event->site)) {
        put_ids(&record, *id);
        put_ids(&record, none);
    }
    /* Frames are a group of their own: tasks within them end by themselves. */
    begin_span(event, &provider->bytes, &record);
}

static void frame_begin_v3(const struct itt_domain *domain, const struct itt_id *id)
{
    begin_frame(domain_text(domain), id);
}
static void end_frame(const struct text *provider)
{
    close_innermost(&provider->bytes);
}
static void frame_end_v3(const struct itt_domain *domain, const struct itt_id *id)
{
    (void)id;
    end_frame(domain_text(domain));
}

static unsigned long long get_timestamp(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

/* A frame that is over: its times are those of `__itt_get_timestamp`. */
static void frame_submit_v3(const struct itt_domain *domain, const struct itt_id *id, unsigned long long begin,
                            unsigned long long end)
{
    static const struct itt_id none = {0, 0, 0};
    const struct named_event *event = is_on() ? event_of(domain_text(domain), frame_name, &submitted_shape) : NULL;
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_ids(&record, id ? *id : none);
    put_u64(&record, begin);
    put_u64(&record, end == (unsigned long long)-1 ? get_timestamp() : end);
    append_record(&event->site, &record);
}

/* Frames of before have a domain by its name alone. */
static void *frame_create(const char *domain)
{
    return given_text(domain);
}
static void frame_begin(void *frame)
{
    if (frame)
        begin_frame(frame, NULL);
}
static void frame_end(void *frame)
{
    if (frame)
        end_frame(frame);
}

#include "itt/counters.h"

/* -- Markers and metadata -- */

static void marker(const struct itt_domain *domain, struct itt_id id, struct itt_string *name, int scope)
{
    const struct named_event *event = is_on() ? event_of(domain_text(domain), string_text(name), &marker_shape) : NULL;
    const uint8_t byte = (uint8_t)scope;
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_ids(&record, id);
    put(&record, &byte, 1);
    append_record(&event->site, &record);
}
static void marker_ex(const struct itt_domain *domain, void *clock, unsigned long long time, struct itt_id id,
                      struct itt_string *name, int scope)
{
    (void)clock, (void)time;
    marker(domain, id, name, scope);
}

static const struct shape *scalar_shape(int type)
{
    switch (type) {
    case ITT_U64:
    case ITT_U32:
    case ITT_U16: return &metadata_u64_shape;
    case ITT_S64:
    case ITT_S32:
    case ITT_S16: return &metadata_i64_shape;
    case ITT_FLOAT:
    case ITT_DOUBLE: return &metadata_f64_shape;
    default: return NULL;
    }
}

static void add_scalar(const struct named_event *event, struct itt_id id, uint64_t value)
{
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_ids(&record, id);
    put_u64(&record, value);
    append_record(&event->site, &record);
}

/* Values: integers as one event; several floating-point numbers as one event each. */
static void metadata_add(const struct itt_domain *domain, struct itt_id id, struct itt_string *key, int type,
                         size_t count, void *data)
{
    static const uint8_t sizes[] = {0, 8, 8, 4, 4, 2, 2};
    const struct text *provider = domain_text(domain), *name = string_text(key);
    const struct named_event *event;
    struct record record;
    size_t i;
    if (!is_on() || !data || !scalar_shape(type))
        return;
    if (count == 1 || type >= ITT_FLOAT) {
        event = event_of(provider, name, scalar_shape(type));
        for (i = 0; i < count; ++i)
            add_scalar(event, id, value_bits(type, data, i));
        return;
    }
    event = event_of(provider, name, &metadata_sequence_shapes[type - ITT_U64]);
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_ids(&record, id);
    put_elements(&record, data, count, sizes[type]);
    append_record(&event->site, &record);
}

static void metadata_str_add(const struct itt_domain *domain, struct itt_id id, struct itt_string *key,
                             const char *data, size_t length)
{
    const struct named_event *event =
        is_on() ? event_of(domain_text(domain), string_text(key), &metadata_text_shape) : NULL;
    struct record record;
    if (!event || !is_wanted(&event->site) || !data)
        return;
    record.size = record.tail_count = 0;
    put_ids(&record, id);
    put_elements(&record, data, length ? strnlen(data, length) : strlen(data), 1);
    append_record(&event->site, &record);
}

/* Of a scope rather than of an id. */
static void metadata_add_with_scope(const struct itt_domain *domain, int scope, struct itt_string *key, int type,
                                    size_t count, void *data)
{
    static const struct itt_id none = {0, 0, 0};
    (void)scope;
    metadata_add(domain, none, key, type, count, data);
}
static void metadata_str_add_with_scope(const struct itt_domain *domain, int scope, struct itt_string *key,
                                        const char *data, size_t length)
{
    static const struct itt_id none = {0, 0, 0};
    (void)scope;
    metadata_str_add(domain, none, key, data, length);
}

/* -- Relations -- */

static const struct shape_field relation_fields[] = {
    {"relation", tompion_priv_code_u32}, {"head", tompion_priv_code_x64}, {"tail", tompion_priv_code_x64}};
static const struct shape relation_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(relation_fields), NULL};

static void relation_add(const struct itt_domain *domain, struct itt_id head, int relation, struct itt_id tail)
{
    const struct named_event *event = is_on() ? event_of(domain_text(domain), relation_name, &relation_shape) : NULL;
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_u32(&record, (uint32_t)relation);
    put_u64(&record, head.d1);
    put_u64(&record, tail.d1);
    append_record(&event->site, &record);
}
static void relation_add_to_current(const struct itt_domain *domain, int relation, struct itt_id tail)
{
    static const struct itt_id none = {0, 0, 0};
    relation_add(domain, none, relation, tail);
}

/* -- Events and marks of before, which have no domain -- */

static int event_create(const char *name, int size)
{
    const struct text *text = name ? text_of(name, size > 0 ? strnlen(name, (size_t)size) : strlen(name), GIVEN) : NULL;
    const struct named_event *event = event_of(own_domain, text, &task_shape);
    return event ? (int)event->number + 1 : 0;
}
static const struct named_event *event_numbered(int number, const struct shape *shape)
{
    const struct named_event *event = number > 0 && (uint32_t)number <= __atomic_load_n(&named_count, __ATOMIC_ACQUIRE) ? event_by_number[number - 1] : NULL;
    return event && event->shape == shape ? event : NULL;
}
static int event_start(int number)
{
    const struct named_event *event = event_numbered(number, &task_shape);
    struct record record;
    record.size = record.tail_count = 0;
    if (event && is_on())
        begin_span(event, event, &record);
    else if (event)
        open_unrecorded(event);
    return event ? 0 : -1;
}
static int event_end(int number)
{
    const struct named_event *event = event_numbered(number, &task_shape);
    return event && close_innermost(event) ? 0 : -1;
}

static int mark_create(const char *name)
{
    const struct named_event *event = name ? event_of(own_domain, given_text(name), &text_shape) : NULL;
    return event ? (int)event->number + 1 : 0;
}
static int mark(int number, const char *text)
{
    const struct named_event *event = event_numbered(number, &text_shape);
    struct record record;
    if (event && is_on() && is_wanted(&event->site)) {
        record.size = record.tail_count = 0;
        put_text(&record, text ? text : "");
        append_record(&event->site, &record);
    }
    return event ? 0 : -1;
}
static int mark_off(int number)
{
    return event_numbered(number, &text_shape) ? 0 : -1;
}

/* -- Threads, synchronization, collection: events that are known beforehand -- */

static void thread_set_name(const char *name)
{
    TOMPION_EVENT_INIT(itt, thread_name, (str, name, name));
}
static int thr_name_set(const char *name, int size)
{
    TOMPION_EVENT_INIT(itt, thread_name, (strn, name, name, (size_t)(size > 0 ? size : 0)));
    return 0;
}

static void sync_create(void *address, const char *type, const char *name, int attribute)
{
    (void)attribute;
    if (is_on())
        TOMPION_EVENT_INIT(itt, sync_create, (x64, object, address), (str, type, type), (str, name, name));
}
static void sync_rename(void *address, const char *name)
{
    if (is_on())
        TOMPION_EVENT_INIT(itt, sync_rename, (x64, object, address), (str, name, name));
}
#define SYNC(verb)                                                \
    static void sync_##verb(void *address)                        \
    {                                                             \
        if (is_on())                                              \
            TOMPION_EVENT(itt, sync_##verb, (x64, object, address)); \
    }
SYNC(destroy)
SYNC(prepare)
SYNC(cancel)
SYNC(acquired)
SYNC(releasing)

static void pause_marks(void)
{
    TOMPION_EVENT(itt, pause);
    __atomic_store_n(&is_paused, 1, __ATOMIC_RELAXED);
}
static void resume_marks(void)
{
    __atomic_store_n(&is_paused, 0, __ATOMIC_RELAXED);
    TOMPION_EVENT(itt, resume);
}
static void pause_scoped(int scope)
{
    (void)scope;
    pause_marks();
}
static void resume_scoped(int scope)
{
    (void)scope;
    resume_marks();
}

/* -- Memory -- */

static void *heap_function_create(const char *name, const char *domain)
{
    return event_of(domain ? given_text(domain) : own_domain, given_text(name), &instant_shape);
}
static const char *heap_name(const void *function)
{
    return function ? ((const struct named_event *)function)->name->bytes : "";
}
static void heap_allocate_end(void *function, void **address, size_t size, int is_initialized)
{
    (void)is_initialized;
    if (is_on())
        TOMPION_EVENT(itt, heap_allocate, (x64, ptr, address ? *address : NULL), (u64, size, size),
                      (str, function, heap_name(function)));
}
static void heap_free_begin(void *function, void *address)
{
    if (is_on())
        TOMPION_EVENT(itt, heap_free, (x64, ptr, address), (str, function, heap_name(function)));
}
static void heap_reallocate_end(void *function, void *address, void **result, size_t size, int is_initialized)
{
    (void)is_initialized;
    if (is_on())
        TOMPION_EVENT(itt, heap_reallocate, (x64, in_ptr, address), (u64, size, size),
                      (x64, ptr, result ? *result : NULL), (str, function, heap_name(function)));
}

/* -- The list of functions -- */

static const char *api_version(void)
{
    return "Tompion";
}

/* The pages of the manual say `__itt_NAME`; the list says so as well. */
#define NAMED(name) {"__itt_" #name, (void *)name}
static const struct {
    const char *name;
    void *function;
} functions[] = {
    NAMED(domain_create), NAMED(task_begin), NAMED(task_begin_fn), NAMED(task_end), NAMED(task_begin_ex),
    NAMED(task_begin_fn_ex), NAMED(task_end_ex), NAMED(task_begin_overlapped), NAMED(task_begin_overlapped_ex),
    NAMED(task_end_overlapped), NAMED(task_end_overlapped_ex), NAMED(frame_begin_v3), NAMED(frame_end_v3),
    NAMED(frame_submit_v3), NAMED(frame_create), NAMED(frame_begin), NAMED(frame_end), NAMED(get_timestamp),
    NAMED(counter_create), NAMED(counter_create_typed), NAMED(counter_create_v3), NAMED(counter_destroy),
    NAMED(counter_inc), NAMED(counter_inc_delta), NAMED(counter_dec), NAMED(counter_dec_delta), NAMED(counter_inc_v3),
    NAMED(counter_inc_delta_v3), NAMED(counter_dec_v3), NAMED(counter_dec_delta_v3), NAMED(counter_set_value),
    NAMED(counter_set_value_ex), NAMED(marker), NAMED(marker_ex), NAMED(metadata_add), NAMED(metadata_str_add),
    NAMED(metadata_add_with_scope), NAMED(metadata_str_add_with_scope), NAMED(relation_add),
    NAMED(relation_add_to_current), NAMED(event_create), NAMED(event_start), NAMED(event_end), NAMED(mark_create),
    NAMED(mark), NAMED(mark_off), NAMED(thread_set_name), NAMED(thr_name_set), NAMED(sync_create), NAMED(sync_rename),
    NAMED(sync_destroy), NAMED(sync_prepare), NAMED(sync_cancel), NAMED(sync_acquired), NAMED(sync_releasing),
    NAMED(pause_scoped), NAMED(resume_scoped), NAMED(heap_function_create), NAMED(heap_allocate_end),
    NAMED(heap_free_begin), NAMED(heap_reallocate_end), NAMED(api_version),
    {"__itt_string_handle_create", (void *)string_create}, {"__itt_pause", (void *)pause_marks},
    {"__itt_resume", (void *)resume_marks}, {"__itt_detach", (void *)pause_marks},
    {"__itt_region_begin", (void *)task_begin_overlapped}, {"__itt_region_end", (void *)task_end_overlapped},
    {"__itt_mark_global", (void *)mark}, {"__itt_mark_global_off", (void *)mark_off},
    {"__itt_counter_set_value_v3", (void *)counter_set_value},
    {"__itt_notify_sync_prepare", (void *)sync_prepare}, {"__itt_notify_sync_cancel", (void *)sync_cancel},
    {"__itt_notify_sync_acquired", (void *)sync_acquired}, {"__itt_notify_sync_releasing", (void *)sync_releasing},
};

static void *function_named(const char *name)
{
    size_t i;
    for (i = 0; i < sizeof functions / sizeof *functions; ++i) {
        if (!strcmp(functions[i].name, name))
            return functions[i].function;
    }
    return NULL;
}

/* What the static part calls. What this library does not have stays without effect. */
EXPORT void __itt_api_init(struct itt_global *global, int groups);
void __itt_api_init(struct itt_global *global, int groups)
{
    struct itt_function *function;
    if (!global)
        return;
    if (memcmp(global->magic, itt_magic, sizeof itt_magic) != 0 || global->major != 3 || global->build < FIRST_BUILD) {
        if (secure_getenv("TOMPION_DEBUG"))
            fprintf(stderr, "tompion: ITT marks are not recorded: expected ittnotify 3 of build %d or later, "
                            "found %lu of build %lu\n", FIRST_BUILD, global->major, global->build);
        return;
    }
    for (function = global->functions; function && function->name; ++function) {
        void *own = function->groups & groups ? function_named(function->name) : NULL;
        if (function->pointer)
            __atomic_store_n(function->pointer, own ? own : function->absent, __ATOMIC_RELEASE);
    }
}

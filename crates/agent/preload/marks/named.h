/*
 * Events that get their names while the program runs: those of other tracers' marks.
 *
 *     provider, name (texts that are there once), shape (fields and kind)
 *        └─► struct named_event: site of the event or of a begin, site of the end
 *
 * The first use of a name makes the event: that takes a lock, memory, and the agent's lock. Each
 * later use is a look-up in a table without a lock, since entries stay as they are for ever. What
 * is recorded of an event is put together on the stack and goes to the ring by one append.
 *
 * Names are the program's. Their number and their bytes have limits, so that a program that makes
 * up names for ever is no leak; a caller then may have an event that takes the name as a field.
 * Beyond a limit, an unseen name costs a look-up and no lock.
 *
 * A library defines MARKS_ORIGIN first: the tracer that the marks are made for. `tompion list`
 * shows it.
 */
#ifndef TOMPION_MARKS_NAMED_H
#define TOMPION_MARKS_NAMED_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <tompion/tompion.h>

#include "../arena.h"

#define EXPORT __attribute__((visibility("default")))

/* -- Shapes -- */

/* A field: its name and what a description says of its type (tompion_priv_code_…). */
struct shape_field {
    const char *name;
    int code;
};
enum { MAX_SHAPE_FIELDS = 12 };

/* What events of different names have in common. Shapes are known by their address. */
struct shape {
    uint8_t kind; /* tompion_priv_kind_…; a begin gets an end without fields */
    uint8_t is_initial;
    const struct shape_field *fields;
    unsigned field_count;
    const void *const *enums; /* of enum fields, in their order; or NULL */
};

/* -- Texts -- */

/* A text that is there once. */
struct text {
    struct text *next;
    uint32_t hash, size;
    uint32_t is_own; /* the library's, rather than the program's */
    char bytes[];    /* with a NUL */
};

/* An event of a name. */
struct named_event {
    struct named_event *next;
    const struct text *provider, *name;
    const struct shape *shape;
    uint32_t number;
    struct tompion_site site, end;
    struct tompion_site *sites[2];
    struct tompion_module module;
};

enum { TEXT_PLACES = 4096, EVENT_PLACES = 8192, MAX_TEXT = 4096, MAX_NAMED_EVENTS = 32768 };

/* The most names that come from texts which a program may make up as it goes, the most that it
 * registers, and the most bytes of all of them. */
enum { MAX_MADE_UP = 8192, MAX_GIVEN = 65536, MAX_TEXT_BYTES = 32 << 20 };

/* Events that are left for the library's own names. */
enum { OWN_EVENTS = 512 };

static struct text *texts[TEXT_PLACES];
static uint32_t given_count, text_bytes;
static struct named_event *named_events[EVENT_PLACES];
static struct named_event *event_by_number[MAX_NAMED_EVENTS];
static uint32_t named_count, made_up_count;

/* Guards what makes texts and events. Signals are blocked meanwhile, so that no handler waits for
 * its own thread. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

static void lock_names(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
    pthread_mutex_lock(&naming);
}

static void unlock_names(const sigset_t *before)
{
    pthread_mutex_unlock(&naming);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static void names_before_fork(void)
{
    pthread_mutex_lock(&naming);
}
static void names_after_fork(void)
{
    pthread_mutex_unlock(&naming);
}
__attribute__((constructor(102))) static void names_follow_forks(void)
{
    pthread_atfork(names_before_fork, names_after_fork, names_after_fork);
}

static uint32_t hash_of(const char *bytes, size_t size)
{
    uint32_t hash = 2166136261u;
    size_t i;
    for (i = 0; i < size; ++i)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash;
}

static struct text *look_for_text(const char *bytes, size_t size, uint32_t hash)
{
    /* Acquire: pairs with the release in `make_text`: a thread that sees a text sees its bytes. */
    struct text *text = __atomic_load_n(&texts[hash % TEXT_PLACES], __ATOMIC_ACQUIRE);
    for (; text; text = text->next) {
        if (text->hash == hash && text->size == size && !memcmp(text->bytes, bytes, size))
            return text;
    }
    return NULL;
}

/* Where a text comes from. */
enum text_source { MADE_UP, GIVEN, OWN };

/* Whether one more text may be made. Relaxed: the counts only grow, and guard nothing else. A
 * thread that sees an old one takes the lock, and looks again. */
static int has_room_for_text(enum text_source source)
{
    const uint32_t *count = source == MADE_UP ? &made_up_count : &given_count;
    const uint32_t limit = source == MADE_UP ? MAX_MADE_UP : MAX_GIVEN;
    return source == OWN || (__atomic_load_n(count, __ATOMIC_RELAXED) < limit &&
                             __atomic_load_n(&text_bytes, __ATOMIC_RELAXED) < MAX_TEXT_BYTES);
}

static void count_text(enum text_source source, size_t size)
{
    uint32_t *count = source == MADE_UP ? &made_up_count : &given_count;
    if (source == OWN)
        return;
    /* Relaxed: see `has_room_for_text`. */
    __atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&text_bytes, text_bytes + (uint32_t)size, __ATOMIC_RELAXED);
}

static struct text *make_text(const char *bytes, size_t size, uint32_t hash, enum text_source source)
{
    struct text *text = look_for_text(bytes, size, hash);
    if (text || !has_room_for_text(source))
        return text;
    text = take(sizeof *text + size + 1);
    if (!text)
        return NULL;
    text->is_own = source == OWN;
    text->hash = hash;
    text->size = (uint32_t)size;
    memcpy(text->bytes, bytes, size);
    text->next = texts[hash % TEXT_PLACES];
    count_text(source, sizeof *text + size + 1);
    /* Release: pairs with the load in `look_for_text`. */
    __atomic_store_n(&texts[hash % TEXT_PLACES], text, __ATOMIC_RELEASE);
    return text;
}

/* The one text with these bytes. NULL if there is no memory, or if there are too many texts. */
static struct text *text_of(const char *bytes, size_t size, enum text_source source)
{
    const uint32_t hash = hash_of(bytes, size > MAX_TEXT ? size = MAX_TEXT : size);
    struct text *text = look_for_text(bytes, size, hash);
    if (!text && has_room_for_text(source)) {
        const int error = errno;
        sigset_t before;
        lock_names(&before);
        text = make_text(bytes, size, hash, source);
        unlock_names(&before);
        errno = error;
    }
    return text;
}

static struct text *given_text(const char *name)
{
    return text_of(name ? name : "(null)", name ? strlen(name) : 6, GIVEN);
}

/* A text of the library's own, which the limits do not concern. */
static struct text *own_text(const char *name)
{
    return text_of(name, strlen(name), OWN);
}

/* -- Descriptions -- */

/* The most bytes of a name in a description, `_begin` not among them. */
enum { MAX_DESCRIBED_NAME = 240 };

/* The number of bytes of the UTF-8 character that begins here; 0 if there is none. */
static size_t character_size(const unsigned char *at, size_t left)
{
    const size_t size = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
    size_t i;
    if (size > left)
        return 0;
    for (i = 1; i < size; ++i) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    if (size == 3 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f)))
        return 0;
    if (size == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)))
        return 0;
    return size;
}

/*
 * A name as descriptions take it: text without control characters, neither empty nor too long. In a
 * provider's, `:` becomes `.`, since rules split names there. Returns the size without the NUL.
 */
static size_t tidy_name(char *to, const struct text *from, int is_provider)
{
    const unsigned char *bytes = (const unsigned char *)from->bytes;
    size_t size = 0, at = 0;
    while (at < from->size) {
        const size_t step = character_size(bytes + at, from->size - at);
        const int is_control = bytes[at] < 0x20 || bytes[at] == 0x7f || (bytes[at] == 0xc2 && bytes[at + 1] < 0xa0);
        if (size + 4 > MAX_DESCRIBED_NAME)
            break;
        if (step == 0 || is_control)
            to[size++] = '?';
        else if (is_provider && bytes[at] == ':')
            to[size++] = '.';
        else
            memcpy(to + size, bytes + at, step), size += step;
        at += step ? step : 1;
    }
    if (size == 0)
        to[size++] = '?';
    to[size] = 0;
    return size;
}

enum { ATTRIBUTE_ORIGIN = 3 };

/* The description of an event; NULL without memory. */
static const void *describe_event(const struct named_event *of, uint8_t kind, const char *suffix)
{
    char provider[MAX_DESCRIBED_NAME + 16], name[MAX_DESCRIBED_NAME + 16];
    const int has_fields = kind != tompion_priv_kind_END;
    struct tompion_priv_event_head head = {TOMPION_PRIV_EVENT_MAGIC, 0, 1, kind, tompion_priv_level_DEBUG_LINE,
                                           of->shape->is_initial ? tompion_priv_flag_INIT : tompion_priv_flag_USUAL,
                                           has_fields ? (uint16_t)of->shape->field_count : 0, 0, 0};
    const struct tompion_priv_attribute_head attribute = {(uint16_t)(sizeof attribute + sizeof MARKS_ORIGIN),
                                                          ATTRIBUTE_ORIGIN};
    struct bytes bytes = {0};
    unsigned i;
    head.provider_size = (uint16_t)(tidy_name(provider, of->provider, 1) + 1);
    head.name_size = (uint16_t)(tidy_name(name, of->name, 0) + strlen(suffix) + 1);
    strcat(name, suffix);
    append(&bytes, &head, sizeof head);
    append_name(&bytes, provider);
    append_name(&bytes, name);
    for (i = 0; has_fields && i < of->shape->field_count; ++i) {
        const struct shape_field *field = &of->shape->fields[i];
        const size_t size = strlen(field->name) + 1;
        const struct tompion_priv_field_head field_head = {
            (uint16_t)(sizeof field_head + size), (uint8_t)field->code, (uint8_t)(field->code >> 16), 0,
            (uint16_t)(field->code >> 8 & 255), (uint16_t)size};
        append(&bytes, &field_head, sizeof field_head);
        append_name(&bytes, field->name);
    }
    append(&bytes, &attribute, sizeof attribute);
    append_name(&bytes, MARKS_ORIGIN);
    set_size(&bytes, 0);
    return bytes.failed ? NULL : bytes.at;
}

/* -- Events -- */

static uint32_t event_place(const struct text *provider, const struct text *name, const struct shape *shape)
{
    const uint64_t mixed = ((uintptr_t)provider >> 4) * 0x9e3779b97f4a7c15u ^ ((uintptr_t)name >> 4) * 0xc2b2ae3d27d4eb4fu ^
                           ((uintptr_t)shape >> 4) * 0x165667b19e3779f9u;
    return (uint32_t)(mixed >> 40) % EVENT_PLACES;
}

static struct named_event *look_for_event(const struct text *provider, const struct text *name,
                                          const struct shape *shape, uint32_t place)
{
    /* Acquire: pairs with the release in `make_event`: a thread that sees it sees its sites. */
    struct named_event *event = __atomic_load_n(&named_events[place], __ATOMIC_ACQUIRE);
    for (; event; event = event->next) {
        if (event->name == name && event->provider == provider && event->shape == shape)
            return event;
    }
    return NULL;
}

/* Whether one more event may be made. Relaxed: as in `has_room_for_text`. */
static int has_room_for_event(const struct text *provider, const struct text *name)
{
    const uint32_t limit = provider->is_own && name->is_own ? MAX_NAMED_EVENTS : MAX_NAMED_EVENTS - OWN_EVENTS;
    return __atomic_load_n(&named_count, __ATOMIC_RELAXED) < limit;
}

/* Makes an event, and has the agent know it: then recordings that want it have it at once. */
static struct named_event *make_event(const struct text *provider, const struct text *name,
                                      const struct shape *shape, uint32_t place)
{
    const int is_span = shape->kind == tompion_priv_kind_BEGIN;
    struct named_event *made = look_for_event(provider, name, shape, place);
    if (made || !has_room_for_event(provider, name))
        return made;
    made = take(sizeof *made);
    if (!made)
        return NULL;
    made->provider = provider;
    made->name = name;
    made->shape = shape;
    made->number = named_count;
    made->site.description = describe_event(made, shape->kind, is_span ? "_begin" : "");
    made->site.enums = shape->enums;
    made->end.description = is_span ? describe_event(made, tompion_priv_kind_END, "_end") : NULL;
    if (!made->site.description || (is_span && !made->end.description))
        return NULL;
    made->sites[0] = &made->site;
    made->sites[1] = &made->end;
    made->module.abi = TOMPION_ABI;
    made->module.registered = 1;
    made->module.flags = TOMPION_ANONYMOUS;
    made->module.sites_begin = made->sites;
    made->module.sites_end = made->sites + 1 + is_span;
    if (tompion_priv_agent)
        tompion_priv_agent(&made->module, TOMPION_LOAD);
    event_by_number[named_count] = made;
    /* Release: pairs with the load where the program gives a number. */
    __atomic_store_n(&named_count, named_count + 1, __ATOMIC_RELEASE);
    made->next = named_events[place];
    /* Release: pairs with the load in `look_for_event`. */
    __atomic_store_n(&named_events[place], made, __ATOMIC_RELEASE);
    return made;
}

/* The event of this name and shape; NULL if there is none and none can be made. */
static struct named_event *event_of(const struct text *provider, const struct text *name,
                                    const struct shape *shape)
{
    uint32_t place;
    struct named_event *event;
    if (!provider || !name)
        return NULL;
    place = event_place(provider, name, shape);
    event = look_for_event(provider, name, shape, place);
    if (!event && has_room_for_event(provider, name)) {
        const int error = errno;
        sigset_t before;
        lock_names(&before);
        event = make_event(provider, name, shape, place);
        unlock_names(&before);
        errno = error;
    }
    return event;
}

/* -- Records -- */

/* A record in the making. */
struct record {
    uint64_t image[2 * MAX_SHAPE_FIELDS];
    struct tompion_tail tails[MAX_SHAPE_FIELDS];
    size_t size, tail_count;
};

static inline int is_wanted(const struct tompion_site *site)
{
    return __builtin_expect(tompion_priv_takers(site) != 0, 0);
}

static inline void put(struct record *to, const void *value, size_t size)
{
    memcpy((unsigned char *)to->image + to->size, value, size);
    to->size += size;
}
static inline void put_u64(struct record *to, uint64_t value)
{
    put(to, &value, sizeof value);
}
static inline void put_u32(struct record *to, uint32_t value)
{
    put(to, &value, sizeof value);
}
static inline void put_f64(struct record *to, double value)
{
    put(to, &value, sizeof value);
}
static inline void put_elements(struct record *to, const void *data, size_t count, size_t element)
{
    put_u32(to, tompion_priv_elements(&to->tails[to->tail_count], data, count, element));
    ++to->tail_count;
}
static inline void put_text(struct record *to, const char *text)
{
    put_elements(to, text ? text : "(null)", text ? strlen(text) : 6, 1);
}

/* Bytes behind the fixed part, up to the next multiple of 8, are zero. */
static inline void close_image(struct record *of)
{
    memset((unsigned char *)of->image + of->size, 0, 8);
}

static inline void append_record(const struct tompion_site *site, struct record *record)
{
    close_image(record);
    tompion_priv_append(site, record->image, record->size, record->tails, record->tail_count);
}

/* Records the begin of a span. Returns the recordings that have it. */
static inline uint32_t begin_record(const struct tompion_site *site, struct record *record)
{
    close_image(record);
    return tompion_priv_begin(site, record->image, record->size, record->tails, record->tail_count);
}

#endif

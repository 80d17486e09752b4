/*
 * The writes of a probe become one record. A probe of LTTng's writes field by field; Tompion takes
 * all of it in one append. So the writes are copied to a place of the thread's, which is also what
 * LTTng promises: the sources may be gone when the next field is written.
 */
#ifndef LTTNG_UST_RECORD_H
#define LTTNG_UST_RECORD_H

#include "describe.h"

/* A registered event: all that its probe looks at, and what it is for Tompion. */
struct registered {
    struct lttng_common common;
    struct lttng_recorder recorder;
    struct lttng_channel channel;
    struct lttng_probe probes[2]; /* what tracepoints call: the provider's probe, and the end */
    struct tompion_provided provided;
    struct described described;
    const char *provider_name, *event_name;
    const void *fields; /* of the class, as the provider has them */
    struct registered *next; /* of the same place in the table of names */
};

/*
 * Places in which records are put together. A thread takes the one that it had last, or the next
 * that is free; a signal handler that records meanwhile takes another one. So nothing waits.
 */
enum { PLACES = 256, PLACE_SIZE = 96 * 1024 };
struct place {
    uint32_t is_taken;
    uint32_t step, tail;             /* the next ones */
    size_t image_used, payload_used; /* bytes */
    uint64_t length;                 /* of the sequence whose length was written last */
    struct registered *event;
    unsigned char *image, *payload;
    struct tompion_tail *tails;
    uint32_t is_refused; /* the writes are not those of the description */
    uint64_t bytes[PLACE_SIZE / 8];
};
static struct place places[PLACES];
static _Thread_local uint32_t last_place __attribute__((tls_model("initial-exec"))); /* 0: none */

/*
 * Has the library count a record lost that found no place, or was not as described: as one that is
 * too large. There is no other way to say it.
 */
static void count_lost(const struct registered *event)
{
    static const uint64_t image[MAX_FIELDS + 1];
    const struct tompion_tail tail = {image, (size_t)1 << 31};
    tompion_priv_append(&event->provided.site, image, event->described.image_size, &tail, 1);
}

static struct place *take_place(void)
{
    /* Threads begin at places of their own. */
    const uint32_t first = last_place ? last_place - 1 : (uint32_t)((uintptr_t)&last_place >> 12);
    uint32_t i;
    for (i = 0; i < PLACES; ++i) {
        const uint32_t index = (first + i) % PLACES;
        uint32_t free = 0;
        /* Acquire: pairs with the release in `commit`; what the thread before left is written. */
        if (__atomic_compare_exchange_n(&places[index].is_taken, &free, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            last_place = index + 1;
            return &places[index];
        }
    }
    return NULL;
}

static int reserve(struct lttng_context *context)
{
    struct registered *event = context->recorder->private_;
    struct place *place;
    size_t image_room, tails_room;
    if (!__atomic_load_n(&event->provided.site.enabled, __ATOMIC_RELAXED))
        return -1;
    place = take_place();
    if (!place) {
        count_lost(event);
        return -1;
    }
    image_room = (event->described.image_size + 7) / 8 * 8 + 8;
    tails_room = (event->described.tail_count + 1) * sizeof(struct tompion_tail);
    place->event = event;
    place->step = place->tail = 0;
    place->image_used = place->payload_used = 0;
    place->is_refused = 0;
    place->image = (unsigned char *)place->bytes;
    place->tails = (struct tompion_tail *)(place->image + image_room);
    place->payload = place->image + image_room + tails_room;
    memset(place->image + event->described.image_size / 8 * 8, 0, 8);
    context->private_ = place;
    return 0;
}

static void put(struct place *to, const void *value, size_t size)
{
    if (to->image_used + size > to->event->described.image_size) {
        to->is_refused = 1;
        return;
    }
    memcpy(to->image + to->image_used, value, size);
    to->image_used += size;
}

static void put_length(struct place *to, size_t length)
{
    const uint32_t word = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
    put(to, &word, sizeof word);
}

/* Adds a tail. One without room is told by its size alone: the library counts the record lost. */
static void put_tail(struct place *to, const void *data, size_t size)
{
    struct tompion_tail *tail = &to->tails[to->tail];
    const size_t room = (size_t)((unsigned char *)(to->bytes + PLACE_SIZE / 8) - to->payload);
    if (to->tail == to->event->described.tail_count) {
        to->is_refused = 1;
        return;
    }
    ++to->tail;
    tail->data = to->payload + to->payload_used;
    tail->size = size;
    if (size > room - to->payload_used) {
        tail->data = data; /* is not read: a place has more room than the largest record */
        return;
    }
    memcpy(to->payload + to->payload_used, data, size);
    to->payload_used += size;
}

static const struct step *next_step(struct place *of)
{
    static const struct step none = {STEP_VALUE, 0, 0};
    const struct described *described = &of->event->described;
    if (of->step == described->step_count) {
        of->is_refused = 1;
        return &none;
    }
    return &described->steps[of->step++];
}

static void put_text(struct place *to, const char *text, size_t room)
{
    const char *end = memchr(text, 0, room);
    const size_t size = end ? (size_t)(end - text) : room;
    put_length(to, size);
    put_tail(to, text, size);
}

/* A number of so many bytes, in the machine's order. */
static uint64_t number(const void *source, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, source, size < sizeof value ? size : sizeof value);
    return value;
}

static void write_(struct lttng_context *context, const void *source, size_t size, size_t alignment)
{
    struct place *place = context->private_;
    const struct step *step = next_step(place);
    (void)alignment;
    switch (step->kind) {
    case STEP_VALUE:
        if (size == step->size)
            put(place, source, size);
        else
            place->is_refused = 1;
        break;
    case STEP_ARRAY:
        place->is_refused |= size != step->size * (step->count ? step->count : place->length);
        put_tail(place, source, size);
        break;
    case STEP_LENGTH:
        place->length = number(source, size);
        put_length(place, place->length);
        break;
    case STEP_TEXT_LENGTH: put_length(place, number(source, size)); break;
    case STEP_STRING:
    case STEP_TEXT: put_text(place, source, size); break;
    }
}

static void copy_string(struct lttng_context *context, const char *source, size_t size)
{
    struct place *place = context->private_;
    next_step(place);
    put_text(place, source ? source : "(null)", source ? size : sizeof "(null)");
}

static void copy_padded(struct lttng_context *context, const char *source, size_t size)
{
    struct place *place = context->private_;
    next_step(place);
    put_text(place, source ? source : "", source ? size : 0);
}

static void commit(struct lttng_context *context)
{
    struct place *place = context->private_;
    const struct registered *event = place->event;
    const struct described *described = &event->described;
    const int is_complete = place->step == described->step_count && place->tail == described->tail_count &&
                            place->image_used == described->image_size;
    if (!is_complete || place->is_refused)
        count_lost(event);
    else
        tompion_priv_append(&event->provided.site, place->image, described->image_size, place->tails,
                            described->tail_count);
    /* Release: pairs with `take_place`. */
    __atomic_store_n(&place->is_taken, 0, __ATOMIC_RELEASE);
}

/* In a child of fork: places of threads that are not there are free. */
static void free_places(void)
{
    uint32_t i;
    for (i = 0; i < PLACES; ++i)
        __atomic_store_n(&places[i].is_taken, 0, __ATOMIC_RELAXED);
}

static struct lttng_session the_session = {sizeof the_session, NULL, 1};
static struct lttng_channel_common the_channel = {sizeof the_channel, NULL, 0, NULL, 1, &the_session};
static struct lttng_operations the_operations = {
    sizeof the_operations, NULL, reserve, commit, write_, copy_string, copy_padded};

#endif

/*
 * Counters of ittnotify: part of itt.c.
 */
#ifndef ITT_COUNTERS_H
#define ITT_COUNTERS_H

struct counter {
    struct counter *next;
    const struct named_event *event;
    uint64_t value; /* of those that are counted up and down */
    int type;
};

static struct counter *counter_of(const struct text *domain, const struct text *name, int type)
{
    static struct counter *counters[TEXT_PLACES];
    const struct shape *shape = type == ITT_DOUBLE || type == ITT_FLOAT                     ? &f64_counter_shape
                                : type == ITT_S64 || type == ITT_S32 || type == ITT_S16 ? &i64_counter_shape
                                                                                          : &u64_counter_shape;
    const struct named_event *event = event_of(domain, name, shape);
    struct counter **place, *counter;
    sigset_t before;
    if (!event)
        return NULL;
    place = &counters[event->number % TEXT_PLACES];
    /* Acquire: pairs with the release below. */
    for (counter = __atomic_load_n(place, __ATOMIC_ACQUIRE); counter; counter = counter->next) {
        if (counter->event == event && counter->type == type)
            return counter;
    }
    lock_names(&before);
    /* Another thread may have made it meanwhile. */
    for (counter = *place; counter && (counter->event != event || counter->type != type); counter = counter->next)
        ;
    if (!counter && (counter = take(sizeof *counter))) {
        *counter = (struct counter){*place, event, 0, type};
        /* Release: pairs with the acquire above. */
        __atomic_store_n(place, counter, __ATOMIC_RELEASE);
    }
    unlock_names(&before);
    return counter;
}

static void append_counter(const struct counter *counter, const void *value)
{
    struct record record;
    if (!is_on() || !is_wanted(&counter->event->site))
        return;
    record.size = record.tail_count = 0;
    put(&record, value, sizeof(uint64_t));
    append_record(&counter->event->site, &record);
}

/* A value of one of the API's types, as 64 bits of the event's field. */
static uint64_t value_bits(int type, const void *value, size_t index)
{
    double number;
    uint64_t bits;
    switch (type) {
    case ITT_U32: return ((const uint32_t *)value)[index];
    case ITT_S32: return (uint64_t)(int64_t)((const int32_t *)value)[index];
    case ITT_U16: return ((const uint16_t *)value)[index];
    case ITT_S16: return (uint64_t)(int64_t)((const int16_t *)value)[index];
    case ITT_FLOAT: number = ((const float *)value)[index]; memcpy(&bits, &number, sizeof bits); return bits;
    default: memcpy(&bits, (const uint64_t *)value + index, sizeof bits); return bits;
    }
}

static void *counter_create_typed(const char *name, const char *domain, int type)
{
    return counter_of(domain ? given_text(domain) : own_domain, given_text(name), type);
}
static void *counter_create(const char *name, const char *domain)
{
    return counter_create_typed(name, domain, ITT_U64);
}
static void *counter_create_v3(const struct itt_domain *domain, const char *name, int type)
{
    return counter_of(domain_text(domain), given_text(name), type);
}

static void counter_add(struct counter *counter, uint64_t difference)
{
    uint64_t value;
    if (!counter || counter->type >= ITT_FLOAT)
        return;
    value = __atomic_add_fetch(&counter->value, difference, __ATOMIC_RELAXED);
    append_counter(counter, &value);
}
static void counter_inc(void *counter)
{
    counter_add(counter, 1);
}
static void counter_inc_delta(void *counter, unsigned long long value)
{
    counter_add(counter, value);
}
static void counter_dec(void *counter)
{
    counter_add(counter, (uint64_t)-1);
}
static void counter_dec_delta(void *counter, unsigned long long value)
{
    counter_add(counter, (uint64_t)0 - value);
}
static void counter_inc_delta_v3(const struct itt_domain *domain, struct itt_string *name, unsigned long long value)
{
    counter_add(counter_of(domain_text(domain), string_text(name), ITT_U64), value);
}
static void counter_inc_v3(const struct itt_domain *domain, struct itt_string *name)
{
    counter_inc_delta_v3(domain, name, 1);
}
static void counter_dec_delta_v3(const struct itt_domain *domain, struct itt_string *name, unsigned long long value)
{
    counter_inc_delta_v3(domain, name, 0ull - value);
}
static void counter_dec_v3(const struct itt_domain *domain, struct itt_string *name)
{
    counter_inc_delta_v3(domain, name, 0ull - 1);
}
static void counter_set_value(void *of, void *value)
{
    struct counter *counter = of;
    uint64_t bits;
    if (!counter || !value)
        return;
    bits = value_bits(counter->type, value, 0);
    __atomic_store_n(&counter->value, bits, __ATOMIC_RELAXED);
    append_counter(counter, &bits);
}
static void counter_set_value_ex(void *counter, void *clock, unsigned long long time, void *value)
{
    (void)clock, (void)time;
    counter_set_value(counter, value);
}
/* A counter may be used again by its name: it stays. */
static void counter_destroy(void *counter)
{
    (void)counter;
}

#endif

/*
 * Providers that come back, and many of them: by own declarations of LTTng-UST's binary interface.
 *
 *     reload RELOADS EVENTS
 *
 * Registers a provider of EVENTS events and its tracepoints. Another provider and its tracepoints
 * are registered and taken back RELOADS times; each time an event happens. Fails if a tracepoint
 * calls a probe of a provider that is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../agent/preload/lttng-ust/abi.h"

void *lttng_ust_probe_register(const struct lttng_provider *provider);
void lttng_ust_probe_unregister(void *registered);
int lttng_ust_tracepoint_module_register(struct lttng_tracepoint *const *tracepoints, int count);
int lttng_ust_tracepoint_module_unregister(struct lttng_tracepoint *const *tracepoints);

/* What a provider's probe does with a field. */
static void probe(void *data, int n)
{
    struct lttng_common *common = data;
    struct lttng_recorder *recorder = common->child;
    struct lttng_operations *operations = recorder->channel->operations;
    struct lttng_context context = {sizeof context, recorder, sizeof n, 1, NULL, NULL};
    if (operations->reserve(&context) != 0)
        return;
    operations->write(&context, &n, sizeof n, 1);
    operations->commit(&context);
}

static const struct lttng_integer integer = {{LTTNG_INTEGER, sizeof integer}, 32, 32, 1, 0, 10};
static const struct lttng_field field = {sizeof field, "n", &integer.parent, 0, 0};
static const struct lttng_field *const fields[] = {&field};
static const struct lttng_class class = {sizeof class, fields, 1, (void (*)(void))probe, "int, n", NULL};

static char *name_of(int i)
{
    char name[32];
    snprintf(name, sizeof name, "event_%d", i);
    return strdup(name);
}

static struct lttng_provider *provider_of(const char *name, int count)
{
    const struct lttng_event **events = calloc((size_t)count, sizeof *events);
    struct lttng_provider *made = calloc(1, sizeof *made);
    int i;
    for (i = 0; i < count; ++i) {
        struct lttng_event *event = calloc(1, sizeof *event);
        *event = (struct lttng_event){sizeof *event, name_of(i), NULL, &class, NULL, NULL};
        events[i] = event;
    }
    *made = (struct lttng_provider){sizeof *made, name, events, (unsigned)count, PROVIDER_MAJOR_FIRST, 0};
    return made;
}

static struct lttng_tracepoint **tracepoints_of(const char *name, int count)
{
    struct lttng_tracepoint **made = calloc((size_t)count, sizeof *made);
    int i;
    for (i = 0; i < count; ++i) {
        made[i] = calloc(1, sizeof **made);
        *made[i] = (struct lttng_tracepoint){sizeof **made, name, name_of(i), 0, NULL, NULL, "int, n"};
    }
    return made;
}

/* What the code around a tracepoint does. */
static void happens(const struct lttng_tracepoint *tracepoint, int n)
{
    const struct lttng_probe *called;
    if (!tracepoint->state)
        return;
    for (called = tracepoint->probes; called && called->func; ++called)
        ((void (*)(void *, int))called->func)(called->data, n);
}

int main(int argc, char **argv)
{
    const int reloads = argc > 1 ? atoi(argv[1]) : 10, count = argc > 2 ? atoi(argv[2]) : 10;
    struct lttng_provider *again = provider_of("again", 3);
    struct lttng_tracepoint **points = tracepoints_of("again", 3);
    int i;
    lttng_ust_probe_register(provider_of("many", count));
    lttng_ust_tracepoint_module_register(tracepoints_of("many", count), count);
    for (i = 0; i < reloads; ++i) {
        void *registered;
        /* In either order. */
        if (i % 2)
            lttng_ust_tracepoint_module_register(points, 3);
        registered = lttng_ust_probe_register(again);
        if (i % 2 == 0)
            lttng_ust_tracepoint_module_register(points, 3);
        happens(points[2], i);
        lttng_ust_probe_unregister(registered);
        if (points[2]->state)
            return 1;
        happens(points[2], -1);
        lttng_ust_tracepoint_module_unregister(points);
    }
    return 0;
}

/*
 * libtompion-lttng-ust.so: stands in place of LTTng-UST's libraries, so that programs and providers
 * that were compiled for those are recorded by Tompion. `tompion record --lttng` has programs load
 * it. docs/design/lttng.md says how it works.
 *
 * Programs were compiled with some version of LTTng's headers. Structures say their sizes, and
 * providers their version; what is not known is refused, and the program runs on without it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <lttng/tracef.h>
#include <lttng/tracelog.h>
#include "lttng-ust/record.h"

#define EXPORT __attribute__((visibility("default")))

/* -- Registered providers and tracepoints -- */

/* Guards all that follows. Never held when an event happens. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Events by name. */
enum { TABLE_SIZE = 4096, MAX_EVENTS = 1 << 16 };
static struct registered *table[TABLE_SIZE];

/* A module that Tompion knows: the events of a provider, or the tracepoints of an object. */
struct registered_module {
    struct tompion_module module;
    const void *of; /* the provider, or the first pointer to a tracepoint */
    struct registered_module *next;
    struct tompion_site **sites;
    struct lttng_tracepoint *const *tracepoints; /* NULL for a provider */
    int count;
};
static struct registered_module *modules;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}
static void after_fork_in_child(void)
{
    free_places();
    pthread_mutex_unlock(&lock);
}
__attribute__((constructor(102))) static void follow_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Says something if TOMPION_DEBUG is set; nothing in a program with more rights than its user. */
static void say(const char *provider, const char *event, const char *problem)
{
    if (secure_getenv("TOMPION_DEBUG"))
        fprintf(stderr, "tompion: not recorded: %s%s%s (%s)\n", provider, event ? ":" : "", event ? event : "",
                problem);
}

static uint32_t place_of(const char *provider, const char *event)
{
    uint32_t hash = 2166136261u;
    for (; *provider; ++provider)
        hash = (hash ^ (unsigned char)*provider) * 16777619u;
    hash = (hash ^ ':') * 16777619u;
    for (; *event; ++event)
        hash = (hash ^ (unsigned char)*event) * 16777619u;
    return hash % TABLE_SIZE;
}

/* The event that a tracepoint records, or NULL. */
static struct registered *event_of(const struct lttng_tracepoint *tracepoint)
{
    struct registered *event = table[place_of(tracepoint->provider_name, tracepoint->event_name)];
    for (; event; event = event->next) {
        if (!strcmp(event->event_name, tracepoint->event_name) &&
            !strcmp(event->provider_name, tracepoint->provider_name) &&
            !strcmp(event->provided.signature, tracepoint->signature))
            return event;
    }
    return NULL;
}

/* Gives tracepoints the probes that they call. Before anything enables them. */
static void connect_tracepoints(struct lttng_tracepoint *const *tracepoints, int count)
{
    int i;
    for (i = 0; i < count; ++i) {
        struct registered *event = tracepoints[i] ? event_of(tracepoints[i]) : NULL;
        if (event && !tracepoints[i]->probes)
            __atomic_store_n(&tracepoints[i]->probes, event->probes, __ATOMIC_RELEASE);
    }
}

static struct registered_module *new_module(const void *of, int count)
{
    struct registered_module *made = take(sizeof *made);
    if (!made)
        return NULL;
    made->sites = take(sizeof *made->sites * ((size_t)count + 1));
    if (!made->sites)
        return NULL;
    made->of = of;
    made->module.abi = TOMPION_ABI;
    made->module.registered = 1;
    made->module.flags = TOMPION_ANONYMOUS;
    made->module.sites_begin = made->sites;
    made->module.sites_end = made->sites;
    return made;
}

static void add_site(struct registered_module *to, struct tompion_site *site)
{
    to->sites[to->module.sites_end - to->module.sites_begin] = site;
    ++to->module.sites_end;
}

static void load_module(struct registered_module *module)
{
    module->next = modules;
    modules = module;
    if (tompion_priv_agent)
        tompion_priv_agent(&module->module, TOMPION_LOAD);
}

/* Takes a module back; its memory stays. */
static void unload_module(const void *of)
{
    struct registered_module **link = &modules;
    for (; *link; link = &(*link)->next) {
        struct registered_module *found = *link;
        if (found->of != of)
            continue;
        *link = found->next;
        if (tompion_priv_agent)
            tompion_priv_agent(&found->module, TOMPION_UNLOAD);
        return;
    }
}

/* -- Providers -- */

static int is_sound_event(const struct lttng_event *event)
{
    return event && event->struct_size >= sizeof *event && event->name && event->tp_class &&
           event->tp_class->struct_size >= sizeof *event->tp_class && event->tp_class->probe &&
           event->tp_class->signature;
}

/* The event's level, and the URI of its model: what is said of it besides. */
static struct tompion_site *level_of(const char *provider, const struct lttng_event *event)
{
    struct tompion_lttng_attribute_head head = {TOMPION_LTTNG_ATTRIBUTE_MAGIC,
                                                0,
                                                tompion_lttng_attribute_LEVEL,
                                                (uint16_t)(strlen(provider) + 1),
                                                (uint16_t)(strlen(event->name) + 1),
                                                1,
                                                0};
    struct bytes bytes = {0};
    struct tompion_site *site;
    if (!event->level || !*event->level)
        return NULL;
    head.number = **event->level;
    append(&bytes, &head, sizeof head);
    append_name(&bytes, provider);
    append_name(&bytes, event->name);
    append_name(&bytes, "");
    set_size(&bytes, 0);
    site = take(sizeof *site);
    if (bytes.failed || !site)
        return NULL;
    site->description = bytes.at;
    site->kind = TOMPION_SITE_ATTRIBUTE;
    return site;
}

static struct registered *register_event(const char *provider, const struct lttng_event *event)
{
    struct registered *made = take(sizeof *made);
    const char *problem = made ? describe(provider, event, &made->described) : "no memory";
    const uint32_t place = place_of(provider, event->name);
    if (problem) {
        say(provider, event->name, problem);
        return NULL;
    }
    made->provider_name = provider;
    made->event_name = event->name;
    made->common = (struct lttng_common){sizeof made->common, NULL, 0, &made->recorder, 1, 0, NULL};
    made->recorder = (struct lttng_recorder){sizeof made->recorder, &made->common, made, &made->channel};
    made->channel =
        (struct lttng_channel){sizeof made->channel, &the_channel, NULL, &the_operations};
    made->probes[0] = (struct lttng_probe){event->tp_class->probe, &made->common};
    made->provided = (struct tompion_provided){
        {0, 0, made->described.instance, made->described.labels, TOMPION_SITE_PROVIDED, 0},
        made->described.class_description,
        event->tp_class->probe,
        event->tp_class->signature,
        {0, 0}};
    made->next = table[place];
    table[place] = made;
    return made;
}

/* The library stays loaded: a thread may be in one of its probes. */
static void keep_loaded(const void *address)
{
    Dl_info found;
    if (dladdr(address, &found) && found.dli_fname)
        (void)dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/*
 * What a provider gets that is refused. Its constructor ends the program if it gets NULL.
 */
static const char refused;

EXPORT void *lttng_ust_probe_register(const struct lttng_provider *provider);
void *lttng_ust_probe_register(const struct lttng_provider *provider)
{
    struct registered_module *module;
    unsigned i;
    if (!provider || provider->struct_size < sizeof *provider || !provider->name ||
        provider->major < PROVIDER_MAJOR_FIRST || provider->major > PROVIDER_MAJOR_LAST ||
        provider->event_count > MAX_EVENTS) {
        say(provider && provider->struct_size >= 16 && provider->name ? provider->name : "a provider", NULL,
            "expected one of LTTng-UST 2.13 to 2.16");
        return (void *)&refused;
    }
    keep_loaded(provider);
    pthread_mutex_lock(&lock);
    module = new_module(provider, (int)(2 * provider->event_count));
    for (i = 0; module && i < provider->event_count; ++i) {
        const struct lttng_event *event = provider->events[i];
        struct registered *made = is_sound_event(event) ? register_event(provider->name, event) : NULL;
        struct tompion_site *level = made ? level_of(provider->name, event) : NULL;
        if (made)
            add_site(module, &made->provided.site);
        if (level)
            add_site(module, level);
    }
    if (module) {
        struct registered_module *other;
        for (other = modules; other; other = other->next) {
            if (other->tracepoints)
                connect_tracepoints(other->tracepoints, other->count);
        }
        load_module(module);
    }
    pthread_mutex_unlock(&lock);
    return (void *)provider;
}

EXPORT void lttng_ust_probe_unregister(void *registered);
void lttng_ust_probe_unregister(void *registered)
{
    const struct lttng_provider *provider = registered;
    unsigned i;
    if (!provider || registered == &refused)
        return;
    pthread_mutex_lock(&lock);
    unload_module(provider);
    for (i = 0; i < TABLE_SIZE; ++i) {
        struct registered **link = &table[i];
        while (*link) {
            if ((*link)->provider_name == provider->name)
                *link = (*link)->next;
            else
                link = &(*link)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* -- Tracepoints -- */

static struct tompion_site *tracepoint_site(struct lttng_tracepoint *of)
{
    const struct tompion_lttng_name_head head = {TOMPION_LTTNG_NAME_MAGIC, 0,
                                                 (uint16_t)(strlen(of->provider_name) + 1),
                                                 (uint16_t)(strlen(of->event_name) + 1)};
    struct bytes bytes = {0};
    struct tompion_tracepoint *made = take(sizeof *made);
    append(&bytes, &head, sizeof head);
    append_name(&bytes, of->provider_name);
    append_name(&bytes, of->event_name);
    set_size(&bytes, 0);
    if (bytes.failed || !made)
        return NULL;
    made->site.description = bytes.at;
    made->site.kind = TOMPION_SITE_TRACEPOINT;
    made->signature = of->signature;
    made->state = &of->state;
    return &made->site;
}

static int is_sound_tracepoint(const struct lttng_tracepoint *tracepoint)
{
    return tracepoint && tracepoint->struct_size >= sizeof *tracepoint && tracepoint->provider_name &&
           tracepoint->event_name && tracepoint->signature;
}

EXPORT int lttng_ust_tracepoint_module_register(struct lttng_tracepoint *const *tracepoints, int count);
int lttng_ust_tracepoint_module_register(struct lttng_tracepoint *const *tracepoints, int count)
{
    struct registered_module *module;
    int i;
    pthread_mutex_lock(&lock);
    module = count < 0 ? NULL : new_module(tracepoints, count);
    if (module) {
        struct lttng_tracepoint **sound = take(sizeof *sound * ((size_t)count + 1));
        for (i = 0; sound && i < count; ++i) {
            struct tompion_site *site = is_sound_tracepoint(tracepoints[i]) ? tracepoint_site(tracepoints[i]) : NULL;
            if (!site)
                continue;
            sound[module->count++] = tracepoints[i];
            add_site(module, site);
        }
        module->tracepoints = sound;
        connect_tracepoints(module->tracepoints, module->count);
        load_module(module);
    }
    pthread_mutex_unlock(&lock);
    return module ? 0 : -ENOMEM;
}

EXPORT int lttng_ust_tracepoint_module_unregister(struct lttng_tracepoint *const *tracepoints);
int lttng_ust_tracepoint_module_unregister(struct lttng_tracepoint *const *tracepoints)
{
    pthread_mutex_lock(&lock);
    unload_module(tracepoints);
    pthread_mutex_unlock(&lock);
    return 0;
}

#include "lttng-ust/others.h"

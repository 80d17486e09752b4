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

/* A tracepoint, by its name in a table. */
struct known {
    struct known *next;
    struct lttng_tracepoint *tracepoint;
    struct tompion_tracepoint *site;
};
static struct known *known_tracepoints[TABLE_SIZE];

/* A module that Tompion knows: the events of a provider, or the tracepoints of an object. */
struct registered_module {
    struct tompion_module module;
    const void *of; /* the provider, or the first pointer to a tracepoint */
    struct registered_module *next;
    struct tompion_site **sites;
    struct registered **events; /* of a provider; NULL where one was refused */
    struct known *tracepoints;  /* of an object; their tracepoint is NULL where one was refused */
    int count;
};

/* Those that are registered, and those that were: a library that comes back finds its own. */
static struct registered_module *modules, *former_modules;

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

/* The event that a tracepoint records, or NULL: the first that was registered. */
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

/* Gives a tracepoint the probe that it calls. Before anything enables it. */
static void connect_tracepoint(struct lttng_tracepoint *tracepoint)
{
    struct registered *event = event_of(tracepoint);
    if (event)
        __atomic_store_n(&tracepoint->probes, event->probes, __ATOMIC_RELEASE);
}

/* Connects the tracepoints of an event's name. */
static void connect_tracepoints_of(const struct registered *event)
{
    struct known *known = known_tracepoints[place_of(event->provider_name, event->event_name)];
    for (; known; known = known->next) {
        if (!strcmp(known->tracepoint->event_name, event->event_name) &&
            !strcmp(known->tracepoint->provider_name, event->provider_name))
            connect_tracepoint(known->tracepoint);
    }
}

static void add_event(struct registered *event)
{
    struct registered **link = &table[place_of(event->provider_name, event->event_name)];
    while (*link)
        link = &(*link)->next;
    event->next = NULL;
    *link = event;
    connect_tracepoints_of(event);
}

static void remove_event(struct registered *event)
{
    struct registered **link = &table[place_of(event->provider_name, event->event_name)];
    while (*link && *link != event)
        link = &(*link)->next;
    if (*link)
        *link = event->next;
    connect_tracepoints_of(event);
}

/* A module for so many sites. */
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

/* Takes a module off a list. */
static struct registered_module *take_module(struct registered_module **list, const void *of)
{
    for (; *list; list = &(*list)->next) {
        struct registered_module *found = *list;
        if (found->of != of)
            continue;
        *list = found->next;
        return found;
    }
    return NULL;
}

/* Takes a module back; its memory stays, for a module that comes back. */
static struct registered_module *unload_module(const void *of)
{
    struct registered_module *found = take_module(&modules, of);
    if (!found)
        return NULL;
    if (tompion_priv_agent)
        tompion_priv_agent(&found->module, TOMPION_UNLOAD);
    found->next = former_modules;
    former_modules = found;
    return found;
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

static struct registered *make_event(const char *provider, const struct lttng_event *event)
{
    struct registered *made = take(sizeof *made);
    const char *problem = made ? describe(provider, event, &made->described) : "no memory";
    if (problem) {
        say(provider, event->name, problem);
        return NULL;
    }
    made->provider_name = provider;
    made->event_name = event->name;
    made->fields = event->tp_class->fields;
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
    return made;
}

/* Whether a module of before has the events that this provider has now. */
static int is_same_provider(const struct registered_module *module, const struct lttng_provider *provider)
{
    int i;
    if (!module->events || module->count != (int)provider->event_count)
        return 0;
    for (i = 0; i < module->count; ++i) {
        const struct lttng_event *event = provider->events[i];
        const struct registered *made = module->events[i];
        if (!made || !is_sound_event(event) || strcmp(made->provider_name, provider->name) != 0 ||
            strcmp(made->event_name, event->name) != 0 || made->probes[0].func != event->tp_class->probe ||
            made->provided.signature != event->tp_class->signature || made->fields != event->tp_class->fields)
            return 0;
    }
    return 1;
}

static struct registered_module *make_provider(const struct lttng_provider *provider)
{
    const int count = (int)provider->event_count;
    struct registered_module *module = new_module(provider, 2 * count);
    int i;
    if (!module)
        return NULL;
    module->events = take(sizeof *module->events * ((size_t)count + 1));
    if (!module->events)
        return NULL;
    module->count = count;
    for (i = 0; i < count; ++i) {
        const struct lttng_event *event = provider->events[i];
        struct registered *made = is_sound_event(event) ? make_event(provider->name, event) : NULL;
        struct tompion_site *level = made ? level_of(provider->name, event) : NULL;
        module->events[i] = made;
        if (made)
            add_site(module, &made->provided.site);
        if (level)
            add_site(module, level);
    }
    return module;
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
    int i;
    if (!provider || provider->struct_size < sizeof *provider || !provider->name ||
        provider->major < PROVIDER_MAJOR_FIRST || provider->major > PROVIDER_MAJOR_LAST ||
        provider->event_count > MAX_EVENTS) {
        say(provider && provider->struct_size >= 16 && provider->name ? provider->name : "a provider", NULL,
            "expected one of LTTng-UST 2.13 to 2.16");
        return (void *)&refused;
    }
    keep_loaded(provider);
    pthread_mutex_lock(&lock);
    module = take_module(&former_modules, provider);
    if (!module || !is_same_provider(module, provider))
        module = make_provider(provider);
    for (i = 0; module && i < module->count; ++i) {
        if (module->events[i])
            add_event(module->events[i]);
    }
    if (module)
        load_module(module);
    pthread_mutex_unlock(&lock);
    return (void *)provider;
}

EXPORT void lttng_ust_probe_unregister(void *registered);
void lttng_ust_probe_unregister(void *registered)
{
    const struct registered_module *module;
    int i;
    if (!registered || registered == &refused)
        return;
    pthread_mutex_lock(&lock);
    module = unload_module(registered);
    for (i = 0; module && i < module->count; ++i) {
        if (module->events[i])
            remove_event(module->events[i]);
    }
    pthread_mutex_unlock(&lock);
}

/* -- Tracepoints -- */

static struct tompion_tracepoint *tracepoint_site(struct lttng_tracepoint *of)
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
    return made;
}

static int is_sound_tracepoint(const struct lttng_tracepoint *tracepoint)
{
    return tracepoint && tracepoint->struct_size >= sizeof *tracepoint && tracepoint->provider_name &&
           tracepoint->event_name && tracepoint->signature;
}

/* Whether a module of before has the tracepoints that this object has now. */
static int is_same_object(const struct registered_module *module, struct lttng_tracepoint *const *tracepoints, int count)
{
    int i;
    if (!module->tracepoints || module->count != count)
        return 0;
    for (i = 0; i < count; ++i) {
        const struct known *known = &module->tracepoints[i];
        const char *provider, *event;
        if (!known->site || known->tracepoint != tracepoints[i] || !is_sound_tracepoint(tracepoints[i]))
            return 0;
        provider = (const char *)known->site->site.description + sizeof(struct tompion_lttng_name_head);
        event = provider + strlen(provider) + 1;
        if (strcmp(provider, tracepoints[i]->provider_name) != 0 || strcmp(event, tracepoints[i]->event_name) != 0)
            return 0;
    }
    return 1;
}

static struct registered_module *make_object(struct lttng_tracepoint *const *tracepoints, int count)
{
    struct registered_module *module = count < 0 ? NULL : new_module(tracepoints, count);
    int i;
    if (!module)
        return NULL;
    module->tracepoints = take(sizeof *module->tracepoints * ((size_t)count + 1));
    if (!module->tracepoints)
        return NULL;
    module->count = count;
    for (i = 0; i < count; ++i) {
        struct known *known = &module->tracepoints[i];
        known->site = is_sound_tracepoint(tracepoints[i]) ? tracepoint_site(tracepoints[i]) : NULL;
        if (!known->site)
            continue;
        known->tracepoint = tracepoints[i];
        add_site(module, &known->site->site);
    }
    return module;
}

EXPORT int lttng_ust_tracepoint_module_register(struct lttng_tracepoint *const *tracepoints, int count);
int lttng_ust_tracepoint_module_register(struct lttng_tracepoint *const *tracepoints, int count)
{
    struct registered_module *module;
    int i;
    pthread_mutex_lock(&lock);
    module = take_module(&former_modules, tracepoints);
    if (!module || !is_same_object(module, tracepoints, count))
        module = make_object(tracepoints, count);
    for (i = 0; module && i < module->count; ++i) {
        struct known *known = &module->tracepoints[i], **place;
        if (!known->site)
            continue;
        known->site->signature = known->tracepoint->signature;
        known->site->state = &known->tracepoint->state;
        place = &known_tracepoints[place_of(known->tracepoint->provider_name, known->tracepoint->event_name)];
        known->next = *place;
        *place = known;
        connect_tracepoint(known->tracepoint);
    }
    if (module)
        load_module(module);
    pthread_mutex_unlock(&lock);
    return module ? 0 : -ENOMEM;
}

static void forget_tracepoint(const struct known *of)
{
    struct known **link =
        &known_tracepoints[place_of(of->tracepoint->provider_name, of->tracepoint->event_name)];
    while (*link && *link != of)
        link = &(*link)->next;
    if (*link)
        *link = of->next;
}

EXPORT int lttng_ust_tracepoint_module_unregister(struct lttng_tracepoint *const *tracepoints);
int lttng_ust_tracepoint_module_unregister(struct lttng_tracepoint *const *tracepoints)
{
    const struct registered_module *module;
    int i;
    pthread_mutex_lock(&lock);
    module = unload_module(tracepoints);
    for (i = 0; module && i < module->count; ++i) {
        if (module->tracepoints[i].site)
            forget_tracepoint(&module->tracepoints[i]);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

#include "lttng-ust/others.h"

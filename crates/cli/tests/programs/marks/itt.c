/*
 * Marks by Intel's API (ittnotify), without its static part: what that does to find a library is
 * done here, by own declarations of the interface.
 *
 *     itt [ROUNDS]      repeats tasks in four threads; then a file `go` ends the program, if given
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct domain {
    volatile int flags;
    const char *name;
    void *wide;
    int extra1;
    void *extra2;
    struct domain *next;
};
struct id {
    unsigned long long d1, d2, d3;
};
struct api {
    const char *name;
    void **pointer;
    void *initial, *absent;
    int group;
};
struct global {
    unsigned char magic[8];
    unsigned long major, minor, build;
    volatile long state[3];
    pthread_mutex_t mutex;
    void *library, *error_handler;
    const char **path;
    struct api *list;
};

#define EACH(do)                                                                                      \
    do(struct domain *, domain_create, (const char *))                                                \
    do(void *, string_handle_create, (const char *))                                                  \
    do(void, task_begin, (const struct domain *, struct id, struct id, void *))                       \
    do(void, task_end, (const struct domain *))                                                       \
    do(void, task_begin_overlapped, (const struct domain *, struct id, struct id, void *))            \
    do(void, task_end_overlapped, (const struct domain *, struct id))                                 \
    do(void, frame_begin_v3, (const struct domain *, struct id *))                                    \
    do(void, frame_end_v3, (const struct domain *, struct id *))                                      \
    do(void *, counter_create_typed, (const char *, const char *, int))                               \
    do(void, counter_inc_delta, (void *, unsigned long long))                                         \
    do(void, counter_dec, (void *))                                                                   \
    do(void, counter_set_value, (void *, void *))                                                     \
    do(void, marker, (const struct domain *, struct id, void *, int))                                 \
    do(void, metadata_add, (const struct domain *, struct id, void *, int, size_t, void *))           \
    do(void, metadata_str_add, (const struct domain *, struct id, void *, const char *, size_t))      \
    do(void, thread_set_name, (const char *))                                                         \
    do(void, pause, (void))                                                                           \
    do(void, resume, (void))

#define POINTER(type, name, arguments) static type(*name##_) arguments;
#define ENTRY(type, name, arguments) {"__itt_" #name, (void **)&name##_, NULL, NULL, 1},
EACH(POINTER)
static void (*unknown_)(void);
static struct api list[] = {EACH(ENTRY){"__itt_not_of_this_world", (void **)&unknown_, NULL, NULL, 1},
                            {NULL, NULL, NULL, NULL, 0}};
static struct global global = {{0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30}, 3, 26, 20111111, {0}, PTHREAD_MUTEX_INITIALIZER,
                               NULL, NULL, NULL, list};

static const struct id none;
static struct domain *app;
static void *load, *parse;
static long rounds = 3;

static void *work(void *name)
{
    long i;
    thread_set_name_(name);
    for (i = 0; i < rounds; ++i) {
        const struct id id = {(unsigned long long)i + 1, 7, 0};
        task_begin_(app, none, none, load);
        task_begin_(app, id, none, parse);
        task_end_(app);
        task_end_(app);
    }
    return NULL;
}

static void each_once(void)
{
    struct id first = {11, 0, 0}, second = {22, 0, 0};
    int numbers[] = {1, -2, 3};
    double degrees = 36.5;
    void *job = string_handle_create_("job"), *key = string_handle_create_("key");
    void *count = counter_create_typed_("requests", "app", 1), *heat = counter_create_typed_("heat", "app", 8);
    struct domain *other = domain_create_("Other::Domain");
    frame_begin_v3_(app, NULL);
    marker_(app, none, string_handle_create_("note"), 3);
    frame_end_v3_(app, NULL);
    task_begin_overlapped_(app, first, none, job);
    task_begin_overlapped_(app, second, first, job);
    task_end_overlapped_(app, first);
    task_end_overlapped_(app, second);
    counter_inc_delta_(count, 5);
    counter_dec_(count);
    counter_set_value_(heat, &degrees);
    metadata_add_(app, first, key, 4, 3, numbers);
    metadata_add_(app, first, key, 8, 1, &degrees);
    metadata_str_add_(app, first, key, "text", 0);
    /* Tasks of two domains end independently; those of a pause are not there. */
    task_begin_(app, none, none, load);
    task_begin_(other, none, none, parse);
    task_end_(app);
    pause_();
    task_begin_(other, none, none, load);
    task_end_(other);
    resume_();
    task_end_(other);
    task_end_(other);
}

int main(int argc, char **argv)
{
    const char *path = getenv("INTEL_LIBITTNOTIFY64");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    void (*init)(struct global *, int) = NULL;
    pthread_t threads[4];
    int i;
    if (library)
        *(void **)&init = dlsym(library, "__itt_api_init");
    if (!init)
        return puts("no library"), 0;
    if (argc > 1 && !strcmp(argv[1], "old"))
        global.build = 20101001;
    init(&global, -1);
    if (!domain_create_)
        return puts("not recorded"), 0;
    if (unknown_)
        return 1;
    app = domain_create_("app");
    if (app != domain_create_("app") || !app->flags || strcmp(app->name, "app") != 0)
        return 2;
    load = string_handle_create_("load data");
    parse = string_handle_create_("parse");
    if (argc > 1)
        rounds = atol(argv[1]);
    else
        each_once();
    for (i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, work, "worker");
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    while (argc > 2 && access(argv[2], F_OK) != 0)
        usleep(1000);
    return 0;
}

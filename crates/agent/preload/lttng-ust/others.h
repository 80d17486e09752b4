/*
 * What else programs find in LTTng-UST's libraries: tracef and tracelog, and functions by which
 * LTTng follows forks, threads and descriptors. Tompion follows them by itself: those do nothing.
 */
#ifndef LTTNG_UST_OTHERS_H
#define LTTNG_UST_OTHERS_H

/* A program calls a function of its own for these, and reads `state` of an object here. */
#define OBJECT_OF(provider, name, signature)                                                          \
    EXPORT struct lttng_tracepoint lttng_ust_tracepoint_##provider##___##name = {                     \
        sizeof(struct lttng_tracepoint), #provider, #name, 0, NULL, NULL, signature};
#define LISTED(provider, name) &lttng_ust_tracepoint_##provider##___##name,

OBJECT_OF(lttng_ust_tracef, event, "const char *, msg, size_t, length")

EXPORT void lttng_ust__vtracef(const char *format, va_list arguments);
void lttng_ust__vtracef(const char *format, va_list arguments)
{
    lttng_ust_vtracef(format, arguments);
}
EXPORT void lttng_ust__tracef(const char *format, ...);
void lttng_ust__tracef(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    lttng_ust_vtracef(format, arguments);
    va_end(arguments);
}

#define LOG_SIGNATURE "const struct tompion_lttng_source *, source, const char *, msg, size_t, length"
#define LOG_OF(level)                                                                                 \
    OBJECT_OF(lttng_ust_tracelog, level, LOG_SIGNATURE)                                               \
    EXPORT void lttng_ust__vtracelog_##level(const char *file, int line, const char *function,        \
                                             const char *format, va_list arguments);                  \
    void lttng_ust__vtracelog_##level(const char *file, int line, const char *function,               \
                                      const char *format, va_list arguments)                          \
    {                                                                                                 \
        const struct tompion_lttng_source source = {file, function, line};                            \
        tompion_lttng_vtracelog(tompion_lttng_call_lttng_ust_tracelog___##level, &source, format,     \
                                arguments);                                                           \
    }                                                                                                 \
    EXPORT void lttng_ust__tracelog_##level(const char *file, int line, const char *function,         \
                                            const char *format, ...);                                 \
    void lttng_ust__tracelog_##level(const char *file, int line, const char *function,                \
                                     const char *format, ...)                                         \
    {                                                                                                 \
        va_list arguments;                                                                            \
        TOMPION_LTTNG_ENTER(tompion_lttng_tracepoint_lttng_ust_tracelog___##level.site);              \
        va_start(arguments, format);                                                                  \
        lttng_ust__vtracelog_##level(file, line, function, format, arguments);                        \
        va_end(arguments);                                                                            \
    }

#define EACH_LEVEL(do)                                                                                \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT)                   \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR)                      \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE)                \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM)             \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS)   \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT)       \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION) do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE)     \
    do(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG)

EACH_LEVEL(LOG_OF)

#define LISTED_LOG(level) LISTED(lttng_ust_tracelog, level)
static struct lttng_tracepoint *const own_tracepoints[] = {LISTED(lttng_ust_tracef, event)
                                                               EACH_LEVEL(LISTED_LOG)};

/* After this object's own events: the first constructor has registered them. */
__attribute__((constructor)) static void register_own(void)
{
    lttng_ust_tracepoint_module_register(own_tracepoints,
                                         (int)(sizeof own_tracepoints / sizeof *own_tracepoints));
}

/* -- Reading in LTTng's RCU: nothing waits for readers, since nothing is given back -- */

#define NOTHING(name)         \
    EXPORT void name(void);   \
    void name(void) {}

NOTHING(lttng_ust_tp_rcu_read_lock)
NOTHING(lttng_ust_tp_rcu_read_unlock)
EXPORT void *lttng_ust_tp_rcu_dereference_sym(void *pointer);
void *lttng_ust_tp_rcu_dereference_sym(void *pointer)
{
    return __atomic_load_n((void **)&pointer, __ATOMIC_ACQUIRE);
}
EXPORT void *lttng_ust_rcu_dereference_sym(void *pointer);
void *lttng_ust_rcu_dereference_sym(void *pointer)
{
    return pointer;
}

static int has_no_destructors;
EXPORT void lttng_ust_tp_disable_destructors(void);
void lttng_ust_tp_disable_destructors(void)
{
    has_no_destructors = 1;
}
EXPORT int lttng_ust_tp_get_destructors_state(void);
int lttng_ust_tp_get_destructors_state(void)
{
    return !has_no_destructors;
}

/*
 * Providers with LTTng's license macro count readers by themselves, each thread in a structure that
 * this function gives it.
 */
struct reader {
    unsigned long count;
    unsigned long others[15];
} __attribute__((aligned(128)));
enum { READERS = 1024 };
static struct reader readers[READERS];
static uint32_t next_reader;
struct lttng_ust_urcu_gp {
    unsigned long count;
};
EXPORT struct lttng_ust_urcu_gp lttng_ust_urcu_gp = {1};
EXPORT int lttng_ust_urcu_has_sys_membarrier = 1;
EXPORT _Thread_local struct reader *lttng_ust_urcu_reader;
EXPORT void lttng_ust_urcu_register(void);
void lttng_ust_urcu_register(void)
{
    lttng_ust_urcu_reader = &readers[__atomic_fetch_add(&next_reader, 1, __ATOMIC_RELAXED) % READERS];
}
NOTHING(lttng_ust_urcu_register_thread)
NOTHING(lttng_ust_urcu_read_lock)
NOTHING(lttng_ust_urcu_read_unlock)
NOTHING(lttng_ust_urcu_synchronize_rcu)

/* -- What Tompion does not have: these fail. Callers pass arguments, which are not looked at -- */

#define ABSENT(name)                    \
    EXPORT int name(void);              \
    int name(void)                      \
    {                                   \
        return -ENOSYS;                 \
    }
EXPORT void *lttng_ust_context_provider_register(void *);
void *lttng_ust_context_provider_register(void *provider)
{
    (void)provider;
    return NULL;
}
EXPORT void lttng_ust_context_provider_unregister(void *);
void lttng_ust_context_provider_unregister(void *provider)
{
    (void)provider;
}
ABSENT(lttng_ust_enable_trace_clock_override)
ABSENT(lttng_ust_trace_clock_set_read64_cb)
ABSENT(lttng_ust_trace_clock_get_read64_cb)
ABSENT(lttng_ust_trace_clock_set_freq_cb)
ABSENT(lttng_ust_trace_clock_get_freq_cb)
ABSENT(lttng_ust_trace_clock_set_uuid_cb)
ABSENT(lttng_ust_trace_clock_get_uuid_cb)
ABSENT(lttng_ust_trace_clock_set_name_cb)
ABSENT(lttng_ust_trace_clock_get_name_cb)
ABSENT(lttng_ust_trace_clock_set_description_cb)
ABSENT(lttng_ust_trace_clock_get_description_cb)
ABSENT(lttng_ust_getcpu_override)
ABSENT(lttng_ust_tracepoint_provider_register)
ABSENT(lttng_ust_tracepoint_provider_unregister)
EXPORT const char *lttng_ust_strerror(int);
const char *lttng_ust_strerror(int code)
{
    return code == 0 ? "Success" : "not available from Tompion";
}

/* -- Forks, threads, descriptors -- */

EXPORT int lttng_ust_loaded = 1;

#define NOTHING_WITH_SIGNALS(name)      \
    EXPORT void name(sigset_t *);       \
    void name(sigset_t *signals)        \
    {                                   \
        (void)signals;                  \
    }
NOTHING_WITH_SIGNALS(lttng_ust_before_fork)
NOTHING_WITH_SIGNALS(lttng_ust_after_fork_parent)
NOTHING_WITH_SIGNALS(lttng_ust_after_fork_child)
NOTHING(lttng_ust_after_setns)
NOTHING(lttng_ust_after_unshare)
NOTHING(lttng_ust_after_setuid)
NOTHING(lttng_ust_after_setgid)
NOTHING(lttng_ust_after_seteuid)
NOTHING(lttng_ust_after_setegid)
NOTHING(lttng_ust_after_setreuid)
NOTHING(lttng_ust_after_setregid)
NOTHING(lttng_ust_after_setresuid)
NOTHING(lttng_ust_after_setresgid)
NOTHING(lttng_ust_init_thread)
NOTHING(lttng_ust_common_ctor)
NOTHING(lttng_ust_common_alloc_tls)
NOTHING(lttng_ust_context_procname_reset)
NOTHING(lttng_ust_lock_fd_tracker)
NOTHING(lttng_ust_unlock_fd_tracker)
EXPORT void lttng_ust_dl_update(void *);
void lttng_ust_dl_update(void *address)
{
    (void)address;
}
EXPORT int lttng_ust_add_fd_to_tracker(int);
int lttng_ust_add_fd_to_tracker(int descriptor)
{
    return descriptor;
}
EXPORT void lttng_ust_delete_fd_from_tracker(int);
void lttng_ust_delete_fd_from_tracker(int descriptor)
{
    (void)descriptor;
}
EXPORT int lttng_ust_safe_close_fd(int, int (*)(int));
int lttng_ust_safe_close_fd(int descriptor, int (*close_it)(int))
{
    return close_it(descriptor);
}
EXPORT int lttng_ust_safe_fclose_stream(FILE *, int (*)(FILE *));
int lttng_ust_safe_fclose_stream(FILE *stream, int (*close_it)(FILE *))
{
    return close_it(stream);
}

#endif

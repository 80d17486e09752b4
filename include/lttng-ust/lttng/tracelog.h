/*
 * tracelog() of LTTng-UST, recorded by Tompion: an event of the provider lttng_ust_tracelog for
 * each level.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_TRACELOG_H
#define TOMPION_LTTNG_TRACELOG_H

#pragma GCC system_header

#include "private/format.h"

/* Where a message comes from. */
struct tompion_lttng_source {
    const char *file;
    const char *function;
    int line;
};

#define TOMPION_LTTNG_LOG_ARGS \
    (const struct tompion_lttng_source *, source, const char *, msg, size_t, length)

TOMPION_LTTNG_CLASS(lttng_ust_tracelog, message, TOMPION_LTTNG_LOG_ARGS,
                    (tompion_integer, "line", source->line, int, 10, 0)
                    (tompion_string, "file", source->file)
                    (tompion_string, "func", source->function)
                    (tompion_sequence_text, "msg", msg, size_t, length))

typedef void tompion_lttng_log_call(const struct tompion_lttng_source *source, const char *message,
                                    size_t length);

static __attribute__((__unused__, __noinline__, __format__(__printf__, 3, 0))) void
tompion_lttng_vtracelog(tompion_lttng_log_call *call, const struct tompion_lttng_source *source,
                        const char *format, va_list arguments)
{
    va_list again;
    size_t size;
    va_copy(again, arguments);
    size = tompion_lttng_message_size(format, again);
    va_end(again);
    {
        char *message = (char *)__builtin_alloca(size + 1);
        message[0] = 0;
        (void)vsnprintf(message, size + 1, format, arguments);
        call(source, message, size);
    }
}

static __attribute__((__unused__, __noinline__, __format__(__printf__, 3, 4))) void
tompion_lttng_tracelog(tompion_lttng_log_call *call, const struct tompion_lttng_source *source,
                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tompion_lttng_vtracelog(call, source, format, arguments);
    va_end(arguments);
}

#define TOMPION_LTTNG_LOG_EVENT(level)                                                                \
    TOMPION_LTTNG_TRACEPOINT(lttng_ust_tracelog, level, TOMPION_LTTNG_LOG_ARGS)                          \
    TOMPION_LTTNG_INSTANCE(lttng_ust_tracelog, message, lttng_ust_tracelog, level)                    \
    TOMPION_LTTNG_ATTRIBUTE(LEVEL, lttng_ust_tracelog, level, level, "")

TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE)
TOMPION_LTTNG_LOG_EVENT(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG)

/* Records a message of a level, with the place where it stands. */
#define lttng_ust_tracelog(level, format, ...) TOMPION_LTTNG_LOG(tompion_lttng_tracelog, level, format, ##__VA_ARGS__)

/* The same with a va_list. */
#define lttng_ust_vtracelog(level, format, arguments) \
    TOMPION_LTTNG_LOG(tompion_lttng_vtracelog, level, format, arguments)

#define TOMPION_LTTNG_LOG(function_of_it, level, format, ...)                                         \
    do {                                                                                              \
        if (TOMPION_LTTNG_IS_ENABLED(lttng_ust_tracelog, level)) {                                    \
            const struct tompion_lttng_source tompion_lttng_source = {__FILE__, __func__, __LINE__};  \
            function_of_it(tompion_lttng_call_lttng_ust_tracelog___##level, &tompion_lttng_source,    \
                           format, ##__VA_ARGS__);                                                    \
        }                                                                                             \
    } while (0)

#if TOMPION_LTTNG_OLD_NAMES
#define tracelog lttng_ust_tracelog
#endif

#endif /* TOMPION_LTTNG_TRACELOG_H */

/*
 * tracef() of LTTng-UST, recorded by Tompion: the event lttng_ust_tracef:event.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_TRACEF_H
#define TOMPION_LTTNG_TRACEF_H

#pragma GCC system_header

#include "private/format.h"

TOMPION_LTTNG_TRACEPOINT(lttng_ust_tracef, event, (const char *, msg, size_t, length))
TOMPION_LTTNG_CLASS(lttng_ust_tracef, event, (const char *, msg, size_t, length),
                    (tompion_sequence_text, "msg", msg, size_t, length))
TOMPION_LTTNG_INSTANCE(lttng_ust_tracef, event, lttng_ust_tracef, event)
TOMPION_LTTNG_ATTRIBUTE(LEVEL, lttng_ust_tracef, event, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG, "")

static __attribute__((__unused__, __noinline__, __format__(__printf__, 1, 0))) void
tompion_lttng_vtracef(const char *format, va_list arguments)
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
        tompion_lttng_call_lttng_ust_tracef___event(message, size);
    }
}

static __attribute__((__unused__, __noinline__, __format__(__printf__, 1, 2))) void
tompion_lttng_tracef(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tompion_lttng_vtracef(format, arguments);
    va_end(arguments);
}

/* Records a message. */
#define lttng_ust_tracef(format, ...)                                                                 \
    do {                                                                                              \
        if (TOMPION_LTTNG_IS_ENABLED(lttng_ust_tracef, event))                                        \
            tompion_lttng_tracef(format, ##__VA_ARGS__);                                              \
    } while (0)

/* The same with a va_list. */
#define lttng_ust_vtracef(format, arguments)                                                          \
    do {                                                                                              \
        if (TOMPION_LTTNG_IS_ENABLED(lttng_ust_tracef, event))                                        \
            tompion_lttng_vtracef(format, arguments);                                                 \
    } while (0)

#if TOMPION_LTTNG_OLD_NAMES
#define tracef lttng_ust_tracef
#endif

#endif /* TOMPION_LTTNG_TRACEF_H */

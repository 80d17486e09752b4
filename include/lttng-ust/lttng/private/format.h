/*
 * Messages in printf's format, for tracef and tracelog.
 *
 * Part of <lttng/tracef.h> and <lttng/tracelog.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_FORMAT_H
#define TOMPION_LTTNG_FORMAT_H

#pragma GCC system_header

#include <stdarg.h>

#include <lttng/tracepoint.h>

#include "provider.h"

/* Longer messages are cut: this much of the thread's stack is used, and no memory is allocated. */
#define TOMPION_LTTNG_MESSAGE_ROOM 8192

/* The bytes of a message, without the NUL; 0 for a format that can't be used. */
static __inline__ __attribute__((__unused__, __format__(__printf__, 1, 0))) size_t
tompion_lttng_message_size(const char *format, va_list arguments)
{
    const int size = vsnprintf(0, 0, format, arguments);
    if (size <= 0)
        return 0;
    return size < TOMPION_LTTNG_MESSAGE_ROOM ? (size_t)size : TOMPION_LTTNG_MESSAGE_ROOM - 1;
}

#endif /* TOMPION_LTTNG_FORMAT_H */

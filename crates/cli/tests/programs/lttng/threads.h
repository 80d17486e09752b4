#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER threads

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "threads.h"

#if !defined(THREADS_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define THREADS_H

#include <lttng/tracepoint.h>

TRACEPOINT_EVENT(
    threads, text,
    TP_ARGS(int, thread, int, i, int, length, const char *, text),
    TP_FIELDS(
        ctf_integer(int, thread, thread)
        ctf_integer(int, i, i)
        ctf_string(text, text)
        ctf_sequence(char, bytes, text, unsigned short, length)
        ctf_integer(int, length, length)
    )
)

#endif

#include <lttng/tracepoint-event.h>

/* A provider in the old spelling: a class, its instances, macros around them. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER classes

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "classes.h"

#if !defined(CLASSES_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define CLASSES_H

#include <lttng/tracepoint.h>

#ifndef CLASSES_ONCE
#define CLASSES_ONCE
#define WHERE(x, y) ctf_integer(int, x, x) ctf_integer(int, y, y)
#define CLASSES_ARGS TP_ARGS(int, left, int, top)
#ifndef CLASSES_WRONG
#define CLASSES_WRONG int
#endif
#endif

TRACEPOINT_EVENT_CLASS(
    classes, place, CLASSES_ARGS,
    TP_FIELDS(
        WHERE(left, top)
        ctf_integer(int, edge, left + 7)
    )
)

#undef PLACED
#define PLACED(name, level)                                         \
    TRACEPOINT_EVENT_INSTANCE(classes, place, name, CLASSES_ARGS)   \
    TRACEPOINT_LOGLEVEL(classes, name, level)

PLACED(moved, TRACE_INFO)
PLACED(shown, TRACE_DEBUG_FUNCTION)
TRACEPOINT_EVENT_INSTANCE(TRACEPOINT_PROVIDER, place, hidden, CLASSES_ARGS)
/* The program is compiled with another type: then the two don't belong together. */
TRACEPOINT_EVENT(classes, wrong, TP_ARGS(CLASSES_WRONG, n), TP_FIELDS(ctf_integer(CLASSES_WRONG, n, n)))

#endif

#include <lttng/tracepoint-event.h>

#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER loaded

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "loaded.h"

#if !defined(LOADED_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define LOADED_H

#include <lttng/tracepoint.h>

TRACEPOINT_EVENT(loaded, tick, TP_ARGS(int, n), TP_FIELDS(ctf_integer(int, n, n)))

#endif

#include <lttng/tracepoint-event.h>

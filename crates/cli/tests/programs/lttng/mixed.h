/* Read by a caller in C++ and a provider in C, where `bool` is a macro. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER mixed

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "mixed.h"

#if !defined(MIXED_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define MIXED_H

#include <lttng/tracepoint.h>

TRACEPOINT_EVENT(mixed, none, TP_ARGS(), TP_FIELDS())
TRACEPOINT_EVENT(mixed, one, TP_ARGS(bool, is_set), TP_FIELDS(ctf_integer(bool, is_set, is_set)))

#endif

#include <lttng/tracepoint-event.h>

/* Appends to LTTng-UST's ring. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-provider.h"

#define EVENT(i) lttng_ust_tracepoint(bench, fields_2, i, (i) ^ 0x55)
#include "gaps.h"

/*
 * Providers of tracepoints: with TRACEPOINT_CREATE_PROBES, reads the provider's header once more
 * and makes its events. That takes one reading: fields are lists, which macros go over as often as
 * they need.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#pragma GCC system_header

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <pthread.h>

#include <lttng/tracepoint.h>

#if TOMPION_LTTNG_OLD_NAMES && defined(TRACEPOINT_CREATE_PROBES) && \
    !defined(LTTNG_UST_TRACEPOINT_CREATE_PROBES)
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#endif

#ifdef LTTNG_UST_TRACEPOINT_CREATE_PROBES

/* The header includes this file, too: not now. */
#undef LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ

#if TOMPION_LTTNG_OLD_NAMES
#undef TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_HEADER_MULTI_READ
#if defined(TRACEPOINT_PROVIDER) && !defined(LTTNG_UST_TRACEPOINT_PROVIDER)
#define LTTNG_UST_TRACEPOINT_PROVIDER TRACEPOINT_PROVIDER
#define TOMPION_LTTNG_PROVIDER_IS_OLD
#endif
#if defined(TRACEPOINT_INCLUDE) && !defined(LTTNG_UST_TRACEPOINT_INCLUDE)
#define LTTNG_UST_TRACEPOINT_INCLUDE TRACEPOINT_INCLUDE
#endif
/* Before 2.13 the name stood without quotes. */
#if defined(TRACEPOINT_INCLUDE_FILE) && !defined(LTTNG_UST_TRACEPOINT_INCLUDE)
#define LTTNG_UST_TRACEPOINT_INCLUDE TOMPION_LTTNG_SIGNATURE(TRACEPOINT_INCLUDE_FILE)
#endif
#endif

#include "private/field_begin.h"
#include "private/provider.h"

#include "private/provide.h"

#include LTTNG_UST_TRACEPOINT_INCLUDE

TOMPION_LTTNG_C int TOMPION_LTTNG_PROVIDER_NAME(LTTNG_UST_TRACEPOINT_PROVIDER)
    TOMPION_LTTNG_PROVIDER_VISIBILITY;
int TOMPION_LTTNG_PROVIDER_NAME(LTTNG_UST_TRACEPOINT_PROVIDER) = 0;

#include "private/field_end.h"
#include "private/declare.h"

#undef LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#ifdef TOMPION_LTTNG_PROVIDER_IS_OLD
#undef TOMPION_LTTNG_PROVIDER_IS_OLD
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#endif
#if TOMPION_LTTNG_OLD_NAMES
#undef TRACEPOINT_HEADER_MULTI_READ
#undef TRACEPOINT_INCLUDE
#undef TRACEPOINT_INCLUDE_FILE
#endif

/* The next header of this unit is a provider's, too. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES

#endif

/* LTTng-UST's description of the loop's events: those of libtompion-npt.so, field for field. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER npt

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./npt-lttng.h"

#if !defined(NPT_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define NPT_LTTNG_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
	npt,
	loop,
	LTTNG_UST_TP_ARGS(uint64_t, number, uint64_t, gap),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, number, number)
		lttng_ust_field_integer(uint64_t, gap, gap)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	npt,
	warm_up,
	LTTNG_UST_TP_ARGS(uint64_t, number, uint64_t, gap),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, number, number)
		lttng_ust_field_integer(uint64_t, gap, gap)
	)
)

#endif

#include <lttng/tracepoint-event.h>

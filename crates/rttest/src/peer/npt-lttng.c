/* The loop's event by LTTng-UST; built and loaded by `tompion test … --peer lttng`. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "npt-lttng.h"

void tompion_loop_event(uint64_t number, uint64_t gap)
{
	if (__builtin_expect(number != 0, 1))
		lttng_ust_tracepoint(npt, loop, number, gap);
	else
		lttng_ust_tracepoint(npt, warm_up, number, gap);
}

int tompion_loop_event_enabled(void)
{
	return lttng_ust_tracepoint_enabled(npt, loop) != 0;
}

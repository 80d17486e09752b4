/* The same event through LTTng-UST. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-provider.h"

#include "loop.h"

void prepare_thread(void)
{
}

BODY(event, lttng_ust_tracepoint(bench, two, i, i ^ 0x55))

const struct body bodies[] = { ENTRY(event), { 0 } };

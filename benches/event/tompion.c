/* The event through libtompion.so. */
#include "loop.h"

#include <tompion/tompion.h>

void prepare_thread(void)
{
}

BODY(event, TOMPION_EVENT(bench, two, (u64, a, i), (u64, b, i ^ 0x55)))

const struct body bodies[] = { ENTRY(event), { 0 } };

/*
 * libtompion-npt.so: the event in the loop of `tompion test`.
 *
 *     LD_PRELOAD=libtompion-npt.so PROGRAM            (`tompion test npt` does it)
 *
 * Built as malloc.c is. The loop calls these functions of whichever tracer's library was loaded;
 * LTTng's is crates/rttest/src/peer/npt-lttng.c, with the same fields.
 */
#include <stdint.h>

#include "wrapper.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void tompion_loop_event(uint64_t number, uint64_t gap);
EXPORT int tompion_loop_event_enabled(void);

/* Number 0 is the warm-up's, which a trace doesn't count among the loops. */
void tompion_loop_event(uint64_t number, uint64_t gap)
{
    if (__builtin_expect(number != 0, 1))
        TOMPION_EVENT(npt, loop, (u64, number, number), (u64, gap, gap));
    else
        TOMPION_EVENT(npt, warm_up, (u64, number, number), (u64, gap, gap));
}

int tompion_loop_event_enabled(void)
{
    return TOMPION_EVENT_ENABLED(npt, loop) != 0;
}

/* Calls the tracepoints of shapes.h and classes.h; compiles as C and C++. */
#include <lttng/tracef.h>
#include <lttng/tracelog.h>

#define CLASSES_WRONG long
#include "classes.h"
#include "shapes.h"

static int asked;

static int next(void)
{
    return ++asked;
}

static inline void inline_call(int n)
{
    tracepoint(classes, shown, n, n + 1);
}

int main(void)
{
    const int values[3] = {1, -2, 3};
    const uint16_t ports[2] = {0x5000, 0x0100};
    int i;

    tracepoint(shapes, numbers, 5, "five");
    tracepoint(shapes, lists, values, ports, "text", 3);
    tracepoint(shapes, nothing);
    lttng_ust_tracepoint(shapes, also_nothing);
    tracepoint(shapes, ten, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    for (i = 0; i < 2; ++i)
        tracepoint(classes, moved, next(), i);
    inline_call(40);
    if (tracepoint_enabled(classes, hidden))
        do_tracepoint(classes, hidden, next(), 0);
    tracepoint(classes, wrong, 1);
    if (next() == 4) tracepoint(classes, moved, 1, 1); else tracepoint(classes, shown, 2, 2); tracepoint(classes, moved, 3, 3);
    tracef("%s: %d", "message", 1);
    lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR, "%s", "");
    lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO, "line %s", "two");
    return 0;
}

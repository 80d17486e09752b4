/* Locks and names of the Tracy library, which is part of this program, by Tracy's C interface. */
#include "locks.h"

#include "../../preload/tracy.c"

#include <tracy/TracyC.h>

static TracyCLockCtx announce(void)
{
    TracyCLockCtx lock;
    TracyCLockAnnounce(lock);
    return lock;
}

static void locks_of_one_place_are_different(void)
{
    TracyCLockCtx first = announce(), second = announce();
    TracyCSharedLockCtx old, shared;
    TracyCSharedLockAnnonce(old);
    TracyCSharedLockAnnounce(shared);
    EXPECT(first && second && first != second);
    EXPECT(old != shared && old != first && shared != second);
    TracyCLockBeforeLock(first);
    TracyCLockAfterLock(first);
    TracyCLockAfterUnlock(first);
    TracyCSharedLockBeforeSharedLock(old);
}

static void plots_are_limited(void)
{
    unsigned long before;
    char name[32];
    int i;
    for (i = 0; i < MAX_NAMED_EVENTS; ++i) {
        snprintf(name, sizeof name, "plot %d", i);
        TracyCPlotI(name, i);
    }
    EXPECT(named_count == MAX_NAMED_EVENTS - OWN_EVENTS);
    before = lock_count;
    TracyCPlotI("one more", 1);
    TracyCPlot("one more", 1.5);
    EXPECT(lock_count - before <= 1); /* the text */
    tompion_tracy_zone_end(tompion_tracy_begin_transient("made up", 7, 0));
    EXPECT(named_count == MAX_NAMED_EVENTS - OWN_EVENTS + 1); /* the zones' that take their name as a field */
}

int main(void)
{
    locks_of_one_place_are_different();
    plots_are_limited();
    TracyCSetThreadName("main");
    return 0;
}

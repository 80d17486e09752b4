/* Marks by Tracy's C interface. */
#include <tracy/TracyC.h>

#include <stdlib.h>

static int worked(int n)
{
    TracyCZone(zone, 1);
    TracyCZoneValue(zone, (uint64_t)n);
    TracyCZoneEnd(zone);
    return n;
}

int main(void)
{
    TracyCLockCtx lock;
    TracyCZoneNC(outer, "outer", 0x112233, 1);
    void *memory = malloc(10);
    TracyCLockAnnounce(lock);
    TracyCAlloc(memory, 10);
    TracyCLockBeforeLock(lock);
    TracyCLockAfterLock(lock);
    worked(5);
    TracyCLockAfterUnlock(lock);
    TracyCZoneText(outer, "note", 4);
    TracyCZoneTextF(outer, "note %d", 2);
    TracyCFree(memory);
    free(memory);
    TracyCPlot("temperature", 36.5);
    TracyCPlotI("count", 3);
    TracyCMessageL("done");
    TracyCFrameMark;
    TracyCZoneEnd(outer);
    TracyCZoneN(never, "never", 0);
    TracyCZoneEnd(never);
    return 0;
}

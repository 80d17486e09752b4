/*
 * `hostile_jobs`: has a job that others have, too (-DJOB=name), and claims impossible losses.
 * Waits until it is watched; says when it is done; ends when its input does.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* Places in the memory, see crates/layout. */
enum { CONTROL_LOST = 256, CONTROL_LOST_SLOTS = 16, RING_LOST = 16, ACTIVATIONS = 50 };

#define BEGIN(name) TOMPION_JOB(motor, name, 1000000, (i32, number, number))
#define IS_WATCHED(name) TOMPION_SPAN_ENABLED(motor, name)
#define NAMED(macro, name) macro(name)

static void lie(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], flags[8];
    unsigned long begin, end;

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long place = strstr(line, "memfd:tompion-control") ? CONTROL_LOST
                              : strstr(line, "memfd:tompion-rings") ? RING_LOST
                                                                    : 0;
        if (place && sscanf(line, "%lx-%lx %7s", &begin, &end, flags) == 3 && flags[1] == 'w')
            for (int cause = 0; cause < CONTROL_LOST_SLOTS; cause++)
                ((volatile uint64_t *)(begin + place))[cause] = cause == 0 ? -3ull : (uint64_t)cause << 60;
    }
    if (maps)
        fclose(maps);
}

static void act(int number)
{
    NAMED(BEGIN, JOB);
    /* Late each time. */
    usleep(2000);
}

int main(void)
{
    while (!NAMED(IS_WATCHED, JOB))
        usleep(1000);
    for (int number = 0; number < ACTIVATIONS; number++)
        act(number);
    lie();
    printf("done\n");
    fflush(stdout);
    (void)getchar();
    return 0;
}

/*
 * A periodic job that is late twice, on purpose, of a program that knows nothing of Tompion: marks
 * (USDT) stand where an activation begins and ends. 300 activations, 1 ms from one to the next. It
 * waits for a listener.
 */
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "marks.h"

#define MILLISECOND 1000000
#define ACTIVATIONS 300

LISTENERS(listeners);

static void sleep_until(struct timespec *time, long after)
{
    time->tv_nsec += after;
    time->tv_sec += time->tv_nsec / 1000000000;
    time->tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, time, NULL);
}

int main(void)
{
    struct sched_param urgent = {.sched_priority = 50};
    struct timespec next;
    int number;

    while (!listeners)
        usleep(1000);
    /* Where that is not allowed, it is late more often. */
    (void)sched_setscheduler(0, SCHED_FIFO, &urgent);
    for (number = 0; number < ACTIVATIONS; number++) {
        /* The schedule restarts after each, so that only intended activations are late. */
        clock_gettime(CLOCK_MONOTONIC, &next);
        sleep_until(&next, MILLISECOND);
        MARK("loop", "begin", "listeners", "-4@%0", "r"(number));
        if (number % 100 == 0 && number != 0)
            usleep(450 * 1000);
        MARK("loop", "end", "0", "-4@%0", "r"(number));
    }
    return 0;
}

/*
 * A periodic job that is late twice, on purpose: 300 activations, 1 ms from one to the next. It
 * waits until a monitor watches it. Each test has a job of its own (-DJOB=name), because monitors
 * receive the jobs of all programs. With an argument, it continues after the first activation when
 * its input ends: the monitor knows the thread by then.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

#define MILLISECOND 1000000
#define ACTIVATIONS 300

/* Names are not expanded within the macros. */
#define BEGIN(name) TOMPION_JOB(motor, name, 400 * MILLISECOND, (i32, number, number))
#define IS_WATCHED(name) TOMPION_SPAN_ENABLED(motor, name)
#define NAMED(macro, name) macro(name)

static void sleep_until(struct timespec *time, long after)
{
    time->tv_nsec += after;
    time->tv_sec += time->tv_nsec / 1000000000;
    time->tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, time, NULL);
}

/* Late in the hundredth and the two hundredth: sleeps for longer than the deadline. */
__attribute__((noinline)) void on_cycle(int number)
{
    NAMED(BEGIN, JOB);
    TOMPION_SPAN(motor, inner);
    if (number % 100 == 0 && number != 0)
        usleep(450 * 1000);
}

int main(int count, char **arguments)
{
    struct sched_param urgent = {.sched_priority = 50};
    struct timespec next;
    int number;

    while (!NAMED(IS_WATCHED, JOB))
        usleep(1000);
    /* Where that is not allowed, it is late more often. */
    (void)sched_setscheduler(0, SCHED_FIFO, &urgent);
    for (number = 0; number < ACTIVATIONS; number++) {
        /* The schedule restarts after each, so that only intended activations are late. */
        clock_gettime(CLOCK_MONOTONIC, &next);
        sleep_until(&next, MILLISECOND);
        on_cycle(number);
        if (number == 0 && count > 1)
            (void)getchar();
    }
    (void)arguments;
    TOMPION_EVENT(motor, done, (i32, deadline, 0));
    return 0;
}

/*
 * A job whose first end and second begin find no room: others have filled the ring. Each step waits
 * for a byte on standard input, and says on standard output that it is done.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* Many times as many as the monitor's ring holds. */
#define FLOOD 200000

static void step(void)
{
    char byte = '\n';

    (void)!write(1, &byte, 1);
    (void)!read(0, &byte, 1);
}

static void flood(void)
{
    for (int number = 0; number < FLOOD; number++) {
        TOMPION_JOB(motor, filler, 0);
    }
}

int main(void)
{
    cpu_set_t one;

    /* One ring, which is full. */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    while (!TOMPION_SPAN_ENABLED(motor, lossy))
        usleep(1000);
    step();
    {
        TOMPION_JOB(motor, lossy, 0);
        flood();
    }
    {
        TOMPION_JOB(motor, lossy, 0);
        step();
    }
    step();
    {
        TOMPION_JOB(motor, lossy, 0);
    }
    return 0;
}

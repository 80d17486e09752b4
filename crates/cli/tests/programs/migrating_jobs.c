/*
 * Jobs that begin on one CPU and end on another, as threads do that the scheduler migrates. Waits
 * until a monitor watches it.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include <tompion/tompion.h>

#define ACTIVATIONS 2000

static void run_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

int main(void)
{
    cpu_set_t allowed;
    int cpus[2] = {0, 0}, count = 0;

    (void)sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            cpus[count++] = cpu;
    if (count < 2)
        return 77;
    while (!TOMPION_SPAN_ENABLED(motor, migrating))
        usleep(1000);
    /* Rings are read in order of the CPUs: the end is read first. */
    for (int number = 0; number < ACTIVATIONS; number++) {
        run_on(cpus[1]);
        TOMPION_JOB(motor, migrating, 0);
        run_on(cpus[0]);
    }
    return 0;
}

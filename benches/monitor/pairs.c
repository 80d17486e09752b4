/*
 * pairs CPU HOW: two processes on one CPU wake each other by a byte through a pipe, so that nothing
 * but a wake-up and the switch that follows is done again and again: the CPU is never idle in
 * between, and no other CPU is asked. HOW is `other`, `batch` or a priority of SCHED_FIFO. Under
 * SCHED_OTHER a woken process runs at once, before the other one sleeps, which then needs no
 * wake-up: a switch has half a one. Under SCHED_BATCH it waits until the other one sleeps.
 *
 * For each line on standard input, a number, it does so many chunks of PAIRS, and writes how many
 * nanoseconds one pair took: by the lower quartile of the chunks, because whatever disturbs makes a
 * chunk longer. Ends with its input.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 1000
#define MAX_CHUNKS 10000

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_size(const void *left, const void *right)
{
    double one = *(const double *)left, other = *(const double *)right;
    return (one > other) - (one < other);
}

static void go_to(int cpu, const char *how)
{
    int is_batch = !strcmp(how, "batch"), priority = atoi(how);
    int policy = is_batch ? SCHED_BATCH : priority ? SCHED_FIFO : SCHED_OTHER;

    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
    struct sched_param parameters = {.sched_priority = priority};
    if (policy != SCHED_OTHER && sched_setscheduler(0, policy, &parameters))
        fail("sched_setscheduler");
    if (mlockall(MCL_CURRENT | MCL_FUTURE))
        fail("mlockall");
}

/* There and back are two pairs. */
static double chunk(int there, int back)
{
    char byte = 0;
    double begin = now();
    for (int pair = 0; pair < PAIRS; pair += 2)
        if (write(there, &byte, 1) != 1 || read(back, &byte, 1) != 1)
            fail("pipe");
    return (now() - begin) / PAIRS;
}

int main(int words, char **word)
{
    static double took[MAX_CHUNKS];
    int there[2], back[2], chunks;
    char byte;
    if (words != 3)
        return 2;
    go_to(atoi(word[1]), word[2]);
    if (pipe(there) || pipe(back))
        fail("pipe");
    pid_t other = fork();
    if (other == 0) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    close(there[0]);
    while (scanf("%d", &chunks) == 1 && chunks > 0 && chunks <= MAX_CHUNKS) {
        for (int i = 0; i < chunks; i++)
            took[i] = chunk(there[1], back[0]);
        qsort(took, chunks, sizeof *took, by_size);
        printf("%.2f\n", took[chunks / 4]);
        fflush(stdout);
    }
    close(there[1]);
    waitpid(other, 0, 0);
    return 0;
}

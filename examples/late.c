/*
 * A control loop that is late now and then. Why? `tompion view` tells: see docs/guide/why-late.md.
 *
 *     cc -std=c11 -O2 late.c -o late -ltompion -lpthread
 *     sudo tompion record -k -o late-trace -- ./late
 *     tompion view late-trace
 *
 * The loop runs each 10 ms and works for 2 ms; its deadline is 5 ms. On the same CPU, a thread of higher
 * priority comes each 70 ms and computes for 8 ms, and a third one holds a lock that the loop needs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tompion/tompion.h>

#define MILLISECOND 1000000u

static pthread_mutex_t settings = PTHREAD_MUTEX_INITIALIZER;
static volatile int ended;

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Computes until this thread itself has had so much of a CPU. To ask for that is a system call, so it is rare. */
static void work(uint64_t nanoseconds)
{
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;

    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
        for (volatile unsigned i = 0; i < 100000; i++)
            ;
    }
}

static void sleep_until(uint64_t moment)
{
    struct timespec time = {(time_t)(moment / 1000000000u), (long)(moment % 1000000000u)};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* Where that is not allowed, the thread stays an ordinary one: it is late less often then. */
static void be_urgent(void)
{
    struct sched_param urgent = {.sched_priority = 10};

    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent) != 0)
        fprintf(stderr, "late: no real-time priority (run it as root): it will be late less often\n");
}

static void compress_once(void)
{
    TOMPION_SPAN(log, compress);
    work(8 * MILLISECOND);
}

/* Comes each 70 ms, and has the CPU for 8 ms. */
static void *compress(void *unused)
{
    uint64_t next = now(CLOCK_MONOTONIC);

    (void)unused;
    pthread_setname_np(pthread_self(), "compressor");
    be_urgent();
    while (!ended) {
        compress_once();
        sleep_until(next += 70 * MILLISECOND);
    }
    return NULL;
}

static void store_once(void)
{
    TOMPION_SPAN(settings, store);
    pthread_mutex_lock(&settings);
    sleep_until(now(CLOCK_MONOTONIC) + 6 * MILLISECOND);
    pthread_mutex_unlock(&settings);
}

/* Comes each 110 ms, and keeps the lock for 6 ms while it waits for something else. */
static void *store(void *unused)
{
    uint64_t next = now(CLOCK_MONOTONIC);

    (void)unused;
    pthread_setname_np(pthread_self(), "settings");
    while (!ended) {
        store_once();
        sleep_until(next += 110 * MILLISECOND);
    }
    return NULL;
}

static void control(uint64_t number)
{
    TOMPION_JOB(motor, control, 5 * MILLISECOND, (u64, number, number));
    pthread_mutex_lock(&settings);
    work(MILLISECOND);
    pthread_mutex_unlock(&settings);
    work(MILLISECOND);
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100, late = 0;
    pthread_t rival, keeper;
    cpu_set_t one;

    /* One CPU for all of them, so that they are in each other's way. */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_create(&rival, NULL, compress, NULL);
    pthread_create(&keeper, NULL, store, NULL);
    pthread_setname_np(pthread_self(), "controller");
    for (uint64_t i = 0, next = now(CLOCK_MONOTONIC); i < count; i++) {
        control(i);
        late += now(CLOCK_MONOTONIC) > next + 5 * MILLISECOND;
        sleep_until(next += 10 * MILLISECOND);
    }
    ended = 1;
    pthread_join(rival, NULL);
    pthread_join(keeper, NULL);
    printf("%u of %u activations ended after their deadline\n", late, count);
    return 0;
}

/*
 * A control loop that is late now and then. Why? `tompion view` tells: see docs/guide/why-late.md.
 *
 *     cc -std=c11 -O2 late.c -o late -ltompion -lpthread
 *     sudo tompion record --as-root -k -o late-trace -- ./late
 *     tompion view late-trace
 *
 * The loop runs each 10 ms and works for 2 ms; its deadline is 5 ms. On the same CPU, a thread of
 * higher priority comes each 70 ms and computes for 8 ms, and a third one holds a lock that the
 * loop needs.
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
/* When the loop begins. */
static uint64_t begin;

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Computes until this thread itself has had so much of a CPU. To ask for that is a system call,
 * so it is rare. */
static void work(uint64_t nanoseconds)
{
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;

    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
        for (volatile unsigned i = 0; i < 400000; i++)
            ;
    }
}

static void sleep_until(uint64_t moment)
{
    struct timespec time = {(time_t)(moment / 1000000000u), (long)(moment % 1000000000u)};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* Gives the thread a real-time priority. Where that is not allowed, it stays an ordinary one. */
static void be_urgent(int priority)
{
    struct sched_param urgent = {.sched_priority = priority};

    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent) != 0)
        fprintf(stderr, "late: no real-time priority (run it as root): it will be late for other reasons, too\n");
}

static void compress_once(void)
{
    TOMPION_SPAN(log, compress);
    work(8 * MILLISECOND);
}

/* Comes each 70 ms, and has the CPU for 8 ms. */
static void *compress(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "compressor");
    be_urgent(10);
    for (uint64_t next = begin + 21 * MILLISECOND; !ended; next += 70 * MILLISECOND) {
        sleep_until(next);
        compress_once();
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
    (void)unused;
    pthread_setname_np(pthread_self(), "settings");
    for (uint64_t next = begin + 39 * MILLISECOND; !ended; next += 110 * MILLISECOND) {
        sleep_until(next);
        store_once();
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
    /* Threads inherit it. */
    be_urgent(5);
    begin = now(CLOCK_MONOTONIC) + 20 * MILLISECOND;
    pthread_create(&rival, NULL, compress, NULL);
    pthread_create(&keeper, NULL, store, NULL);
    pthread_setname_np(pthread_self(), "controller");
    for (uint64_t i = 0, next = begin; i < count; i++, next += 10 * MILLISECOND) {
        sleep_until(next);
        control(i);
        late += now(CLOCK_MONOTONIC) > next + 5 * MILLISECOND;
    }
    ended = 1;
    pthread_join(rival, NULL);
    pthread_join(keeper, NULL);
    printf("%u of %u activations ended after their deadline\n", late, count);
    return 0;
}

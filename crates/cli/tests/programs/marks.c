/*
 * Marks (USDT), one of them with a counter of listeners, and functions to put probes into.
 *
 *   marks ROUNDS    goes through all of it so many times
 *   marks watch     prints when a listener attaches, and when the last one detaches
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "marks.h"

LISTENERS(listeners);

#if defined(__x86_64__)
#define CONSTANT "$"
#else
#define CONSTANT ""
#endif

struct order {
    long price;
    short count;
};

__attribute__((noinline)) static void sell(int round, const char *what, struct order *order)
{
    MARK("shop", "sale", "0", "-4@%0 8@%1 -2@%2 -4@" CONSTANT "-7", "r"(round), "r"(what), "m"(order->count));
}

/* In two places, with arguments of two widths. */
__attribute__((noinline)) static void visit(int round)
{
    unsigned char small = round;
    MARK("shop", "visit", "listeners", "4@%0", "r"(round));
    MARK("shop", "visit", "listeners", "1@%b0", "q"(small));
}

__attribute__((noinline)) long nine(int a, long b, unsigned char c, const char *text, int e, int f, int g, long h, int i)
{
    asm volatile("");
    return text ? a + b + c + e + f + g + h + i : -1;
}

static void *often(void *rounds)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    for (long round = 0; round < (long)rounds; round++)
        nine(round, -round, round, "a text", 5, 6, 7, 8, 9);
    return NULL;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "watch") == 0) {
        puts("no listener");
        fflush(stdout);
        while (!listeners)
            usleep(1000);
        puts("listener attached");
        fflush(stdout);
        while (listeners)
            usleep(1000);
        puts("listener detached");
        return 0;
    }
    long rounds = count == 2 ? atol(words[1]) : 1;
    printf("%d\n", listeners);
    for (long round = 0; round < rounds; round++) {
        struct order order = {round, -round};
        char what[32];
        snprintf(what, sizeof what, "thing %ld", round);
        sell(round, what, &order);
        visit(round);
    }
    /* Both on one CPU, so that they preempt each other. */
    pthread_t threads[2];
    for (int thread = 0; thread < 2; thread++)
        pthread_create(&threads[thread], NULL, often, (void *)rounds);
    for (int thread = 0; thread < 2; thread++)
        pthread_join(threads[thread], NULL);
    nine(1, 2, 3, NULL, 5, 6, 7, 8, 9);
    return 0;
}

/*
 * A database that isn't one: queries that take a while, some of them too long.
 *
 *     cc -std=c11 -O2 hello.c -o hello -ltompion
 *     tompion record -e 'db:*' -- ./hello 100
 *     tompion print
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tompion/tompion.h>

enum outcome { DONE, EMPTY, REFUSED };

TOMPION_ENUM(outcome, (done, DONE), (empty, EMPTY), (refused, REFUSED));

static double milliseconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) * 1e3 + (double)(now.tv_nsec - start->tv_nsec) / 1e6;
}

/* Returns the number of rows. */
static unsigned query(const char *table, unsigned number)
{
    struct timespec start, pause = {0, (number * 7919 % 1000) * 1000};
    unsigned rows = number * 31 % 100;
    double ms;

    TOMPION_EVENT(db, query_start, (u64, number, number), (str, table, table));
    clock_gettime(CLOCK_MONOTONIC, &start);
    nanosleep(&pause, NULL);
    ms = milliseconds_since(&start);
    TOMPION_EVENT(db, query_done, (u64, rows, rows), (str, table, table), (f64, ms, ms),
                  (enum, outcome, outcome, rows == 0 ? EMPTY : DONE));
    if (ms > 0.9)
        TOMPION_EVENT_LEVEL(WARNING, db, slow_query, (str, table, table), (f64, ms, ms));
    return rows;
}

int main(int argc, char **argv)
{
    static const char *const tables[] = {"customers", "orders", "parts"};
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20;
    unsigned rows = 0;

    for (unsigned i = 0; i < count; i++)
        rows += query(tables[i % 3], i);
    printf("%u queries, %u rows\n", count, rows);
    return 0;
}

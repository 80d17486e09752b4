/* Events that are also told on standard output, so that a test can hold one against the other. */
#ifndef TOLD_H
#define TOLD_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

static atomic_ulong told_number;

static unsigned long told_event(const char *role)
{
    unsigned long number = ++told_number;
    TOMPION_EVENT(told, step, (i32, pid, syscall(SYS_getpid)), (i32, tid, syscall(SYS_gettid)),
                  (u64, number, number), (str, role, role));
    return number;
}

/* Records an event that must be in the trace. One line, written at once; safe in signal handlers. */
static __attribute__((unused)) void tell(const char *role)
{
    unsigned long number = told_event(role);
    char line[160];
    int length = snprintf(line, sizeof line, "told %ld %ld %lu %s\n", syscall(SYS_getpid), syscall(SYS_gettid),
                          number, role);
    if (write(1, line, length) != length)
        _exit(99);
}

/* Records an event that must not be in the trace. */
static __attribute__((unused)) void tell_nobody(const char *role)
{
    told_event(role);
}

/* Tells nobody that it waits, until there is a word on standard input: who records sees that it does. */
static __attribute__((unused)) void tell_until_a_word(void)
{
    struct timespec often = {0, 1000 * 1000};
    char byte;
    fcntl(0, F_SETFL, O_NONBLOCK);
    while (read(0, &byte, 1) < 0) {
        tell_nobody("waiting");
        clock_nanosleep(CLOCK_MONOTONIC, 0, &often, NULL);
    }
}

#endif

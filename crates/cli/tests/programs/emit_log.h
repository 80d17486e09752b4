/* Events that are also logged on standard output, so that a test can compare log and trace. */
#ifndef EMIT_LOG_H
#define EMIT_LOG_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

static atomic_ulong last_number;

static unsigned long emit_event(const char *role)
{
    unsigned long number = ++last_number;
    TOMPION_EVENT(emit_log, step, (i32, pid, syscall(SYS_getpid)), (i32, tid, syscall(SYS_gettid)),
                  (u64, number, number), (str, role, role));
    return number;
}

/* Records an event that must be in the trace. One line, written at once; safe in signal
 * handlers. */
static __attribute__((unused)) void emit(const char *role)
{
    unsigned long number = emit_event(role);
    char line[160];
    int length = snprintf(line, sizeof line, "emitted %ld %ld %lu %s\n", syscall(SYS_getpid), syscall(SYS_gettid),
                          number, role);
    if (write(1, line, length) != length)
        _exit(99);
}

/* Records an event that must not be in the trace. */
static __attribute__((unused)) void emit_unlogged(const char *role)
{
    emit_event(role);
}

/* Emits events that are not logged until there is input, so that the recorder sees that the
 * program waits. */
static __attribute__((unused)) void emit_until_input(void)
{
    struct timespec often = {0, 1000 * 1000};
    char byte;
    fcntl(0, F_SETFL, O_NONBLOCK);
    while (read(0, &byte, 1) < 0) {
        emit_unlogged("waiting");
        clock_nanosleep(CLOCK_MONOTONIC, 0, &often, NULL);
    }
}

#endif

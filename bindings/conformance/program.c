/*
 * The conformance suite's program in C: performs the case that its argument names. cases.toml says
 * what each case does; every other language's program does the same.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITHOUT_LIBRARY
#define TOMPION_OPTIONAL
#endif
#include <tompion/tompion.h>

TOMPION_ENUM(machine, (idle, 0), (running, 1), (failed, -9, -1));
TOMPION_ENUM(color, (red, 1), (blue, 255));

static void field_types(void)
{
    TOMPION_EVENT(suite, signed, (i8, a, -128), (i16, b, -32768), (i32, c, -2147483647 - 1), (i64, d, INT64_MIN));
    TOMPION_EVENT(suite, unsigned, (u8, a, 255), (u16, b, 65535), (u32, c, UINT32_MAX), (u64, d, UINT64_MAX));
    TOMPION_EVENT(suite, hexadecimal, (x8, a, 0xab), (x16, b, 0xabcd), (x32, c, 0xabcdef01),
                  (x64, d, 0xabcdef0123456789));
    TOMPION_EVENT(suite, network, (n16, a, htons(4660)), (n32, b, htonl(305419896)), (n64, c, htobe64(1)),
                  (ni16, d, htons((uint16_t)-2)), (nx32, e, htonl(0xabcd)));
    TOMPION_EVENT(suite, floats, (f32, a, 0.5), (f64, b, -1.25e10));
    TOMPION_EVENT(suite, booleans, (bool, yes, 1), (bool, no, 0));
    TOMPION_EVENT(suite, texts, (str, a, "h\xc3\xa4user \"x\""), (str, b, ""));
    TOMPION_EVENT(suite, blobs, (bytes, a, "\0\1\xff", 3), (bytes, b, "", 0));
    TOMPION_EVENT(suite, arrays, (array, a, u16, ((uint16_t[]){1, 2, 65535}), 3),
                  (sequence, b, i32, ((int32_t[]){-1, 0, 1}), 3), (sequence, c, u8, NULL, 0));
    TOMPION_EVENT(suite, array_texts, (array_text, a, "ab\0", 4), (sequence_text, b, "text", 4));
    TOMPION_EVENT(suite, enumerations, (enum, a, machine, 1), (enum, b, machine, -5), (enum, c, machine, 7),
                  (enum_u8, d, color, 255));
    TOMPION_EVENT(suite, structures, (struct, a, (i64, x, 7), (str, y, "in")));
    TOMPION_EVENT(suite, empty);
}

static void levels(void)
{
    TOMPION_EVENT_LEVEL(EMERG, suite, emerg);
    TOMPION_EVENT_LEVEL(ALERT, suite, alert);
    TOMPION_EVENT_LEVEL(CRIT, suite, crit);
    TOMPION_EVENT_LEVEL(ERR, suite, err);
    TOMPION_EVENT_LEVEL(WARNING, suite, warning);
    TOMPION_EVENT_LEVEL(NOTICE, suite, notice);
    TOMPION_EVENT_LEVEL(INFO, suite, info);
    TOMPION_EVENT_LEVEL(DEBUG, suite, debug);
    TOMPION_EVENT(suite, ordinary);
}

static void inner(int depth)
{
    TOMPION_SPAN(suite, inner, (i64, depth, depth));
    if (depth > 0)
        inner(depth - 1);
}

static void spans(void)
{
    TOMPION_SPAN(suite, outer, (str, what, "all"));
    inner(2);
}

static void others(void)
{
    TOMPION_COUNTER(suite, queue, (int64_t)-3);
    TOMPION_COUNTER(suite, load, 0.75);
    TOMPION_FLOW(suite, request, 0xfeed);
    TOMPION_MARK(loaded, "rows %ld of %.1f %% in '%s'", 42L, 12.5, "orders");
    {
        TOMPION_JOB(suite, cycle, 500000, (f64, error, 0.5));
    }
}

/* For rules and filters. */
static void numbers(void)
{
    for (int64_t number = 0; number < 10; number++) {
        TOMPION_EVENT(suite, number, (i64, number, number), (str, kind, number % 2 ? "odd" : "even"));
        TOMPION_EVENT(suite, noise, (i64, number, number));
    }
}

static void child(const char *what)
{
    TOMPION_EVENT(suite, child, (str, what, what));
}

static void forks(char *const argv[])
{
    TOMPION_EVENT(suite, parent, (str, what, "before"));
    pid_t forked = fork();
    if (forked == 0) {
        child("forked");
        exit(0);
    }
    waitpid(forked, NULL, 0);
    pid_t started = fork();
    if (started == 0) {
        execl(argv[0], argv[0], "executed", (char *)NULL);
        _exit(127);
    }
    waitpid(started, NULL, 0);
    TOMPION_EVENT(suite, parent, (str, what, "behind"));
}

static void *emit_thousand(void *thread)
{
    for (int64_t number = 0; number < 1000; number++)
        TOMPION_EVENT(suite, work, (i64, thread, (int64_t)(intptr_t)thread), (i64, number, number));
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    for (intptr_t thread = 0; thread < 4; thread++)
        pthread_create(&all[thread], NULL, emit_thousand, (void *)thread);
    for (int thread = 0; thread < 4; thread++)
        pthread_join(all[thread], NULL);
}

static void at_exit(void)
{
    TOMPION_EVENT(suite, last);
}

/* Records a step for each line of its input. */
static void steps(void)
{
    char line[100];
    /* Once before anybody listens: then the event is known. */
    TOMPION_EVENT(suite, begin);
    for (int64_t number = 0; puts("ready"), fflush(stdout), fgets(line, sizeof line, stdin); number++)
        TOMPION_EVENT(suite, step, (i64, number, number));
}

/* Records numbers until it is killed; `progress` on its output says that some were recorded. */
static void endless(void)
{
    for (int64_t number = 0;; number++) {
        TOMPION_EVENT(suite, torn, (i64, number, number), (str, text, "a text that could be torn"), (i64, again, number));
        if (number == 10000)
            puts("progress"), fflush(stdout);
    }
}

int main(int argc, char *argv[])
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "field_types") == 0)
        field_types();
    else if (strcmp(what, "levels") == 0)
        levels();
    else if (strcmp(what, "spans") == 0)
        spans();
    else if (strcmp(what, "others") == 0)
        others();
    else if (strcmp(what, "numbers") == 0)
        numbers();
    else if (strcmp(what, "forks") == 0)
        forks(argv);
    else if (strcmp(what, "executed") == 0)
        child("executed");
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "exit") == 0)
        atexit(at_exit);
    else if (strcmp(what, "steps") == 0)
        steps();
    else if (strcmp(what, "endless") == 0)
        endless();
    else
        return 2;
    return 0;
}

/* Every type of field once, with words that headers and users define as macros. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

/* Before the header and after it. */
#define u64 unsigned long long
#define str "not a type"
#define array(a) a
#define db left, right
#define running 5
#define machine_state (
#define WARNING 2
#define DEBUG 1

#include <tompion/tompion.h>

#define i16 short
#define sequence 1, 2
#define bytes 8
#define size 77
#define data 78
#define enabled 79
#define append 80
#define fixed 81
#define packed 82
#define section 83
#define FAILED (-9)

#include "fields.h"

TOMPION_ENUM(machine_state, (idle, 0), (running, running), (failed, FAILED, -1), (linux, 1 << 20));
TOMPION_ENUM(unused, (nothing, 0));

static int calls;

static int once(void)
{
    return ++calls;
}

static void integers(void)
{
    TOMPION_EVENT(types, integers, (i8, a, -1), (i16, b, -2), (i32, c, -3), (i64, d, -4), (u8, e, 5),
                  (u16, f, 6), (u32, g, 7), (u64, h, 8), (x8, i, 0x109), (x16, j, 10), (x32, k, 11),
                  (x64, l, (void *)0x1122334455667788));
}

static void others(const char *text)
{
    const char letters[4] = {'a', 'b', 'c', 'd'};
    const short numbers[] = {1, -2, 3};
    const uint64_t words[] = {~(uint64_t)0, 1};
    TOMPION_EVENT(types, others, (f32, f, 1.5), (f64, g, -0.25), (bool, yes, 2 > 1), (bool, no, 0),
                  (str, text, text), (str, none, NULL), (strn, cut, letters, 3), (strn, whole, text, 100),
                  (strn, gone, NULL, 3), (bytes, raw, letters, sizeof letters), (bytes, nothing, NULL, 5),
                  (array, fixed, i16, numbers, 3), (sequence, some, x64, words, 2),
                  (sequence, few, u32, NULL, 2), (array, void, u8, (const void *)letters, 2 + 2),
                  (enum, state, machine_state, running), (enum, again, machine_state, -5));
}

/* Words that are macros or keywords, wherever a name may stand. */
static void clashes(void)
{
    TOMPION_EVENT_LEVEL(WARNING, db, linux, (i32, errno, 1), (u64, u64, 2), (str, str, "s"),
                        (bool, bool, true), (u8, running, running), (array, array, u64, &(uint64_t){3}, 1),
                        (sequence, sequence, i16, (&(short){4}), 1), (enum, enum, machine_state, 0),
                        (bytes, bytes, "b", 1), (i8, size, 1), (i8, data, 1), (i8, if, 1), (i8, head, 1));
}

static void levels(void)
{
    TOMPION_EVENT_LEVEL(EMERG, level, emerg);
    TOMPION_EVENT_LEVEL(INFO, level, info, (u8, a, 1));
    TOMPION_EVENT_LEVEL(DEBUG, level, debug);
    TOMPION_EVENT(level, usual);
}

/* One statement each, in every kind of place. */
static void places(void)
{
    if (calls == 0)
        TOMPION_EVENT(place, branch, (u8, a, 1));
    else
        TOMPION_EVENT(place, other, (u8, a, 2));
    for (int i = 0; i < 2; i++)
        TOMPION_EVENT(place, loop, (u8, a, i));
    TOMPION_EVENT(place, line, (u8, a, 3)); TOMPION_EVENT(place, line, (u8, a, 4));
    TOMPION_EVENT(place, nested, (u8, a, in_header(5)));
    TOMPION_EVENT(place, once, (i32, a, once()), (i32, b, calls));
    if (TOMPION_EVENT_ENABLED(place, asked))
        TOMPION_EVENT(place, asked, (u8, a, 6));
}

static void large(void)
{
    static char text[60001];
    memset(text, 'x', sizeof text - 1);
    TOMPION_EVENT(size, large, (str, text, text), (strn, endless, text, SIZE_MAX));
    TOMPION_EVENT(
        size, most, (u8, f1, 1), (u8, f2, 2), (u8, f3, 3), (u8, f4, 4), (u8, f5, 5), (u8, f6, 6), (u8, f7, 7),
        (u8, f8, 8), (u8, f9, 9), (u8, f10, 10), (u8, f11, 11), (u8, f12, 12), (u8, f13, 13), (u8, f14, 14),
        (u8, f15, 15), (u8, f16, 16), (u8, f17, 17), (u8, f18, 18), (u8, f19, 19), (u8, f20, 20),
        (u8, f21, 21), (u8, f22, 22), (u8, f23, 23), (u8, f24, 24), (u8, f25, 25), (u8, f26, 26),
        (u8, f27, 27), (u8, f28, 28), (u8, f29, 29), (u8, f30, 30), (u8, f31, 31), (u8, f32, 32),
        (u8, f33, 33), (u8, f34, 34), (u8, f35, 35), (u8, f36, 36), (u8, f37, 37), (u8, f38, 38),
        (u8, f39, 39), (u8, f40, 40), (u8, f41, 41), (u8, f42, 42), (u8, f43, 43), (u8, f44, 44),
        (u8, f45, 45), (u8, f46, 46), (u8, f47, 47), (u8, f48, 48), (u8, f49, 49), (u8, f50, 50),
        (u8, f51, 51), (u8, f52, 52), (u8, f53, 53), (u8, f54, 54), (u8, f55, 55), (u8, f56, 56),
        (u8, f57, 57), (u8, f58, 58), (u8, f59, 59), (u8, f60, 60), (u8, f61, 61), (u8, f62, 62),
        (u8, f63, 63), (u8, f64, 64));
}

__attribute__((constructor)) static void before(void)
{
    TOMPION_EVENT(life, constructor);
}

__attribute__((destructor)) static void after(void)
{
    TOMPION_EVENT(life, destructor);
}

int main(int argc, char **argv)
{
    integers();
    others(argc > 1 ? argv[1] : "hello");
    clashes();
    levels();
    places();
    large();
    second_file();
    /* While nothing records, no value is computed. */
    printf("calls %d\n", calls);
    return 0;
}

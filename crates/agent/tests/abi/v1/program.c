/* Everything that the first header could say. Compiled as C and, with the same result, as C++. */
#include <stdio.h>
#include <string.h>

#include "tompion.h"

#ifdef __cplusplus
#define LANGUAGE "C++"
#else
#define LANGUAGE "C"
#endif

TOMPION_ENUM(state, (idle, 0), (running, 5), (failed, -9, -1));

__attribute__((constructor)) static void before(void)
{
    TOMPION_EVENT(v1, constructor, (str, language, LANGUAGE));
}

__attribute__((destructor)) static void after(void)
{
    TOMPION_EVENT(v1, destructor);
}

static void integers(void)
{
    TOMPION_EVENT(v1, integers, (i8, a, -1), (i16, b, -2), (i32, c, -3), (i64, d, -4), (u8, e, 5), (u16, f, 6),
                  (u32, g, 7), (u64, h, 8), (x8, i, 9), (x16, j, 10), (x32, k, 11), (x64, l, 12));
}

static void others(void)
{
    static const int16_t numbers[] = {1, -2, 3};
    static const uint64_t words[] = {1, 2};
    char large[600];
    memset(large, 'x', sizeof large);
    TOMPION_EVENT(v1, others, (f32, f, 1.5), (f64, g, -0.25), (bool, yes, 1), (str, text, "hello"),
                  (strn, cut, "hello", 2), (bytes, raw, "abc", 3), (array, fixed, i16, numbers, 3),
                  (sequence, some, u64, words, 2), (enum, state, state, 5));
    TOMPION_EVENT_LEVEL(WARNING, v1, large, (strn, text, large, sizeof large));
}

static void places(void)
{
    for (int i = 0; i < 3; i++)
        TOMPION_EVENT(v1, loop, (i32, i, i));
    if (TOMPION_EVENT_ENABLED(v1, asked))
        TOMPION_EVENT(v1, asked);
    if (TOMPION_EVENT_ENABLED(v1, nobody))
        puts("an event that is nowhere is enabled");
}

int main(void)
{
    integers();
    others();
    places();
    return 0;
}

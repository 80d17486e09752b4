/* Every type of field with the values at its edges. `fields large` adds a record that no ring
 * takes. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tompion/tompion.h>

TOMPION_ENUM(state, (idle, 0), (running, 1), (failed, -9, -1), (busy, 100, 199),
             (largest, INT64_MAX), (smallest, INT64_MIN));

static void integers(void)
{
    TOMPION_EVENT(edge, signed, (i8, a, INT8_MIN), (i8, b, INT8_MAX), (i16, c, INT16_MIN), (i16, d, INT16_MAX),
                  (i32, e, INT32_MIN), (i32, f, INT32_MAX), (i64, g, INT64_MIN), (i64, h, INT64_MAX));
    TOMPION_EVENT(edge, unsigned, (u8, a, 0), (u8, b, UINT8_MAX), (u16, c, 0), (u16, d, UINT16_MAX),
                  (u32, e, 0), (u32, f, UINT32_MAX), (u64, g, 0), (u64, h, UINT64_MAX));
    TOMPION_EVENT(edge, hexadecimal, (x8, a, 0), (x8, b, UINT8_MAX), (x16, c, 0xabc), (x16, d, UINT16_MAX),
                  (x32, e, 0xdead), (x32, f, UINT32_MAX), (x64, g, (void *)0x123456789abc), (x64, h, UINT64_MAX));
    TOMPION_EVENT(edge, cut, (u8, a, 256 + 7), (i8, b, 255), (u32, c, -1));
}

static void floats(void)
{
    TOMPION_EVENT(edge, singles, (f32, nan, NAN), (f32, inf, INFINITY), (f32, ninf, -INFINITY), (f32, zero, -0.0f),
                  (f32, min, FLT_MIN), (f32, max, FLT_MAX), (f32, tiny, FLT_TRUE_MIN), (f32, third, 1.0f / 3));
    TOMPION_EVENT(edge, doubles, (f64, nan, NAN), (f64, inf, INFINITY), (f64, ninf, -INFINITY), (f64, zero, -0.0),
                  (f64, min, DBL_MIN), (f64, max, DBL_MAX), (f64, tiny, DBL_TRUE_MIN), (f64, third, 1.0 / 3));
    TOMPION_EVENT(edge, booleans, (bool, no, 0), (bool, yes, 1), (bool, many, 256), (bool, half, 0.5));
}

static void texts(void)
{
    static const char bare[4] = {'b', 'a', 'r', 'e'};
    const char *none = NULL;
    TOMPION_EVENT(edge, texts, (str, empty, ""), (str, null, none), (str, odd, "a\"b\\c\n\t\x01z"),
                  (str, utf8, "Grüße, 世界"), (str, last, "end"));
    TOMPION_EVENT(edge, bounded, (strn, bare, bare, 4), (strn, cut, "truncated", 5), (strn, early, "ab\0cd", 5),
                  (strn, zero, "never", 0), (strn, null, none, 9), (strn, room, "room", 1000));
}

static void runs(void)
{
    static const uint8_t raw[] = {0, 1, 127, 128, 255};
    static const int8_t small[] = {INT8_MIN, 0, INT8_MAX};
    static const uint16_t shorts[] = {0, UINT16_MAX};
    static const int32_t ints[] = {INT32_MIN, INT32_MAX};
    static const uint64_t longs[] = {0, UINT64_MAX};
    static const int64_t signed_longs[] = {INT64_MIN, INT64_MAX};
    const void *none = NULL;
    TOMPION_EVENT(edge, bytes, (bytes, some, raw, sizeof raw), (bytes, empty, raw, 0), (bytes, null, none, 5),
                  (bytes, one, raw + 4, 1));
    TOMPION_EVENT(edge, arrays, (array, a, i8, small, 3), (array, b, u16, shorts, 2), (array, c, x16, shorts, 2),
                  (array, d, i32, ints, 2), (array, e, u64, longs, 2), (array, f, x64, longs, 1));
    TOMPION_EVENT(edge, sequences, (sequence, a, i64, signed_longs, 2), (sequence, empty, u8, raw, 0),
                  (sequence, null, u32, none, 3), (sequence, hex, x8, raw, 5), (sequence, b, u64, longs, 1));
}

static void enumerations(void)
{
    TOMPION_EVENT(edge, enums, (enum, idle, state, 0), (enum, running, state, 1), (enum, first, state, -9),
                  (enum, last, state, -1), (enum, inside, state, 150), (enum, before, state, 99),
                  (enum, behind, state, 200), (enum, largest, state, INT64_MAX), (enum, smallest, state, INT64_MIN));
}

static void counts(void)
{
    TOMPION_EVENT(edge, nothing);
    TOMPION_EVENT(edge, sixty_four,
        (u8, f0, 0), (u8, f1, 1), (u8, f2, 2), (u8, f3, 3), (u8, f4, 4), (u8, f5, 5), (u8, f6, 6), (u8, f7, 7),
        (i16, f8, -8), (i16, f9, -9), (i16, f10, -10), (i16, f11, -11), (i16, f12, -12), (i16, f13, -13),
        (i16, f14, -14), (i16, f15, -15), (str, f16, "16"), (str, f17, "17"), (str, f18, ""), (str, f19, "19"),
        (str, f20, "20"), (str, f21, "21"), (str, f22, "22"), (str, f23, "23"), (u64, f24, 24), (u64, f25, 25),
        (u64, f26, 26), (u64, f27, 27), (u64, f28, 28), (u64, f29, 29), (u64, f30, 30), (u64, f31, 31),
        (f64, f32, 3.2), (f64, f33, 3.3), (f64, f34, 3.4), (f64, f35, 3.5), (f64, f36, 3.6), (f64, f37, 3.7),
        (f64, f38, 3.8), (f64, f39, 3.9), (enum, f40, state, 0), (enum, f41, state, 1), (enum, f42, state, -2),
        (enum, f43, state, 100), (strn, f44, "44", 2), (strn, f45, "45", 1), (bytes, f46, "46", 2),
        (bytes, f47, "47", 0), (x32, f48, 48), (x32, f49, 49), (x32, f50, 50), (x32, f51, 51), (bool, f52, 1),
        (bool, f53, 0), (i64, f54, -54), (i64, f55, -55), (u32, f56, 56), (u32, f57, 57), (u16, f58, 58),
        (u16, f59, 59), (i32, f60, -60), (i32, f61, -61), (i8, f62, -62), (i8, f63, -63));
}

static char text[70 * 1024];

int main(int argc, char **argv)
{
    integers();
    floats();
    texts();
    runs();
    enumerations();
    counts();
    for (int i = 0; i < 60 * 1024; i++)
        text[i] = 'a' + i % 26;
    TOMPION_EVENT(edge, long_text, (u32, before, 7), (str, text, text), (u32, after, 8));
    if (argc > 1 && strcmp(argv[1], "large") == 0) {
        memset(text, 'x', sizeof text - 1);
        TOMPION_EVENT(edge, long_text, (u32, before, 9), (str, text, text), (u32, after, 10));
        TOMPION_EVENT(edge, last);
    }
    return 0;
}

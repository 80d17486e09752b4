/* Every macro and every type of field, in what C and C++ have in common. It is compiled as both. */
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#ifdef __cplusplus
#define every every_cxx
#else
#define every every_c
#endif

TOMPION_ENUM(mood, (calm, 0), (busy, 1, 5), (angry, -9, -1), (bool, 100), (linux, 101, 101));
TOMPION_ENUM(bits, (none, 0), (upper, 0x8000000000000000u, UINT64_MAX));

static volatile int one = 1;

static void integers(void)
{
    TOMPION_EVENT(every, least, (i8, a, INT8_MIN), (i16, b, INT16_MIN), (i32, c, INT32_MIN),
                  (i64, d, INT64_MIN), (u8, e, 0), (u16, f, 0), (u32, g, 0), (u64, h, 0));
    state("every:least", "\"a\":-128,\"b\":-32768,\"c\":-2147483648,\"d\":-9223372036854775808,\"e\":0,"
                         "\"f\":0,\"g\":0,\"h\":0");
    TOMPION_EVENT(every, most, (i8, a, INT8_MAX), (i16, b, INT16_MAX), (i32, c, INT32_MAX),
                  (i64, d, INT64_MAX), (u8, e, UINT8_MAX), (u16, f, UINT16_MAX), (u32, g, UINT32_MAX),
                  (u64, h, UINT64_MAX));
    state("every:most", "\"a\":127,\"b\":32767,\"c\":2147483647,\"d\":9223372036854775807,\"e\":255,"
                        "\"f\":65535,\"g\":4294967295,\"h\":18446744073709551615");
    TOMPION_EVENT(every, hex, (x8, a, 0xfe), (x16, b, 0xfedc), (x32, c, 0xfedcba98), (x64, d, &one),
                  (x64, e, 0xfedcba9876543210));
    dprintf(1, "{\"event\":\"every:hex\",\"fields\":{\"a\":254,\"b\":65244,\"c\":4275878552,\"d\":%zu,"
               "\"e\":18364758544493064720}}\n", (size_t)&one);
    TOMPION_EVENT(every, network, (n16, port, __builtin_bswap16(80)), (n32, address, __builtin_bswap32(0x7f000001)),
                  (n64, cookie, __builtin_bswap64(0x0102030405060708)), (ni16, a, __builtin_bswap16((uint16_t)-2)),
                  (ni32, b, __builtin_bswap32((uint32_t)-3)), (ni64, c, __builtin_bswap64((uint64_t)-4)),
                  (nx16, d, __builtin_bswap16(0xfedc)), (nx32, e, __builtin_bswap32(0xfedcba98)),
                  (nx64, f, __builtin_bswap64(0xfedcba9876543210)));
    state("every:network", "\"port\":80,\"address\":2130706433,\"cookie\":72623859790382856,\"a\":-2,\"b\":-3,"
                           "\"c\":-4,\"d\":65244,\"e\":4275878552,\"f\":18364758544493064720");
    TOMPION_EVENT(every, converted, (u8, cut, 0x1ff), (i32, whole, 2.75), (u64, truth, one == 1),
                  (bool, yes, 0x100), (bool, no, !one), (f32, half, one / 2.0), (f64, most, DBL_MAX));
    state("every:converted", "\"cut\":255,\"whole\":2,\"truth\":1,\"yes\":1,\"no\":0,\"half\":0.5,"
                             "\"most\":1.7976931348623157e308");
}

static void texts(void)
{
    const char four[4] = {'f', 'o', 'u', 'r'};
    const unsigned char raw[3] = {0, 128, 255};
    TOMPION_EVENT(every, texts, (str, plain, "text"), (str, umlaut, "Gr\303\274\303\237e"), (str, none, NULL),
                  (strn, cut, "abcdef", 3), (strn, whole, "abc", 300), (strn, bare, four, sizeof four),
                  (strn, gone, NULL, 3), (array_text, fixed, four, 4), (sequence_text, loose, four, 3),
                  (bytes, raw, raw, sizeof raw));
    state("every:texts", "\"plain\":\"text\",\"umlaut\":\"Gr\303\274\303\237e\",\"none\":\"(null)\",\"cut\":\"abc\","
                         "\"whole\":\"abc\",\"bare\":\"four\",\"gone\":\"(nu\",\"fixed\":\"four\",\"loose\":\"fou\","
                         "\"_raw_length\":3,\"raw\":[0,128,255]");
    TOMPION_EVENT(every, no_bytes, (bytes, a, NULL, 5), (bytes, b, raw, 0), (sequence, c, u32, NULL, 7));
    state("every:no_bytes", "\"_a_length\":0,\"a\":[],\"_b_length\":0,\"b\":[],\"_c_length\":0,\"c\":[]");
}

static void lists(void)
{
    const int8_t bytes[3] = {-1, 0, 1};
    const int16_t halves[2] = {INT16_MIN, INT16_MAX};
    const uint32_t words[2] = {1, UINT32_MAX};
    const uint64_t longs[2] = {2, UINT64_MAX};
    const uint16_t ports[2] = {__builtin_bswap16(22), __builtin_bswap16(80)};
    TOMPION_EVENT(every, arrays, (array, a, i8, bytes, 3), (array, b, i16, halves, 1 + 1),
                  (array, c, u32, words, 2), (array, d, x64, longs, 2), (array, e, n16, ports, 2),
                  (array, f, u8, (const void *)bytes, sizeof bytes));
    state("every:arrays", "\"a\":[-1,0,1],\"b\":[-32768,32767],\"c\":[1,4294967295],"
                          "\"d\":[2,18446744073709551615],\"e\":[22,80],\"f\":[255,0,1]");
    static const char *const expected[] = {
        "\"_a_length\":0,\"a\":[],\"_b_length\":0,\"b\":[],\"_c_length\":0,\"c\":[],\"_d_length\":0,\"d\":[]",
        "\"_a_length\":1,\"a\":[-32768],\"_b_length\":1,\"b\":[2],\"_c_length\":1,\"c\":[22],"
        "\"_d_length\":1,\"d\":[-1]",
        "\"_a_length\":2,\"a\":[-32768,32767],\"_b_length\":2,\"b\":[2,18446744073709551615],"
        "\"_c_length\":2,\"c\":[22,80],\"_d_length\":2,\"d\":[-1,0]",
    };
    for (int count = 0; count <= 2; count++) {
        TOMPION_EVENT(every, sequences, (sequence, a, i16, halves, count), (sequence, b, u64, longs, count),
                      (sequence, c, n16, ports, count), (sequence, d, i8, bytes, count));
        state("every:sequences", expected[count]);
    }
}

static void enumerations(void)
{
    TOMPION_EVENT(every, enums, (enum, a, mood, 0), (enum, b, mood, 5), (enum, c, mood, -9), (enum, d, mood, 6),
                  (enum, e, mood, 100), (enum, f, mood, 101), (enum_i8, g, mood, -1), (enum_i16, h, mood, 3),
                  (enum_i32, i, mood, -10), (enum_i64, j, mood, -2), (enum_u8, k, mood, 100),
                  (enum_u16, l, mood, 1), (enum_u32, m, mood, 0xffffffff), (enum_u64, n, bits, UINT64_MAX),
                  (enum_u64, o, bits, 0), (enum_u64, p, bits, 1));
    state("every:enums",
          "\"a\":{\"value\":0,\"labels\":[\"calm\"]},\"b\":{\"value\":5,\"labels\":[\"busy\"]},"
          "\"c\":{\"value\":-9,\"labels\":[\"angry\"]},\"d\":{\"value\":6,\"labels\":[]},"
          "\"e\":{\"value\":100,\"labels\":[\"bool\"]},\"f\":{\"value\":101,\"labels\":[\"linux\"]},"
          "\"g\":{\"value\":-1,\"labels\":[\"angry\"]},\"h\":{\"value\":3,\"labels\":[\"busy\"]},"
          "\"i\":{\"value\":-10,\"labels\":[]},\"j\":{\"value\":-2,\"labels\":[\"angry\"]},"
          "\"k\":{\"value\":100,\"labels\":[\"bool\"]},\"l\":{\"value\":1,\"labels\":[\"busy\"]},"
          "\"m\":{\"value\":4294967295,\"labels\":[]},"
          "\"n\":{\"value\":18446744073709551615,\"labels\":[\"upper\"]},"
          "\"o\":{\"value\":0,\"labels\":[\"none\"]},\"p\":{\"value\":1,\"labels\":[]}");
}

static void structures(void)
{
    const uint8_t mac[6] = {1, 2, 3, 4, 5, 6};
    const int16_t track[3] = {-1, 0, 1};
    TOMPION_EVENT(every, structs, (u8, before, 1),
                  (struct, outer, (str, name, "eth0"), (array, mac, u8, mac, 6),
                   (struct, inner, (sequence, track, i16, track, 3), (enum_i8, mood, mood, 2), (f64, x, 0.5),
                    (array_text, text, "abc", 3)),
                   (struct, other, (n16, port, __builtin_bswap16(80))), (u8, last, 2)),
                  (struct, alone, (bytes, raw, mac, 2)), (u8, after, 3));
    state("every:structs",
          "\"before\":1,\"outer\":{\"name\":\"eth0\",\"mac\":[1,2,3,4,5,6],\"inner\":{\"_track_length\":3,"
          "\"track\":[-1,0,1],\"mood\":{\"value\":2,\"labels\":[\"busy\"]},\"x\":0.5,\"text\":\"abc\"},"
          "\"other\":{\"port\":80},\"last\":2},\"alone\":{\"_raw_length\":2,\"raw\":[1,2]},\"after\":3");
}

/* Words that are macros or keywords. */
static void words(void)
{
#define taken "not this"
    TOMPION_EVENT_LEVEL(WARNING, linux, errno, (u8, bool, 1), (u8, taken, 2), (u8, struct, 3), (u8, if, 4),
                        (u8, class, 5), (u8, i16, 6), (u8, template, 7));
    state("linux:errno", "\"bool\":1,\"taken\":2,\"struct\":3,\"if\":4,\"class\":5,\"i16\":6,\"template\":7");
}

static int calls;

static int once(void)
{
    return ++calls;
}

static void places(void)
{
    if (one)
        TOMPION_EVENT(every, place, (u8, number, 1));
    else
        TOMPION_EVENT(every, place, (u8, number, 0));
    state("every:place", "\"number\":1");
    if (!one)
        TOMPION_MARK(place, "number %d", 0);
    else
        TOMPION_EVENT(every, place, (u8, number, 2)); /* the same event at many sites */
    state("every:place", "\"number\":2");
    switch (one) {
    case 1:
        TOMPION_EVENT(every, place, (u8, number, 3)); TOMPION_EVENT(every, place, (u8, number, 4));
    }
    state("every:place", "\"number\":3");
    state("every:place", "\"number\":4");
    calls = 0;
    TOMPION_EVENT(every, once, (i32, a, once()), (i32, b, once()), (i32, c, calls));
    if (calls != 0) /* while it is recorded */
        state("every:once", "\"a\":1,\"b\":2,\"c\":2");
    if (calls == 1 || calls > 2)
        abort();
    errno = 77;
    TOMPION_EVENT(every, errno, (i32, errno, errno));
    if (errno != 77)
        abort();
    state("every:errno", "\"errno\":77");
    if (TOMPION_EVENT_ENABLED(every, asked))
        TOMPION_EVENT(every, asked);
    state("every:asked", "");
    if (TOMPION_EVENT_ENABLED(missing, event))
        abort();
    TOMPION_EVENT_INIT(every, settings, (str, name, "x"), (i32, version, 3));
    state("every:settings", "\"name\":\"x\",\"version\":3");
}

static void levels(void)
{
/* A macro around it expands what it is given, but not what it says itself. */
#define LEVEL(which)                           \
    TOMPION_EVENT_LEVEL(which, levels, which); \
    state("levels:" #which, "")
    LEVEL(EMERG);
    LEVEL(ALERT);
    LEVEL(CRIT);
    LEVEL(ERR);
    LEVEL(WARNING);
    LEVEL(NOTICE);
    LEVEL(INFO);
    LEVEL(DEBUG_SYSTEM);
    LEVEL(DEBUG_PROGRAM);
    LEVEL(DEBUG_PROCESS);
    LEVEL(DEBUG_MODULE);
    LEVEL(DEBUG_UNIT);
    LEVEL(DEBUG_FUNCTION);
    LEVEL(DEBUG_LINE);
    LEVEL(DEBUG);
}

/* Leaves its scopes in every way that C has. */
static int spans(int way)
{
    TOMPION_SPAN(span, outer, (i32, way, way));
    {
        char text[20];
        snprintf(text, sizeof text, "\"way\":%d", way);
        state("span:outer_begin", text);
    }
    for (int i = 0; i < 2; i++) {
        TOMPION_SPAN(span, round);
        if (i == 1)
            state("span:round_end", "");
        state("span:round_begin", "");
        if (way == 0)
            return 0;
        if (way == 1)
            break;
        if (way == 2 && i == 0)
            continue;
        goto out;
    }
out:;
    TOMPION_SPAN_LEVEL(INFO, span, rest, (str, what, "rest"));
    TOMPION_SPAN(span, same); /* two in one scope end in the reverse order */
    return 1;
}

static void rest_of_spans(void)
{
    state("span:round_end", "");
    state("span:rest_begin", "\"what\":\"rest\"");
    state("span:same_begin", "");
    state("span:same_end", "");
    state("span:rest_end", "");
    state("span:outer_end", "");
}

static void all_spans(void)
{
    spans(0);
    state("span:round_end", "");
    state("span:outer_end", "");
    spans(1);
    rest_of_spans();
    spans(2);
    rest_of_spans();
    spans(3);
    rest_of_spans();
}

static void long_spans(void)
{
    TOMPION_BEGIN(span, manual, (u8, number, 1));
    TOMPION_BEGIN_LEVEL(ERR, span, other);
    TOMPION_END_LEVEL(ERR, span, other, (i32, result, -1));
    TOMPION_END(span, manual, (str, how, "well"));
    state("span:manual_begin", "\"number\":1");
    state("span:other_begin", "");
    state("span:other_end", "\"result\":-1");
    state("span:manual_end", "\"how\":\"well\"");
    {
        TOMPION_JOB(span, job, 500 * 1000, (f64, error, 0.25));
        TOMPION_JOB_LEVEL(INFO, span, free, 0);
    }
    state("span:job_begin", "\"deadline_ns\":500000,\"error\":0.25");
    state("span:free_begin", "\"deadline_ns\":0");
    state("span:free_end", "");
    state("span:job_end", "");
    if (TOMPION_SPAN_ENABLED(span, job))
        TOMPION_EVENT(span, enabled);
    state("span:enabled", "");
}

static void counters_and_flows(void)
{
    unsigned char small = 200;
    unsigned long long large = ULLONG_MAX;
    TOMPION_COUNTER(counter, signed_, -3);
    TOMPION_COUNTER(counter, small, small);
    TOMPION_COUNTER(counter, large, large);
    TOMPION_COUNTER(counter, size, sizeof(int));
    TOMPION_COUNTER(counter, half, 0.5);
    TOMPION_COUNTER(counter, float_, 1.5f);
    TOMPION_COUNTER_LEVEL(INFO, counter, truth, one == 1);
    state("counter:signed_", "\"value\":-3");
    state("counter:small", "\"value\":200");
    state("counter:large", "\"value\":18446744073709551615");
    state("counter:size", "\"value\":4");
    state("counter:half", "\"value\":0.5");
    state("counter:float_", "\"value\":1.5");
    state("counter:truth", "\"value\":1");
    TOMPION_FLOW(flow, step, 0x1234);
    TOMPION_FLOW_LEVEL(INFO, flow, pointer, (void *)0x1000);
    state("flow:step", "\"id\":4660");
    state("flow:pointer", "\"id\":4096");
}

static void marks(void)
{
    const char four[4] = {'f', 'o', 'u', 'r'};
    char *text = (char *)0x7000;
    int columns = 3;
    TOMPION_MARK(plain, "nothing to tell, 100%%");
    state("mark:plain", "");
    TOMPION_MARK(query, "rows %d table %s took=%5.1f ms", 12, "orders", 2.5);
    state("mark:query", "\"rows\":12,\"table\":\"orders\",\"took\":2.5");
    TOMPION_MARK(sizes, "c=%c h=%hd hh=%hhu l=%ld ll=%llu z=%zu u=%u", 'x', (short)-3, (unsigned char)4, -5L, 6ull,
                 sizeof(char), 7u);
    state("mark:sizes", "\"c\":120,\"h\":-3,\"hh\":4,\"l\":-5,\"ll\":6,\"z\":1,\"u\":7");
    TOMPION_MARK(hex, "at 0x%lx flags %#o ptr %p", 0xffUL, 8u, (void *)0x1000);
    state("mark:hex", "\"at\":255,\"flags\":8,\"ptr\":4096");
    TOMPION_MARK(cut, "by %.*s and %.3s", 2, four, four);
    state("mark:cut", "\"arg1\":2,\"by\":\"fo\",\"and\":\"fou\"");
    TOMPION_MARK(address, "text %p", (void *)text);
    state("mark:address", "\"text\":28672");
    TOMPION_MARK(width, "wide %*d", columns, 5);
    state("mark:width", "\"arg1\":3,\"wide\":5");
    TOMPION_MARK_LEVEL(ERR, again, "value %d value %d %d", 1, 2, 3);
    state("mark:again", "\"value\":1,\"value_2\":2,\"arg3\":3");
    TOMPION_MARK(doubles, "long %Lf", 0.5L);
    state("mark:doubles", "\"long\":0.5");
}

static void most_fields(void)
{
    TOMPION_EVENT(
        every, sixty_four, (u8, f1, 1), (u8, f2, 2), (u8, f3, 3), (u8, f4, 4), (u8, f5, 5), (u8, f6, 6), (u8, f7, 7),
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
    dprintf(1, "{\"event\":\"every:sixty_four\",\"fields\":{");
    for (int i = 1; i <= 64; i++)
        dprintf(1, "\"f%d\":%d%s", i, i, i < 64 ? "," : "}}\n");
}

static void handle(int signal)
{
    TOMPION_EVENT(every, signal, (i32, number, signal), (str, where, "handler"));
}

/* A handler on the smallest stack. */
static void signals(void)
{
    struct sigaction action;
    stack_t stack;
    memset(&action, 0, sizeof action);
    memset(&stack, 0, sizeof stack);
    stack.ss_size = (size_t)MINSIGSTKSZ + 8192;
    stack.ss_sp = malloc(stack.ss_size);
    action.sa_handler = handle;
    action.sa_flags = SA_ONSTACK;
    if (!stack.ss_sp || sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        abort();
    raise(SIGUSR1);
    state("every:signal", "\"number\":10,\"where\":\"handler\"");
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(stack.ss_sp);
}

void every(void)
{
    integers();
    texts();
    lists();
    enumerations();
    structures();
    words();
    places();
    levels();
    all_spans();
    long_spans();
    counters_and_flows();
    marks();
    most_fields();
    signals();
}

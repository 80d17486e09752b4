/* A provider with every kind of field, in the new spelling. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER shapes

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "shapes.h"

#if !defined(SHAPES_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define SHAPES_H

#include <lttng/tracepoint.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef SHAPES_ONCE
#define SHAPES_ONCE
enum gear { NEUTRAL, FIRST, SECOND = 20 };
#endif

LTTNG_UST_TRACEPOINT_ENUM(
    shapes, gears,
    LTTNG_UST_TP_ENUM_VALUES(
        lttng_ust_field_enum_auto("zero")
        lttng_ust_field_enum_value("two", 2)
        lttng_ust_field_enum_auto("three")
        lttng_ust_field_enum_range("many", 10, 30)
        lttng_ust_field_enum_auto("next one")
        lttng_ust_field_enum_value("minus", -1)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    shapes, numbers,
    LTTNG_UST_TP_ARGS(int, n, const char *, text),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(signed char, i8, -n)
        lttng_ust_field_integer(short, i16, -n)
        lttng_ust_field_integer(int, i32, -n)
        lttng_ust_field_integer(int64_t, i64, -n)
        lttng_ust_field_integer(uint8_t, u8, n)
        lttng_ust_field_integer(unsigned short, u16, n)
        lttng_ust_field_integer(unsigned, u32, n)
        lttng_ust_field_integer(size_t, u64, n)
        lttng_ust_field_integer(bool, yes, n)
        lttng_ust_field_integer(const int, constant, n)
        lttng_ust_field_integer(enum gear, gear, SECOND)
        lttng_ust_field_integer_hex(uint32_t, hex, 0xbeef + n)
        lttng_ust_field_integer_hex(const void *, pointer, (const void *)(uintptr_t)(0x1000 + n))
        lttng_ust_field_integer_network(uint16_t, port, 0x5000)
        lttng_ust_field_integer_network_hex(uint32_t, address, 0x0100007f)
        lttng_ust_field_float(float, single, n + 0.5f)
        lttng_ust_field_float(double, twice, n - 0.25)
        lttng_ust_field_integer(int, width, n)
        lttng_ust_field_string(text, text)
        lttng_ust_field_string(nothing, (const char *)0)
        lttng_ust_field_integer_nowrite(int, only_for_filters, n)
        lttng_ust_field_unused(n)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    shapes, lists,
    LTTNG_UST_TP_ARGS(const int *, values, const uint16_t *, ports, const char *, text, size_t, length),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_array(int, array, values, 3)
        lttng_ust_field_array_hex(int, array_hex, values, 2)
        lttng_ust_field_array_network(uint16_t, array_network, ports, 2)
        lttng_ust_field_array_network_hex(uint16_t, array_network_hex, ports, 2)
        lttng_ust_field_array_text(char, array_text, text, 5)
        lttng_ust_field_array_text(char, longer_than_its_text, text, 64)
        lttng_ust_field_sequence(int, sequence, values, size_t, length)
        lttng_ust_field_sequence_hex(int, sequence_hex, values, unsigned char, 3)
        lttng_ust_field_sequence_network(uint16_t, sequence_network, ports, uint8_t, 2)
        lttng_ust_field_sequence_network_hex(uint16_t, sequence_network_hex, ports, uint8_t, 1)
        lttng_ust_field_sequence(char, bytes, text, size_t, length)
        lttng_ust_field_sequence_text(char, sequence_text, text, size_t, length)
        lttng_ust_field_sequence_text(char, empty, text, size_t, 0)
        lttng_ust_field_enum(shapes, gears, int, first, 0)
        lttng_ust_field_enum(shapes, gears, signed char, last, -1)
        lttng_ust_field_enum(shapes, gears, unsigned short, range, 29)
        lttng_ust_field_enum(shapes, gears, unsigned char, after, 31)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(shapes, nothing, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())
LTTNG_UST_TRACEPOINT_EVENT(shapes, also_nothing, LTTNG_UST_TP_ARGS(void), LTTNG_UST_TP_FIELDS())
LTTNG_UST_TRACEPOINT_LOGLEVEL(shapes, nothing, LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING)
LTTNG_UST_TRACEPOINT_MODEL_EMF_URI(shapes, nothing, "http://example.org/nothing")

LTTNG_UST_TRACEPOINT_EVENT(
    shapes, ten,
    LTTNG_UST_TP_ARGS(int, a, int, b, int, c, int, d, int, e, int, f, int, g, int, h, int, i, int, j),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, a, a) lttng_ust_field_integer(int, b, b)
        lttng_ust_field_integer(int, c, c) lttng_ust_field_integer(int, d, d)
        lttng_ust_field_integer(int, e, e) lttng_ust_field_integer(int, f, f)
        lttng_ust_field_integer(int, g, g) lttng_ust_field_integer(int, h, h)
        lttng_ust_field_integer(int, i, i) lttng_ust_field_integer(int, j, j)
    )
)

#endif

#include <lttng/tracepoint-event.h>

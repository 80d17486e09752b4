/* LTTng-UST's descriptions of the events. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng-provider.h"

#if !defined(BENCH_LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_LTTNG_PROVIDER_H

#include <lttng/tracepoint.h>
#include <stddef.h>
#include <stdint.h>

#include "values.h"

LTTNG_UST_TRACEPOINT_ENUM(
	bench,
	machine_state,
	LTTNG_UST_TP_ENUM_VALUES(
		lttng_ust_field_enum_value("idle", 0)
		lttng_ust_field_enum_value("running", 1)
		lttng_ust_field_enum_range("failed", 2, 9)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_0,
	LTTNG_UST_TP_ARGS(void),
	LTTNG_UST_TP_FIELDS()
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_1,
	LTTNG_UST_TP_ARGS(uint64_t, i),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_2,
	LTTNG_UST_TP_ARGS(uint64_t, i, uint64_t, second),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
		lttng_ust_field_integer(uint64_t, b, second)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_4,
	LTTNG_UST_TP_ARGS(uint64_t, i, uint64_t, second),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
		lttng_ust_field_integer(uint64_t, b, second)
		lttng_ust_field_integer(uint64_t, f2, i + 2)
		lttng_ust_field_integer(uint64_t, f3, i + 3)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_8,
	LTTNG_UST_TP_ARGS(uint64_t, i, uint64_t, second),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
		lttng_ust_field_integer(uint64_t, b, second)
		lttng_ust_field_integer(uint64_t, f2, i + 2)
		lttng_ust_field_integer(uint64_t, f3, i + 3)
		lttng_ust_field_integer(uint64_t, f4, i + 4)
		lttng_ust_field_integer(uint64_t, f5, i + 5)
		lttng_ust_field_integer(uint64_t, f6, i + 6)
		lttng_ust_field_integer(uint64_t, f7, i + 7)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_16,
	LTTNG_UST_TP_ARGS(uint64_t, i, uint64_t, second),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
		lttng_ust_field_integer(uint64_t, b, second)
		lttng_ust_field_integer(uint64_t, f2, i + 2)
		lttng_ust_field_integer(uint64_t, f3, i + 3)
		lttng_ust_field_integer(uint64_t, f4, i + 4)
		lttng_ust_field_integer(uint64_t, f5, i + 5)
		lttng_ust_field_integer(uint64_t, f6, i + 6)
		lttng_ust_field_integer(uint64_t, f7, i + 7)
		lttng_ust_field_integer(uint64_t, f8, i + 8)
		lttng_ust_field_integer(uint64_t, f9, i + 9)
		lttng_ust_field_integer(uint64_t, f10, i + 10)
		lttng_ust_field_integer(uint64_t, f11, i + 11)
		lttng_ust_field_integer(uint64_t, f12, i + 12)
		lttng_ust_field_integer(uint64_t, f13, i + 13)
		lttng_ust_field_integer(uint64_t, f14, i + 14)
		lttng_ust_field_integer(uint64_t, f15, i + 15)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	fields_32,
	LTTNG_UST_TP_ARGS(uint64_t, i, uint64_t, second),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, i)
		lttng_ust_field_integer(uint64_t, b, second)
		lttng_ust_field_integer(uint64_t, f2, i + 2)
		lttng_ust_field_integer(uint64_t, f3, i + 3)
		lttng_ust_field_integer(uint64_t, f4, i + 4)
		lttng_ust_field_integer(uint64_t, f5, i + 5)
		lttng_ust_field_integer(uint64_t, f6, i + 6)
		lttng_ust_field_integer(uint64_t, f7, i + 7)
		lttng_ust_field_integer(uint64_t, f8, i + 8)
		lttng_ust_field_integer(uint64_t, f9, i + 9)
		lttng_ust_field_integer(uint64_t, f10, i + 10)
		lttng_ust_field_integer(uint64_t, f11, i + 11)
		lttng_ust_field_integer(uint64_t, f12, i + 12)
		lttng_ust_field_integer(uint64_t, f13, i + 13)
		lttng_ust_field_integer(uint64_t, f14, i + 14)
		lttng_ust_field_integer(uint64_t, f15, i + 15)
		lttng_ust_field_integer(uint64_t, f16, i + 16)
		lttng_ust_field_integer(uint64_t, f17, i + 17)
		lttng_ust_field_integer(uint64_t, f18, i + 18)
		lttng_ust_field_integer(uint64_t, f19, i + 19)
		lttng_ust_field_integer(uint64_t, f20, i + 20)
		lttng_ust_field_integer(uint64_t, f21, i + 21)
		lttng_ust_field_integer(uint64_t, f22, i + 22)
		lttng_ust_field_integer(uint64_t, f23, i + 23)
		lttng_ust_field_integer(uint64_t, f24, i + 24)
		lttng_ust_field_integer(uint64_t, f25, i + 25)
		lttng_ust_field_integer(uint64_t, f26, i + 26)
		lttng_ust_field_integer(uint64_t, f27, i + 27)
		lttng_ust_field_integer(uint64_t, f28, i + 28)
		lttng_ust_field_integer(uint64_t, f29, i + 29)
		lttng_ust_field_integer(uint64_t, f30, i + 30)
		lttng_ust_field_integer(uint64_t, f31, i + 31)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	u8,
	LTTNG_UST_TP_ARGS(uint8_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint8_t, a, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	u16,
	LTTNG_UST_TP_ARGS(uint16_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint16_t, a, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	u32,
	LTTNG_UST_TP_ARGS(uint32_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, a, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	u64,
	LTTNG_UST_TP_ARGS(uint64_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	f64,
	LTTNG_UST_TP_ARGS(double, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_float(double, a, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	str_8,
	LTTNG_UST_TP_ARGS(const char *, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(text, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	str_64,
	LTTNG_UST_TP_ARGS(const char *, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(text, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	str_512,
	LTTNG_UST_TP_ARGS(const char *, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(text, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	str_4096,
	LTTNG_UST_TP_ARGS(const char *, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(text, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	bytes_64,
	LTTNG_UST_TP_ARGS(const uint8_t *, value, size_t, size),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_sequence(uint8_t, data, value, size_t, size)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	sequence_u32,
	LTTNG_UST_TP_ARGS(const uint32_t *, value, size_t, count),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_sequence(uint32_t, data, value, size_t, count)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	array_u32,
	LTTNG_UST_TP_ARGS(const uint32_t *, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_array(uint32_t, data, value, NUMBERS)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	bench,
	enumeration,
	LTTNG_UST_TP_ARGS(int64_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_enum(bench, machine_state, int64_t, state, value)
	)
)

#endif

#include <lttng/tracepoint-event.h>

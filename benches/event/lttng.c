/* The same events through LTTng-UST. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-provider.h"

#include "loop.h"
#include "values.h"

void prepare_thread(void)
{
}

BODY(fields_0, lttng_ust_tracepoint(bench, fields_0))
BODY(fields_1, lttng_ust_tracepoint(bench, fields_1, i))
BODY(fields_2, lttng_ust_tracepoint(bench, fields_2, i, i ^ 0x55))
BODY(fields_4, lttng_ust_tracepoint(bench, fields_4, i, i ^ 0x55))
BODY(fields_8, lttng_ust_tracepoint(bench, fields_8, i, i ^ 0x55))
BODY(fields_16, lttng_ust_tracepoint(bench, fields_16, i, i ^ 0x55))
BODY(fields_32, lttng_ust_tracepoint(bench, fields_32, i, i ^ 0x55))

BODY(u8, lttng_ust_tracepoint(bench, u8, (uint8_t)i))
BODY(u16, lttng_ust_tracepoint(bench, u16, (uint16_t)i))
BODY(u32, lttng_ust_tracepoint(bench, u32, (uint32_t)i))
BODY(u64, lttng_ust_tracepoint(bench, u64, (uint64_t)i))
BODY(f64, lttng_ust_tracepoint(bench, f64, (double)i))
BODY(str_8, lttng_ust_tracepoint(bench, str_8, text_8))
BODY(str_64, lttng_ust_tracepoint(bench, str_64, text_64))
BODY(str_512, lttng_ust_tracepoint(bench, str_512, text_512))
BODY(str_4096, lttng_ust_tracepoint(bench, str_4096, text_4096))
BODY(bytes_64, lttng_ust_tracepoint(bench, bytes_64, bytes, 64))
BODY(sequence_u32, lttng_ust_tracepoint(bench, sequence_u32, numbers, number_count))
BODY(array_u32, lttng_ust_tracepoint(bench, array_u32, numbers))
BODY(enumeration, lttng_ust_tracepoint(bench, enumeration, (int64_t)(i & 3)))

const struct body bodies[] = {
	ENTRY(fields_0), ENTRY(fields_1), ENTRY(fields_2), ENTRY(fields_4), ENTRY(fields_8),
	ENTRY(fields_16), ENTRY(fields_32), ENTRY(u8), ENTRY(u16), ENTRY(u32), ENTRY(u64),
	ENTRY(f64), ENTRY(str_8), ENTRY(str_64), ENTRY(str_512), ENTRY(str_4096),
	ENTRY(bytes_64), ENTRY(sequence_u32), ENTRY(array_u32), ENTRY(enumeration), { 0 },
};

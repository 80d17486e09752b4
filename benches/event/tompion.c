/*
 * The events through libtompion.so. Those with numbers are equal to LTTng's in lttng-provider.h,
 * field for field.
 */
#include "loop.h"
#include "values.h"

#include <tompion/tompion.h>

static int64_t request(void)
{
	return 42;
}

__attribute__((constructor)) static void define_context(void)
{
	tompion_context_i64("bench:request", request);
}

void prepare_thread(void)
{
}

TOMPION_ENUM(machine_state, (idle, 0), (running, 1), (failed, 2, 9));

BODY(fields_0, TOMPION_EVENT(bench, fields_0))
BODY(fields_1, TOMPION_EVENT(bench, fields_1, (u64, a, i)))
BODY(fields_2, TOMPION_EVENT(bench, fields_2, (u64, a, i), (u64, b, i ^ 0x55)))
BODY(fields_4, TOMPION_EVENT(bench, fields_4, (u64, a, i), (u64, b, i ^ 0x55), (u64, f2, i + 2),
	   (u64, f3, i + 3)))
BODY(fields_8, TOMPION_EVENT(bench, fields_8, (u64, a, i), (u64, b, i ^ 0x55), (u64, f2, i + 2),
	   (u64, f3, i + 3), (u64, f4, i + 4), (u64, f5, i + 5), (u64, f6, i + 6),
	   (u64, f7, i + 7)))
BODY(fields_16, TOMPION_EVENT(bench, fields_16, (u64, a, i), (u64, b, i ^ 0x55), (u64, f2, i + 2),
	   (u64, f3, i + 3), (u64, f4, i + 4), (u64, f5, i + 5), (u64, f6, i + 6),
	   (u64, f7, i + 7), (u64, f8, i + 8), (u64, f9, i + 9), (u64, f10, i + 10),
	   (u64, f11, i + 11), (u64, f12, i + 12), (u64, f13, i + 13), (u64, f14, i + 14),
	   (u64, f15, i + 15)))
BODY(fields_32, TOMPION_EVENT(bench, fields_32, (u64, a, i), (u64, b, i ^ 0x55), (u64, f2, i + 2),
	   (u64, f3, i + 3), (u64, f4, i + 4), (u64, f5, i + 5), (u64, f6, i + 6),
	   (u64, f7, i + 7), (u64, f8, i + 8), (u64, f9, i + 9), (u64, f10, i + 10),
	   (u64, f11, i + 11), (u64, f12, i + 12), (u64, f13, i + 13), (u64, f14, i + 14),
	   (u64, f15, i + 15), (u64, f16, i + 16), (u64, f17, i + 17), (u64, f18, i + 18),
	   (u64, f19, i + 19), (u64, f20, i + 20), (u64, f21, i + 21), (u64, f22, i + 22),
	   (u64, f23, i + 23), (u64, f24, i + 24), (u64, f25, i + 25), (u64, f26, i + 26),
	   (u64, f27, i + 27), (u64, f28, i + 28), (u64, f29, i + 29), (u64, f30, i + 30),
	   (u64, f31, i + 31)))

BODY(u8, TOMPION_EVENT(bench, u8, (u8, a, i)))
BODY(u16, TOMPION_EVENT(bench, u16, (u16, a, i)))
BODY(u32, TOMPION_EVENT(bench, u32, (u32, a, i)))
BODY(u64, TOMPION_EVENT(bench, u64, (u64, a, i)))
BODY(f64, TOMPION_EVENT(bench, f64, (f64, a, i)))
BODY(str_8, TOMPION_EVENT(bench, str_8, (str, text, text_8)))
BODY(str_64, TOMPION_EVENT(bench, str_64, (str, text, text_64)))
BODY(str_512, TOMPION_EVENT(bench, str_512, (str, text, text_512)))
BODY(str_4096, TOMPION_EVENT(bench, str_4096, (str, text, text_4096)))
BODY(bytes_64, TOMPION_EVENT(bench, bytes_64, (bytes, data, bytes, 64)))
BODY(sequence_u32, TOMPION_EVENT(bench, sequence_u32, (sequence, data, u32, numbers, number_count)))
BODY(array_u32, TOMPION_EVENT(bench, array_u32, (array, data, u32, numbers, NUMBERS)))
BODY(keys_2, TOMPION_EVENT(bench, keys_2, (u32, x, i & 3), (u32, y, i & 7)))
BODY(enumeration, TOMPION_EVENT(bench, enumeration, (enum, state, machine_state, i & 3)))

const struct body bodies[] = {
	ENTRY(fields_0), ENTRY(fields_1), ENTRY(fields_2), ENTRY(fields_4), ENTRY(fields_8),
	ENTRY(fields_16), ENTRY(fields_32), ENTRY(u8), ENTRY(u16), ENTRY(u32), ENTRY(u64),
	ENTRY(f64), ENTRY(str_8), ENTRY(str_64), ENTRY(str_512), ENTRY(str_4096),
	ENTRY(bytes_64), ENTRY(sequence_u32), ENTRY(array_u32), ENTRY(keys_2), ENTRY(enumeration), { 0 },
};

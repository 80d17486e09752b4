/*
 * Overrides of LTTng-UST's clock. Tompion's events have one clock, by which the kernel's are merged
 * with them: functions that would change it fail with -ENOSYS.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_CLOCK_H
#define TOMPION_LTTNG_UST_CLOCK_H

#pragma GCC system_header

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define LTTNG_UST_UUID_STR_LEN 37

typedef uint64_t (*lttng_ust_clock_read64_function)(void);
typedef uint64_t (*lttng_ust_clock_freq_function)(void);
typedef int (*lttng_ust_clock_uuid_function)(char *uuid);
typedef const char *(*lttng_ust_clock_name_function)(void);
typedef const char *(*lttng_ust_clock_description_function)(void);

/* A function that is set, and one that tells which is set: none. */
#define TOMPION_LTTNG_CLOCK(what)                                                                     \
    static __inline__ __attribute__((__unused__)) int lttng_ust_trace_clock_set_##what##_cb(          \
        lttng_ust_clock_##what##_function function)                                                   \
    {                                                                                                 \
        (void)function;                                                                               \
        return -ENOSYS;                                                                               \
    }                                                                                                 \
    static __inline__ __attribute__((__unused__)) int lttng_ust_trace_clock_get_##what##_cb(          \
        lttng_ust_clock_##what##_function *function)                                                  \
    {                                                                                                 \
        (void)function;                                                                               \
        return -ENOSYS;                                                                               \
    }
TOMPION_LTTNG_CLOCK(read64)
TOMPION_LTTNG_CLOCK(freq)
TOMPION_LTTNG_CLOCK(uuid)
TOMPION_LTTNG_CLOCK(name)
TOMPION_LTTNG_CLOCK(description)

static __inline__ __attribute__((__unused__)) int lttng_ust_enable_trace_clock_override(void)
{
    return -ENOSYS;
}

#endif /* TOMPION_LTTNG_UST_CLOCK_H */

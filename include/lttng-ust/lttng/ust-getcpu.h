/*
 * Override of LTTng-UST's number of the CPU. Tompion asks the kernel: setting another function
 * fails with -ENOSYS.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_GETCPU_H
#define TOMPION_LTTNG_UST_GETCPU_H

#pragma GCC system_header

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

static __inline__ __attribute__((__unused__)) int lttng_ust_getcpu_override(int (*getcpu)(void))
{
    (void)getcpu;
    return -ENOSYS;
}

#endif /* TOMPION_LTTNG_UST_GETCPU_H */

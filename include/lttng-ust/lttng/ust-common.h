/*
 * LTTng-UST has a function here that initializes it earlier. Nothing is to be done.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_COMMON_H
#define TOMPION_LTTNG_UST_COMMON_H

#pragma GCC system_header

static __inline__ __attribute__((__unused__)) void lttng_ust_common_alloc_tls(void) {}

#endif /* TOMPION_LTTNG_UST_COMMON_H */

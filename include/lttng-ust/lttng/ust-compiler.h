/*
 * Attributes that programs of LTTng-UST use.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_COMPILER_H
#define TOMPION_LTTNG_UST_COMPILER_H

#define lttng_ust_notrace __attribute__((__no_instrument_function__))

/* Names of liburcu's, which LTTng's headers include; token for token, if that is included, too. */
#ifndef caa_likely
#define caa_likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef caa_unlikely
#define caa_unlikely(x) __builtin_expect(!!(x), 0)
#endif

#endif /* TOMPION_LTTNG_UST_COMPILER_H */

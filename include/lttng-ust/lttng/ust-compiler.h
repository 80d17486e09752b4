/*
 * Attributes that programs of LTTng-UST use.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_COMPILER_H
#define TOMPION_LTTNG_UST_COMPILER_H

#define lttng_ust_notrace __attribute__((__no_instrument_function__))

#endif /* TOMPION_LTTNG_UST_COMPILER_H */

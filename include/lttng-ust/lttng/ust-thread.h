/*
 * What programs of LTTng-UST may call in a new thread. Nothing is to be done.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_THREAD_H
#define TOMPION_LTTNG_UST_THREAD_H

#pragma GCC system_header

#include <signal.h>

static __inline__ __attribute__((__unused__)) void lttng_ust_init_thread(void) {}

#endif /* TOMPION_LTTNG_UST_THREAD_H */

/*
 * Version and attributes of LTTng-UST's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_TRACER_H
#define TOMPION_LTTNG_UST_TRACER_H

#include <lttng/ust-compiler.h>
#include <lttng/ust-version.h>

#endif /* TOMPION_LTTNG_UST_TRACER_H */

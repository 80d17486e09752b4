/*
 * What programs of LTTng-UST before 2.13 included for fork.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_H
#define TOMPION_LTTNG_UST_H

#include <lttng/ust-fork.h>

#endif /* TOMPION_LTTNG_UST_H */

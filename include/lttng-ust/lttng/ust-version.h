/*
 * The version of LTTng-UST's interface that this folder has.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_VERSION_H
#define TOMPION_LTTNG_UST_VERSION_H

#define LTTNG_UST_MAJOR_VERSION 2
#define LTTNG_UST_MINOR_VERSION 14
#define LTTNG_UST_PATCHLEVEL_VERSION 0

#define LTTNG_UST_VERSION "2.14.0"

#define LTTNG_UST_LIB_SONAME_MAJOR 1

#endif /* TOMPION_LTTNG_UST_VERSION_H */

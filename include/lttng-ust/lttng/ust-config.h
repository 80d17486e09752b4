/*
 * Which spellings of LTTng-UST's names there are.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_CONFIG_H
#define TOMPION_LTTNG_UST_CONFIG_H

/* The names of before 2.13, unless the program wants only those of a newer interface. */
#if !defined(LTTNG_UST_COMPAT_API_VERSION) || LTTNG_UST_COMPAT_API_VERSION == 0
#define TOMPION_LTTNG_OLD_NAMES 1
#else
#define TOMPION_LTTNG_OLD_NAMES 0
#endif

#endif /* TOMPION_LTTNG_UST_CONFIG_H */

/*
 * What programs of LTTng-UST call around fork and changes of users. Nothing is to be done: the
 * library follows them by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_FORK_H
#define TOMPION_LTTNG_UST_FORK_H

#pragma GCC system_header

#include <signal.h>

#define TOMPION_LTTNG_NOTHING static __inline__ __attribute__((__unused__)) void

TOMPION_LTTNG_NOTHING lttng_ust_before_fork(sigset_t *saved)
{
    (void)saved;
}
TOMPION_LTTNG_NOTHING lttng_ust_after_fork_parent(sigset_t *restored)
{
    (void)restored;
}
TOMPION_LTTNG_NOTHING lttng_ust_after_fork_child(sigset_t *restored)
{
    (void)restored;
}
TOMPION_LTTNG_NOTHING lttng_ust_after_setns(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_unshare(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setuid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setgid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_seteuid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setegid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setreuid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setregid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setresuid(void) {}
TOMPION_LTTNG_NOTHING lttng_ust_after_setresgid(void) {}

#endif /* TOMPION_LTTNG_UST_FORK_H */

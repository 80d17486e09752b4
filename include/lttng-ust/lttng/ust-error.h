/*
 * Error codes of LTTng-UST's interface, for programs that name them. Tompion returns none of them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_UST_ERROR_H
#define TOMPION_LTTNG_UST_ERROR_H

#pragma GCC system_header

enum lttng_ust_error_code {
    LTTNG_UST_OK = 0,
    LTTNG_UST_ERR = 1024,
    LTTNG_UST_ERR_NOENT,
    LTTNG_UST_ERR_EXIST,
    LTTNG_UST_ERR_INVAL,
    LTTNG_UST_ERR_PERM,
    LTTNG_UST_ERR_NOSYS,
    LTTNG_UST_ERR_EXITING,
    LTTNG_UST_ERR_INVAL_MAGIC,
    LTTNG_UST_ERR_INVAL_SOCKET_TYPE,
    LTTNG_UST_ERR_UNSUP_MAJOR,
    LTTNG_UST_ERR_PEERCRED,
    LTTNG_UST_ERR_PEERCRED_PID,
    LTTNG_UST_ERR_NR
};

static __inline__ __attribute__((__unused__)) const char *lttng_ust_strerror(int code)
{
    return code == LTTNG_UST_OK || code == -LTTNG_UST_OK ? "Success" : "not available from Tompion";
}

#endif /* TOMPION_LTTNG_UST_ERROR_H */

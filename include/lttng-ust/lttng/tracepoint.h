/*
 * Tracepoints of LTTng-UST, recorded by Tompion: the interface of <lttng/tracepoint.h> up to 2.14.
 *
 * Providers compile against this folder unchanged. docs/guide/coming-from.md says how, and
 * docs/design/lttng.md how it works.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_TRACEPOINT_H
#define TOMPION_LTTNG_TRACEPOINT_H

#pragma GCC system_header

/* Programs rely on what LTTng's header brings along. */
#include "ust-compiler.h"
#include <assert.h>
#include <dlfcn.h>
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <syscall.h>
#include <unistd.h>

#include <lttng/ust-config.h>
#include <lttng/ust-version.h>

#include "private/args.h"
#include "private/object.h"

#ifdef LTTNG_UST_HAVE_SDT_INTEGRATION
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define TOMPION_LTTNG_PROBE(p, n, ...) TOMPION_LTTNG_PROBE_OF(p, n, ##__VA_ARGS__)
#define TOMPION_LTTNG_PROBE_OF(p, n, ...) STAP_PROBEV(p, n, ##__VA_ARGS__);
#else
#define TOMPION_LTTNG_PROBE(...)
#endif

/* -- Levels -- */

enum lttng_ust_tracepoint_loglevel {
    LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG = 0,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT = 1,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT = 2,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR = 3,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING = 4,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE = 5,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO = 6,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM = 7,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM = 8,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS = 9,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE = 10,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT = 11,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION = 12,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE = 13,
    LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG = 14
};

/* -- Calls -- */

/* Records the event if some recording wants it. The values are evaluated only then. */
#define lttng_ust_tracepoint(provider, name, ...) TOMPION_LTTNG_CALL(provider, name, ##__VA_ARGS__)
#define TOMPION_LTTNG_CALL(p, n, ...)                                                                 \
    do {                                                                                              \
        TOMPION_LTTNG_PROBE(p, n, ##__VA_ARGS__)                                                      \
        if (TOMPION_LTTNG_IS_ENABLED(p, n)) {                                                         \
            TOMPION_LTTNG_NEED(p, n);                                                                 \
            tompion_lttng_call_##p##___##n(__VA_ARGS__);                                              \
        }                                                                                             \
    } while (0)

/* The same, for callers that have asked already. */
#define lttng_ust_do_tracepoint(provider, name, ...) TOMPION_LTTNG_DO(provider, name, ##__VA_ARGS__)
#define TOMPION_LTTNG_DO(p, n, ...)                                                                   \
    __extension__({                                                                                   \
        if (TOMPION_LTTNG_IS_ENABLED(p, n)) {                                                         \
            TOMPION_LTTNG_NEED(p, n);                                                                 \
            tompion_lttng_call_##p##___##n(__VA_ARGS__);                                              \
        }                                                                                             \
    })

/* The linker has to find the unit with TRACEPOINT_DEFINE, also in an archive. */
#define TOMPION_LTTNG_NEED(p, n) __asm__ __volatile__("" : : "r"(&tompion_lttng_defined_##p##___##n))

/* Whether some recording wants the event. */
#define lttng_ust_tracepoint_enabled(provider, name) TOMPION_LTTNG_ENABLED(provider, name)
#define TOMPION_LTTNG_ENABLED(p, n) TOMPION_LTTNG_IS_ENABLED(p, n)

#define TOMPION_LTTNG_IS_ENABLED(p, n)                                                                \
    __extension__({                                                                                   \
        TOMPION_LTTNG_ENTER(tompion_lttng_tracepoint_##p##___##n.site);                               \
        TOMPION_PRIV_RARELY(tompion_priv_takers(&tompion_lttng_tracepoint_##p##___##n.site));         \
    })

/* -- What headers of providers say -- */

#define LTTNG_UST_TP_ARGS(...) __VA_ARGS__

/* Fields and labels matter only when tracepoint-event.h reads the header again; that is not now. */
#include "private/declare.h"

#define TOMPION_LTTNG_DECLARE(p, n, args) \
    TOMPION_LTTNG_DEFINITION(p, n)        \
    TOMPION_LTTNG_TRACEPOINT(p, n, args)

/*
 * The tracepoint of this file, and the call of the event that a provider has for it. The library
 * finds that event by name and signature, in this object or in another, also later.
 */
#define TOMPION_LTTNG_TRACEPOINT(p, n, args) TOMPION_LTTNG_TRACEPOINT_OF(p, n, args)
#define TOMPION_LTTNG_TRACEPOINT_OF(p, n, args)                                                       \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_lttng_name_head head;                                                          \
        char provider[sizeof(#p)], name[sizeof(#n)];                                                  \
    } tompion_lttng_name_##p##___##n __attribute__((__unused__, __aligned__(8))) = {                  \
        {TOMPION_LTTNG_NAME_MAGIC, sizeof(tompion_lttng_name_##p##___##n), sizeof(#p), sizeof(#n)},   \
        #p,                                                                                           \
        #n};                                                                                          \
    static struct tompion_tracepoint tompion_lttng_tracepoint_##p##___##n                             \
        __attribute__((__unused__)) TOMPION_LTTNG_SECTION("tompion_site_data") = {                    \
            {0, 0, &tompion_lttng_name_##p##___##n, 0, TOMPION_SITE_TRACEPOINT, 0},                   \
            0,                                                                                        \
            TOMPION_LTTNG_SIGNATURE args,                                                             \
            0,                                                                                        \
            0};                                                                                  \
    static __inline__ __attribute__((__unused__, __no_instrument_function__)) void tompion_lttng_call_##p##___##n(                \
        TOMPION_LTTNG_PROTOTYPE args)                                                                 \
    {                                                                                                 \
        const struct tompion_provided *tompion_lttng_event =                                          \
            __atomic_load_n(&tompion_lttng_tracepoint_##p##___##n.event, __ATOMIC_ACQUIRE);           \
        if (tompion_lttng_event)                                                                      \
            ((void (*)(const struct tompion_provided *tompion_lttng_ TOMPION_LTTNG_PARAMETERS args))  \
                 tompion_lttng_event->probe)(tompion_lttng_event TOMPION_LTTNG_NAMES args);           \
    }

#if TOMPION_LTTNG_OLD_NAMES

#define TP_ARGS LTTNG_UST_TP_ARGS
#define tracepoint lttng_ust_tracepoint
#define do_tracepoint lttng_ust_do_tracepoint
#define tracepoint_enabled lttng_ust_tracepoint_enabled

#define TRACEPOINT_EVENT LTTNG_UST_TRACEPOINT_EVENT
#define TRACEPOINT_EVENT_CLASS LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define TRACEPOINT_EVENT_INSTANCE(p, class_name, n, args) \
    LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(p, class_name, p, n, TOMPION_LTTNG_UNPACK(args))
#define TRACEPOINT_ENUM LTTNG_UST_TRACEPOINT_ENUM
#define TRACEPOINT_LOGLEVEL LTTNG_UST_TRACEPOINT_LOGLEVEL
#define TRACEPOINT_MODEL_EMF_URI LTTNG_UST_TRACEPOINT_MODEL_EMF_URI

#define TRACE_EMERG LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG
#define TRACE_ALERT LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT
#define TRACE_CRIT LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT
#define TRACE_ERR LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR
#define TRACE_WARNING LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING
#define TRACE_NOTICE LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE
#define TRACE_INFO LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO
#define TRACE_DEBUG_SYSTEM LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM
#define TRACE_DEBUG_PROGRAM LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM
#define TRACE_DEBUG_PROCESS LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS
#define TRACE_DEBUG_MODULE LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE
#define TRACE_DEBUG_UNIT LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT
#define TRACE_DEBUG_FUNCTION LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION
#define TRACE_DEBUG_LINE LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE
#define TRACE_DEBUG LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG

#endif

#endif /* TOMPION_LTTNG_TRACEPOINT_H */

/* Each header of a provider may be read with TRACEPOINT_DEFINE or without. */
#include "private/define.h"

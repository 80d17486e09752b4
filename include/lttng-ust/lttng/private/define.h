/*
 * What TRACEPOINT_DEFINE defines: for each event, an object that callers need, so that the linker
 * finds this unit; and it needs the provider, unless that may come later.
 *
 * Part of <lttng/tracepoint.h>, which includes it each time that it is included.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#pragma GCC system_header

#if TOMPION_LTTNG_OLD_NAMES
#if defined(TRACEPOINT_DEFINE) && !defined(LTTNG_UST_TRACEPOINT_DEFINE)
#define LTTNG_UST_TRACEPOINT_DEFINE
#endif
#if defined(TRACEPOINT_PROBE_DYNAMIC_LINKAGE) && !defined(LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE)
#define LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#endif
#endif

#ifdef __cplusplus
#define TOMPION_LTTNG_C extern "C"
#else
#define TOMPION_LTTNG_C extern
#endif

#undef TOMPION_LTTNG_VISIBILITY
#ifdef LTTNG_UST_TRACEPOINT_HIDDEN_DEFINITION
#define TOMPION_LTTNG_VISIBILITY __attribute__((__visibility__("hidden")))
#else
#define TOMPION_LTTNG_VISIBILITY __attribute__((__visibility__("default")))
#endif

#undef TOMPION_LTTNG_PROVIDER_VISIBILITY
#ifdef LTTNG_UST_TRACEPOINT_PROVIDER_HIDDEN_DEFINITION
#define TOMPION_LTTNG_PROVIDER_VISIBILITY __attribute__((__visibility__("hidden")))
#else
#define TOMPION_LTTNG_PROVIDER_VISIBILITY __attribute__((__visibility__("default")))
#endif

#undef TOMPION_LTTNG_PROVIDER_IS_WEAK
#ifdef LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#define TOMPION_LTTNG_PROVIDER_IS_WEAK __attribute__((__weak__))
#else
#define TOMPION_LTTNG_PROVIDER_IS_WEAK
#endif

#undef TOMPION_LTTNG_DEFINITION
#ifdef LTTNG_UST_TRACEPOINT_DEFINE
#define TOMPION_LTTNG_DEFINITION(p, n)                                                                \
    TOMPION_LTTNG_C int tompion_lttng_provider_##p TOMPION_LTTNG_PROVIDER_VISIBILITY                  \
        TOMPION_LTTNG_PROVIDER_IS_WEAK;                                                               \
    TOMPION_LTTNG_C const void *tompion_lttng_defined_##p##___##n __attribute__((__weak__))           \
        TOMPION_LTTNG_VISIBILITY;                                                                     \
    const void *tompion_lttng_defined_##p##___##n = &tompion_lttng_provider_##p;
#else
#define TOMPION_LTTNG_DEFINITION(p, n) \
    TOMPION_LTTNG_C const void *tompion_lttng_defined_##p##___##n TOMPION_LTTNG_VISIBILITY;
#endif

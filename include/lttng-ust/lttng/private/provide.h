/*
 * What headers of providers say, as providers see it; provider.h makes it.
 *
 * Part of <lttng/tracepoint-event.h>, which includes it before it reads the header.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#undef LTTNG_UST_TRACEPOINT_EVENT
#define LTTNG_UST_TRACEPOINT_EVENT(provider, name, args, fields)                                      \
    TOMPION_LTTNG_CLASS(provider, name, (args), fields)                                               \
    TOMPION_LTTNG_INSTANCE(provider, name, provider, name)

#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields) \
    TOMPION_LTTNG_CLASS(provider, name, (args), fields)

#undef LTTNG_UST_TRACEPOINT_EVENT_INSTANCE
#define LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(class_provider, class_name, provider, name, args) \
    TOMPION_LTTNG_INSTANCE(class_provider, class_name, provider, name)

#undef LTTNG_UST_TRACEPOINT_ENUM
#define LTTNG_UST_TRACEPOINT_ENUM(provider, name, values) \
    TOMPION_LTTNG_LABELS(provider, name, values)

#undef LTTNG_UST_TRACEPOINT_LOGLEVEL
#define LTTNG_UST_TRACEPOINT_LOGLEVEL(provider, name, loglevel) \
    TOMPION_LTTNG_ATTRIBUTE(LEVEL, provider, name, loglevel, "")

#undef LTTNG_UST_TRACEPOINT_MODEL_EMF_URI
#define LTTNG_UST_TRACEPOINT_MODEL_EMF_URI(provider, name, uri) \
    TOMPION_LTTNG_ATTRIBUTE(MODEL_URI, provider, name, 0, uri)

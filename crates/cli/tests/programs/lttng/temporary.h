/* What LTTng-UST 2.13 compiles too, but then has other names or traces that cannot be read. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER temporary

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "temporary.h"

#if !defined(TEMPORARY_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define TEMPORARY_H

#include <lttng/tracepoint.h>

#ifndef TEMPORARY_ONCE
#define TEMPORARY_ONCE
#include <string>
#define a_macro 7
enum class state : unsigned char { ready = 3 };
#endif

TRACEPOINT_EVENT(
    temporary, made,
    TP_ARGS(int, n, std::string, text),
    TP_FIELDS(
        ctf_integer(int, n, n)
        ctf_integer(int, n, n + 1)
        ctf_integer(int, a_macro, a_macro)
        ctf_integer(unsigned char, state, state::ready)
        ctf_string(text, (text + "!").c_str())
        ctf_sequence_text(char, same, (text + "?").data(), size_t, text.size() + 1)
    )
)

#endif

#include <lttng/tracepoint-event.h>

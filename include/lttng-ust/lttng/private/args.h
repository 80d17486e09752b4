/*
 * Lists of a tracepoint's arguments and fields.
 *
 * Part of <lttng/tracepoint.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_ARGS_H
#define TOMPION_LTTNG_ARGS_H

#pragma GCC system_header

/* -- Arguments: (type, name, type, name...), at most ten pairs; () and (void) have none -- */

/* The number of words between the parentheses, 0 to 20. */
#define TOMPION_LTTNG_ARGS_COUNT(...)                                                                 \
    TOMPION_LTTNG_ARGS_COUNT_OF(0, ##__VA_ARGS__, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8,   \
                                7, 6, 5, 4, 3, 2, 1, 0, 0)
#define TOMPION_LTTNG_ARGS_COUNT_OF(x, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14,   \
                                    a15, a16, a17, a18, a19, a20, n, ...)                             \
    n

#define TOMPION_LTTNG_ARGS_PICK(what, n) TOMPION_LTTNG_ARGS_PICKED(what, n)
#define TOMPION_LTTNG_ARGS_PICKED(what, n) TOMPION_LTTNG_##what##_##n

/* `, type name` for each pair: parameters behind another one. */
#define TOMPION_LTTNG_PARAMETERS(...) \
    TOMPION_LTTNG_ARGS_PICK(PARAMETERS, TOMPION_LTTNG_ARGS_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_0(...)
#define TOMPION_LTTNG_PARAMETERS_1(...)
#define TOMPION_LTTNG_PARAMETERS_2(t, n) , t n __attribute__((__unused__))
#define TOMPION_LTTNG_PARAMETERS_4(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_2(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_6(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_4(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_8(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_6(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_10(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_8(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_12(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_10(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_14(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_12(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_16(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_14(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_18(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_16(__VA_ARGS__)
#define TOMPION_LTTNG_PARAMETERS_20(t, n, ...) , t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_18(__VA_ARGS__)

/* `type name, type name`: all parameters of a function; `void` if there are none. */
#define TOMPION_LTTNG_PROTOTYPE(...) \
    TOMPION_LTTNG_ARGS_PICK(PROTOTYPE, TOMPION_LTTNG_ARGS_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_0(...) void
#define TOMPION_LTTNG_PROTOTYPE_1(...) void
#define TOMPION_LTTNG_PROTOTYPE_2(t, n) t n __attribute__((__unused__))
#define TOMPION_LTTNG_PROTOTYPE_4(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_2(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_6(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_4(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_8(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_6(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_10(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_8(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_12(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_10(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_14(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_12(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_16(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_14(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_18(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_16(__VA_ARGS__)
#define TOMPION_LTTNG_PROTOTYPE_20(t, n, ...) \
    t n __attribute__((__unused__)) TOMPION_LTTNG_PARAMETERS_18(__VA_ARGS__)

/* `, name` for each pair: the values behind another one. */
#define TOMPION_LTTNG_NAMES(...) \
    TOMPION_LTTNG_ARGS_PICK(NAMES, TOMPION_LTTNG_ARGS_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_0(...)
#define TOMPION_LTTNG_NAMES_1(...)
#define TOMPION_LTTNG_NAMES_2(t, n) , n
#define TOMPION_LTTNG_NAMES_4(t, n, ...) , n TOMPION_LTTNG_NAMES_2(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_6(t, n, ...) , n TOMPION_LTTNG_NAMES_4(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_8(t, n, ...) , n TOMPION_LTTNG_NAMES_6(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_10(t, n, ...) , n TOMPION_LTTNG_NAMES_8(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_12(t, n, ...) , n TOMPION_LTTNG_NAMES_10(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_14(t, n, ...) , n TOMPION_LTTNG_NAMES_12(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_16(t, n, ...) , n TOMPION_LTTNG_NAMES_14(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_18(t, n, ...) , n TOMPION_LTTNG_NAMES_16(__VA_ARGS__)
#define TOMPION_LTTNG_NAMES_20(t, n, ...) , n TOMPION_LTTNG_NAMES_18(__VA_ARGS__)

/* The arguments as text, by which a tracepoint and the event of a provider are found to agree. */
#define TOMPION_LTTNG_SIGNATURE(...) TOMPION_LTTNG_TEXT(__VA_ARGS__)
#define TOMPION_LTTNG_TEXT(...) #__VA_ARGS__

/* What stands in parentheses. */
#define TOMPION_LTTNG_UNPACK(...) __VA_ARGS__

/*
 * -- Fields and labels: (a)(b)(c), without commas between them --
 *
 * TOMPION_LTTNG_EACH(OP, (a)(b)) is TOMPION_LTTNG_OP(a) TOMPION_LTTNG_OP(b). Each OP has two macros
 * that take turns, since a macro does not expand within itself. The last one is left, and its name
 * with _END becomes nothing.
 */
#define TOMPION_LTTNG_EACH(op, list) TOMPION_LTTNG_ENDED(TOMPION_LTTNG_A_##op list)
#define TOMPION_LTTNG_ENDED(...) TOMPION_LTTNG_ENDED_2(__VA_ARGS__)
#define TOMPION_LTTNG_ENDED_2(...) __VA_ARGS__##_END

#endif /* TOMPION_LTTNG_ARGS_H */

/*
 * Marks: printf-like messages whose arguments are recorded in binary.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * An argument's type, after the promotions that it undergoes in a call of printf, decides how it is
 * recorded: as an integer, a double, a text or (any other pointer) an address. Text is read only
 * where the format's conversion would read it, and no further: a `char *` that goes to %p, or to no
 * conversion, is recorded as the text of its address.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_MARK_H
#define TOMPION_PRIVATE_MARK_H

#pragma GCC system_header

#ifdef __cplusplus
#include "event_cxx.h"
#else
#include "event_c.h"
#endif

/* An argument of a mark, and what of it is read. */
struct tompion_priv_argument {
    int code; /* tompion_priv_code_ i32 to f64, or str */
    int is_read;
    size_t limit; /* of a text that is read */
    union {
        int64_t integer;
        double floating;
        const char *text;
    } value;
    char address[2 + 2 * sizeof(void *) + 1];
};

/* The format is checked by the compiler, but never used. */
__attribute__((__format__(__printf__, 1, 2), __unused__)) static inline int
tompion_priv_check_format(const char *format, ...)
{
    (void)format;
    return 0;
}

/* -- The format, as far as it matters: which texts are read, and how far -- */

struct tompion_priv_format {
    const char *at;
    struct tompion_priv_argument *arguments;
    size_t count;
    size_t next; /* index of the next argument that has no number of its own */
};

/* Digits; 0 if there are none. Stays small enough to be multiplied. */
static inline size_t tompion_priv_digits(const char **at)
{
    size_t number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (number < (size_t)1 << 31)
            number = number * 10 + (size_t)(**at - '0');
    return number;
}

/* `3$`, or else the next argument. The index may be one that isn't there. */
static inline size_t tompion_priv_position(struct tompion_priv_format *format)
{
    const char *at = format->at;
    const size_t number = tompion_priv_digits(&at);
    if (number == 0 || *at != '$')
        return format->next++;
    format->at = at + 1;
    return number - 1;
}

/* A precision that is an argument. A negative one is none. */
static inline size_t tompion_priv_given_limit(const struct tompion_priv_format *format, size_t index)
{
    if (index >= format->count || format->arguments[index].code != tompion_priv_code_i32)
        return 0;
    if (format->arguments[index].value.integer < 0)
        return SIZE_MAX;
    return (size_t)format->arguments[index].value.integer;
}

/* Passes one conversion, behind its `%`. Returns 0 at what printf(3) doesn't know. */
static inline int tompion_priv_conversion(struct tompion_priv_format *format)
{
    const char *const start = format->at;
    size_t limit = SIZE_MAX, number;
    int is_positional, is_wide = 0;
    struct tompion_priv_argument *argument;

    number = tompion_priv_digits(&format->at);
    is_positional = number != 0 && *format->at == '$';
    if (is_positional)
        ++format->at;
    else
        format->at = start;
    while (*format->at && __builtin_strchr("-+ #0'I", *format->at))
        ++format->at;
    if (*format->at == '*') {
        ++format->at;
        (void)tompion_priv_position(format);
    } else {
        (void)tompion_priv_digits(&format->at);
    }
    if (*format->at == '.') {
        if (*++format->at == '*') {
            ++format->at;
            limit = tompion_priv_given_limit(format, tompion_priv_position(format));
        } else {
            limit = tompion_priv_digits(&format->at);
        }
    }
    while (*format->at && __builtin_strchr("hlqLjzZtw0123456789f", *format->at)) {
        if (*format->at == 'f' && format->at[-1] != 'w')
            break;
        is_wide |= *format->at++ == 'l';
    }
    if (*format->at == '%' || *format->at == 'm')
        return ++format->at, 1;
    if (*format->at == 0 || !__builtin_strchr("diouxXbBeEfFgGaAcCsSpn", *format->at))
        return 0;
    number = is_positional ? number - 1 : format->next++;
    if (*format->at++ != 's' || is_wide || number >= format->count)
        return 1;
    argument = &format->arguments[number];
    if (argument->code == tompion_priv_code_str) {
        if (!argument->is_read || argument->limit < limit)
            argument->limit = limit;
        argument->is_read = 1;
    }
    return 1;
}

static inline void tompion_priv_find_texts(const char *text, struct tompion_priv_argument *arguments,
                                           size_t count)
{
    struct tompion_priv_format format;
    format.at = text;
    format.arguments = arguments;
    format.count = count;
    format.next = 0;
    while (*format.at) {
        if (*format.at++ == '%' && !tompion_priv_conversion(&format))
            return;
    }
}

/* Fills a tail with an argument's text, or with that of its address. */
static inline uint32_t tompion_priv_argument_text(struct tompion_priv_argument *argument,
                                                  struct tompion_tail *tail)
{
    const char *const text = argument->value.text;
    uintptr_t left = (uintptr_t)text;
    char *at = argument->address + sizeof argument->address - 1;
    if (argument->is_read && argument->limit == SIZE_MAX)
        return tompion_priv_text(tail, text);
    if (argument->is_read)
        return tompion_priv_text_at_most(tail, text, argument->limit);
    if (!text)
        return tompion_priv_text(tail, "(nil)");
    *at = 0;
    for (; left != 0; left /= 16)
        *--at = "0123456789abcdef"[left % 16];
    *--at = 'x';
    *--at = '0';
    return tompion_priv_text(tail, at);
}

/* Records a mark. There is room for an 8-byte word and a tail for each argument. */
__attribute__((__unused__, __noinline__)) static void
tompion_priv_mark(const struct tompion_site *site, const char *format,
                  struct tompion_priv_argument *arguments, size_t count, uint64_t *image,
                  struct tompion_tail *tails)
{
    unsigned char *at = (unsigned char *)image;
    size_t i, texts = 0, size = 0;
    for (i = 0; i < count; i++)
        texts += arguments[i].code == tompion_priv_code_str;
    if (texts != 0)
        tompion_priv_find_texts(format, arguments, count);
    texts = 0;
    for (i = 0; i < count; i++) {
        const void *value = &arguments[i].value;
        size_t value_size = 8;
        uint32_t half;
        if (arguments[i].code == tompion_priv_code_str) {
            half = tompion_priv_argument_text(&arguments[i], &tails[texts++]);
            value = &half;
            value_size = 4;
        } else if (arguments[i].code == tompion_priv_code_i32 ||
                   arguments[i].code == tompion_priv_code_u32) {
            half = (uint32_t)arguments[i].value.integer;
            value = &half;
            value_size = 4;
        }
        __builtin_memcpy(at + size, value, value_size);
        size += value_size;
    }
    /* No gap but in the last word, of four bytes. */
    if (size % 8 != 0)
        __builtin_memset(at + size, 0, 4);
    (void)tompion_priv_append(site, image, size, tails, texts);
}

/* -- Descriptions -- */

#define TOMPION_PRIV_ARGUMENT_MEMBER(i, value) \
    TOMPION_PRIV_FIELD_RECORD("arg" #i) tompion_priv_argument_##i;
#define TOMPION_PRIV_ARGUMENT_INIT(i, value)                                                          \
    TOMPION_PRIV_VALUES("arg" #i, (uint8_t)TOMPION_PRIV_THE_GIVEN(TOMPION_PRIV_ARGUMENT_CODE(value)), \
                        0, 0, 0),
#define TOMPION_PRIV_FORMAT_MEMBER(format)                                                            \
    struct TOMPION_PRIV_PACKED {                                                                      \
        struct tompion_priv_attribute_head tompion_priv_head;                                         \
        char tompion_priv_value[sizeof(format)];                                                      \
    } tompion_priv_format;
#define TOMPION_PRIV_FORMAT_INIT(format)                                                              \
    {{sizeof(struct tompion_priv_attribute_head) + sizeof(format), tompion_priv_attribute_FORMAT},    \
     format}

/* -- TOMPION_MARK -- */

#ifdef __cplusplus

struct tompion_priv_as_i32 {
    static constexpr int tompion_priv_code = tompion_priv_code_i32;
};
struct tompion_priv_as_u32 {
    static constexpr int tompion_priv_code = tompion_priv_code_u32;
};
struct tompion_priv_as_i64 {
    static constexpr int tompion_priv_code = tompion_priv_code_i64;
};
struct tompion_priv_as_u64 {
    static constexpr int tompion_priv_code = tompion_priv_code_u64;
};
struct tompion_priv_as_f64 {
    static constexpr int tompion_priv_code = tompion_priv_code_f64;
};
struct tompion_priv_as_str {
    static constexpr int tompion_priv_code = tompion_priv_code_str;
};
struct tompion_priv_as_x64 {
    static constexpr int tompion_priv_code = tompion_priv_code_x64;
};

/* The C promotions choose between these. */
TOMPION_PRIV_METHOD tompion_priv_as_i32 tompion_priv_take(struct tompion_priv_argument *to, int value)
{
    to->value.integer = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_u32 tompion_priv_take(struct tompion_priv_argument *to, unsigned value)
{
    to->value.integer = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_i64 tompion_priv_take(struct tompion_priv_argument *to, long value)
{
    to->value.integer = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_i64 tompion_priv_take(struct tompion_priv_argument *to, long long value)
{
    to->value.integer = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_u64 tompion_priv_take(struct tompion_priv_argument *to,
                                                          unsigned long value)
{
    to->value.integer = static_cast<int64_t>(value);
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_u64 tompion_priv_take(struct tompion_priv_argument *to,
                                                          unsigned long long value)
{
    to->value.integer = static_cast<int64_t>(value);
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_f64 tompion_priv_take(struct tompion_priv_argument *to, double value)
{
    to->value.floating = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_f64 tompion_priv_take(struct tompion_priv_argument *to,
                                                          long double value)
{
    to->value.floating = static_cast<double>(value);
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_str tompion_priv_take(struct tompion_priv_argument *to,
                                                          const char *value)
{
    to->value.text = value;
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_str tompion_priv_take(struct tompion_priv_argument *to,
                                                          const signed char *value)
{
    to->value.text = reinterpret_cast<const char *>(value);
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_str tompion_priv_take(struct tompion_priv_argument *to,
                                                          const unsigned char *value)
{
    to->value.text = reinterpret_cast<const char *>(value);
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_x64 tompion_priv_take(struct tompion_priv_argument *to,
                                                          const volatile void *value)
{
    to->value.integer = static_cast<int64_t>(reinterpret_cast<uintptr_t>(value));
    return {};
}
TOMPION_PRIV_METHOD tompion_priv_as_x64 tompion_priv_take(struct tompion_priv_argument *to,
                                                          decltype(nullptr))
{
    to->value.integer = 0;
    return {};
}
extern struct tompion_priv_argument *const tompion_priv_no_argument; /* has a type, and that is all */
#define TOMPION_PRIV_ARGUMENT_CODE(value) \
    decltype(tompion_priv_take(tompion_priv_no_argument, value))::tompion_priv_code

/* A mark in the making, in one expression as tompion_priv_record. */
template <size_t COUNT> struct tompion_priv_marked {
    struct tompion_priv_argument arguments[COUNT + 1];
    uint64_t image[COUNT + 1];
    struct tompion_tail tails[COUNT + 1];
    size_t count;

    TOMPION_PRIV_METHOD tompion_priv_marked() : count(0) {}
    template <class T> TOMPION_PRIV_METHOD tompion_priv_marked &tompion_priv_with(T value)
    {
        arguments[count].code = decltype(tompion_priv_take(arguments, value))::tompion_priv_code;
        arguments[count].is_read = 0;
        tompion_priv_take(&arguments[count], value);
        ++count;
        return *this;
    }
    TOMPION_PRIV_METHOD void tompion_priv_append_to(const struct tompion_site *site, const char *format)
    {
        tompion_priv_mark(site, format, arguments, COUNT, image, tails);
    }
};

/* Whether the format has this conversion. */
constexpr bool tompion_priv_converts(const char *format, char letter)
{
    for (; *format; ++format) {
        if (*format != '%')
            continue;
        ++format;
        while ((*format >= '0' && *format <= '9') || *format == '$' || *format == '-' || *format == '+' ||
               *format == ' ' || *format == '#' || *format == '\'' || *format == 'I' || *format == '*' ||
               *format == '.' || *format == 'h' || *format == 'l' || *format == 'q' || *format == 'L' ||
               *format == 'j' || *format == 'z' || *format == 'Z' || *format == 't' || *format == 'w')
            ++format;
        if (*format == letter)
            return true;
        if (*format == 0)
            return false;
    }
    return false;
}

#define TOMPION_PRIV_ARGUMENT_GIVEN(i, value) , TOMPION_PRIV_ARGUMENT_CODE(value)
#define TOMPION_PRIV_ARGUMENT_WITH(i, value) .tompion_priv_with(value)

#define TOMPION_PRIV_MARK(e, level, n, format, ...)                                                   \
    do {                                                                                              \
        static_assert(!tompion_priv_converts(format, 'n') && !tompion_priv_converts(format, 'm'),     \
                      "a mark can't have %n or %m");                                                  \
        using tompion_priv_given __attribute__((__unused__)) =                                        \
            tompion_priv_values<0 TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_GIVEN, ##__VA_ARGS__)>; \
        TOMPION_PRIV_DESCRIBE(e##level, tompion_priv_kind_MARK, 0, mark, e##n, "", (nullptr),         \
                              TOMPION_PRIV_COUNT(, ##__VA_ARGS__),                                    \
                              TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_MEMBER, ##__VA_ARGS__)     \
                                  TOMPION_PRIV_FORMAT_MEMBER(format),                                 \
                              TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_INIT, ##__VA_ARGS__)       \
                                  TOMPION_PRIV_FORMAT_INIT(format));                                  \
        if (!__builtin_is_constant_evaluated()) {                                                     \
            if (TOMPION_PRIV_RARELY(tompion_priv_takers(&TOMPION_PRIV_HERE::tompion_priv_site))) {    \
                TOMPION_PRIV_HERE::tompion_priv_enter();                                              \
                tompion_priv_marked<TOMPION_PRIV_COUNT(, ##__VA_ARGS__)>()                            \
                    TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_WITH, ##__VA_ARGS__)                 \
                        .tompion_priv_append_to(&TOMPION_PRIV_HERE::tompion_priv_site, format);       \
            }                                                                                         \
            (void)sizeof(tompion_priv_check_format(format, ##__VA_ARGS__));                           \
        }                                                                                             \
    } while (0)

#else /* C */

TOMPION_PRIV_INLINE void tompion_priv_take_i32(struct tompion_priv_argument *to, int value)
{
    to->code = tompion_priv_code_i32;
    to->value.integer = value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_u32(struct tompion_priv_argument *to, unsigned value)
{
    to->code = tompion_priv_code_u32;
    to->value.integer = value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_i64(struct tompion_priv_argument *to, int64_t value)
{
    to->code = tompion_priv_code_i64;
    to->value.integer = value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_u64(struct tompion_priv_argument *to, uint64_t value)
{
    to->code = tompion_priv_code_u64;
    to->value.integer = (int64_t)value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_f64(struct tompion_priv_argument *to, double value)
{
    to->code = tompion_priv_code_f64;
    to->value.floating = value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_long_double(struct tompion_priv_argument *to, long double value)
{
    tompion_priv_take_f64(to, (double)value);
}
TOMPION_PRIV_INLINE void tompion_priv_take_str(struct tompion_priv_argument *to, const void *value)
{
    to->code = tompion_priv_code_str;
    to->is_read = 0;
    to->value.text = (const char *)value;
}
TOMPION_PRIV_INLINE void tompion_priv_take_x64(struct tompion_priv_argument *to, const volatile void *value)
{
    to->code = tompion_priv_code_x64;
    to->value.integer = (int64_t)(uintptr_t)value;
}

#define TOMPION_PRIV_BY_ARGUMENT(value, i32, u32, i64, u64, f64, long_double, str, x64)               \
    _Generic((value), _Bool: i32, char: i32, signed char: i32, unsigned char: i32, short: i32,        \
             unsigned short: i32, int: i32, unsigned: u32, long: i64, long long: i64,                 \
             unsigned long: u64, unsigned long long: u64, float: f64, double: f64,                    \
             long double: long_double, char *: str, const char *: str, signed char *: str,            \
             const signed char *: str, unsigned char *: str, const unsigned char *: str, default: x64)
#define TOMPION_PRIV_ARGUMENT_CODE(value)                                                             \
    TOMPION_PRIV_BY_ARGUMENT(value, tompion_priv_code_i32, tompion_priv_code_u32,                     \
                             tompion_priv_code_i64, tompion_priv_code_u64, tompion_priv_code_f64,     \
                             tompion_priv_code_f64, tompion_priv_code_str, tompion_priv_code_x64)
#define TOMPION_PRIV_ARGUMENT_TAKE(i, value)                                                          \
    TOMPION_PRIV_BY_ARGUMENT(value, tompion_priv_take_i32, tompion_priv_take_u32,                     \
                             tompion_priv_take_i64, tompion_priv_take_u64, tompion_priv_take_f64,     \
                             tompion_priv_take_long_double, tompion_priv_take_str,                    \
                             tompion_priv_take_x64)(&tompion_priv_arguments[i - 1], value),

/* Never called: what is left of a call is an error. */
#if defined(__has_attribute)
#if __has_attribute(__error__)
#define TOMPION_PRIV_ERROR(text) __attribute__((__error__(text)))
#endif
#endif
#ifndef TOMPION_PRIV_ERROR
#define TOMPION_PRIV_ERROR(text)
#endif
void tompion_priv_bad_conversion(void) TOMPION_PRIV_ERROR("a mark can't have %n or %m");

/* Whether the compiler can tell that the text stands in the format, not behind another `%`. */
#define TOMPION_PRIV_HAS(format, letter)                                                              \
    (__builtin_constant_p(__builtin_strstr(format, "%" letter) != 0) &&                               \
     __builtin_strstr(format, "%" letter) != 0 && __builtin_strstr(format, "%%" letter) == 0)

#define TOMPION_PRIV_MARK(e, level, n, format, ...)                                                   \
    do {                                                                                              \
        TOMPION_PRIV_QUIETLY                                                                          \
        enum { tompion_priv_count = TOMPION_PRIV_COUNT(, ##__VA_ARGS__) };                            \
        TOMPION_PRIV_DESCRIBE(TOMPION_PRIV_KNOWN, e##level, tompion_priv_kind_MARK, 0, mark, e##n,    \
                              "", tompion_priv_count,                                                 \
                              TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_MEMBER, ##__VA_ARGS__)     \
                                  TOMPION_PRIV_FORMAT_MEMBER(format),                                 \
                              TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_INIT, ##__VA_ARGS__)       \
                                  TOMPION_PRIV_FORMAT_INIT(format));                                  \
        TOMPION_PRIV_SITE(0, 0);                                                                      \
        if (TOMPION_PRIV_HAS(format, "n") || TOMPION_PRIV_HAS(format, "m"))                           \
            tompion_priv_bad_conversion();                                                            \
        if (TOMPION_PRIV_RARELY(tompion_priv_takers(&tompion_priv_site))) {                           \
            struct tompion_priv_argument tompion_priv_arguments[tompion_priv_count + 1];              \
            uint64_t tompion_priv_image[tompion_priv_count + 1];                                      \
            struct tompion_tail tompion_priv_tails[tompion_priv_count + 1];                           \
            (void)(TOMPION_PRIV_ARGUMENTS(TOMPION_PRIV_ARGUMENT_TAKE, ##__VA_ARGS__)                  \
                   tompion_priv_mark(&tompion_priv_site, format, tompion_priv_arguments,              \
                                     tompion_priv_count, tompion_priv_image, tompion_priv_tails));    \
            (void)sizeof(tompion_priv_check_format(format, ##__VA_ARGS__));                           \
        }                                                                                             \
        TOMPION_PRIV_AS_BEFORE                                                                        \
    } while (0)

#endif

#endif /* TOMPION_PRIVATE_MARK_H */

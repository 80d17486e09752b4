/*
 * Events, in C.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * Each use of an event's macro defines, in its own block,
 *
 *     tompion_priv_description   constant bytes in section tompion_events, laid out as the
 *                                library's schema says: header, names, fields; no pointers, so that
 *                                tools can read them in the file. Alignment 8, gaps are 0.
 *     tompion_priv_site          a struct tompion_site. Sites lie together in a section of their
 *                                own, away from data that the program writes.
 *     tompion_priv_site_pointer  in section tompion_sites, whose bounds the linker knows
 *
 * and, if enabled, fills an image and tails and calls the module's append or append_tails.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_EVENT_C_H
#define TOMPION_PRIVATE_EVENT_C_H

#pragma GCC system_header

#include "field.h"

#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define TOMPION_PRIV_KEEP __attribute__((__used__, __retain__))
#endif
#endif
#ifndef TOMPION_PRIV_KEEP
#define TOMPION_PRIV_KEEP __attribute__((__used__))
#endif

#define TOMPION_PRIV_SECTION(name) __attribute__((__section__(name), __aligned__(8)))

/*
 * C forbids inline functions that other files see to have objects of their own, and clang says so.
 * Here each file may have its own.
 */
#ifdef __clang__
#define TOMPION_PRIV_QUIETLY                                                                          \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wstatic-local-in-inline\"") \
        _Pragma("clang diagnostic ignored \"-Wstatic-in-inline\"")
#define TOMPION_PRIV_AS_BEFORE _Pragma("clang diagnostic pop")
#else
#define TOMPION_PRIV_QUIETLY
#define TOMPION_PRIV_AS_BEFORE
#endif

/* -- Descriptions and sites -- */

/* Where descriptions stand: those of events where tools find them. */
#define TOMPION_PRIV_KNOWN TOMPION_PRIV_SECTION("tompion_events")
#define TOMPION_PRIV_UNKNOWN __attribute__((__aligned__(8)))

#define TOMPION_PRIV_DESCRIBE(where, level, kind, flags, p, n, suffix, count, members, ...)           \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_priv_event_head tompion_priv_head;                                             \
        char tompion_priv_provider[sizeof(#p)], tompion_priv_name[sizeof(#n suffix)];                 \
        members                                                                                       \
    } tompion_priv_description where = {                                                              \
        {TOMPION_PRIV_EVENT_MAGIC, sizeof(tompion_priv_description), 1, kind,                         \
         tompion_priv_level_##level, flags, count, sizeof(#p), sizeof(#n suffix)},                    \
        #p, #n suffix, __VA_ARGS__}

#define TOMPION_PRIV_SITE(enums_of_it, kind_of_it)                                                    \
    static struct tompion_site tompion_priv_site TOMPION_PRIV_SECTION("tompion_site_data") = {        \
        0, 0, &tompion_priv_description, enums_of_it, kind_of_it, 0};                                 \
    static struct tompion_site *const tompion_priv_site_pointer TOMPION_PRIV_KEEP                     \
        TOMPION_PRIV_SECTION("tompion_sites") = &tompion_priv_site

/* What C++ has to compute elsewhere. */
#define TOMPION_PRIV_THE_GIVEN(value) value

/* -- Records -- */

/*
 * A statement that hands the event to `append`, and what that returns to `also`, as
 * tompion_priv_result.
 */
#define TOMPION_PRIV_RECORD(e, append, also, kind, flags, suffix, level, p, n, ...)                   \
    do {                                                                                              \
        TOMPION_PRIV_QUIETLY                                                                          \
        TOMPION_PRIV_DESCRIBE(TOMPION_PRIV_KNOWN, e##level, kind, flags, e##p, e##n, suffix,          \
                              0 TOMPION_PRIV_EACH(TOMPION_PRIV_ONE, e, ##__VA_ARGS__),                \
                              TOMPION_PRIV_EACH(TOMPION_PRIV_MEMBER, e, ##__VA_ARGS__),               \
                              TOMPION_PRIV_EACH(TOMPION_PRIV_INIT, e, ##__VA_ARGS__));                \
        static const void *const tompion_priv_enums[] = {                                             \
            TOMPION_PRIV_EACH(TOMPION_PRIV_ENUM_OF, e, ##__VA_ARGS__) 0};                             \
        TOMPION_PRIV_SITE(sizeof(tompion_priv_enums) > sizeof(void *) ? tompion_priv_enums : 0, 0);   \
        if (TOMPION_PRIV_RARELY(tompion_priv_takers(&tompion_priv_site))) {                           \
            enum {                                                                                    \
                tompion_priv_size = 0 TOMPION_PRIV_EACH(TOMPION_PRIV_SIZE, e, ##__VA_ARGS__),         \
                tompion_priv_tail_count = 0 TOMPION_PRIV_EACH(TOMPION_PRIV_TAIL, e, ##__VA_ARGS__)    \
            };                                                                                        \
            uint64_t tompion_priv_image[TOMPION_PRIV_LAST_WORD(tompion_priv_size) + 1];               \
            struct tompion_tail tompion_priv_tails[tompion_priv_tail_count + 1];                      \
            unsigned char *tompion_priv_at = (unsigned char *)tompion_priv_image;                     \
            struct tompion_tail *tompion_priv_tail = tompion_priv_tails;                              \
            TOMPION_PRIV_EACH(TOMPION_PRIV_CHECK, e, ##__VA_ARGS__)                                   \
            tompion_priv_image[TOMPION_PRIV_LAST_WORD(tompion_priv_size)] = 0;                        \
            /* One expression: the values' temporaries live until all is recorded. */ \
            const uint32_t tompion_priv_result =                                                      \
                (TOMPION_PRIV_EACH(TOMPION_PRIV_SET, e, ##__VA_ARGS__)                                \
                     append(&tompion_priv_site, tompion_priv_image, tompion_priv_size,                \
                            tompion_priv_tails, tompion_priv_tail_count));                            \
            (void)tompion_priv_at, (void)tompion_priv_tail, (void)tompion_priv_result, (void)(also);  \
        }                                                                                             \
        TOMPION_PRIV_AS_BEFORE                                                                        \
    } while (0)

#define TOMPION_PRIV_ENABLED(e, suffix, p, n)                                                         \
    __extension__({                                                                                   \
        TOMPION_PRIV_QUIETLY                                                                          \
        TOMPION_PRIV_DESCRIBE(TOMPION_PRIV_UNKNOWN, DEBUG_LINE, 0, 0, e##p, e##n, suffix, 0, , );     \
        TOMPION_PRIV_SITE(0, 1);                                                                      \
        TOMPION_PRIV_AS_BEFORE                                                                        \
        TOMPION_PRIV_RARELY(tompion_priv_takers(&tompion_priv_site));                                 \
    })

/* CHECK: elements have the size that their word says; void counts as bytes. */
#define TOMPION_PRIV_CHECK_ELEMENT(size, data)                                                        \
    TOMPION_PRIV_ASSERT(TOMPION_PRIV_SIZE_AT(data) == size || TOMPION_PRIV_SIZE_AT(data) == 1,        \
                        "the pointer points to elements of another size");
#define TOMPION_PRIV_SIZE_AT(data) \
    sizeof(*_Generic((data), void *: (char *)0, const void *: (char *)0, default: (data)))

/* SET: the field's place in the image, and its tail. */
#define TOMPION_PRIV_PUT(type, value)                                                                 \
    __builtin_memcpy(tompion_priv_next(&tompion_priv_at, sizeof(type)), &(type){value}, sizeof(type))
#define TOMPION_PRIV_SET_NUMBER(each, next, type, code, field, name, e, value) \
    TOMPION_PRIV_PUT(type, (type)(value)),
#define TOMPION_PRIV_SET_COUNTED(each, next, type, code, field, name, e, value) \
    TOMPION_PRIV_PUT(uint64_t, TOMPION_PRIV_COUNTED_BITS(value)),
#define TOMPION_PRIV_SET_STR(each, next, type, code, field, name, e, text) \
    TOMPION_PRIV_PUT(uint32_t, tompion_priv_text(tompion_priv_tail++, (text))),
#define TOMPION_PRIV_SET_STRN(each, next, type, code, field, name, e, text, max)                      \
    TOMPION_PRIV_PUT(uint32_t,                                                                        \
                     tompion_priv_text_at_most(tompion_priv_tail++, (text), (size_t)(max))),
#define TOMPION_PRIV_SET_BYTES(each, next, type, code, field, name, e, data, count)                   \
    TOMPION_PRIV_PUT(uint32_t,                                                                        \
                     tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count), 1)),
#define TOMPION_PRIV_SET_ARRAY(each, next, type, code, field, name, e, t, data, count)                \
    (void)tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count),                         \
                                sizeof(tompion_priv_##t)),
#define TOMPION_PRIV_SET_SEQUENCE(each, next, type, code, field, name, e, t, data, count)             \
    TOMPION_PRIV_PUT(uint32_t, tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count),    \
                                                     sizeof(tompion_priv_##t))),
#define TOMPION_PRIV_SET_ARRAY_TEXT(each, next, type, code, field, name, e, data, count) \
    (void)tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count), 1),
#define TOMPION_PRIV_SET_ENUM(each, next, type, code, field, name, e, enumeration, value) \
    TOMPION_PRIV_PUT(type, (type)(value)),
#define TOMPION_PRIV_SET_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_SET_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

/* The place of the next `size` bytes of an image. */
TOMPION_PRIV_INLINE unsigned char *tompion_priv_next(unsigned char **at, size_t size)
{
    unsigned char *place = *at;
    *at += size;
    return place;
}

/* -- Counters: i64, u64 or f64 by the value's type -- */

#define TOMPION_PRIV_BY_NUMBER(value, floating, unsigned_, signed_)                                   \
    _Generic((value), float: floating, double: floating, long double: floating, _Bool: unsigned_,     \
             unsigned char: unsigned_, unsigned short: unsigned_, unsigned int: unsigned_,            \
             unsigned long: unsigned_, unsigned long long: unsigned_, default: signed_)
#define TOMPION_PRIV_COUNTED_CODE(value)                                                              \
    TOMPION_PRIV_BY_NUMBER(value, tompion_priv_code_f64, tompion_priv_code_u64, tompion_priv_code_i64)
#define TOMPION_PRIV_COUNTED_BITS(value)                                                              \
    TOMPION_PRIV_BY_NUMBER(value, tompion_priv_bits_of_f64, tompion_priv_bits_of_u64,                 \
                           tompion_priv_bits_of_i64)(value)

TOMPION_PRIV_INLINE uint64_t tompion_priv_bits_of_f64(double value)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
TOMPION_PRIV_INLINE uint64_t tompion_priv_bits_of_u64(uint64_t value)
{
    return value;
}
TOMPION_PRIV_INLINE uint64_t tompion_priv_bits_of_i64(int64_t value)
{
    return (uint64_t)value;
}

/* -- Spans -- */

#define TOMPION_PRIV_SPAN(e, kind, level, p, n, ...)                                                  \
    const struct tompion_priv_opened TOMPION_PRIV_JOIN(tompion_priv_span_, __COUNTER__)               \
        __attribute__((__cleanup__(tompion_priv_close), __unused__)) = __extension__({                \
            struct tompion_priv_opened tompion_priv_opened = {0, 0};                                  \
            {                                                                                         \
                TOMPION_PRIV_QUIETLY                                                                  \
                TOMPION_PRIV_DESCRIBE(TOMPION_PRIV_KNOWN, e##level, tompion_priv_kind_END, 0, e##p,   \
                                      e##n, "_end", 0, , );                                           \
                TOMPION_PRIV_SITE(0, 0);                                                              \
                tompion_priv_opened.tompion_priv_end = &tompion_priv_site;                            \
                TOMPION_PRIV_AS_BEFORE                                                                \
            }                                                                                         \
            TOMPION_PRIV_RECORD(e, tompion_priv_begin,                                                \
                                tompion_priv_opened.tompion_priv_takers = tompion_priv_result, kind,  \
                                0, "_begin", e##level, e##p, e##n, ##__VA_ARGS__);                    \
            tompion_priv_opened;                                                                      \
        })

#endif /* TOMPION_PRIVATE_EVENT_C_H */

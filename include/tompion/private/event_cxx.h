/*
 * Events, in C++.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * Templates and inline functions may be compiled many times over; what stands in them the linker
 * would merge, and g++ then puts it into no section of ours. So each use of an event's macro
 * defines only a local structure, tompion_priv_here, that can describe the event. A template makes
 * description and site of it: for each instantiation of the code around it, and because of
 * tompion_priv_file for each file, as objects that no other file knows. The sections that tools and
 * library look into get their entries by the assembler:
 *
 *     tompion_sites     the address of the site
 *     tompion_events    where the description is: the word TOMPION_PRIV_ELSEWHERE_MAGIC, and the
 *                       distance from the next word to the description (int32_t)
 *
 * The function around an event may be constexpr: nothing is recorded at compile time.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_EVENT_CXX_H
#define TOMPION_PRIVATE_EVENT_CXX_H

#pragma GCC system_header

#include "field.h"

/* -- Descriptions and sites -- */

namespace {
struct tompion_priv_file {};
} // namespace

/* Addresses, the last one NULL. */
template <size_t COUNT> struct tompion_priv_addresses {
    const void *at[COUNT];
};
template <class... Pointers>
constexpr tompion_priv_addresses<sizeof...(Pointers)> tompion_priv_list(Pointers... pointers)
{
    return {{static_cast<const void *>(pointers)...}};
}

/* Numbers that are known where the event stands, but not within its description. */
template <uint64_t... VALUES> struct tompion_priv_values {
    static constexpr uint64_t tompion_priv_at[sizeof...(VALUES)] = {VALUES...};
};
#define TOMPION_PRIV_THE_GIVEN(value) \
    static_cast<uint32_t>(tompion_priv_given::tompion_priv_at[++tompion_priv_index])

/* GIVEN: a comma and the number, for each field that has one. */
#define TOMPION_PRIV_GIVEN_NUMBER(...)
#define TOMPION_PRIV_GIVEN_COUNTED(each, next, type, code, field, name, e, value) \
    , TOMPION_PRIV_COUNTED_CODE(value)
#define TOMPION_PRIV_GIVEN_STR(...)
#define TOMPION_PRIV_GIVEN_STRN(...)
#define TOMPION_PRIV_GIVEN_BYTES(...)
#define TOMPION_PRIV_GIVEN_ARRAY(each, next, type, code, field, name, e, t, data, count) , (count)
#define TOMPION_PRIV_GIVEN_SEQUENCE(...)
#define TOMPION_PRIV_GIVEN_ARRAY_TEXT(each, next, type, code, field, name, e, data, count) , (count)
#define TOMPION_PRIV_GIVEN_ENUM(...)
#define TOMPION_PRIV_GIVEN_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_GIVEN_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define TOMPION_PRIV_KEEP_FLAG "R"
#endif
#endif
#ifndef TOMPION_PRIV_KEEP_FLAG
#define TOMPION_PRIV_KEEP_FLAG
#endif
#define TOMPION_PRIV_ELSEWHERE_MAGIC "0x31524554" /* "TER1" */

template <class Here, class File, uint32_t KIND> struct tompion_priv_event {
    static constexpr auto description = Here::tompion_priv_describe();
    static constexpr auto enums = Here::tompion_priv_enumerations();
    static struct tompion_site tompion_priv_site;

    /* Puts the event into the sections. Where it stands is of no importance. */
    __attribute__((__always_inline__)) static inline void tompion_priv_enter()
    {
        __asm__ __volatile__(".pushsection tompion_sites, \"aw" TOMPION_PRIV_KEEP_FLAG "\", %%progbits\n\t"
                             ".balign 8\n\t"
                             ".dc.a %c0\n\t"
                             ".popsection"
                             :
                             : "i"(&tompion_priv_site));
        if (KIND == 0)
            __asm__ __volatile__(
                ".pushsection tompion_events, \"a" TOMPION_PRIV_KEEP_FLAG "\", %%progbits\n\t"
                ".balign 8\n\t"
                ".long " TOMPION_PRIV_ELSEWHERE_MAGIC ", %c0 - .\n\t"
                ".popsection"
                :
                : "i"(&description));
    }
};

template <class Here, class File, uint32_t KIND>
struct tompion_site tompion_priv_event<Here, File, KIND>::tompion_priv_site
    __attribute__((__section__("tompion_site_data"), __aligned__(8))) = {
        0,
        0,
        &tompion_priv_event<Here, File, KIND>::description,
        sizeof(tompion_priv_event<Here, File, KIND>::enums) > sizeof(void *)
            ? tompion_priv_event<Here, File, KIND>::enums.at
            : nullptr,
        KIND,
        0};

#define TOMPION_PRIV_HERE tompion_priv_event<tompion_priv_here, tompion_priv_file, 0>
#define TOMPION_PRIV_HERE_ASKS tompion_priv_event<tompion_priv_here, tompion_priv_file, 1>

/* All types are told: clang 14 doesn't find out those of a generic lambda's within a template. */
#define TOMPION_PRIV_DESCRIBE(level, kind, flags, p, n, suffix, enums, count, members, ...)           \
    struct tompion_priv_here {                                                                        \
        struct TOMPION_PRIV_PACKED tompion_priv_bytes {                                               \
            struct tompion_priv_event_head tompion_priv_head;                                         \
            char tompion_priv_provider[sizeof(#p)], tompion_priv_name[sizeof(#n suffix)];             \
            members                                                                                   \
        };                                                                                            \
        static constexpr tompion_priv_bytes tompion_priv_describe()                                   \
        {                                                                                             \
            unsigned tompion_priv_index = 0;                                                          \
            (void)tompion_priv_index;                                                                 \
            return tompion_priv_bytes{{TOMPION_PRIV_EVENT_MAGIC, sizeof(tompion_priv_bytes), 1, kind, \
                                      tompion_priv_level_##level, flags, count, sizeof(#p),           \
                                      sizeof(#n suffix)},                                             \
                                     #p, #n suffix, __VA_ARGS__};                                     \
        }                                                                                             \
        static constexpr decltype(tompion_priv_list(TOMPION_PRIV_UNPACK enums))                       \
        tompion_priv_enumerations()                                                                   \
        {                                                                                             \
            return tompion_priv_list(TOMPION_PRIV_UNPACK enums);                                      \
        }                                                                                             \
    }
#define TOMPION_PRIV_UNPACK(...) __VA_ARGS__

/* -- Records -- */

#define TOMPION_PRIV_METHOD __attribute__((__always_inline__)) inline

/*
 * A record in the making: its image and its tails, and how far they are filled. All its calls stand
 * in one expression, so that what values refer to is there until all is recorded.
 */
template <size_t SIZE, size_t TAILS> struct tompion_priv_parts {
    uint64_t image[TOMPION_PRIV_LAST_WORD(SIZE) + 1];
    struct tompion_tail tails[TAILS + 1];

    TOMPION_PRIV_METHOD tompion_priv_parts() {} /* leaves them as they are */
};
template <size_t SIZE, size_t TAILS> class tompion_priv_record {
    tompion_priv_parts<SIZE, TAILS> &parts;
    unsigned char *at;
    struct tompion_tail *tail;

  public:
    TOMPION_PRIV_METHOD explicit tompion_priv_record(tompion_priv_parts<SIZE, TAILS> &&of)
        : parts(of), at(reinterpret_cast<unsigned char *>(of.image)), tail(of.tails)
    {
        parts.image[TOMPION_PRIV_LAST_WORD(SIZE)] = 0;
    }
    template <class T> TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put(T value)
    {
        __builtin_memcpy(at, &value, sizeof value);
        at += sizeof value;
        return *this;
    }
    TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put_str(const char *value)
    {
        return tompion_priv_put(tompion_priv_text(tail++, value));
    }
    /* std::string, std::string_view and their like, up to the first NUL. */
    template <class T>
    TOMPION_PRIV_METHOD auto tompion_priv_put_str(const T &value)
        -> decltype(value.data(), value.size(), *this)
    {
        return tompion_priv_put_strn(value.data(), value.size());
    }
    TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put_strn(const char *value, size_t max)
    {
        return tompion_priv_put(tompion_priv_text_at_most(tail++, value, max));
    }
    TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put_bytes(const void *data, size_t size)
    {
        return tompion_priv_put(tompion_priv_elements(tail++, data, size, 1));
    }
    template <class T>
    TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put_array(const T *data, size_t count)
    {
        tompion_priv_elements(tail++, data, count, sizeof(T));
        return *this;
    }
    template <class T>
    TOMPION_PRIV_METHOD tompion_priv_record &tompion_priv_put_sequence(const T *data, size_t count)
    {
        return tompion_priv_put(tompion_priv_elements(tail++, data, count, sizeof(T)));
    }
    /* Hands the record to tompion_priv_append or tompion_priv_begin. */
    template <class Append>
    TOMPION_PRIV_METHOD uint32_t tompion_priv_finally(Append append, const struct tompion_site *site)
    {
        return append(site, parts.image, SIZE, parts.tails, TAILS);
    }
};

/* A pointer to elements of type T; void and bytes will do as well. */
template <class T> TOMPION_PRIV_METHOD const T *tompion_priv_pointer(const void *data)
{
    return static_cast<const T *>(data);
}
template <class T, class U> TOMPION_PRIV_METHOD const T *tompion_priv_pointer(const U *data)
{
    static_assert(sizeof(U) == sizeof(T) || sizeof(U) == 1,
                  "the pointer points to elements of another size");
    return reinterpret_cast<const T *>(data);
}

/*
 * A statement that hands the event to `append`, and what that returns to `also`, as
 * tompion_priv_result.
 */
#define TOMPION_PRIV_RECORD(e, append, also, kind, flags, suffix, level, p, n, ...)                   \
    do {                                                                                              \
        using tompion_priv_given __attribute__((__unused__)) =                                        \
            tompion_priv_values<0 TOMPION_PRIV_EACH(TOMPION_PRIV_GIVEN, e, ##__VA_ARGS__)>;           \
        TOMPION_PRIV_EACH(TOMPION_PRIV_CHECK, e, ##__VA_ARGS__)                                       \
        TOMPION_PRIV_DESCRIBE(e##level, kind, flags, e##p, e##n, suffix,                              \
                              (TOMPION_PRIV_EACH(TOMPION_PRIV_ENUM_OF, e, ##__VA_ARGS__) nullptr),    \
                              0 TOMPION_PRIV_EACH(TOMPION_PRIV_ONE, e, ##__VA_ARGS__),                \
                              TOMPION_PRIV_EACH(TOMPION_PRIV_MEMBER, e, ##__VA_ARGS__),               \
                              TOMPION_PRIV_EACH(TOMPION_PRIV_INIT, e, ##__VA_ARGS__));                \
        if (!__builtin_is_constant_evaluated() &&                                                     \
            TOMPION_PRIV_RARELY(tompion_priv_takers(&TOMPION_PRIV_HERE::tompion_priv_site))) {        \
            TOMPION_PRIV_HERE::tompion_priv_enter();                                                  \
            const uint32_t tompion_priv_result =                                                      \
                tompion_priv_record(                                                                  \
                    tompion_priv_parts<0 TOMPION_PRIV_EACH(TOMPION_PRIV_SIZE, e, ##__VA_ARGS__),      \
                                       0 TOMPION_PRIV_EACH(TOMPION_PRIV_TAIL, e, ##__VA_ARGS__)>())   \
                    TOMPION_PRIV_EACH(TOMPION_PRIV_SET, e, ##__VA_ARGS__)                             \
                        .tompion_priv_finally(append, &TOMPION_PRIV_HERE::tompion_priv_site);         \
            (void)tompion_priv_result, (void)(also);                                                  \
        }                                                                                             \
    } while (0)

#define TOMPION_PRIV_ENABLED(e, suffix, p, n)                                                         \
    __extension__({                                                                                   \
        TOMPION_PRIV_DESCRIBE(DEBUG_LINE, 0, 0, e##p, e##n, suffix, (nullptr), 0, , );                \
        TOMPION_PRIV_HERE_ASKS::tompion_priv_enter();                                                 \
        TOMPION_PRIV_RARELY(tompion_priv_takers(&TOMPION_PRIV_HERE_ASKS::tompion_priv_site));         \
    })

/* CHECK: pointers are checked when they are used. */
#define TOMPION_PRIV_CHECK_ELEMENT(size, data)

/* SET: one call for each field. */
#define TOMPION_PRIV_SET_NUMBER(each, next, type, code, field, name, e, value) \
    .tompion_priv_put((type)(value))
#define TOMPION_PRIV_SET_COUNTED(each, next, type, code, field, name, e, value) \
    .tompion_priv_put(tompion_priv_counted_value(value))
#define TOMPION_PRIV_SET_STR(each, next, type, code, field, name, e, value) .tompion_priv_put_str((value))
#define TOMPION_PRIV_SET_STRN(each, next, type, code, field, name, e, value, max) \
    .tompion_priv_put_strn((value), (size_t)(max))
#define TOMPION_PRIV_SET_BYTES(each, next, type, code, field, name, e, data, count) \
    .tompion_priv_put_bytes((data), (size_t)(count))
#define TOMPION_PRIV_SET_ARRAY(each, next, type, code, field, name, e, t, data, count) \
    .tompion_priv_put_array(tompion_priv_pointer<tompion_priv_##t>(data), (size_t)(count))
#define TOMPION_PRIV_SET_SEQUENCE(each, next, type, code, field, name, e, t, data, count) \
    .tompion_priv_put_sequence(tompion_priv_pointer<tompion_priv_##t>(data), (size_t)(count))
#define TOMPION_PRIV_SET_ARRAY_TEXT(each, next, type, code, field, name, e, data, count) \
    .tompion_priv_put_array(tompion_priv_pointer<uint8_t>(data), (size_t)(count))
#define TOMPION_PRIV_SET_ENUM(each, next, type, code, field, name, e, enumeration, value) \
    .tompion_priv_put((type)(value))
#define TOMPION_PRIV_SET_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_SET_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

/* -- Counters: i64, u64 or f64 by the value's type -- */

#define TOMPION_PRIV_COUNTED_CODE(value) decltype(tompion_priv_counted(value))::tompion_priv_code

struct tompion_priv_counted_f64 {
    static constexpr int tompion_priv_code = tompion_priv_code_f64;
    typedef double type;
};
struct tompion_priv_counted_u64 {
    static constexpr int tompion_priv_code = tompion_priv_code_u64;
    typedef uint64_t type;
};
struct tompion_priv_counted_i64 {
    static constexpr int tompion_priv_code = tompion_priv_code_i64;
    typedef int64_t type;
};
tompion_priv_counted_f64 tompion_priv_counted(long double);
tompion_priv_counted_f64 tompion_priv_counted(double);
tompion_priv_counted_f64 tompion_priv_counted(float);
tompion_priv_counted_u64 tompion_priv_counted(bool);
tompion_priv_counted_u64 tompion_priv_counted(unsigned char);
tompion_priv_counted_u64 tompion_priv_counted(unsigned short);
tompion_priv_counted_u64 tompion_priv_counted(unsigned int);
tompion_priv_counted_u64 tompion_priv_counted(unsigned long);
tompion_priv_counted_u64 tompion_priv_counted(unsigned long long);
tompion_priv_counted_i64 tompion_priv_counted(char);
tompion_priv_counted_i64 tompion_priv_counted(signed char);
tompion_priv_counted_i64 tompion_priv_counted(short);
tompion_priv_counted_i64 tompion_priv_counted(int);
tompion_priv_counted_i64 tompion_priv_counted(long);
tompion_priv_counted_i64 tompion_priv_counted(long long);

template <class T>
TOMPION_PRIV_METHOD typename decltype(tompion_priv_counted(T()))::type tompion_priv_counted_value(T value)
{
    return static_cast<typename decltype(tompion_priv_counted(T()))::type>(value);
}

/* -- Spans -- */

class tompion_priv_span {
    const struct tompion_site *end;
    uint32_t takers;

  public:
    TOMPION_PRIV_METHOD explicit tompion_priv_span(struct tompion_priv_opened opened)
        : end(opened.tompion_priv_end), takers(opened.tompion_priv_takers)
    {
    }
    TOMPION_PRIV_METHOD ~tompion_priv_span()
    {
        if (TOMPION_PRIV_RARELY(takers))
            tompion_priv_finish(end, takers);
    }
    tompion_priv_span(const tompion_priv_span &) = delete;
    tompion_priv_span &operator=(const tompion_priv_span &) = delete;
};

#define TOMPION_PRIV_SPAN(e, kind, level, p, n, ...)                                                  \
    const tompion_priv_span TOMPION_PRIV_JOIN(tompion_priv_span_, __COUNTER__)                        \
        __attribute__((__unused__))(__extension__({                                                   \
            struct tompion_priv_opened tompion_priv_opened = {nullptr, 0};                            \
            TOMPION_PRIV_RECORD(                                                                      \
                e, tompion_priv_begin, __extension__({                                                \
                    TOMPION_PRIV_DESCRIBE(e##level, tompion_priv_kind_END, 0, e##p, e##n, "_end",     \
                                          (nullptr), 0, , );                                          \
                    TOMPION_PRIV_HERE::tompion_priv_enter();                                          \
                    tompion_priv_opened.tompion_priv_end = &TOMPION_PRIV_HERE::tompion_priv_site;     \
                    tompion_priv_opened.tompion_priv_takers = tompion_priv_result;                    \
                }),                                                                                   \
                kind, 0, "_begin", e##level, e##p, e##n, ##__VA_ARGS__);                              \
            tompion_priv_opened;                                                                      \
        }))

#endif /* TOMPION_PRIVATE_EVENT_CXX_H */

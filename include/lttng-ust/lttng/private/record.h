/*
 * What is done for each field of a class, and for each label of an enumeration.
 *
 * Part of <lttng/tracepoint-event.h>; not to be included by itself.
 *
 * MEMBER and INIT make the field's part of the description, ENUM_OF its enumeration, SIZE and TAIL
 * its room in a record, PUT its value. The kinds are those of field_begin.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_RECORD_H
#define TOMPION_LTTNG_RECORD_H

#pragma GCC system_header

/* Two macros for each that take turns; see TOMPION_LTTNG_EACH. */
#define TOMPION_LTTNG_A_ONE(kind, ...) TOMPION_LTTNG_ONE_##kind(__VA_ARGS__) TOMPION_LTTNG_B_ONE
#define TOMPION_LTTNG_B_ONE(kind, ...) TOMPION_LTTNG_ONE_##kind(__VA_ARGS__) TOMPION_LTTNG_A_ONE
#define TOMPION_LTTNG_A_ONE_END
#define TOMPION_LTTNG_B_ONE_END
#define TOMPION_LTTNG_A_MEMBER(kind, ...) \
    TOMPION_LTTNG_MEMBER_##kind(__VA_ARGS__) TOMPION_LTTNG_B_MEMBER
#define TOMPION_LTTNG_B_MEMBER(kind, ...) \
    TOMPION_LTTNG_MEMBER_##kind(__VA_ARGS__) TOMPION_LTTNG_A_MEMBER
#define TOMPION_LTTNG_A_MEMBER_END
#define TOMPION_LTTNG_B_MEMBER_END
#define TOMPION_LTTNG_A_INIT(kind, ...) \
    TOMPION_LTTNG_INIT_##kind(__VA_ARGS__) TOMPION_LTTNG_B_INIT
#define TOMPION_LTTNG_B_INIT(kind, ...) \
    TOMPION_LTTNG_INIT_##kind(__VA_ARGS__) TOMPION_LTTNG_A_INIT
#define TOMPION_LTTNG_A_INIT_END
#define TOMPION_LTTNG_B_INIT_END
#define TOMPION_LTTNG_A_ENUM_OF(kind, ...) \
    TOMPION_LTTNG_ENUM_OF_##kind(__VA_ARGS__) TOMPION_LTTNG_B_ENUM_OF
#define TOMPION_LTTNG_B_ENUM_OF(kind, ...) \
    TOMPION_LTTNG_ENUM_OF_##kind(__VA_ARGS__) TOMPION_LTTNG_A_ENUM_OF
#define TOMPION_LTTNG_A_ENUM_OF_END
#define TOMPION_LTTNG_B_ENUM_OF_END
#define TOMPION_LTTNG_A_SIZE(kind, ...) \
    TOMPION_LTTNG_SIZE_##kind(__VA_ARGS__) TOMPION_LTTNG_B_SIZE
#define TOMPION_LTTNG_B_SIZE(kind, ...) \
    TOMPION_LTTNG_SIZE_##kind(__VA_ARGS__) TOMPION_LTTNG_A_SIZE
#define TOMPION_LTTNG_A_SIZE_END
#define TOMPION_LTTNG_B_SIZE_END
#define TOMPION_LTTNG_A_TAIL(kind, ...) \
    TOMPION_LTTNG_TAIL_##kind(__VA_ARGS__) TOMPION_LTTNG_B_TAIL
#define TOMPION_LTTNG_B_TAIL(kind, ...) \
    TOMPION_LTTNG_TAIL_##kind(__VA_ARGS__) TOMPION_LTTNG_A_TAIL
#define TOMPION_LTTNG_A_TAIL_END
#define TOMPION_LTTNG_B_TAIL_END
#define TOMPION_LTTNG_A_UNUSED(kind, ...) \
    TOMPION_LTTNG_UNUSED_##kind(__VA_ARGS__) TOMPION_LTTNG_B_UNUSED
#define TOMPION_LTTNG_B_UNUSED(kind, ...) \
    TOMPION_LTTNG_UNUSED_##kind(__VA_ARGS__) TOMPION_LTTNG_A_UNUSED
#define TOMPION_LTTNG_A_UNUSED_END
#define TOMPION_LTTNG_B_UNUSED_END
#define TOMPION_LTTNG_A_PUT(kind, ...) \
    TOMPION_LTTNG_PUT_##kind(__VA_ARGS__) TOMPION_LTTNG_B_PUT
#define TOMPION_LTTNG_B_PUT(kind, ...) \
    TOMPION_LTTNG_PUT_##kind(__VA_ARGS__) TOMPION_LTTNG_A_PUT
#define TOMPION_LTTNG_A_PUT_END
#define TOMPION_LTTNG_B_PUT_END
#define TOMPION_LTTNG_A_LABEL_MEMBER(...) TOMPION_LTTNG_LABEL_MEMBER(__VA_ARGS__) TOMPION_LTTNG_B_LABEL_MEMBER
#define TOMPION_LTTNG_B_LABEL_MEMBER(...) TOMPION_LTTNG_LABEL_MEMBER(__VA_ARGS__) TOMPION_LTTNG_A_LABEL_MEMBER
#define TOMPION_LTTNG_A_LABEL_MEMBER_END
#define TOMPION_LTTNG_B_LABEL_MEMBER_END
#define TOMPION_LTTNG_A_LABEL_INIT(...) TOMPION_LTTNG_LABEL_INIT(__VA_ARGS__) TOMPION_LTTNG_B_LABEL_INIT
#define TOMPION_LTTNG_B_LABEL_INIT(...) TOMPION_LTTNG_LABEL_INIT(__VA_ARGS__) TOMPION_LTTNG_A_LABEL_INIT
#define TOMPION_LTTNG_A_LABEL_INIT_END
#define TOMPION_LTTNG_B_LABEL_INIT_END
#define TOMPION_LTTNG_A_LABEL(...) +1 TOMPION_LTTNG_B_LABEL
#define TOMPION_LTTNG_B_LABEL(...) +1 TOMPION_LTTNG_A_LABEL
#define TOMPION_LTTNG_A_LABEL_END
#define TOMPION_LTTNG_B_LABEL_END

/* -- ONE: the number of fields -- */

#define TOMPION_LTTNG_ONE_tompion_none(...)
#define TOMPION_LTTNG_ONE_tompion_integer(...) +1
#define TOMPION_LTTNG_ONE_tompion_float(...) +1
#define TOMPION_LTTNG_ONE_tompion_enum(...) +1
#define TOMPION_LTTNG_ONE_tompion_string(...) +1
#define TOMPION_LTTNG_ONE_tompion_array(...) +1
#define TOMPION_LTTNG_ONE_tompion_array_text(...) +1
#define TOMPION_LTTNG_ONE_tompion_sequence(...) +1
#define TOMPION_LTTNG_ONE_tompion_sequence_text(...) +2

/* -- MEMBER and INIT: the description -- */

#define TOMPION_LTTNG_FIELD_MEMBER(text)                                                              \
    struct TOMPION_PRIV_PACKED {                                                                      \
        struct tompion_priv_field_head head;                                                          \
        char name[sizeof(text)];                                                                      \
    } TOMPION_LTTNG_UNIQUE(tompion_lttng_field_, __COUNTER__);
#define TOMPION_LTTNG_UNIQUE(name, number) TOMPION_LTTNG_UNIQUE_OF(name, number)
#define TOMPION_LTTNG_UNIQUE_OF(name, number) name##number

#define TOMPION_LTTNG_MEMBER_tompion_none(...)
#define TOMPION_LTTNG_MEMBER_tompion_integer(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_float(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_enum(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_string(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_array(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_array_text(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
#define TOMPION_LTTNG_MEMBER_tompion_sequence(name, ...) TOMPION_LTTNG_FIELD_MEMBER(name)
/* LTTng's traces have the length of a text in a field before it, and so have ours. */
#define TOMPION_LTTNG_MEMBER_tompion_sequence_text(name, ...) \
    TOMPION_LTTNG_FIELD_MEMBER("_" name "_length") TOMPION_LTTNG_FIELD_MEMBER(name)

/* The code of an integer's type, with its byte order: see tompion_priv_code_i8 and others. */
#define TOMPION_LTTNG_INTEGER(t, base, is_network)                                                    \
    (((base) == 16                ? tompion_priv_code_x8                                              \
      : TOMPION_LTTNG_IS_SIGNED(t) ? tompion_priv_code_i8                                             \
                                   : tompion_priv_code_u8) +                                          \
     (sizeof(t) == 1   ? 0                                                                            \
      : sizeof(t) == 2 ? 1                                                                            \
      : sizeof(t) == 4 ? 2                                                                            \
                       : 3) +                                                                         \
     ((is_network) && sizeof(t) != 1 ? TOMPION_PRIV_NETWORK : 0))

#define TOMPION_LTTNG_INIT_tompion_none(...)
#define TOMPION_LTTNG_INIT_tompion_integer(name, e, t, base, is_network) \
    TOMPION_PRIV_FIELD_VALUES(name, TOMPION_LTTNG_INTEGER(t, base, is_network), 0, 0),
#define TOMPION_LTTNG_INIT_tompion_float(name, e, t)                                                  \
    TOMPION_PRIV_FIELD_VALUES(                                                                        \
        name, sizeof(t) <= sizeof(float) ? +tompion_priv_code_f32 : +tompion_priv_code_f64, 0, 0),
#define TOMPION_LTTNG_INIT_tompion_enum(name, e, t, p, enumeration) \
    TOMPION_PRIV_FIELD_VALUES(name, tompion_priv_code_enum | TOMPION_LTTNG_INTEGER(t, 10, 0) << 16, 0, 0),
#define TOMPION_LTTNG_INIT_tompion_string(name, e) \
    TOMPION_PRIV_FIELD_VALUES(name, +tompion_priv_code_str, 0, 0),
#define TOMPION_LTTNG_INIT_tompion_array(name, e, t, len, base, is_network)                           \
    TOMPION_PRIV_FIELD_VALUES(name, +tompion_priv_code_array,                                         \
                              TOMPION_LTTNG_INTEGER(t, base, is_network), (uint32_t)(len)),
#define TOMPION_LTTNG_INIT_tompion_array_text(name, e, len) \
    TOMPION_PRIV_FIELD_VALUES(name, +tompion_priv_code_strn, 0, 0),
#define TOMPION_LTTNG_INIT_tompion_sequence(name, e, t, lt, len, base, is_network) \
    TOMPION_PRIV_FIELD_VALUES(name, +tompion_priv_code_sequence,                   \
                              TOMPION_LTTNG_INTEGER(t, base, is_network), 0),
#define TOMPION_LTTNG_INIT_tompion_sequence_text(name, e, lt, len) \
    TOMPION_PRIV_FIELD_VALUES("_" name "_length", +tompion_priv_code_u32, 0, 0),                          \
        TOMPION_PRIV_FIELD_VALUES(name, +tompion_priv_code_strn, 0, 0),

/* Whether values of the type may be negative; pointers and bool may not. */
#ifdef __cplusplus
extern "C++" {
template <class T, bool IS_ENUM = __is_enum(T)> struct tompion_lttng_type {
    static const bool is_signed = static_cast<T>(-1) < static_cast<T>(1);
};
template <class T> struct tompion_lttng_type<T, true> {
    static const bool is_signed = tompion_lttng_type<__underlying_type(T)>::is_signed;
};
template <class T> struct tompion_lttng_type<T *, false> {
    static const bool is_signed = false;
};
template <class T> struct tompion_lttng_type<T *const, false> {
    static const bool is_signed = false;
};
}
#define TOMPION_LTTNG_IS_SIGNED(t) (tompion_lttng_type<t>::is_signed)
#else
#define TOMPION_LTTNG_IS_SIGNED(t) \
    __builtin_choose_expr(__builtin_classify_type((t)0) == 5 /* a pointer */, 0, (t)-1 < (t)1)
#endif

/* -- ENUM_OF: the enumerations -- */

#define TOMPION_LTTNG_ENUM_OF_tompion_none(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_integer(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_float(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_string(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_array(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_array_text(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_sequence(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_sequence_text(...)
#define TOMPION_LTTNG_ENUM_OF_tompion_enum(name, e, t, p, enumeration) \
    TOMPION_LTTNG_LABELS_NAME(p, enumeration)
#define TOMPION_LTTNG_LABELS_NAME(p, n) &tompion_lttng_labels_##p##___##n,

/* -- SIZE and TAIL: bytes in the fixed part of the record, and the number of parts behind it -- */

#define TOMPION_LTTNG_SIZE_tompion_none(...)
#define TOMPION_LTTNG_SIZE_tompion_string(...) +4
#define TOMPION_LTTNG_SIZE_tompion_array(...)
#define TOMPION_LTTNG_SIZE_tompion_array_text(...) +4
#define TOMPION_LTTNG_SIZE_tompion_sequence(...) +4
#define TOMPION_LTTNG_SIZE_tompion_sequence_text(...) +8
#define TOMPION_LTTNG_SIZE_tompion_integer(name, e, t, ...) +sizeof(t)
#define TOMPION_LTTNG_SIZE_tompion_enum(name, e, t, ...) +sizeof(t)
#define TOMPION_LTTNG_SIZE_tompion_float(name, e, t) +(sizeof(t) <= sizeof(float) ? 4 : 8)

#define TOMPION_LTTNG_TAIL_tompion_none(...)
#define TOMPION_LTTNG_TAIL_tompion_integer(...)
#define TOMPION_LTTNG_TAIL_tompion_float(...)
#define TOMPION_LTTNG_TAIL_tompion_enum(...)
#define TOMPION_LTTNG_TAIL_tompion_string(...) +1
#define TOMPION_LTTNG_TAIL_tompion_array(...) +1
#define TOMPION_LTTNG_TAIL_tompion_array_text(...) +1
#define TOMPION_LTTNG_TAIL_tompion_sequence(...) +1
#define TOMPION_LTTNG_TAIL_tompion_sequence_text(...) +1

/* -- UNUSED: what a record does not have, and the compiler should not miss -- */

#define TOMPION_LTTNG_UNUSED_tompion_integer(...)
#define TOMPION_LTTNG_UNUSED_tompion_float(...)
#define TOMPION_LTTNG_UNUSED_tompion_enum(...)
#define TOMPION_LTTNG_UNUSED_tompion_string(...)
#define TOMPION_LTTNG_UNUSED_tompion_array(...)
#define TOMPION_LTTNG_UNUSED_tompion_array_text(...)
#define TOMPION_LTTNG_UNUSED_tompion_sequence(...)
#define TOMPION_LTTNG_UNUSED_tompion_sequence_text(...)
#define TOMPION_LTTNG_UNUSED_tompion_none(e) \
    if (0)                                   \
        (void)(e);

/* -- PUT: the values -- */

struct tompion_lttng_record {
    unsigned char *at;         /* in the fixed part */
    struct tompion_tail *tail; /* the next one */
};

#ifdef __cplusplus
extern "C++" {
template <class T>
static inline __attribute__((__always_inline__, __no_instrument_function__)) void tompion_lttng_put(struct tompion_lttng_record *to, T value)
{
    __builtin_memcpy(to->at, &value, sizeof value);
    to->at += sizeof value;
}
}
#define TOMPION_LTTNG_PUT_VALUE(t, e) tompion_lttng_put<t>(&tompion_lttng_to, (t)(e)),
#else
TOMPION_PRIV_INLINE void tompion_lttng_put(struct tompion_lttng_record *to, const void *value, size_t size)
{
    __builtin_memcpy(to->at, value, size);
    to->at += size;
}
#define TOMPION_LTTNG_PUT_VALUE(t, e) tompion_lttng_put(&tompion_lttng_to, &(t){(t)(e)}, sizeof(t)),
#endif

TOMPION_PRIV_INLINE void tompion_lttng_put_length(struct tompion_lttng_record *to, uint32_t length)
{
    __builtin_memcpy(to->at, &length, sizeof length);
    to->at += sizeof length;
}
TOMPION_PRIV_INLINE void tompion_lttng_put_float(struct tompion_lttng_record *to, float value)
{
    __builtin_memcpy(to->at, &value, sizeof value);
    to->at += sizeof value;
}
TOMPION_PRIV_INLINE void tompion_lttng_put_double(struct tompion_lttng_record *to, double value)
{
    __builtin_memcpy(to->at, &value, sizeof value);
    to->at += sizeof value;
}
TOMPION_PRIV_INLINE void tompion_lttng_put_string(struct tompion_lttng_record *to, const char *text)
{
    tompion_lttng_put_length(to, tompion_priv_text(to->tail++, text));
}
TOMPION_PRIV_INLINE void tompion_lttng_put_array(struct tompion_lttng_record *to, const void *data,
                                                 size_t length, size_t element_size)
{
    (void)tompion_priv_elements(to->tail++, data, length, element_size);
}
TOMPION_PRIV_INLINE void tompion_lttng_put_sequence(struct tompion_lttng_record *to, const void *data,
                                                    int64_t length, size_t element_size)
{
    const size_t count = length > 0 ? (size_t)length : 0;
    tompion_lttng_put_length(to, tompion_priv_elements(to->tail++, data, count, element_size));
}

/* A text ends at its NUL, or where its room ends. It is read no further than to the NUL. */
TOMPION_PRIV_INLINE void tompion_lttng_put_text(struct tompion_lttng_record *to, const char *text,
                                                int64_t room)
{
    const size_t most = room > 0 ? (size_t)room : 0;
    tompion_lttng_put_length(to, tompion_priv_text_at_most(to->tail++, text, most));
}
TOMPION_PRIV_INLINE void tompion_lttng_put_sized_text(struct tompion_lttng_record *to, const char *text,
                                                      int64_t room)
{
    tompion_lttng_put_length(to, room > 0 ? (uint32_t)room : 0);
    tompion_lttng_put_text(to, text, room);
}

#define TOMPION_LTTNG_PUT_tompion_none(...)
#define TOMPION_LTTNG_PUT_tompion_integer(name, e, t, base, is_network) TOMPION_LTTNG_PUT_VALUE(t, e)
#define TOMPION_LTTNG_PUT_tompion_enum(name, e, t, p, enumeration) TOMPION_LTTNG_PUT_VALUE(t, e)
#define TOMPION_LTTNG_PUT_tompion_float(name, e, t)                                                   \
    (sizeof(t) <= sizeof(float) ? tompion_lttng_put_float(&tompion_lttng_to, (float)(e))              \
                                : tompion_lttng_put_double(&tompion_lttng_to, (double)(e))),
#define TOMPION_LTTNG_PUT_tompion_string(name, e) \
    tompion_lttng_put_string(&tompion_lttng_to, (const char *)(e)),
#define TOMPION_LTTNG_PUT_tompion_array(name, e, t, len, base, is_network) \
    tompion_lttng_put_array(&tompion_lttng_to, (const void *)(e), (size_t)(len), sizeof(t)),
#define TOMPION_LTTNG_PUT_tompion_array_text(name, e, len) \
    tompion_lttng_put_text(&tompion_lttng_to, (const char *)(e), (int64_t)(len)),
#define TOMPION_LTTNG_PUT_tompion_sequence(name, e, t, lt, len, base, is_network)                     \
    tompion_lttng_put_sequence(&tompion_lttng_to, (const void *)(e), (int64_t)(lt)(len), sizeof(t)),
#define TOMPION_LTTNG_PUT_tompion_sequence_text(name, e, lt, len) \
    tompion_lttng_put_sized_text(&tompion_lttng_to, (const char *)(e), (int64_t)(lt)(len)),

/* -- Labels -- */

#define TOMPION_LTTNG_LABEL_MEMBER(text, flags, low, high)                                            \
    struct TOMPION_PRIV_PACKED {                                                                      \
        struct tompion_lttng_label_head head;                                                         \
        char name[sizeof(text)];                                                                      \
    } TOMPION_LTTNG_UNIQUE(tompion_lttng_label_, __COUNTER__);
#define TOMPION_LTTNG_LABEL_INIT(text, flags, low, high) \
    {{(int64_t)(low), (int64_t)(high), flags, sizeof(text)}, text},

#endif /* TOMPION_LTTNG_RECORD_H */

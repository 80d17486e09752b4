/*
 * Fields: what the words for their types mean.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * Macros go over an event's fields several times. Each such pass has a name: MEMBER and INIT (of
 * the description), ENUM_OF (the enumerations), TAIL and SIZE (of the record), CHECK, SET (the
 * record's values), GIVEN (C++ only). Each type belongs to a class, by which its arguments are
 * read; what a pass does for a class is TOMPION_PRIV_PASS_CLASS(each, next, type, code, field,
 * name, e, argument...).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_FIELD_H
#define TOMPION_PRIVATE_FIELD_H

#pragma GCC system_header

#include "list.h"
#include "module.h"

#define TOMPION_PRIV_PACKED __attribute__((__packed__))

#ifdef __cplusplus
#define TOMPION_PRIV_ASSERT(condition, text) static_assert(condition, text)
#else
#define TOMPION_PRIV_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* Levels by word. */
enum {
    tompion_priv_level_EMERG,
    tompion_priv_level_ALERT,
    tompion_priv_level_CRIT,
    tompion_priv_level_ERR,
    tompion_priv_level_WARNING,
    tompion_priv_level_NOTICE,
    tompion_priv_level_INFO,
    tompion_priv_level_DEBUG_SYSTEM,
    tompion_priv_level_DEBUG_PROGRAM,
    tompion_priv_level_DEBUG_PROCESS,
    tompion_priv_level_DEBUG_MODULE,
    tompion_priv_level_DEBUG_UNIT,
    tompion_priv_level_DEBUG_FUNCTION,
    tompion_priv_level_DEBUG_LINE,
    tompion_priv_level_DEBUG
};

/* What a description says of a type: its code, flags << 8, code of the element << 16. */
#define TOMPION_PRIV_NETWORK (1 << 8)
#define TOMPION_PRIV_TEXT (2 << 8 | tompion_priv_code_u8 << 16)
enum {
    tompion_priv_code_i8 = 1,
    tompion_priv_code_i16,
    tompion_priv_code_i32,
    tompion_priv_code_i64,
    tompion_priv_code_u8,
    tompion_priv_code_u16,
    tompion_priv_code_u32,
    tompion_priv_code_u64,
    tompion_priv_code_x8,
    tompion_priv_code_x16,
    tompion_priv_code_x32,
    tompion_priv_code_x64, /* the last one that can be an element */
    tompion_priv_code_f32,
    tompion_priv_code_f64,
    tompion_priv_code_bool,
    tompion_priv_code_str,
    tompion_priv_code_strn,
    tompion_priv_code_bytes,
    tompion_priv_code_array,
    tompion_priv_code_sequence,
    tompion_priv_code_enum,
    tompion_priv_code_struct,

    tompion_priv_code_ni16 = tompion_priv_code_i16 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_ni32 = tompion_priv_code_i32 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_ni64 = tompion_priv_code_i64 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_n16 = tompion_priv_code_u16 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_n32 = tompion_priv_code_u32 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_n64 = tompion_priv_code_u64 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_nx16 = tompion_priv_code_x16 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_nx32 = tompion_priv_code_x32 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_nx64 = tompion_priv_code_x64 | TOMPION_PRIV_NETWORK,
    tompion_priv_code_array_text = tompion_priv_code_array | TOMPION_PRIV_TEXT,
    tompion_priv_code_sequence_text = tompion_priv_code_sequence | TOMPION_PRIV_TEXT,
    tompion_priv_code_enum_i8 = tompion_priv_code_enum | tompion_priv_code_i8 << 16,
    tompion_priv_code_enum_i16 = tompion_priv_code_enum | tompion_priv_code_i16 << 16,
    tompion_priv_code_enum_i32 = tompion_priv_code_enum | tompion_priv_code_i32 << 16,
    tompion_priv_code_enum_i64 = tompion_priv_code_enum | tompion_priv_code_i64 << 16,
    tompion_priv_code_enum_u8 = tompion_priv_code_enum | tompion_priv_code_u8 << 16,
    tompion_priv_code_enum_u16 = tompion_priv_code_enum | tompion_priv_code_u16 << 16,
    tompion_priv_code_enum_u32 = tompion_priv_code_enum | tompion_priv_code_u32 << 16,
    tompion_priv_code_enum_u64 = tompion_priv_code_enum | tompion_priv_code_u64 << 16,
    tompion_priv_code_counted = 0 /* the value's type decides */
};

/* The types of values that lie in a record's fixed part, by the word of the field's type. */
typedef int8_t tompion_priv_i8, tompion_priv_enum_i8;
typedef int16_t tompion_priv_i16, tompion_priv_ni16, tompion_priv_enum_i16;
typedef int32_t tompion_priv_i32, tompion_priv_ni32, tompion_priv_enum_i32;
typedef int64_t tompion_priv_i64, tompion_priv_ni64, tompion_priv_enum_i64, tompion_priv_enum;
typedef uint8_t tompion_priv_u8, tompion_priv_x8, tompion_priv_enum_u8;
typedef uint16_t tompion_priv_u16, tompion_priv_x16, tompion_priv_enum_u16;
typedef uint32_t tompion_priv_u32, tompion_priv_x32, tompion_priv_enum_u32;
typedef uint64_t tompion_priv_u64, tompion_priv_x64, tompion_priv_enum_u64;
typedef uint16_t tompion_priv_n16, tompion_priv_nx16;
typedef uint32_t tompion_priv_n32, tompion_priv_nx32;
typedef uint64_t tompion_priv_n64, tompion_priv_nx64;
typedef float tompion_priv_f32;
typedef double tompion_priv_f64;
#ifdef __cplusplus
typedef bool tompion_priv_bool;
#else
typedef _Bool tompion_priv_bool;
#endif

/* The classes. */
#define TOMPION_PRIV_CLASS_i8 _NUMBER
#define TOMPION_PRIV_CLASS_i16 _NUMBER
#define TOMPION_PRIV_CLASS_i32 _NUMBER
#define TOMPION_PRIV_CLASS_i64 _NUMBER
#define TOMPION_PRIV_CLASS_u8 _NUMBER
#define TOMPION_PRIV_CLASS_u16 _NUMBER
#define TOMPION_PRIV_CLASS_u32 _NUMBER
#define TOMPION_PRIV_CLASS_u64 _NUMBER
#define TOMPION_PRIV_CLASS_x8 _NUMBER
#define TOMPION_PRIV_CLASS_x16 _NUMBER
#define TOMPION_PRIV_CLASS_x32 _NUMBER
#define TOMPION_PRIV_CLASS_x64 _NUMBER
#define TOMPION_PRIV_CLASS_ni16 _NUMBER
#define TOMPION_PRIV_CLASS_ni32 _NUMBER
#define TOMPION_PRIV_CLASS_ni64 _NUMBER
#define TOMPION_PRIV_CLASS_n16 _NUMBER
#define TOMPION_PRIV_CLASS_n32 _NUMBER
#define TOMPION_PRIV_CLASS_n64 _NUMBER
#define TOMPION_PRIV_CLASS_nx16 _NUMBER
#define TOMPION_PRIV_CLASS_nx32 _NUMBER
#define TOMPION_PRIV_CLASS_nx64 _NUMBER
#define TOMPION_PRIV_CLASS_f32 _NUMBER
#define TOMPION_PRIV_CLASS_f64 _NUMBER
#define TOMPION_PRIV_CLASS_bool _NUMBER
#define TOMPION_PRIV_CLASS_str _STR
#define TOMPION_PRIV_CLASS_strn _STRN
#define TOMPION_PRIV_CLASS_bytes _BYTES
#define TOMPION_PRIV_CLASS_array _ARRAY
#define TOMPION_PRIV_CLASS_sequence _SEQUENCE
#define TOMPION_PRIV_CLASS_array_text _ARRAY_TEXT
#define TOMPION_PRIV_CLASS_sequence_text _BYTES
#define TOMPION_PRIV_CLASS_enum _ENUM
#define TOMPION_PRIV_CLASS_enum_i8 _ENUM
#define TOMPION_PRIV_CLASS_enum_i16 _ENUM
#define TOMPION_PRIV_CLASS_enum_i32 _ENUM
#define TOMPION_PRIV_CLASS_enum_i64 _ENUM
#define TOMPION_PRIV_CLASS_enum_u8 _ENUM
#define TOMPION_PRIV_CLASS_enum_u16 _ENUM
#define TOMPION_PRIV_CLASS_enum_u32 _ENUM
#define TOMPION_PRIV_CLASS_enum_u64 _ENUM
#define TOMPION_PRIV_CLASS_struct _STRUCT
#define TOMPION_PRIV_CLASS_counted _COUNTED

/* The same within structures: a macro does not expand within itself. */
#define TOMPION_PRIV_INNER_NUMBER _NUMBER
#define TOMPION_PRIV_INNER_STR _STR
#define TOMPION_PRIV_INNER_STRN _STRN
#define TOMPION_PRIV_INNER_BYTES _BYTES
#define TOMPION_PRIV_INNER_ARRAY _ARRAY
#define TOMPION_PRIV_INNER_SEQUENCE _SEQUENCE
#define TOMPION_PRIV_INNER_ARRAY_TEXT _ARRAY_TEXT
#define TOMPION_PRIV_INNER_ENUM _ENUM
#define TOMPION_PRIV_INNER_STRUCT _INNER_STRUCT

/* -- The passes, at each level of structures -- */

#define TOMPION_PRIV_FIELD(pass, e, t, n, ...)                                                        \
    TOMPION_PRIV_PICK(TOMPION_PRIV_##pass, TOMPION_PRIV_CLASS_##t)                                    \
    (TOMPION_PRIV_EACH_2, TOMPION_PRIV_##pass##_2, tompion_priv_##t, tompion_priv_code_##t,           \
     tompion_priv_field_##n, #n, , ##__VA_ARGS__)
#define TOMPION_PRIV_FIELD_2(pass, e, t, n, ...)                                                      \
    TOMPION_PRIV_PICK_INNER(TOMPION_PRIV_##pass, TOMPION_PRIV_CLASS_##t)                              \
    (TOMPION_PRIV_EACH_3, TOMPION_PRIV_##pass##_3, tompion_priv_##t, tompion_priv_code_##t,           \
     tompion_priv_field_##n, #n, , ##__VA_ARGS__)
#define TOMPION_PRIV_FIELD_3(pass, e, t, n, ...)                                                      \
    TOMPION_PRIV_PICK_INNER(TOMPION_PRIV_##pass, TOMPION_PRIV_CLASS_##t)                              \
    (structures_stand_at_most_two_deep, 0, tompion_priv_##t, tompion_priv_code_##t,                   \
     tompion_priv_field_##n, #n, , ##__VA_ARGS__)
#define TOMPION_PRIV_PICK(pass, class) TOMPION_PRIV_JOIN(pass, class)
#define TOMPION_PRIV_PICK_INNER(pass, class) \
    TOMPION_PRIV_JOIN(pass, TOMPION_PRIV_JOIN(TOMPION_PRIV_INNER, class))

#define TOMPION_PRIV_MEMBER(...) TOMPION_PRIV_FIELD(MEMBER, , ##__VA_ARGS__)
#define TOMPION_PRIV_MEMBER_2(...) TOMPION_PRIV_FIELD_2(MEMBER, , ##__VA_ARGS__)
#define TOMPION_PRIV_MEMBER_3(...) TOMPION_PRIV_FIELD_3(MEMBER, , ##__VA_ARGS__)
#define TOMPION_PRIV_INIT(...) TOMPION_PRIV_FIELD(INIT, , ##__VA_ARGS__)
#define TOMPION_PRIV_INIT_2(...) TOMPION_PRIV_FIELD_2(INIT, , ##__VA_ARGS__)
#define TOMPION_PRIV_INIT_3(...) TOMPION_PRIV_FIELD_3(INIT, , ##__VA_ARGS__)
#define TOMPION_PRIV_ENUM_OF(...) TOMPION_PRIV_FIELD(ENUM_OF, , ##__VA_ARGS__)
#define TOMPION_PRIV_ENUM_OF_2(...) TOMPION_PRIV_FIELD_2(ENUM_OF, , ##__VA_ARGS__)
#define TOMPION_PRIV_ENUM_OF_3(...) TOMPION_PRIV_FIELD_3(ENUM_OF, , ##__VA_ARGS__)
#define TOMPION_PRIV_TAIL(...) TOMPION_PRIV_FIELD(TAIL, , ##__VA_ARGS__)
#define TOMPION_PRIV_TAIL_2(...) TOMPION_PRIV_FIELD_2(TAIL, , ##__VA_ARGS__)
#define TOMPION_PRIV_TAIL_3(...) TOMPION_PRIV_FIELD_3(TAIL, , ##__VA_ARGS__)
#define TOMPION_PRIV_SIZE(...) TOMPION_PRIV_FIELD(SIZE, , ##__VA_ARGS__)
#define TOMPION_PRIV_SIZE_2(...) TOMPION_PRIV_FIELD_2(SIZE, , ##__VA_ARGS__)
#define TOMPION_PRIV_SIZE_3(...) TOMPION_PRIV_FIELD_3(SIZE, , ##__VA_ARGS__)
#define TOMPION_PRIV_CHECK(...) TOMPION_PRIV_FIELD(CHECK, , ##__VA_ARGS__)
#define TOMPION_PRIV_CHECK_2(...) TOMPION_PRIV_FIELD_2(CHECK, , ##__VA_ARGS__)
#define TOMPION_PRIV_CHECK_3(...) TOMPION_PRIV_FIELD_3(CHECK, , ##__VA_ARGS__)
#define TOMPION_PRIV_SET(...) TOMPION_PRIV_FIELD(SET, , ##__VA_ARGS__)
#define TOMPION_PRIV_SET_2(...) TOMPION_PRIV_FIELD_2(SET, , ##__VA_ARGS__)
#define TOMPION_PRIV_SET_3(...) TOMPION_PRIV_FIELD_3(SET, , ##__VA_ARGS__)
#define TOMPION_PRIV_GIVEN(...) TOMPION_PRIV_FIELD(GIVEN, , ##__VA_ARGS__)
#define TOMPION_PRIV_GIVEN_2(...) TOMPION_PRIV_FIELD_2(GIVEN, , ##__VA_ARGS__)
#define TOMPION_PRIV_GIVEN_3(...) TOMPION_PRIV_FIELD_3(GIVEN, , ##__VA_ARGS__)
#define TOMPION_PRIV_ONE(...) +1

/* -- Descriptions: their parts of one size -- */

struct TOMPION_PRIV_PACKED tompion_priv_event_head {
    uint32_t magic, size;
    uint16_t version;
    uint8_t kind, level;
    uint16_t flags, fields, provider_size, name_size;
};
struct TOMPION_PRIV_PACKED tompion_priv_field_head {
    uint16_t size;
    uint8_t type, element;
    uint32_t count;
    uint16_t flags, name_size;
};
struct TOMPION_PRIV_PACKED tompion_priv_attribute_head {
    uint16_t size;
    uint8_t key;
};
struct TOMPION_PRIV_PACKED tompion_priv_enum_head {
    uint32_t magic, size;
    uint16_t version, labels, name_size;
};
struct TOMPION_PRIV_PACKED tompion_priv_label_head {
    int64_t low, high;
    uint16_t name_size;
};

#define TOMPION_PRIV_EVENT_MAGIC 0x31564554u /* "TEV1" */
#define TOMPION_PRIV_ENUM_MAGIC 0x314e4554u  /* "TEN1" */

/* What else a description says of an event. */
enum {
    tompion_priv_kind_INSTANT,
    tompion_priv_kind_BEGIN,
    tompion_priv_kind_END,
    tompion_priv_kind_COUNTER,
    tompion_priv_kind_FLOW,
    tompion_priv_kind_JOB,
    tompion_priv_kind_MARK
};
enum { tompion_priv_flag_USUAL, tompion_priv_flag_INIT };
enum { tompion_priv_attribute_FORMAT = 1 };

/* -- MEMBER: the field's part of a description, as a member of a structure -- */

#define TOMPION_PRIV_FIELD_RECORD(name)                                                               \
    struct TOMPION_PRIV_PACKED {                                                                      \
        struct tompion_priv_field_head tompion_priv_head;                                             \
        char tompion_priv_name[sizeof(name)];                                                         \
    }
#define TOMPION_PRIV_MEMBER_NUMBER(each, next, type, code, field, name, e, ...) \
    TOMPION_PRIV_FIELD_RECORD(name) field;
#define TOMPION_PRIV_MEMBER_COUNTED TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_STR TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_STRN TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_BYTES TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_ARRAY TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_SEQUENCE TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_ARRAY_TEXT TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_ENUM TOMPION_PRIV_MEMBER_NUMBER
#define TOMPION_PRIV_MEMBER_STRUCT(each, next, type, code, field, name, e, ...)                       \
    struct TOMPION_PRIV_PACKED {                                                                      \
        TOMPION_PRIV_FIELD_RECORD(name) tompion_priv_itself;                                          \
        each(next, e, ##__VA_ARGS__)                                                                  \
    } field;
#define TOMPION_PRIV_MEMBER_INNER_STRUCT(each, next, type, code, field, name, e, ...)                 \
    struct TOMPION_PRIV_PACKED {                                                                      \
        TOMPION_PRIV_FIELD_RECORD(name) tompion_priv_itself;                                          \
        each(next, e, ##__VA_ARGS__)                                                                  \
    } field;

/* -- INIT: its values. `element` is the code of an array's elements, or 0 -- */

#define TOMPION_PRIV_VALUES(name, type, element, count, flags)                                        \
    {{sizeof(struct tompion_priv_field_head) + sizeof(name), type, element, count, flags,             \
      sizeof(name)},                                                                                  \
     name}
#define TOMPION_PRIV_FIELD_VALUES(name, code, element, count)                                         \
    TOMPION_PRIV_VALUES(name, (uint8_t)((code) & 255), (uint8_t)(((code) >> 16 | (element)) & 255),   \
                        count, (uint16_t)(((code) | (element)) >> 8 & 255))
#define TOMPION_PRIV_INIT_NUMBER(each, next, type, code, field, name, e, ...) \
    TOMPION_PRIV_FIELD_VALUES(name, code, 0, 0),
#define TOMPION_PRIV_INIT_COUNTED(each, next, type, code, field, name, e, value) \
    TOMPION_PRIV_VALUES(name, (uint8_t)TOMPION_PRIV_THE_GIVEN(TOMPION_PRIV_COUNTED_CODE(value)), 0, 0, 0),
#define TOMPION_PRIV_INIT_STR TOMPION_PRIV_INIT_NUMBER
#define TOMPION_PRIV_INIT_STRN TOMPION_PRIV_INIT_NUMBER
#define TOMPION_PRIV_INIT_BYTES TOMPION_PRIV_INIT_NUMBER
#define TOMPION_PRIV_INIT_ARRAY(each, next, type, code, field, name, e, t, data, count) \
    TOMPION_PRIV_FIELD_VALUES(name, code, tompion_priv_code_##t, TOMPION_PRIV_THE_GIVEN(count)),
#define TOMPION_PRIV_INIT_SEQUENCE(each, next, type, code, field, name, e, t, data, count) \
    TOMPION_PRIV_FIELD_VALUES(name, code, tompion_priv_code_##t, 0),
#define TOMPION_PRIV_INIT_ARRAY_TEXT(each, next, type, code, field, name, e, data, count) \
    TOMPION_PRIV_FIELD_VALUES(name, code, 0, TOMPION_PRIV_THE_GIVEN(count)),
#define TOMPION_PRIV_INIT_ENUM TOMPION_PRIV_INIT_NUMBER
#define TOMPION_PRIV_INIT_STRUCT(each, next, type, code, field, name, e, ...)                         \
    {TOMPION_PRIV_FIELD_VALUES(name, code, 0, 0 each(TOMPION_PRIV_ONE, e, ##__VA_ARGS__)),            \
     each(next, e, ##__VA_ARGS__)},
#define TOMPION_PRIV_INIT_INNER_STRUCT(each, next, type, code, field, name, e, ...)                   \
    {TOMPION_PRIV_FIELD_VALUES(name, code, 0, 0 each(TOMPION_PRIV_ONE, e, ##__VA_ARGS__)),            \
     each(next, e, ##__VA_ARGS__)},

/* -- ENUM_OF: the enumerations -- */

#define TOMPION_PRIV_ENUM_OF_NUMBER(...)
#define TOMPION_PRIV_ENUM_OF_COUNTED(...)
#define TOMPION_PRIV_ENUM_OF_STR(...)
#define TOMPION_PRIV_ENUM_OF_STRN(...)
#define TOMPION_PRIV_ENUM_OF_BYTES(...)
#define TOMPION_PRIV_ENUM_OF_ARRAY(...)
#define TOMPION_PRIV_ENUM_OF_SEQUENCE(...)
#define TOMPION_PRIV_ENUM_OF_ARRAY_TEXT(...)
#define TOMPION_PRIV_ENUM_OF_ENUM(each, next, type, code, field, name, e, enumeration, ...) \
    &tompion_priv_labels_##enumeration,
#define TOMPION_PRIV_ENUM_OF_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_ENUM_OF_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

/* -- TAIL: the number of tails -- */

#define TOMPION_PRIV_TAIL_NUMBER(...)
#define TOMPION_PRIV_TAIL_COUNTED(...)
#define TOMPION_PRIV_TAIL_STR(...) +1
#define TOMPION_PRIV_TAIL_STRN(...) +1
#define TOMPION_PRIV_TAIL_BYTES(...) +1
#define TOMPION_PRIV_TAIL_ARRAY(...) +1
#define TOMPION_PRIV_TAIL_SEQUENCE(...) +1
#define TOMPION_PRIV_TAIL_ARRAY_TEXT(...) +1
#define TOMPION_PRIV_TAIL_ENUM(...)
#define TOMPION_PRIV_TAIL_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_TAIL_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

/* -- SIZE: the bytes in the fixed part -- */

#define TOMPION_PRIV_SIZE_NUMBER(each, next, type, code, field, name, e, ...) +sizeof(type)
#define TOMPION_PRIV_SIZE_COUNTED(...) +8
#define TOMPION_PRIV_SIZE_STR(...) +4
#define TOMPION_PRIV_SIZE_STRN(...) +4
#define TOMPION_PRIV_SIZE_BYTES(...) +4
#define TOMPION_PRIV_SIZE_ARRAY(...)
#define TOMPION_PRIV_SIZE_SEQUENCE(...) +4
#define TOMPION_PRIV_SIZE_ARRAY_TEXT(...)
#define TOMPION_PRIV_SIZE_ENUM TOMPION_PRIV_SIZE_NUMBER
#define TOMPION_PRIV_SIZE_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_SIZE_INNER_STRUCT(each, next, type, code, field, name, e, ...) \
    each(next, e, ##__VA_ARGS__)

/* -- CHECK: what the compiler refuses -- */

#define TOMPION_PRIV_CHECK_NUMBER(...)
#define TOMPION_PRIV_CHECK_COUNTED(...)
#define TOMPION_PRIV_CHECK_STR(...)
#define TOMPION_PRIV_CHECK_STRN(...)
#define TOMPION_PRIV_CHECK_BYTES(...)
#define TOMPION_PRIV_CHECK_ARRAY(each, next, type, code, field, name, e, t, data, count)              \
    TOMPION_PRIV_ASSERT((tompion_priv_code_##t & 255) <= tompion_priv_code_x64,                       \
                        "elements are integers");                                                     \
    TOMPION_PRIV_CHECK_ELEMENT(sizeof(tompion_priv_##t), data)
#define TOMPION_PRIV_CHECK_SEQUENCE TOMPION_PRIV_CHECK_ARRAY
#define TOMPION_PRIV_CHECK_ARRAY_TEXT(each, next, type, code, field, name, e, data, count) \
    TOMPION_PRIV_CHECK_ELEMENT(1, data)
#define TOMPION_PRIV_CHECK_ENUM(...)
#define TOMPION_PRIV_CHECK_STRUCT(each, next, type, code, field, name, e, ...)                        \
    TOMPION_PRIV_ASSERT(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__) != 0, "a structure has a field");        \
    each(next, e, ##__VA_ARGS__)
#define TOMPION_PRIV_CHECK_INNER_STRUCT(each, next, type, code, field, name, e, ...)                  \
    TOMPION_PRIV_ASSERT(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__) != 0, "a structure has a field");        \
    each(next, e, ##__VA_ARGS__)

/* -- Enumerations -- */

#define TOMPION_PRIV_ENUM(e, n, ...)                                                                  \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_priv_enum_head tompion_priv_head;                                              \
        char tompion_priv_name[sizeof(#n)];                                                           \
        TOMPION_PRIV_EACH(TOMPION_PRIV_LABEL_MEMBER, e, ##__VA_ARGS__)                                \
    } tompion_priv_labels_##n __attribute__((__unused__)) = {                                         \
        {TOMPION_PRIV_ENUM_MAGIC, sizeof(tompion_priv_labels_##n), 1,                                 \
         0 TOMPION_PRIV_EACH(TOMPION_PRIV_ONE, e, ##__VA_ARGS__), sizeof(#n)},                        \
        #n, TOMPION_PRIV_EACH(TOMPION_PRIV_LABEL_INIT, e, ##__VA_ARGS__)}

#define TOMPION_PRIV_LABEL_MEMBER(l, ...)                                                             \
    struct TOMPION_PRIV_PACKED {                                                                      \
        struct tompion_priv_label_head tompion_priv_head;                                             \
        char tompion_priv_name[sizeof(#l)];                                                           \
    } tompion_priv_label_##l;
#define TOMPION_PRIV_LABEL_INIT(l, ...)                                                               \
    {{TOMPION_PRIV_LOW(__VA_ARGS__, 0), TOMPION_PRIV_HIGH(__VA_ARGS__, __VA_ARGS__, 0), sizeof(#l)}, #l},
#define TOMPION_PRIV_LOW(low, ...) (int64_t)(low)
#define TOMPION_PRIV_HIGH(low, high, ...) (int64_t)(high)

/* -- The event path -- */

/* The recordings that take the event, a bit each. */
TOMPION_PRIV_INLINE uint32_t tompion_priv_takers(const struct tompion_site *site)
{
    return __atomic_load_n(&site->enabled, __ATOMIC_RELAXED);
}

#define TOMPION_PRIV_RARELY(takers) __builtin_expect((takers) != 0, 0)

/* Records an event. The result is of no use, but there is one, as tompion_priv_begin has. */
TOMPION_PRIV_INLINE uint32_t tompion_priv_append(const struct tompion_site *site, const void *image,
                                                 size_t image_size, const struct tompion_tail *tails,
                                                 size_t tail_count)
{
    if (tail_count == 0)
        tompion_module_v1.append(site, image, image_size);
    else
        tompion_module_v1.append_tails(site, image, image_size, tails, tail_count);
    return 0;
}

/* The last 8-byte word of an image that has a byte of the fixed part; the only one with a gap,
 * if any. */
#define TOMPION_PRIV_LAST_WORD(size) (((size) - ((size) != 0)) / 8)

/* These three fill a tail and return its number of elements. */
TOMPION_PRIV_INLINE uint32_t tompion_priv_elements(struct tompion_tail *tail, const void *data,
                                                   size_t count, size_t element_size)
{
    const size_t most = SIZE_MAX / element_size < UINT32_MAX ? SIZE_MAX / element_size : UINT32_MAX;
    if (!data)
        count = 0;
    if (count > most)
        count = most;
    tail->data = data;
    tail->size = count * element_size;
    return (uint32_t)count;
}

TOMPION_PRIV_INLINE uint32_t tompion_priv_text(struct tompion_tail *tail, const char *text)
{
    if (!text)
        text = "(null)";
    return tompion_priv_elements(tail, text, __builtin_strlen(text), 1);
}

TOMPION_PRIV_INLINE uint32_t tompion_priv_text_at_most(struct tompion_tail *tail, const char *text,
                                                       size_t max)
{
    const void *nul;
    if (!text)
        text = "(null)";
    if (max > UINT32_MAX)
        max = UINT32_MAX;
    /* memchr reads no further than to the NUL; a compiler that knows max and the text's size
     * warns. */
    __asm__("" : "+r"(max));
    nul = __builtin_memchr(text, 0, max);
    return tompion_priv_elements(tail, text, nul ? (size_t)((const char *)nul - text) : max, 1);
}

/* A statement that records an event and does nothing else. */
#define TOMPION_PRIV_STATEMENT(e, ...) TOMPION_PRIV_RECORD(e, tompion_priv_append, 0, ##__VA_ARGS__)

/* -- Spans -- */

/* The bits of tompion_site.enabled that stand for recordings. */
#define TOMPION_PRIV_RECORDINGS 0xffffu

/* A span that was begun: what ends it, and the recordings that have its begin, a bit each. */
struct tompion_priv_opened {
    const struct tompion_site *tompion_priv_end;
    uint32_t tompion_priv_takers;
};

/* Records a span's begin. Returns the recordings that have it. */
TOMPION_PRIV_INLINE uint32_t tompion_priv_begin(const struct tompion_site *site, const void *image,
                                                size_t image_size, const struct tompion_tail *tails,
                                                size_t tail_count)
{
    uint32_t takers;
    if (tail_count == 0)
        tails = 0; /* compilers warn of an array without values, whatever its number of elements */
    if (tompion_module_v1.append_begin)
        return tompion_module_v1.append_begin(site, image, image_size, tails, tail_count);
    takers = tompion_priv_takers(site);
    tompion_priv_append(site, image, image_size, tails, tail_count);
    return takers & TOMPION_PRIV_RECORDINGS;
}

/* Records the end in the recordings that have the begin, and in no other. */
__attribute__((__unused__, __noinline__, __cold__)) static void
tompion_priv_finish(const struct tompion_site *end, uint32_t begun)
{
    const uint32_t enabled = tompion_priv_takers(end);
    const uint32_t others = TOMPION_PRIV_RECORDINGS & ~begun;
    struct tompion_site copy;
    uint64_t image = 0;
    if (tompion_module_v1.append_end) {
        tompion_module_v1.append_end(end, begun);
        return;
    }
    if ((enabled & begun) == 0)
        return;
    if ((enabled & others) != 0) {
        /* The library looks at the copy, where it can't see to it that the bits come before the
         * number. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        copy.enabled = enabled & ~others;
        copy.number = end->number;
        copy.description = end->description;
        copy.enums = end->enums;
        copy.kind = end->kind;
        copy.reserved = end->reserved;
        end = &copy;
    }
    tompion_module_v1.append(end, &image, 0);
}

TOMPION_PRIV_INLINE void tompion_priv_close(const struct tompion_priv_opened *span)
{
    if (TOMPION_PRIV_RARELY(span->tompion_priv_takers))
        tompion_priv_finish(span->tompion_priv_end, span->tompion_priv_takers);
}

#endif /* TOMPION_PRIVATE_FIELD_H */

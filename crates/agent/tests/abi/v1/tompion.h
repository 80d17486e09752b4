/*
 * The first released header, as programs in the field were compiled with it. This file never changes:
 * what it asks of the library must work for ever (docs/design/abi.md).
 */
/*
 * Tompion: events of C and C++ programs.
 *
 *     #include <tompion/tompion.h>
 *
 *     TOMPION_EVENT(db, query_done, (u64, rows, n), (str, table, name), (f64, ms, t));
 *
 * Compile as C11 or later (or C++17) with gcc or clang and link with -ltompion. There is nothing else:
 * no provider file, no list of events, no start-up call. The guide is docs/guide/c.md.
 *
 * Costs. While no recording takes the event: one load and one branch; no value is computed. While one
 * does: the fields are gathered on the stack and copied into a ring, without a lock, a system call or an
 * allocation.
 *
 * Threads and signals. Every macro may be used from any thread at any time, also in signal handlers, in
 * constructors and in destructors, and after fork(). No macro changes errno, unless a value's own
 * expression does.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TOMPION_H
#define TOMPION_TOMPION_H

#pragma GCC system_header

#if !defined(__GNUC__)
#error "tompion.h needs gcc or clang"
#endif

#include <stddef.h>
#include <stdint.h>
#ifdef TOMPION_OPTIONAL
#include <dlfcn.h>
#include <stdlib.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Events -------------------------------------------------------------------------------------- */

/*
 * TOMPION_EVENT(provider, name, field...);
 *
 * A statement that records the event provider:name with 0 to 64 fields. A field is
 *
 *     (i8|i16|i32|i64, name, value)        signed integer
 *     (u8|u16|u32|u64, name, value)        unsigned integer
 *     (x8|x16|x32|x64, name, value)        unsigned integer, shown in hexadecimal; takes pointers too
 *     (f32|f64, name, value)               float, double
 *     (bool, name, value)                  0 is false, anything else true
 *     (str, name, pointer)                 text up to its NUL; NULL is recorded as "(null)"
 *     (strn, name, pointer, max)           text up to its NUL, at most max bytes; NULL as for str
 *     (bytes, name, pointer, size)         size bytes of anything; NULL is recorded as no bytes
 *     (array, name, element, pointer, N)   N integers; N is a constant expression; not NULL
 *     (sequence, name, element, pointer, count)    count integers; NULL is recorded as no elements
 *     (enum, name, enumeration, value)     an integer with names, see TOMPION_ENUM
 *
 * where element is one of i8 to x64, and the pointer points to integers of that size (or to void or
 * bytes, which need no alignment). Values are converted as by a C cast. Each is evaluated once, in the
 * order of the fields, and only if the event is recorded; do not leave side effects in them.
 *
 * provider, name, the field's type and the field's name are words, never expanded as macros: they may
 * be `linux`, `errno` or `bool`. (A macro around TOMPION_EVENT that passes its own arguments on does
 * expand them.) Fields' names are C identifiers, each used once in an event. An event may be used in
 * many places with the same fields; a use inside a value of another event is not possible.
 *
 * A text's length is taken once. If another thread changes the text meanwhile, the record has the old
 * length and any mixture of the two texts. A record is at most 64 KiB long, all fields and a header of
 * 16 bytes together, and at most half a sub-buffer; a larger one is not recorded but counted as lost.
 */
#define TOMPION_EVENT(...) TOMPION_PRIV_EVENT(, DEBUG_LINE, ##__VA_ARGS__)

/*
 * TOMPION_EVENT_LEVEL(level, provider, name, field...);
 *
 * The same with a log level, from the most severe: EMERG (0), ALERT, CRIT, ERR, WARNING, NOTICE, INFO,
 * DEBUG_SYSTEM, DEBUG_PROGRAM, DEBUG_PROCESS, DEBUG_MODULE, DEBUG_UNIT, DEBUG_FUNCTION, DEBUG_LINE (13,
 * which TOMPION_EVENT has), DEBUG (14). Levels are words too, whatever <syslog.h> or others define.
 *
 *     TOMPION_EVENT_LEVEL(WARNING, db, slow_query, (str, text, query), (u32, seconds, s));
 */
#define TOMPION_EVENT_LEVEL(...) TOMPION_PRIV_EVENT(, ##__VA_ARGS__)

/*
 * TOMPION_EVENT_ENABLED(provider, name)
 *
 * An expression: nonzero while a recording takes the event. For values that are costly to prepare:
 *
 *     if (TOMPION_EVENT_ENABLED(db, plan)) {
 *         char *text = plan_to_text(plan);
 *         TOMPION_EVENT(db, plan, (str, text, text));
 *         free(text);
 *     }
 */
#define TOMPION_EVENT_ENABLED(...) TOMPION_PRIV_ENABLED(, ##__VA_ARGS__)

/*
 * TOMPION_ENUM(enumeration, label...);
 *
 * Defines an enumeration for `enum` fields of this file, at file scope, with 1 to 64 labels. A label is
 * (word, value) or (word, low, high); values are constant expressions within int64_t, low <= high; words
 * are not expanded. A value that no label covers is shown as a number.
 *
 *     TOMPION_ENUM(machine_state, (idle, 0), (running, STATE_RUNNING), (failed, -9, -1));
 *     ...
 *     TOMPION_EVENT(plant, machine, (u32, number, n), (enum, state, machine_state, m->state));
 */
#define TOMPION_ENUM(...) TOMPION_PRIV_ENUM(, ##__VA_ARGS__)

/*
 * #define TOMPION_OPTIONAL before the #include makes the library optional: link without -ltompion, and
 * the program runs without it. It is then loaded (libtompion.so.0) when the program starts, if the
 * environment has TOMPION_SESSION, as it has under `tompion record`. Needs -ldl before glibc 2.34. Use
 * it in all files of a program or shared object, or in none.
 */

/* ---- What the library and this header share: ABI 1 ------------------------------------------------ */

/*
 * One use of a macro above. Only the library writes it; the event path loads `enabled`.
 */
struct tompion_site {
    uint32_t enabled;           /* bit n: recording n takes the event */
    uint32_t number;            /* the library's number of the event */
    const void *description;    /* an event's description, see below; its own size is in it */
    const void *const *enums;   /* descriptions of the enum fields' types, in field order; or NULL */
    uint32_t kind;              /* 0: records; 1: asks TOMPION_EVENT_ENABLED */
    uint32_t reserved;
};

/* The bytes of one field of variable length, or of an array. */
struct tompion_tail {
    const void *data;
    size_t size; /* in bytes */
};

/*
 * One executable or shared object. All its files share one, a weak hidden symbol.
 *
 * `image` is the fixed part of the record, image_size bytes of fixed-size fields without padding, where
 * a field of variable length stands with its number of elements (uint32_t) and an array with nothing.
 * It may be read up to the next multiple of 8 bytes; what is there is 0. The bytes of the tails follow
 * in the order of their fields. Both functions keep errno and allocate nothing.
 */
struct tompion_module {
    uint32_t abi;        /* TOMPION_ABI */
    uint32_t registered; /* files of the object whose constructors ran; this header's */
    struct tompion_site *const *sites_begin, *const *sites_end;
    void (*append)(const struct tompion_site *site, const void *image, size_t image_size);
    void (*append_tails)(const struct tompion_site *site, const void *image, size_t image_size,
                         const struct tompion_tail *tails, size_t tail_count);
    void *reserved[4]; /* the library's */
};

#define TOMPION_ABI 1

/*
 * The library's one symbol. verb 1: the object was loaded; the library sets append and append_tails,
 * then may enable sites at any time. verb 0: the object goes away; the library disables its sites and
 * forgets them. Returns 0, or another number if it does not know this ABI and left the module alone.
 */
int tompion_agent_v1(struct tompion_module *module, uint32_t verb)
#ifdef TOMPION_OPTIONAL
    __attribute__((__weak__))
#endif
    ;

/* ---- From here on: how it is done ------------------------------------------------------------------ */
/*
 * Each use of TOMPION_EVENT defines, in its own block,
 *
 *     tompion_priv_description   constant bytes in section tompion_events, laid out as the library's
 *                                schema says: header, names, fields; no pointers, so that tools can read
 *                                them in the file. Alignment 8, gaps are 0.
 *     tompion_priv_site          a struct tompion_site. Sites lie together in a section of their own,
 *                                away from data that the program writes.
 *     tompion_priv_site_pointer  in section tompion_sites, whose bounds the linker knows
 *
 * and, if enabled, fills an image and tails and calls the module's append or append_tails.
 *
 * Words must not be expanded. An operand of ## never is, so every macro passes words on by ##: the lists
 * by `, ##__VA_ARGS__`, single parameters by e##word, where e is an empty argument handed through for
 * that purpose. The macros that meet a word at last use it only with # and ##.
 *
 * Code that is expanded in the user's file uses no other names than tompion_priv_ ones either.
 */

#ifdef __cplusplus
#define TOMPION_PRIV_ASSERT(condition, text) static_assert(condition, text)
#else
#define TOMPION_PRIV_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define TOMPION_PRIV_KEEP __attribute__((__used__, __retain__))
#endif
#endif
#ifndef TOMPION_PRIV_KEEP
#define TOMPION_PRIV_KEEP __attribute__((__used__))
#endif

#define TOMPION_PRIV_PACKED __attribute__((__packed__))
#define TOMPION_PRIV_SECTION(name) __attribute__((__section__(name), __aligned__(8)))
#define TOMPION_PRIV_INLINE static __inline__ __attribute__((__always_inline__, __unused__))

/* Levels and type codes, by word. */
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
    tompion_priv_code_str, /* the first one with a tail */
    tompion_priv_code_strn,
    tompion_priv_code_bytes,
    tompion_priv_code_array,
    tompion_priv_code_sequence, /* the last one with a tail */
    tompion_priv_code_enum
};

/* What stands in the image for a field, by the word of its type. */
typedef int8_t tompion_priv_i8;
typedef int16_t tompion_priv_i16;
typedef int32_t tompion_priv_i32;
typedef int64_t tompion_priv_i64, tompion_priv_enum;
typedef uint8_t tompion_priv_u8, tompion_priv_x8;
typedef uint16_t tompion_priv_u16, tompion_priv_x16;
typedef uint32_t tompion_priv_u32, tompion_priv_x32;
typedef uint64_t tompion_priv_u64, tompion_priv_x64;
typedef float tompion_priv_f32;
typedef double tompion_priv_f64;
#ifdef __cplusplus
typedef bool tompion_priv_bool;
#else
typedef _Bool tompion_priv_bool;
#endif
typedef uint32_t tompion_priv_str, tompion_priv_strn, tompion_priv_bytes, tompion_priv_sequence;
typedef uint8_t tompion_priv_array[0];

/* How a field's arguments are read, by the word of its type. */
#define TOMPION_PRIV_CLASS_i8 NUMBER
#define TOMPION_PRIV_CLASS_i16 NUMBER
#define TOMPION_PRIV_CLASS_i32 NUMBER
#define TOMPION_PRIV_CLASS_i64 NUMBER
#define TOMPION_PRIV_CLASS_u8 NUMBER
#define TOMPION_PRIV_CLASS_u16 NUMBER
#define TOMPION_PRIV_CLASS_u32 NUMBER
#define TOMPION_PRIV_CLASS_u64 NUMBER
#define TOMPION_PRIV_CLASS_x8 NUMBER
#define TOMPION_PRIV_CLASS_x16 NUMBER
#define TOMPION_PRIV_CLASS_x32 NUMBER
#define TOMPION_PRIV_CLASS_x64 NUMBER
#define TOMPION_PRIV_CLASS_f32 NUMBER
#define TOMPION_PRIV_CLASS_f64 NUMBER
#define TOMPION_PRIV_CLASS_bool NUMBER
#define TOMPION_PRIV_CLASS_str TEXT
#define TOMPION_PRIV_CLASS_strn TEXTN
#define TOMPION_PRIV_CLASS_bytes BYTES
#define TOMPION_PRIV_CLASS_array ARRAY
#define TOMPION_PRIV_CLASS_sequence SEQUENCE
#define TOMPION_PRIV_CLASS_enum ENUM

/* The parts of descriptions that have one size. */
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

/* -- Registration of the executable or shared object -- */

extern struct tompion_site *const __start_tompion_sites[]
    __attribute__((__weak__, __visibility__("hidden")));
extern struct tompion_site *const __stop_tompion_sites[]
    __attribute__((__weak__, __visibility__("hidden")));

extern struct tompion_module tompion_module_v1 __attribute__((__weak__, __visibility__("hidden")));
struct tompion_module tompion_module_v1 = {
    TOMPION_ABI, 0, __start_tompion_sites, __stop_tompion_sites, 0, 0, {0, 0, 0, 0},
};

/* The library's function, from the first constructor to the last destructor; or NULL. */
extern int (*tompion_priv_agent)(struct tompion_module *module, uint32_t verb)
    __attribute__((__weak__, __visibility__("hidden")));
int (*tompion_priv_agent)(struct tompion_module *module, uint32_t verb) = 0;

/* Before the program's own constructors: each file's calls this, the first one registers. */
__attribute__((__constructor__(101))) static void tompion_priv_load(void)
{
    if (tompion_module_v1.registered++ != 0)
        return;
    tompion_priv_agent = tompion_agent_v1;
#ifdef TOMPION_OPTIONAL
    if (!tompion_priv_agent && getenv("TOMPION_SESSION")) {
        void *library = dlopen("libtompion.so.0", RTLD_NOW | RTLD_GLOBAL);
        if (library)
            *(void **)&tompion_priv_agent = dlsym(library, "tompion_agent_v1");
    }
#endif
    if (tompion_priv_agent && tompion_priv_agent(&tompion_module_v1, 1) != 0)
        tompion_priv_agent = 0;
}

/* After the program's own destructors: the last one takes the object back. */
__attribute__((__destructor__(101))) static void tompion_priv_unload(void)
{
    if (--tompion_module_v1.registered == 0 && tompion_priv_agent)
        tompion_priv_agent(&tompion_module_v1, 0);
}

/* -- The event path -- */

TOMPION_PRIV_INLINE int tompion_priv_enabled(const struct tompion_site *site)
{
    return __builtin_expect(__atomic_load_n(&site->enabled, __ATOMIC_RELAXED) != 0, 0);
}

TOMPION_PRIV_INLINE void tompion_priv_append(const struct tompion_site *site, const void *image,
                                             size_t image_size, const struct tompion_tail *tails,
                                             size_t tail_count)
{
    if (tail_count == 0)
        tompion_module_v1.append(site, image, image_size);
    else
        tompion_module_v1.append_tails(site, image, image_size, tails, tail_count);
}

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
    /* memchr reads no further than to the NUL; a compiler that knows max and the text's size warns. */
    __asm__("" : "+r"(max));
    nul = __builtin_memchr(text, 0, max);
    return tompion_priv_elements(tail, text, nul ? (size_t)((const char *)nul - text) : max, 1);
}

/* -- Lists: TOMPION_PRIV_EACH(m, e, (a), (b)...) is m(a) m(b)..., nothing if there is no item -- */

#define TOMPION_PRIV_EACH(m, e, ...) \
    TOMPION_PRIV_EACH_N(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__), m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_N(n, m, e, ...) TOMPION_PRIV_EACH_OF(n, m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_OF(n, m, e, ...) TOMPION_PRIV_E##n(m, e, ##__VA_ARGS__)

/* The number of items. */
#define TOMPION_PRIV_COUNT(e, ...) \
    TOMPION_PRIV_COUNT_OF(e, ##__VA_ARGS__, \
        64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, \
        41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, \
        18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define TOMPION_PRIV_COUNT_OF(e, \
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, \
        a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, \
        a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, \
        a54, a55, a56, a57, a58, a59, a60, a61, a62, a63, a64, n, ...) n

#define TOMPION_PRIV_E0(m, e)
#define TOMPION_PRIV_E1(m, e, x) m e##x
#define TOMPION_PRIV_E2(m, e, x, ...) m e##x TOMPION_PRIV_E1(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E3(m, e, x, ...) m e##x TOMPION_PRIV_E2(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E4(m, e, x, ...) m e##x TOMPION_PRIV_E3(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E5(m, e, x, ...) m e##x TOMPION_PRIV_E4(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E6(m, e, x, ...) m e##x TOMPION_PRIV_E5(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E7(m, e, x, ...) m e##x TOMPION_PRIV_E6(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E8(m, e, x, ...) m e##x TOMPION_PRIV_E7(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E9(m, e, x, ...) m e##x TOMPION_PRIV_E8(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E10(m, e, x, ...) m e##x TOMPION_PRIV_E9(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E11(m, e, x, ...) m e##x TOMPION_PRIV_E10(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E12(m, e, x, ...) m e##x TOMPION_PRIV_E11(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E13(m, e, x, ...) m e##x TOMPION_PRIV_E12(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E14(m, e, x, ...) m e##x TOMPION_PRIV_E13(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E15(m, e, x, ...) m e##x TOMPION_PRIV_E14(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E16(m, e, x, ...) m e##x TOMPION_PRIV_E15(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E17(m, e, x, ...) m e##x TOMPION_PRIV_E16(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E18(m, e, x, ...) m e##x TOMPION_PRIV_E17(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E19(m, e, x, ...) m e##x TOMPION_PRIV_E18(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E20(m, e, x, ...) m e##x TOMPION_PRIV_E19(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E21(m, e, x, ...) m e##x TOMPION_PRIV_E20(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E22(m, e, x, ...) m e##x TOMPION_PRIV_E21(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E23(m, e, x, ...) m e##x TOMPION_PRIV_E22(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E24(m, e, x, ...) m e##x TOMPION_PRIV_E23(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E25(m, e, x, ...) m e##x TOMPION_PRIV_E24(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E26(m, e, x, ...) m e##x TOMPION_PRIV_E25(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E27(m, e, x, ...) m e##x TOMPION_PRIV_E26(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E28(m, e, x, ...) m e##x TOMPION_PRIV_E27(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E29(m, e, x, ...) m e##x TOMPION_PRIV_E28(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E30(m, e, x, ...) m e##x TOMPION_PRIV_E29(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E31(m, e, x, ...) m e##x TOMPION_PRIV_E30(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E32(m, e, x, ...) m e##x TOMPION_PRIV_E31(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E33(m, e, x, ...) m e##x TOMPION_PRIV_E32(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E34(m, e, x, ...) m e##x TOMPION_PRIV_E33(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E35(m, e, x, ...) m e##x TOMPION_PRIV_E34(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E36(m, e, x, ...) m e##x TOMPION_PRIV_E35(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E37(m, e, x, ...) m e##x TOMPION_PRIV_E36(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E38(m, e, x, ...) m e##x TOMPION_PRIV_E37(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E39(m, e, x, ...) m e##x TOMPION_PRIV_E38(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E40(m, e, x, ...) m e##x TOMPION_PRIV_E39(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E41(m, e, x, ...) m e##x TOMPION_PRIV_E40(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E42(m, e, x, ...) m e##x TOMPION_PRIV_E41(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E43(m, e, x, ...) m e##x TOMPION_PRIV_E42(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E44(m, e, x, ...) m e##x TOMPION_PRIV_E43(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E45(m, e, x, ...) m e##x TOMPION_PRIV_E44(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E46(m, e, x, ...) m e##x TOMPION_PRIV_E45(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E47(m, e, x, ...) m e##x TOMPION_PRIV_E46(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E48(m, e, x, ...) m e##x TOMPION_PRIV_E47(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E49(m, e, x, ...) m e##x TOMPION_PRIV_E48(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E50(m, e, x, ...) m e##x TOMPION_PRIV_E49(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E51(m, e, x, ...) m e##x TOMPION_PRIV_E50(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E52(m, e, x, ...) m e##x TOMPION_PRIV_E51(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E53(m, e, x, ...) m e##x TOMPION_PRIV_E52(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E54(m, e, x, ...) m e##x TOMPION_PRIV_E53(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E55(m, e, x, ...) m e##x TOMPION_PRIV_E54(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E56(m, e, x, ...) m e##x TOMPION_PRIV_E55(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E57(m, e, x, ...) m e##x TOMPION_PRIV_E56(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E58(m, e, x, ...) m e##x TOMPION_PRIV_E57(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E59(m, e, x, ...) m e##x TOMPION_PRIV_E58(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E60(m, e, x, ...) m e##x TOMPION_PRIV_E59(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E61(m, e, x, ...) m e##x TOMPION_PRIV_E60(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E62(m, e, x, ...) m e##x TOMPION_PRIV_E61(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E63(m, e, x, ...) m e##x TOMPION_PRIV_E62(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E64(m, e, x, ...) m e##x TOMPION_PRIV_E63(m, e, ##__VA_ARGS__)

#define TOMPION_PRIV_PICK(pass, class) TOMPION_PRIV_PICK_(pass, class)
#define TOMPION_PRIV_PICK_(pass, class) TOMPION_PRIV_##pass##_##class

/* -- TOMPION_EVENT -- */

#define TOMPION_PRIV_EVENT(e, level, p, n, ...)                                                        \
    do {                                                                                               \
        TOMPION_PRIV_DESCRIBE(e, e##level, e##p, e##n, ##__VA_ARGS__);                                 \
        static const void *const tompion_priv_enums[] = {                                              \
            TOMPION_PRIV_EACH(TOMPION_PRIV_ENUM_OF, e, ##__VA_ARGS__) 0};                              \
        TOMPION_PRIV_SITE(sizeof(tompion_priv_enums) > sizeof(void *) ? tompion_priv_enums : 0, 0);    \
        if (tompion_priv_enabled(&tompion_priv_site)) {                                                \
            enum {                                                                                     \
                tompion_priv_tail_count =                                                              \
                    0 TOMPION_PRIV_EACH(TOMPION_PRIV_HAS_TAIL, e, ##__VA_ARGS__)                       \
            };                                                                                         \
            struct tompion_tail tompion_priv_tails[tompion_priv_tail_count + 1];                       \
            struct tompion_tail *tompion_priv_tail = tompion_priv_tails;                               \
            struct TOMPION_PRIV_PACKED tompion_priv_fixed {                                            \
                tompion_priv_array tompion_priv_start;                                                 \
                TOMPION_PRIV_EACH(TOMPION_PRIV_IMAGE_MEMBER, e, ##__VA_ARGS__)                         \
            };                                                                                         \
            union {                                                                                    \
                uint64_t tompion_priv_words[TOMPION_PRIV_LAST_WORD + 1];                               \
                struct tompion_priv_fixed tompion_priv_fixed;                                          \
            } tompion_priv_image;                                                                      \
            tompion_priv_image.tompion_priv_words[TOMPION_PRIV_LAST_WORD] = 0;                         \
            TOMPION_PRIV_EACH(TOMPION_PRIV_SET, e, ##__VA_ARGS__)                                      \
            (void)tompion_priv_tail;                                                                   \
            tompion_priv_append(&tompion_priv_site, &tompion_priv_image,                               \
                                sizeof(struct tompion_priv_fixed), tompion_priv_tails,                 \
                                tompion_priv_tail_count);                                              \
        }                                                                                              \
    } while (0)

/* The image's last word that has a byte of the fixed part; the only one that could have a gap. */
#define TOMPION_PRIV_LAST_WORD                                                                         \
    ((sizeof(struct tompion_priv_fixed) - (sizeof(struct tompion_priv_fixed) != 0)) / 8)

#define TOMPION_PRIV_ENABLED(e, p, n)                                                                  \
    __extension__({                                                                                    \
        TOMPION_PRIV_DESCRIBE(e, DEBUG_LINE, e##p, e##n);                                              \
        TOMPION_PRIV_SITE(0, 1);                                                                       \
        tompion_priv_enabled(&tompion_priv_site);                                                      \
    })

#define TOMPION_PRIV_SITE(enums_of_it, kind_of_it)                                                     \
    static struct tompion_site tompion_priv_site TOMPION_PRIV_SECTION("tompion_site_data") = {         \
        0, 0, &tompion_priv_description, enums_of_it, kind_of_it, 0};                                  \
    static struct tompion_site *const tompion_priv_site_pointer TOMPION_PRIV_KEEP                      \
        TOMPION_PRIV_SECTION("tompion_sites") = &tompion_priv_site

#define TOMPION_PRIV_DESCRIBE(e, level, p, n, ...)                                                     \
    static const struct TOMPION_PRIV_PACKED {                                                          \
        struct tompion_priv_event_head tompion_priv_head;                                              \
        char tompion_priv_provider[sizeof(#p)], tompion_priv_name[sizeof(#n)];                         \
        TOMPION_PRIV_EACH(TOMPION_PRIV_FIELD_MEMBER, e, ##__VA_ARGS__)                                 \
    } tompion_priv_description TOMPION_PRIV_SECTION("tompion_events") = {                              \
        {TOMPION_PRIV_EVENT_MAGIC, sizeof(tompion_priv_description), 1, 0, tompion_priv_level_##level, \
         0, 0 TOMPION_PRIV_EACH(TOMPION_PRIV_ONE, e, ##__VA_ARGS__), sizeof(#p), sizeof(#n)},          \
        #p, #n, TOMPION_PRIV_EACH(TOMPION_PRIV_FIELD_INIT, e, ##__VA_ARGS__)}

/* What a field adds to the number of fields, to the description, and to the record. */
#define TOMPION_PRIV_ONE(...) +1
#define TOMPION_PRIV_FIELD_MEMBER(t, n, ...)                                                           \
    struct TOMPION_PRIV_PACKED {                                                                       \
        struct tompion_priv_field_head tompion_priv_head;                                              \
        char tompion_priv_name[sizeof(#n)];                                                            \
    } tompion_priv_field_##n;
#define TOMPION_PRIV_FIELD_INIT(t, n, ...)                                                             \
    {{sizeof(struct tompion_priv_field_head) + sizeof(#n), tompion_priv_code_##t,                      \
      TOMPION_PRIV_PICK(ELEMENT, TOMPION_PRIV_CLASS_##t)(, ##__VA_ARGS__), 0, sizeof(#n)},             \
     #n},
#define TOMPION_PRIV_ENUM_OF(t, n, ...) \
    TOMPION_PRIV_PICK(ENUM_OF, TOMPION_PRIV_CLASS_##t)(, ##__VA_ARGS__)
#define TOMPION_PRIV_HAS_TAIL(t, n, ...) \
    +(tompion_priv_code_##t >= tompion_priv_code_str &&  \
      tompion_priv_code_##t <= tompion_priv_code_sequence)
#define TOMPION_PRIV_IMAGE_MEMBER(t, n, ...) tompion_priv_##t tompion_priv_field_##n;
#define TOMPION_PRIV_SET(t, n, ...)                                                                    \
    TOMPION_PRIV_PICK(SET, TOMPION_PRIV_CLASS_##t)                                                     \
    (tompion_priv_image.tompion_priv_fixed.tompion_priv_field_##n, tompion_priv_##t, , ##__VA_ARGS__)

/* By class: the description's element and count. */
#define TOMPION_PRIV_ELEMENT_NUMBER(e, value) 0, 0
#define TOMPION_PRIV_ELEMENT_TEXT(e, text) 0, 0
#define TOMPION_PRIV_ELEMENT_TEXTN(e, text, max) 0, 0
#define TOMPION_PRIV_ELEMENT_BYTES(e, data, size) 0, 0
#define TOMPION_PRIV_ELEMENT_ARRAY(e, t, data, count) tompion_priv_code_##t, count
#define TOMPION_PRIV_ELEMENT_SEQUENCE(e, t, data, count) tompion_priv_code_##t, 0
#define TOMPION_PRIV_ELEMENT_ENUM(e, t, value) 0, 0

/* By class: the enumeration. */
#define TOMPION_PRIV_ENUM_OF_NUMBER(e, ...)
#define TOMPION_PRIV_ENUM_OF_TEXT(e, ...)
#define TOMPION_PRIV_ENUM_OF_TEXTN(e, ...)
#define TOMPION_PRIV_ENUM_OF_BYTES(e, ...)
#define TOMPION_PRIV_ENUM_OF_ARRAY(e, ...)
#define TOMPION_PRIV_ENUM_OF_SEQUENCE(e, ...)
#define TOMPION_PRIV_ENUM_OF_ENUM(e, t, value) &tompion_priv_enum_##t,

/* By class: fill the field's place in the image, and its tail. */
#define TOMPION_PRIV_SET_NUMBER(place, type, e, value) place = (type)(value);
#define TOMPION_PRIV_SET_TEXT(place, type, e, text) \
    place = tompion_priv_text(tompion_priv_tail++, (text));
#define TOMPION_PRIV_SET_TEXTN(place, type, e, text, max) \
    place = tompion_priv_text_at_most(tompion_priv_tail++, (text), (size_t)(max));
#define TOMPION_PRIV_SET_BYTES(place, type, e, data, size) \
    place = tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(size), 1);
#define TOMPION_PRIV_SET_ARRAY(place, type, e, t, data, count) \
    TOMPION_PRIV_CHECK_ELEMENT(tompion_priv_code_##t, tompion_priv_##t, data); \
    tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count), sizeof(tompion_priv_##t));
#define TOMPION_PRIV_SET_SEQUENCE(place, type, e, t, data, count) \
    TOMPION_PRIV_CHECK_ELEMENT(tompion_priv_code_##t, tompion_priv_##t, data); \
    place = tompion_priv_elements(tompion_priv_tail++, (data), (size_t)(count), sizeof(tompion_priv_##t));
#define TOMPION_PRIV_SET_ENUM(place, type, e, t, value) place = (type)(value);

#define TOMPION_PRIV_CHECK_ELEMENT(code, type, data)                                                   \
    TOMPION_PRIV_ASSERT(code <= tompion_priv_code_x64, "elements are integers");                       \
    TOMPION_PRIV_ASSERT(TOMPION_PRIV_SIZE_AT(data) == sizeof(type) || TOMPION_PRIV_SIZE_AT(data) == 1, \
                        "the pointer points to elements of another size")
#ifdef __cplusplus
#define TOMPION_PRIV_SIZE_AT(data) 1
#else /* void counts as bytes */
#define TOMPION_PRIV_SIZE_AT(data) \
    sizeof(*_Generic((data), void *: (char *)0, const void *: (char *)0, default: (data)))
#endif

/* -- TOMPION_ENUM -- */

#define TOMPION_PRIV_ENUM(e, n, ...)                                                                   \
    static const struct TOMPION_PRIV_PACKED {                                                          \
        struct tompion_priv_enum_head tompion_priv_head;                                               \
        char tompion_priv_name[sizeof(#n)];                                                            \
        TOMPION_PRIV_EACH(TOMPION_PRIV_LABEL_MEMBER, e, ##__VA_ARGS__)                                 \
    } tompion_priv_enum_##n TOMPION_PRIV_SECTION("tompion_events") __attribute__((__unused__)) = {     \
        {TOMPION_PRIV_ENUM_MAGIC, sizeof(tompion_priv_enum_##n), 1,                                    \
         0 TOMPION_PRIV_EACH(TOMPION_PRIV_ONE, e, ##__VA_ARGS__), sizeof(#n)},                         \
        #n, TOMPION_PRIV_EACH(TOMPION_PRIV_LABEL_INIT, e, ##__VA_ARGS__)}

#define TOMPION_PRIV_LABEL_MEMBER(l, ...)                                                              \
    struct TOMPION_PRIV_PACKED {                                                                       \
        struct tompion_priv_label_head tompion_priv_head;                                              \
        char tompion_priv_name[sizeof(#l)];                                                            \
    } tompion_priv_label_##l;
#define TOMPION_PRIV_LABEL_INIT(l, ...)                                                                \
    {{TOMPION_PRIV_LOW(__VA_ARGS__, 0), TOMPION_PRIV_HIGH(__VA_ARGS__, __VA_ARGS__, 0), sizeof(#l)}, #l},
#define TOMPION_PRIV_LOW(low, ...) (int64_t)(low)
#define TOMPION_PRIV_HIGH(low, high, ...) (int64_t)(high)

#ifdef __cplusplus
}
#endif

#endif /* TOMPION_TOMPION_H */

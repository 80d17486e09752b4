/*
 * Events of a provider: their descriptions, and a function that records each class of them.
 *
 * Part of <lttng/tracepoint-event.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_PROVIDER_H
#define TOMPION_LTTNG_PROVIDER_H

#pragma GCC system_header

#define TOMPION_LTTNG_PROVIDER_NAME(p) TOMPION_LTTNG_PROVIDER_NAME_OF(p)
#define TOMPION_LTTNG_PROVIDER_NAME_OF(p) tompion_lttng_provider_##p

#include "record.h"

/* -- A class: fields, enumerations, and the function that records its events -- */

#define TOMPION_LTTNG_CLASS(p, n, args, fields) TOMPION_LTTNG_CLASS_OF(p, n, args, fields)
#define TOMPION_LTTNG_CLASS_OF(p, n, args, fields)                                                    \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_lttng_class_head head;                                                         \
        char provider[sizeof(#p)], name[sizeof(#n)];                                                  \
        TOMPION_LTTNG_EACH(MEMBER, fields)                                                            \
    } tompion_lttng_class_##p##___##n TOMPION_LTTNG_KEEP TOMPION_LTTNG_SECTION("tompion_events") = {  \
        {TOMPION_LTTNG_CLASS_MAGIC, sizeof(tompion_lttng_class_##p##___##n),                          \
         0 TOMPION_LTTNG_EACH(ONE, fields), sizeof(#p), sizeof(#n)},                                  \
        #p,                                                                                           \
        #n,                                                                                           \
        TOMPION_LTTNG_EACH(INIT, fields)};                                                            \
    static const void *const tompion_lttng_enums_##p##___##n[] __attribute__((__unused__)) = {        \
        TOMPION_LTTNG_EACH(ENUM_OF, fields) 0};                                                       \
    static const char tompion_lttng_signature_##p##___##n[] __attribute__((__unused__)) =             \
        TOMPION_LTTNG_SIGNATURE args;                                                                 \
    static __attribute__((__unused__, __no_instrument_function__)) void tompion_lttng_probe_##p##___##n(                          \
        const struct tompion_provided *tompion_lttng_event TOMPION_LTTNG_PARAMETERS args)             \
    {                                                                                                 \
        enum {                                                                                        \
            tompion_lttng_size = 0 TOMPION_LTTNG_EACH(SIZE, fields),                                  \
            tompion_lttng_tails = 0 TOMPION_LTTNG_EACH(TAIL, fields)                                  \
        };                                                                                            \
        struct tompion_lttng_parts {                                                                  \
            uint64_t image[TOMPION_PRIV_LAST_WORD(tompion_lttng_size) + 1];                           \
            struct tompion_tail tails[tompion_lttng_tails + 1];                                       \
        } tompion_lttng_parts;                                                                        \
        struct tompion_lttng_record tompion_lttng_to = {                                              \
            (unsigned char *)tompion_lttng_parts.image, tompion_lttng_parts.tails};             \
        TOMPION_LTTNG_EACH(UNUSED, fields)                                                            \
        if (!tompion_priv_takers(&tompion_lttng_event->site))                                         \
            return;                                                                                   \
        tompion_lttng_parts.image[TOMPION_PRIV_LAST_WORD(tompion_lttng_size)] = 0;                    \
        /* One expression: the values' temporaries live until all is recorded. */ \
        (void)(TOMPION_LTTNG_EACH(PUT, fields)                                                        \
                   tompion_priv_append(&tompion_lttng_event->site, tompion_lttng_parts.image,         \
                                       tompion_lttng_size, tompion_lttng_parts.tails,                 \
                                       tompion_lttng_tails));                                         \
        (void)tompion_lttng_to;                                                                       \
    }

/* -- An event of a class -- */

#define TOMPION_LTTNG_INSTANCE(cp, cn, p, n) TOMPION_LTTNG_INSTANCE_OF(cp, cn, p, n)
#define TOMPION_LTTNG_INSTANCE_OF(cp, cn, p, n)                                                       \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_lttng_instance_head head;                                                      \
        char provider[sizeof(#p)], name[sizeof(#n)], class_provider[sizeof(#cp)],                     \
            class_name[sizeof(#cn)];                                                                  \
    } tompion_lttng_instance_##p##___##n TOMPION_LTTNG_KEEP TOMPION_LTTNG_SECTION("tompion_events") = \
        {{TOMPION_LTTNG_INSTANCE_MAGIC, sizeof(tompion_lttng_instance_##p##___##n), sizeof(#p),       \
          sizeof(#n), sizeof(#cp), sizeof(#cn)},                                                      \
         #p,                                                                                          \
         #n,                                                                                          \
         #cp,                                                                                         \
         #cn};                                                                                        \
    static struct tompion_provided tompion_lttng_provided_##p##___##n TOMPION_LTTNG_SECTION(          \
        "tompion_site_data") = {{0, 0, &tompion_lttng_instance_##p##___##n,                           \
                                 tompion_lttng_enums_##cp##___##cn, TOMPION_SITE_PROVIDED, 0},        \
                                &tompion_lttng_class_##cp##___##cn,                                   \
                                (void (*)(void))tompion_lttng_probe_##cp##___##cn,                    \
                                tompion_lttng_signature_##cp##___##cn,                                \
                                {0, 0}};                                                              \
    static TOMPION_LTTNG_ENTRY tompion_lttng_provided_entry_##p##___##n TOMPION_LTTNG_KEEP            \
        TOMPION_LTTNG_SECTION("tompion_sites") = &tompion_lttng_provided_##p##___##n.site;

/* -- What is said of an event besides: it may stand anywhere behind it -- */

#define TOMPION_LTTNG_ATTRIBUTE(key, p, n, number, text) \
    TOMPION_LTTNG_ATTRIBUTE_OF(key, p, n, number, text)
#define TOMPION_LTTNG_ATTRIBUTE_OF(key, p, n, number, text)                                           \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_lttng_attribute_head head;                                                     \
        char provider[sizeof(#p)], name[sizeof(#n)], value[sizeof(text)];                             \
    } tompion_lttng_##key##_##p##___##n TOMPION_LTTNG_KEEP TOMPION_LTTNG_SECTION("tompion_events") =  \
        {{TOMPION_LTTNG_ATTRIBUTE_MAGIC, sizeof(tompion_lttng_##key##_##p##___##n),                   \
          tompion_lttng_attribute_##key, sizeof(#p), sizeof(#n), sizeof(text), (int32_t)(number)},    \
         #p,                                                                                          \
         #n,                                                                                          \
         text};                                                                                       \
    static struct tompion_site tompion_lttng_##key##_site_##p##___##n TOMPION_LTTNG_SECTION(          \
        "tompion_site_data") = {0, 0, &tompion_lttng_##key##_##p##___##n, 0, TOMPION_SITE_ATTRIBUTE,  \
                                0};                                                                   \
    static TOMPION_LTTNG_ENTRY tompion_lttng_##key##_entry_##p##___##n TOMPION_LTTNG_KEEP             \
        TOMPION_LTTNG_SECTION("tompion_sites") = &tompion_lttng_##key##_site_##p##___##n;

/* -- Enumerations -- */

#define TOMPION_LTTNG_LABELS(p, n, values) TOMPION_LTTNG_LABELS_OF(p, n, values)
#define TOMPION_LTTNG_LABELS_OF(p, n, values)                                                         \
    static const struct TOMPION_PRIV_PACKED {                                                         \
        struct tompion_priv_enum_head head;                                                           \
        char name[sizeof(#p "_" #n)];                                                                 \
        TOMPION_LTTNG_EACH(LABEL_MEMBER, values)                                                      \
    } tompion_lttng_labels_##p##___##n __attribute__((__unused__, __aligned__(8))) = {                \
        {TOMPION_LTTNG_ENUM_MAGIC, sizeof(tompion_lttng_labels_##p##___##n), 1,                       \
         0 TOMPION_LTTNG_EACH(LABEL, values), sizeof(#p "_" #n)},                                       \
        #p "_" #n,                                                                                    \
        TOMPION_LTTNG_EACH(LABEL_INIT, values)};

#endif /* TOMPION_LTTNG_PROVIDER_H */

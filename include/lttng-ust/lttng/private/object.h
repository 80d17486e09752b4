/*
 * What tracepoints and the events of providers are in the program.
 *
 * Part of <lttng/tracepoint.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_LTTNG_OBJECT_H
#define TOMPION_LTTNG_OBJECT_H

#pragma GCC system_header

#ifdef __cplusplus
extern "C++" {
#include <tompion/private/field.h>
}
#else
#include <tompion/private/event_c.h>
#endif

/*
 * TOMPION_LTTNG_ENTER(site) puts a site into the section where the library looks, wherever the code
 * around it ends up. C++ code may be a template or an inline function. g++ puts variables of those
 * into no section of ours; there the assembler does it.
 */
#ifdef __cplusplus
#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define TOMPION_LTTNG_KEEP __attribute__((__used__, __retain__))
#define TOMPION_LTTNG_KEEP_FLAG "R"
#endif
#endif
#ifndef TOMPION_LTTNG_KEEP
#define TOMPION_LTTNG_KEEP __attribute__((__used__))
#define TOMPION_LTTNG_KEEP_FLAG ""
#endif
#define TOMPION_LTTNG_SECTION(name) __attribute__((__section__(name), __aligned__(8)))
#define TOMPION_LTTNG_ENTER(site)                                                                     \
    __asm__ __volatile__(".pushsection tompion_sites, \"aw" TOMPION_LTTNG_KEEP_FLAG "\", %%progbits\n\t" \
                         ".balign 8\n\t"                                                              \
                         ".dc.a %c0\n\t"                                                              \
                         ".popsection"                                                                \
                         :                                                                            \
                         : "i"(&site))
#define TOMPION_LTTNG_ENTRY struct tompion_site *
#else
#define TOMPION_LTTNG_KEEP TOMPION_PRIV_KEEP
#define TOMPION_LTTNG_SECTION TOMPION_PRIV_SECTION
#define TOMPION_LTTNG_ENTER(site)                                                                     \
    TOMPION_PRIV_QUIETLY                                                                              \
    static struct tompion_site *const tompion_lttng_entry TOMPION_LTTNG_KEEP                          \
        TOMPION_LTTNG_SECTION("tompion_sites") = &site;                                               \
    TOMPION_PRIV_AS_BEFORE
#define TOMPION_LTTNG_ENTRY struct tompion_site *const
#endif

/* What descriptions begin with. */
#define TOMPION_LTTNG_NAME_MAGIC 0x314e5054u      /* "TPN1": a tracepoint's name */
#define TOMPION_LTTNG_CLASS_MAGIC 0x31434554u     /* "TEC1": fields that several events share */
#define TOMPION_LTTNG_INSTANCE_MAGIC 0x31494554u  /* "TEI1": an event of a class */
#define TOMPION_LTTNG_ATTRIBUTE_MAGIC 0x31414554u /* "TEA1": what is said of an event elsewhere */
#define TOMPION_LTTNG_ENUM_MAGIC 0x314c4554u      /* "TEL1": an enumeration; labels have flags */

/* What an attribute says. */
enum { tompion_lttng_attribute_LEVEL = 1, tompion_lttng_attribute_MODEL_URI };

struct TOMPION_PRIV_PACKED tompion_lttng_name_head {
    uint32_t magic, size;
    uint16_t provider_size, name_size;
};
struct TOMPION_PRIV_PACKED tompion_lttng_class_head {
    uint32_t magic, size;
    uint16_t fields, provider_size, name_size;
};
struct TOMPION_PRIV_PACKED tompion_lttng_instance_head {
    uint32_t magic, size;
    uint16_t provider_size, name_size, class_provider_size, class_name_size;
};
struct TOMPION_PRIV_PACKED tompion_lttng_attribute_head {
    uint32_t magic, size;
    uint16_t key, provider_size, name_size, text_size;
    int32_t number;
};
struct TOMPION_PRIV_PACKED tompion_lttng_label_head {
    int64_t low, high;
    uint16_t flags, name_size; /* flag 1: one more than the label before has at its end, or 0 */
};

#endif /* TOMPION_LTTNG_OBJECT_H */

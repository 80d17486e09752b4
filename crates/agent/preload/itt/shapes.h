/*
 * What programs that use ittnotify share with the library, and the fields that their marks have.
 */
#ifndef ITT_SHAPES_H
#define ITT_SHAPES_H

#include "../marks/flow.h"
#include "../marks/named.h"

/* -- What programs and the library share -- */

struct itt_domain {
    volatile int flags; /* 0: the program does not call */
    const char *name;
    void *wide_name;
    int extra1;
    void *extra2; /* the runtime's: the text of the name */
    struct itt_domain *next;
};
struct itt_string {
    const char *text;
    void *wide_text;
    int extra1;
    void *extra2;
    struct itt_string *next;
};
struct itt_id {
    unsigned long long d1, d2, d3;
};
struct itt_function {
    const char *name;
    void **pointer;
    void *initial;
    void *absent; /* what the program calls where there is none */
    int groups;
};
struct itt_global {
    unsigned char magic[8];
    unsigned long major, minor, build;
    volatile long state[3];
    pthread_mutex_t mutex;
    void *library, *error_handler;
    const char **library_path;
    struct itt_function *functions;
};

/* The first build in which a function of the list has five members. */
enum { FIRST_BUILD = 20111111 };

static const unsigned char itt_magic[8] = {0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30};

/* Values of metadata and counters. */
enum { ITT_UNKNOWN, ITT_U64, ITT_S64, ITT_U32, ITT_S32, ITT_U16, ITT_S16, ITT_FLOAT, ITT_DOUBLE };

/* -- Shapes -- */

#define IDS {"id", tompion_priv_code_x64}, {"id_extra", tompion_priv_code_u64}
#define PARENTS {"parent", tompion_priv_code_x64}, {"parent_extra", tompion_priv_code_u64}
#define FIELDS(of) of, sizeof(of) / sizeof *(of)

static const struct shape_field id_fields[] = {IDS, PARENTS};
static const struct shape_field function_fields[] = {{"function", tompion_priv_code_x64}, IDS, PARENTS};
static const struct shape_field flow_fields[] = {
    {"id", tompion_priv_code_x64}, STEP_FIELD, {"id_extra", tompion_priv_code_u64}, PARENTS};
enum { FLOW_FIELDS_WITHOUT_PARENT = 3 };
static const struct shape_field text_fields[] = {{"text", tompion_priv_code_str}};
static const struct shape_field marker_fields[] = {IDS, {"scope", tompion_priv_code_enum_u8}};
static const struct shape_field metadata_text_fields[] = {IDS, {"value", tompion_priv_code_strn}};
static const struct shape_field metadata_u64_fields[] = {IDS, {"value", tompion_priv_code_u64}};
static const struct shape_field metadata_i64_fields[] = {IDS, {"value", tompion_priv_code_i64}};
static const struct shape_field metadata_f64_fields[] = {IDS, {"value", tompion_priv_code_f64}};
#define SEQUENCE_OF(code) {"value", tompion_priv_code_sequence | (code) << 16}
static const struct shape_field metadata_sequences[][3] = {{IDS, SEQUENCE_OF(tompion_priv_code_u64)},
                                                           {IDS, SEQUENCE_OF(tompion_priv_code_i64)},
                                                           {IDS, SEQUENCE_OF(tompion_priv_code_u32)},
                                                           {IDS, SEQUENCE_OF(tompion_priv_code_i32)},
                                                           {IDS, SEQUENCE_OF(tompion_priv_code_u16)},
                                                           {IDS, SEQUENCE_OF(tompion_priv_code_i16)}};
static const struct shape_field u64_fields[] = {{"value", tompion_priv_code_u64}};
static const struct shape_field i64_fields[] = {{"value", tompion_priv_code_i64}};
static const struct shape_field f64_fields[] = {{"value", tompion_priv_code_f64}};
static const struct shape_field submitted_fields[] = {
    IDS, {"begin_ns", tompion_priv_code_u64}, {"end_ns", tompion_priv_code_u64}};

static const struct TOMPION_PRIV_PACKED {
    struct tompion_priv_enum_head head;
    char name[6];
    struct tompion_priv_label_head global_head;
    char global[7];
    struct tompion_priv_label_head process_head;
    char process[8];
    struct tompion_priv_label_head thread_head;
    char thread[7];
    struct tompion_priv_label_head task_head;
    char task[5];
} scope_labels = {{TOMPION_PRIV_ENUM_MAGIC, sizeof scope_labels, 1, 4, 6},
                  "scope", {1, 1, 7}, "global", {2, 2, 8}, "process", {3, 3, 7}, "thread", {4, 4, 5}, "task"};
static const void *const scope_enums[] = {&scope_labels, NULL};

static const struct shape task_shape = {tompion_priv_kind_BEGIN, 0, NULL, 0, NULL};
static const struct shape task_id_shape = {tompion_priv_kind_BEGIN, 0, FIELDS(id_fields), NULL};
static const struct shape function_shape = {tompion_priv_kind_BEGIN, 0, FIELDS(function_fields), NULL};
static const struct shape flow_shape = {tompion_priv_kind_FLOW, 0, flow_fields, FLOW_FIELDS_WITHOUT_PARENT, step_enums};
static const struct shape child_flow_shape = {tompion_priv_kind_FLOW, 0, FIELDS(flow_fields), step_enums};
static const struct shape marker_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(marker_fields), scope_enums};
static const struct shape text_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(text_fields), NULL};
static const struct shape instant_shape = {tompion_priv_kind_INSTANT, 0, NULL, 0, NULL};
static const struct shape submitted_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(submitted_fields), NULL};
static const struct shape metadata_text_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(metadata_text_fields), NULL};
static const struct shape metadata_u64_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(metadata_u64_fields), NULL};
static const struct shape metadata_i64_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(metadata_i64_fields), NULL};
static const struct shape metadata_f64_shape = {tompion_priv_kind_INSTANT, 0, FIELDS(metadata_f64_fields), NULL};
static const struct shape metadata_sequence_shapes[] = {
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[0], 3, NULL},
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[1], 3, NULL},
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[2], 3, NULL},
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[3], 3, NULL},
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[4], 3, NULL},
    {tompion_priv_kind_INSTANT, 0, metadata_sequences[5], 3, NULL},
};
static const struct shape u64_counter_shape = {tompion_priv_kind_COUNTER, 0, FIELDS(u64_fields), NULL};
static const struct shape i64_counter_shape = {tompion_priv_kind_COUNTER, 0, FIELDS(i64_fields), NULL};
static const struct shape f64_counter_shape = {tompion_priv_kind_COUNTER, 0, FIELDS(f64_fields), NULL};

#endif

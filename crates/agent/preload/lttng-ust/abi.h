/*
 * What programs that were compiled for LTTng-UST 2.13 and later share with its libraries. Source:
 * the interface of lttng-ust 2.13 to 2.16, <lttng/ust-events.h> and <lttng/tracepoint-types.h>.
 *
 * Structures begin with their size, as the program was compiled with it. Members up to `reserved`
 * or the end are those that 2.13 has; nothing behind is read.
 */
#ifndef LTTNG_UST_ABI_H
#define LTTNG_UST_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Providers' versions that have these structures. */
enum { PROVIDER_MAJOR_FIRST = 3, PROVIDER_MAJOR_LAST = 4 };

/* -- Tracepoints -- */

struct lttng_probe {
    void (*func)(void);
    void *data;
};
struct lttng_tracepoint {
    uint32_t struct_size;
    const char *provider_name;
    const char *event_name;
    int state;
    struct lttng_probe *probes; /* ends with a null function */
    int *provider_ref;
    const char *signature;
};

/* -- Descriptions -- */

enum lttng_type_kind {
    LTTNG_INTEGER,
    LTTNG_STRING,
    LTTNG_FLOAT,
    LTTNG_DYNAMIC,
    LTTNG_ENUM,
    LTTNG_ARRAY,
    LTTNG_SEQUENCE,
    LTTNG_STRUCT
};
struct lttng_type {
    enum lttng_type_kind kind;
    uint32_t struct_size;
};
struct lttng_integer {
    struct lttng_type parent;
    unsigned size; /* in bits */
    unsigned short alignment;
    unsigned is_signed : 1, is_reversed : 1;
    unsigned base;
};
struct lttng_float {
    struct lttng_type parent;
    unsigned exponent, mantissa; /* in bits */
    unsigned short alignment;
    unsigned is_reversed : 1;
};
struct lttng_label_value {
    unsigned long long value;
    unsigned is_signed : 1;
};
struct lttng_label {
    uint32_t struct_size;
    struct lttng_label_value start, end;
    const char *text;
    unsigned options; /* 1: counts on from the label before */
};
struct lttng_labels {
    uint32_t struct_size;
    const char *name;
    const struct lttng_label *const *entries;
    unsigned count;
    const void *probe_desc;
};
struct lttng_enum {
    struct lttng_type parent;
    const struct lttng_labels *labels;
    const struct lttng_type *container;
};
struct lttng_array {
    struct lttng_type parent;
    const struct lttng_type *element;
    unsigned length, alignment;
    int encoding; /* not 0: text */
};
struct lttng_sequence {
    struct lttng_type parent;
    const char *length_name; /* NULL: the field before */
    const struct lttng_type *element;
    unsigned alignment;
    int encoding;
};
struct lttng_field {
    uint32_t struct_size;
    const char *name;
    const struct lttng_type *type;
    unsigned is_not_written : 1, is_not_filtered : 1;
};
struct lttng_class {
    uint32_t struct_size;
    const struct lttng_field *const *fields;
    size_t field_count;
    void (*probe)(void);
    const char *signature;
    const void *probe_desc;
};
struct lttng_event {
    uint32_t struct_size;
    const char *name;
    const void *probe_desc;
    const struct lttng_class *tp_class;
    const int **level;
    const char **model_uri;
};
struct lttng_provider {
    uint32_t struct_size;
    const char *name;
    const struct lttng_event *const *events;
    unsigned event_count;
    uint32_t major, minor;
};

/* -- What a probe uses when an event happens -- */

struct lttng_context {
    uint32_t struct_size;
    struct lttng_recorder *recorder;
    size_t data_size;
    int largest_alignment;
    void *probe_context;
    void *private_; /* set by `reserve` */
};
struct lttng_operations {
    uint32_t struct_size;
    void *private_;
    int (*reserve)(struct lttng_context *);
    void (*commit)(struct lttng_context *);
    void (*write)(struct lttng_context *, const void *source, size_t size, size_t alignment);
    void (*copy_string)(struct lttng_context *, const char *source, size_t size);
    void (*copy_padded)(struct lttng_context *, const char *source, size_t size);
};
struct lttng_session {
    uint32_t struct_size;
    void *private_;
    int active;
};
struct lttng_channel_common {
    uint32_t struct_size;
    void *private_;
    int type;
    void *child;
    int enabled;
    struct lttng_session *session;
};
struct lttng_channel {
    uint32_t struct_size;
    struct lttng_channel_common *parent;
    void *private_;
    struct lttng_operations *operations;
};
struct lttng_common {
    uint32_t struct_size;
    void *private_;
    int type; /* 0: records */
    void *child;
    int enabled;
    int has_filter;
    int (*run_filter)(const struct lttng_common *, const char *, void *, void *);
};
struct lttng_recorder {
    uint32_t struct_size;
    struct lttng_common *parent;
    void *private_;
    struct lttng_channel *channel;
};

#endif

/*
 * Providers' descriptions, as LTTng-UST has them, become Tompion's; and the steps by which the
 * writes of a probe become a record.
 */
#ifndef LTTNG_UST_DESCRIBE_H
#define LTTNG_UST_DESCRIBE_H

#include <tompion/tompion.h>

#include <lttng/private/object.h>
#include "../arena.h"
#include "abi.h"

/* What becomes of the next write of a probe. */
enum step_kind {
    STEP_VALUE,      /* goes into the fixed part, `size` bytes */
    STEP_STRING,     /* text with a NUL: its length, and a tail */
    STEP_ARRAY,      /* a tail */
    STEP_TEXT,       /* a text up to its NUL, in so many bytes: its length, and a tail */
    STEP_LENGTH,     /* of the sequence that follows: `size` bytes wide */
    STEP_TEXT_LENGTH /* the same, which is a field by itself */
};
struct step {
    enum step_kind kind;
    uint32_t size;  /* of a value; of an element for STEP_ARRAY */
    uint32_t count; /* elements of an array; 0 for those of a sequence */
};

/* Events have this many fields at most, as Tompion's. */
enum { MAX_FIELDS = 1024 };

/* An event that is described. */
struct described {
    const void *class_description, *instance;
    const void **labels; /* ends with NULL */
    struct step *steps;
    uint32_t step_count, image_size, tail_count;
};

/* A class in the making. */
struct making {
    struct bytes class_bytes;
    const void *labels[MAX_FIELDS + 1];
    unsigned label_count;
    struct step steps[MAX_FIELDS];
    uint32_t step_count, image_size, tail_count, field_count;
    const char *problem; /* why the event can't be recorded */
};

static void add_step(struct making *to, enum step_kind kind, uint32_t size)
{
    const struct step step = {kind, size, 0};
    if (to->step_count == MAX_FIELDS) {
        to->problem = "too many fields";
        return;
    }
    to->steps[to->step_count++] = step;
    to->image_size += kind == STEP_VALUE ? size : kind == STEP_ARRAY ? 0 : 4;
    to->tail_count += kind == STEP_STRING || kind == STEP_ARRAY || kind == STEP_TEXT;
}

static void add_field(struct making *to, const char *name, int code, uint32_t count, int element)
{
    const struct tompion_priv_field_head head = {(uint16_t)(sizeof head + strlen(name) + 1),
                                                 (uint8_t)code,
                                                 (uint8_t)element,
                                                 count,
                                                 (uint16_t)((code | element) >> 8 & 255),
                                                 (uint16_t)(strlen(name) + 1)};
    append(&to->class_bytes, &head, sizeof head);
    append_name(&to->class_bytes, name);
    ++to->field_count;
}

/* The code of an integer type, with its byte order; 0 if there is none. */
static int integer_code(const struct lttng_type *type)
{
    const struct lttng_integer *integer = (const struct lttng_integer *)type;
    int code;
    if (!type || type->kind != LTTNG_INTEGER || type->struct_size < sizeof *integer)
        return 0;
    code = integer->base == 16 ? tompion_priv_code_x8
           : integer->is_signed ? tompion_priv_code_i8
                                : tompion_priv_code_u8;
    switch (integer->size) {
    case 8: return code;
    case 16: code += 1; break;
    case 32: code += 2; break;
    case 64: code += 3; break;
    default: return 0;
    }
    return integer->is_reversed ? code | TOMPION_PRIV_NETWORK : code;
}

static uint32_t integer_size(const struct lttng_type *type)
{
    return ((const struct lttng_integer *)type)->size / 8;
}

static const void *describe_labels(const struct lttng_labels *of)
{
    struct tompion_priv_enum_head head = {TOMPION_LTTNG_ENUM_MAGIC, 0, 1, 0, 0};
    struct bytes bytes = {0};
    unsigned i;
    if (!of || of->struct_size < sizeof *of || !of->name || of->count > UINT16_MAX)
        return NULL;
    head.labels = (uint16_t)of->count;
    head.name_size = (uint16_t)(strlen(of->name) + 1);
    append(&bytes, &head, sizeof head);
    append_name(&bytes, of->name);
    for (i = 0; i < of->count; ++i) {
        const struct lttng_label *label = of->entries[i];
        struct tompion_lttng_label_head label_head = {0};
        if (!label || label->struct_size < sizeof *label || !label->text)
            return NULL;
        label_head.low = (int64_t)label->start.value;
        label_head.high = (int64_t)label->end.value;
        label_head.flags = label->options & 1;
        label_head.name_size = (uint16_t)(strlen(label->text) + 1);
        append(&bytes, &label_head, sizeof label_head);
        append_name(&bytes, label->text);
    }
    set_size(&bytes, 0);
    return bytes.failed ? NULL : bytes.at;
}

static void add_enum(struct making *to, const struct lttng_field *field)
{
    const struct lttng_enum *type = (const struct lttng_enum *)field->type;
    const int is_sound = type->parent.struct_size >= sizeof *type;
    const int code = is_sound ? integer_code(type->container) : 0;
    const void *labels = code ? describe_labels(type->labels) : NULL;
    if (!code || !labels) {
        to->problem = "an enumeration that is not understood";
        return;
    }
    to->labels[to->label_count++] = labels;
    /* The integer's code stands where an element's does. */
    add_field(to, field->name, tompion_priv_code_enum, 0, code);
    add_step(to, STEP_VALUE, integer_size(type->container));
}

static void add_array(struct making *to, const struct lttng_field *field)
{
    const struct lttng_array *type = (const struct lttng_array *)field->type;
    const int element = integer_code(type->element);
    if (type->parent.struct_size < sizeof *type || !element || !type->length) {
        to->problem = "an array that is not understood";
    } else if (type->encoding && integer_size(type->element) == 1) {
        add_field(to, field->name, tompion_priv_code_strn, 0, 0);
        add_step(to, STEP_TEXT, 1);
    } else {
        add_field(to, field->name, tompion_priv_code_array, type->length, element);
        add_step(to, STEP_ARRAY, integer_size(type->element));
        if (!to->problem)
            to->steps[to->step_count - 1].count = type->length;
    }
}

/* A sequence, with the field of its length. */
static void add_sequence(struct making *to, const struct lttng_field *length,
                         const struct lttng_field *field)
{
    const struct lttng_sequence *type = (const struct lttng_sequence *)field->type;
    const int element = integer_code(type->element);
    if (type->parent.struct_size < sizeof *type || !element || !integer_code(length->type)) {
        to->problem = "a sequence that is not understood";
    } else if (type->encoding && integer_size(type->element) == 1) {
        add_field(to, length->name, tompion_priv_code_u32, 0, 0);
        add_step(to, STEP_TEXT_LENGTH, integer_size(length->type));
        add_field(to, field->name, tompion_priv_code_strn, 0, 0);
        add_step(to, STEP_TEXT, 1);
    } else {
        add_field(to, field->name, tompion_priv_code_sequence, 0, element);
        add_step(to, STEP_LENGTH, integer_size(length->type));
        add_step(to, STEP_ARRAY, integer_size(type->element));
    }
}

static void add_scalar(struct making *to, const struct lttng_field *field)
{
    const struct lttng_float *floating = (const struct lttng_float *)field->type;
    const int code = integer_code(field->type);
    switch (field->type->kind) {
    case LTTNG_INTEGER:
        if (!code)
            to->problem = "an integer of an unknown size";
        add_field(to, field->name, code, 0, 0);
        add_step(to, STEP_VALUE, integer_size(field->type));
        break;
    case LTTNG_FLOAT:
        if (field->type->struct_size < sizeof *floating) {
            to->problem = "a floating-point number that is not understood";
        } else if (floating->exponent + floating->mantissa == 32) {
            add_field(to, field->name, tompion_priv_code_f32, 0, 0);
            add_step(to, STEP_VALUE, 4);
        } else if (floating->exponent + floating->mantissa == 64) {
            add_field(to, field->name, tompion_priv_code_f64, 0, 0);
            add_step(to, STEP_VALUE, 8);
        } else {
            to->problem = "a floating-point number of an unknown size";
        }
        break;
    case LTTNG_STRING:
        add_field(to, field->name, tompion_priv_code_str, 0, 0);
        add_step(to, STEP_STRING, 1);
        break;
    default:
        to->problem = "a type that is not known";
    }
}

static int is_sound(const struct lttng_field *field)
{
    return field && field->struct_size >= sizeof *field && field->name && field->type;
}

static void add_fields(struct making *to, const struct lttng_class *of)
{
    size_t i;
    for (i = 0; i < of->field_count && !to->problem; ++i) {
        const struct lttng_field *field = of->fields[i];
        const struct lttng_field *next = i + 1 < of->field_count ? of->fields[i + 1] : NULL;
        if (!is_sound(field)) {
            to->problem = "a field without name or type";
        } else if (next && is_sound(next) && next->type->kind == LTTNG_SEQUENCE) {
            if (!next->is_not_written)
                add_sequence(to, field, next);
            ++i;
        } else if (field->is_not_written) {
            continue;
        } else if (field->type->kind == LTTNG_ENUM) {
            add_enum(to, field);
        } else if (field->type->kind == LTTNG_ARRAY) {
            add_array(to, field);
        } else {
            add_scalar(to, field);
        }
    }
}

static const void *instance_of(const char *provider, const char *name)
{
    const struct tompion_lttng_instance_head head = {
        TOMPION_LTTNG_INSTANCE_MAGIC,     0, (uint16_t)(strlen(provider) + 1), (uint16_t)(strlen(name) + 1),
        (uint16_t)(strlen(provider) + 1), (uint16_t)(strlen(name) + 1)};
    struct bytes bytes = {0};
    append(&bytes, &head, sizeof head);
    append_name(&bytes, provider);
    append_name(&bytes, name);
    append_name(&bytes, provider);
    append_name(&bytes, name);
    set_size(&bytes, 0);
    return bytes.failed ? NULL : bytes.at;
}

/* Describes an event. Returns why that is not possible, or NULL. */
static const char *describe(const char *provider, const struct lttng_event *event, struct described *to)
{
    /* Large, and only one at a time: under the lock. */
    static struct making making;
    struct tompion_lttng_class_head head = {TOMPION_LTTNG_CLASS_MAGIC, 0, 0,
                                            (uint16_t)(strlen(provider) + 1),
                                            (uint16_t)(strlen(event->name) + 1)};
    memset(&making.class_bytes, 0, sizeof making.class_bytes);
    making.label_count = making.step_count = making.image_size = making.tail_count = making.field_count = 0;
    making.problem = NULL;
    append(&making.class_bytes, &head, sizeof head);
    append_name(&making.class_bytes, provider);
    append_name(&making.class_bytes, event->name);
    add_fields(&making, event->tp_class);
    if (making.problem)
        return making.problem;
    head.fields = (uint16_t)making.field_count;
    to->instance = instance_of(provider, event->name);
    to->steps = take(sizeof(struct step) * (making.step_count + 1));
    to->labels = take(sizeof(void *) * (making.label_count + 1));
    if (making.class_bytes.failed || !to->instance || !to->steps || !to->labels)
        return "no memory";
    memcpy(making.class_bytes.at, &head, sizeof head);
    set_size(&making.class_bytes, 0);
    memcpy(to->steps, making.steps, sizeof(struct step) * making.step_count);
    memcpy(to->labels, making.labels, sizeof(void *) * making.label_count);
    to->class_description = making.class_bytes.at;
    to->step_count = making.step_count;
    to->image_size = making.image_size;
    to->tail_count = making.tail_count;
    return NULL;
}

#endif

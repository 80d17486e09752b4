/*
 * Values of Python as the bytes of a record.
 *
 * Integers are converted as by a C cast where a field's type was declared, so that they behave as
 * in <tompion/tompion.h>. A value that has no form in its field keeps the event from being
 * recorded; that is counted, and no exception reaches the program.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

static unsigned long long refused;
static char first_refusal[256];

bool note_refusal(const char *reason)
{
    if (refused++ == 0)
        PyOS_snprintf(first_refusal, sizeof first_refusal, "%s", reason);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return false;
    PyErr_Clear();
    return true;
}

PyObject *refusals(void)
{
    /* The reason may have been cut within a letter. */
    PyObject *reason = PyUnicode_DecodeUTF8(first_refusal, (Py_ssize_t)strlen(first_refusal), "replace");
    return reason ? Py_BuildValue("(KN)", refused, reason) : NULL;
}

/* ---- Fixed parts ---- */

static inline void put(struct record *record, const void *bytes, size_t size)
{
    memcpy((char *)record->image + record->size, bytes, size);
    record->size += size;
}

/* Size of an integer type: 8, 16, 32, 64 bits in each family of four. */
static inline size_t integer_size(uint8_t code)
{
    return (size_t)1 << ((code - CODE_I8) & 3);
}

/* The lowest bytes of a number in the field's size. Little-endian, as the library is. */
static inline void put_bits(struct record *record, uint8_t code, uint64_t bits)
{
    put(record, &bits, integer_size(code));
}

/* The bits of an int that 64 bits can hold: signed ones, unsigned ones, or either in hexadecimal.
 * Types that were not declared have no smaller integers. False with an exception. */
static bool exact_bits_of(PyObject *number, uint8_t code, uint64_t *bits)
{
    int overflow = 0;
    long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
    bool is_signed = code <= CODE_I64, is_hexadecimal = code > CODE_U64;
    *bits = (uint64_t)small;
    if (overflow > 0 && !is_signed)
        *bits = PyLong_AsUnsignedLongLong(number);
    else if (overflow || (small < 0 && !is_signed && !is_hexadecimal))
        PyErr_SetString(PyExc_OverflowError, small < 0 && !overflow ? "below 0" : "beyond 64 bits");
    return !PyErr_Occurred();
}

/* An int as 64 bits: of declared types cut as by a cast, else refused if it is another one then.
 * False with an exception. */
static bool bits_of(const struct record *record, PyObject *value, uint8_t code, uint64_t *bits)
{
    PyObject *index = PyNumber_Index(value);
    bool is_good = index;
    if (index && record->is_exact) {
        is_good = exact_bits_of(index, code, bits);
    } else if (index) {
        *bits = PyLong_AsUnsignedLongLongMask(index);
        is_good = *bits != (uint64_t)-1 || !PyErr_Occurred();
    }
    Py_XDECREF(index);
    return is_good;
}

/* i64: without a cut, so that a number is never another one in the trace. */
static inline bool put_i64(struct record *record, PyObject *value)
{
    int overflow = 0;
    long long number;
    if (!PyLong_CheckExact(value)) {
        PyObject *index = PyNumber_Index(value);
        if (!index)
            return false;
        number = PyLong_AsLongLongAndOverflow(index, &overflow);
        Py_DECREF(index);
    } else {
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
    }
    if (overflow) {
        PyErr_SetString(PyExc_OverflowError, "beyond 64 bits");
        return false;
    }
    put(record, &number, sizeof number);
    return true;
}

static bool put_float(struct record *record, uint8_t code, PyObject *value)
{
    double number = PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred())
        return false;
    if (code == CODE_F32) {
        float small = (float)number;
        put(record, &small, sizeof small);
    } else {
        put(record, &number, sizeof number);
    }
    return true;
}

/* ---- Tails ---- */

static struct held *hold(struct record *record, int kind)
{
    struct held *held = &record->held[record->held_count++];
    held->kind = kind;
    return held;
}

static inline void put_tail(struct record *record, const void *data, size_t size)
{
    record->tails[record->tail_count++] = (struct tompion_tail){data, size};
}

/* Text up to its NUL, as UTF-8. Anything but text is taken as str() shows it. */
static const char *text_of(struct record *record, PyObject *value, size_t *size)
{
    Py_ssize_t length;
    if (!PyUnicode_Check(value)) {
        value = PyObject_Str(value);
        if (!value)
            return NULL;
        hold(record, HELD_OBJECT)->object = value;
    }
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (!text) {
        /* Surrogates without a partner: names of files that are no text. */
        PyErr_Clear();
        PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
        if (!bytes)
            return NULL;
        hold(record, HELD_OBJECT)->object = bytes;
        text = PyBytes_AS_STRING(bytes);
        length = PyBytes_GET_SIZE(bytes);
    }
    *size = strnlen(text, (size_t)length);
    return text;
}

static bool put_text(struct record *record, PyObject *value)
{
    size_t size;
    const char *text = text_of(record, value, &size);
    if (!text)
        return false;
    uint32_t length = (uint32_t)size;
    put(record, &length, sizeof length);
    put_tail(record, text, size);
    return true;
}

/* Memory of an object that has some, in one piece. Null with an exception. */
static const Py_buffer *buffer_of(struct record *record, PyObject *value)
{
    struct held *held = &record->held[record->held_count];
    if (PyObject_GetBuffer(value, &held->buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0)
        return NULL;
    held->kind = HELD_BUFFER;
    record->held_count++;
    return &held->buffer;
}

static bool put_bytes(struct record *record, PyObject *value)
{
    if (PyBytes_CheckExact(value)) {
        uint32_t length = (uint32_t)PyBytes_GET_SIZE(value);
        put(record, &length, sizeof length);
        put_tail(record, PyBytes_AS_STRING(value), length);
        return true;
    }
    const Py_buffer *buffer = buffer_of(record, value);
    if (!buffer)
        return false;
    uint32_t length = (uint32_t)buffer->len;
    put(record, &length, sizeof length);
    put_tail(record, buffer->buf, (size_t)buffer->len);
    return true;
}

/* Whether a buffer's items are integers of the machine in this size. */
static bool has_integers(const Py_buffer *buffer, size_t size)
{
    const char *format = buffer->format ? buffer->format : "B";
    format += *format == '@' || *format == '=' || *format == '<';
    return (size_t)buffer->itemsize == size && strchr("bBhHiIlLqQcnN", *format) && !format[1];
}

/* Integers of a list, a tuple, or anything that has integers in order. Null with an exception. */
static const char *integers_of(struct record *record, PyObject *value, uint8_t element, size_t *count)
{
    size_t size = integer_size(element);
    if (PyObject_CheckBuffer(value)) {
        const Py_buffer *buffer = buffer_of(record, value);
        if (!buffer)
            return NULL;
        if (has_integers(buffer, size)) {
            *count = (size_t)buffer->len / size;
            return buffer->buf;
        }
    }
    /* A copy: an item's __index__ could change a list. */
    PyObject *items = PySequence_Tuple(value);
    if (!items)
        return NULL;
    *count = (size_t)PyTuple_GET_SIZE(items);
    char *memory = malloc(*count * size + 8);
    bool is_good = memory;
    for (size_t i = 0; is_good && i < *count; i++) {
        uint64_t bits;
        is_good = bits_of(record, PyTuple_GET_ITEM(items, (Py_ssize_t)i), element, &bits);
        if (is_good)
            memcpy(memory + i * size, &bits, size);
    }
    Py_DECREF(items);
    if (!is_good) {
        free(memory);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    /* At the place of a buffer that had other items, or at a new one. */
    hold(record, HELD_MEMORY)->memory = memory;
    return memory;
}

static bool put_sequence(struct record *record, const struct field *field, PyObject *value)
{
    size_t count;
    bool is_text = field->flags & FIELD_TEXT && PyUnicode_Check(value);
    const char *data = is_text ? text_of(record, value, &count) : integers_of(record, value, field->element, &count);
    if (!data)
        return false;
    uint32_t length = (uint32_t)count;
    put(record, &length, sizeof length);
    put_tail(record, data, is_text ? count : count * integer_size(field->element));
    return true;
}

/* An array has as many elements as its type says: what is missing is 0, the rest is left out. */
static bool put_array(struct record *record, const struct field *field, PyObject *value)
{
    size_t count, size = integer_size(field->element), whole = field->count * size;
    bool is_text = field->flags & FIELD_TEXT && PyUnicode_Check(value);
    const char *data = is_text ? text_of(record, value, &count) : integers_of(record, value, field->element, &count);
    if (!data)
        return false;
    if (count * size < whole) {
        char *padded = calloc(1, whole);
        if (!padded) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(padded, data, count * size);
        hold(record, HELD_MEMORY)->memory = padded;
        data = padded;
    }
    put_tail(record, data, whole);
    return true;
}

/* ---- Fields ---- */

/* The number of a member of an Enum, or of an int. */
static bool put_enum(struct record *record, const struct field *field, PyObject *value)
{
    uint8_t code = field->element ? field->element : CODE_I64;
    uint64_t bits;
    bool is_good;
    if (PyLong_Check(value)) {
        is_good = bits_of(record, value, code, &bits);
    } else {
        PyObject *number = PyObject_GetAttrString(value, "value");
        is_good = number && bits_of(record, number, code, &bits);
        Py_XDECREF(number);
    }
    if (is_good)
        put_bits(record, code, bits);
    return is_good;
}

static bool put_field(struct record *record, const struct field *field, PyObject *value);

/* A structure's members: values of a tuple or list, in order. Returns the field behind them. */
static const struct field *put_struct(struct record *record, const struct field *field, PyObject *value)
{
    PyObject *members = PySequence_Tuple(value);
    if (!members)
        return NULL;
    const struct field *member = field + 1;
    if ((uint32_t)PyTuple_GET_SIZE(members) != field->count) {
        PyErr_Format(PyExc_ValueError, "expected %u values of a structure", field->count);
        member = NULL;
    }
    for (uint32_t i = 0; member && i < field->count; i++) {
        PyObject *item = PyTuple_GET_ITEM(members, (Py_ssize_t)i);
        if (member->code == CODE_STRUCT)
            member = put_struct(record, member, item);
        else
            member = put_field(record, member, item) ? member + 1 : NULL;
    }
    /* The tails point into the items: they stay until the record is appended. */
    hold(record, HELD_OBJECT)->object = members;
    return member;
}

static bool put_field(struct record *record, const struct field *field, PyObject *value)
{
    uint64_t bits;
    switch (field->code) {
    case CODE_I64:
        if (!(field->flags & FIELD_NETWORK))
            return put_i64(record, value);
        return bits_of(record, value, field->code, &bits) && (put(record, &bits, 8), true);
    case CODE_F32:
    case CODE_F64:
        return put_float(record, field->code, value);
    case CODE_BOOL: {
        int truth = PyObject_IsTrue(value);
        uint8_t byte = truth > 0;
        put(record, &byte, 1);
        return truth >= 0;
    }
    case CODE_STR:
        return put_text(record, value);
    case CODE_BYTES:
        return put_bytes(record, value);
    case CODE_SEQUENCE:
        return put_sequence(record, field, value);
    case CODE_ARRAY:
        return put_array(record, field, value);
    case CODE_ENUM:
        return put_enum(record, field, value);
    default:
        if (!bits_of(record, value, field->code, &bits))
            return false;
        put_bits(record, field->code, bits);
        return true;
    }
}

bool record_fill(struct record *record, const struct descriptor *descriptor, PyObject *const *values)
{
    record->size = record->tail_count = record->held_count = 0;
    const struct field *field = descriptor->fields;
    for (uint32_t i = 0; i < descriptor->field_count; i++) {
        if (field->code == CODE_STRUCT)
            field = put_struct(record, field, values[i]);
        else
            field = put_field(record, field, values[i]) ? field + 1 : NULL;
        if (!field)
            return false;
    }
    /* What lies behind the last byte is 0, up to a multiple of 8. */
    memset((char *)record->image + record->size, 0, 8);
    return true;
}

void record_release(struct record *record)
{
    for (size_t i = 0; i < record->held_count; i++) {
        struct held *held = &record->held[i];
        if (held->kind == HELD_OBJECT)
            Py_DECREF(held->object);
        else if (held->kind == HELD_BUFFER)
            PyBuffer_Release(&held->buffer);
        else
            free(held->memory);
    }
}

/* ---- Appends ---- */

uint32_t record_append(const struct descriptor *descriptor, struct record *record)
{
    if (!is_enabled(descriptor))
        return 0;
    /* Pairs with the library's release store of `enabled`: its functions and the event's number are
     * there. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return descriptor->module.append_begin(&descriptor->site, record->image, record->size, record->tails,
                                           record->tail_count);
}

void record_end(const struct descriptor *descriptor, uint32_t recordings)
{
    if (!recordings || !is_enabled(descriptor))
        return;
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* as in record_append */
    descriptor->module.append_end(&descriptor->site, recordings);
}

/* Bits of a site, as docs/design/abi.md has them: recordings, those that take the event only as the
 * end of a span, and what else the library does with it. */
enum { RECORDINGS = 0xffff, END_SHIFT = 16 };
static const uint32_t CHOSEN = 1u << 29, PINNED = 1u << 30, OTHERS = 1u << 27 | 1u << 28;

void record_numbered_end(const struct descriptor *descriptor, uint32_t recordings, uint64_t number)
{
    /* Acquire: pairs with the library's release store, so that the event's number is there. */
    uint32_t enabled = __atomic_load_n(&descriptor->site.enabled, __ATOMIC_ACQUIRE);
    uint32_t takers = (enabled | enabled >> END_SHIFT) & recordings & RECORDINGS;
    uint32_t others = enabled & recordings & OTHERS;
    if (!(takers | others))
        return;
    /* A copy of which the recordings are chosen: those that have the begin. */
    struct tompion_site copy = descriptor->site;
    copy.enabled = takers | others | CHOSEN | (enabled & PINNED);
    descriptor->module.append(&copy, &number, sizeof number);
}

void record_image(const struct descriptor *descriptor, const void *image, size_t size)
{
    if (!is_enabled(descriptor))
        return;
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* as in record_append */
    descriptor->module.append(&descriptor->site, image, size);
}

/* Says which exception kept a value out. False if it has to reach the program. */
static bool refuse_value(void)
{
    char reason[256];
    PyObject *type, *error, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return note_refusal("the program was interrupted meanwhile");
    PyErr_Fetch(&type, &error, &trace);
    PyObject *text = error ? PyObject_Str(error) : NULL;
    const char *words = text ? PyUnicode_AsUTF8(text) : NULL;
    PyOS_snprintf(reason, sizeof reason, "a value has no form in its field: %.200s", words ? words : "unknown");
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    /* Of an exception of str(), which may be the program's. */
    return note_refusal(reason);
}

bool record_values(const struct descriptor *descriptor, PyObject *const *values, bool is_exact, uint32_t *recordings)
{
    struct record record;
    bool is_good = true;
    *recordings = 0;
    record.is_exact = is_exact;
    if (record_fill(&record, descriptor, values))
        *recordings = record_append(descriptor, &record);
    else
        is_good = refuse_value();
    record_release(&record);
    return is_good;
}

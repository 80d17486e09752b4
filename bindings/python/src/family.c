/*
 * Events that are described by their first use: event(), counter(), flow(), mark() and spans.
 *
 *     (kind, name, level, names of fields) ─► family ─► variant ─► variant ─► …
 *                                                       one for each combination of types
 *
 * A call finds its family by the addresses of its name and of its keywords' names, which are
 * constants of the calling code: a table of fixed size whose slots keep them alive. A call that
 * made its name finds it by value.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1024, MAX_VARIANTS = 16, MAX_FAMILIES = 8192 };

static const char TOO_MANY[] = "an event has values of more than 16 combinations of types";

struct family {
    int count;
    struct variant variants[MAX_VARIANTS];
};

struct slot {
    struct call call; /* with references of its own; name is null in a free slot */
    struct family *family;
};

static struct slot slots[SLOTS];
/* Families by (kind, name, level, names): capsules, for ever. */
static PyObject *families;
/* Makes descriptions: see tompion/_describe.py. */
static PyObject *describer;

PyObject *set_describer(PyObject *module, PyObject *function)
{
    (void)module;
    Py_INCREF(function);
    Py_XSETREF(describer, function);
    Py_RETURN_NONE;
}

static inline size_t slot_of(const struct call *call)
{
    uintptr_t hash = (uintptr_t)call->name >> 4 ^ (uintptr_t)call->names >> 5 ^ (uintptr_t)call->level >> 3;
    hash ^= (uintptr_t)call->kind * 0x9e37;
    return (hash ^ hash >> 10) % SLOTS;
}

static inline bool is_same(const struct call *one, const struct call *other)
{
    return one->name == other->name && one->names == other->names && one->level == other->level &&
           one->kind == other->kind;
}

static PyObject *or_none(PyObject *object)
{
    return object ? object : Py_None;
}

/* The family by value; made if it is new. Null with an exception, or without one if there are too
 * many. */
static struct family *family_by_value(const struct call *call)
{
    if (!PyUnicode_Check(call->name))
        return PyErr_Format(PyExc_TypeError, "expected a name like \"app:request\", found %R", call->name), NULL;
    if (!families && !(families = PyDict_New()))
        return NULL;
    PyObject *key = Py_BuildValue("(iOOO)", call->kind, call->name, or_none(call->level), or_none(call->names));
    if (!key)
        return NULL;
    PyObject *capsule = PyDict_GetItemWithError(families, key);
    struct family *family = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (!family && !PyErr_Occurred()) {
        if (PyDict_GET_SIZE(families) >= MAX_FAMILIES) {
            note_refusal("8192 events have other names: a name must not be made of values");
        } else if (!(family = calloc(1, sizeof *family))) {
            PyErr_NoMemory();
        } else if (!(capsule = PyCapsule_New(family, NULL, NULL)) || PyDict_SetItem(families, key, capsule) != 0) {
            free(family);
            family = NULL;
            Py_XDECREF(capsule);
        } else {
            Py_DECREF(capsule);
        }
    }
    Py_DECREF(key);
    return family;
}

static struct family *find_family(const struct call *call)
{
    struct slot *slot = &slots[slot_of(call)];
    if (slot->call.name && is_same(&slot->call, call))
        return slot->family;
    struct family *family = family_by_value(call);
    if (family) {
        struct call before = slot->call;
        slot->call = *call;
        slot->family = family;
        Py_INCREF(call->name);
        Py_XINCREF(call->level);
        Py_XINCREF(call->names);
        /* Last: what is released may run code that comes here. */
        Py_XDECREF(before.name);
        Py_XDECREF(before.level);
        Py_XDECREF(before.names);
    }
    return family;
}

static inline bool has_types(const struct variant *variant, PyObject *const *values, Py_ssize_t count)
{
    if (variant->count != count)
        return false;
    for (Py_ssize_t i = 0; i < count; i++)
        if (variant->types[i] != Py_TYPE(values[i]))
            return false;
    for (Py_ssize_t i = 0; variant->elements && i < count; i++)
        if (variant->elements[i] != ELEMENT_NONE && variant->elements[i] != element_of(values[i]))
            return false;
    return true;
}

/* Sets what a variant is found by. False, without an exception, if there is no memory. */
static bool set_types(struct variant *variant, PyObject *const *values, Py_ssize_t count)
{
    bool has_elements = false;
    variant->count = count;
    variant->types = calloc((size_t)count + 1, sizeof *variant->types);
    variant->elements = calloc((size_t)count + 1, 1);
    if (!variant->types || !variant->elements) {
        free(variant->types);
        free(variant->elements);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        variant->types[i] = Py_TYPE(values[i]);
        Py_INCREF(variant->types[i]);
        has_elements |= (variant->elements[i] = element_of(values[i])) != ELEMENT_NONE;
    }
    if (!has_elements) {
        free(variant->elements);
        variant->elements = NULL;
    }
    return true;
}

static void clear_types(struct variant *variant)
{
    for (Py_ssize_t i = 0; i < variant->count; i++)
        Py_DECREF(variant->types[i]);
    free(variant->types);
    free(variant->elements);
}

/* Descriptor of the pair (description, enumerations) at an index, or null with an exception. */
static struct descriptor *described(PyObject *list, Py_ssize_t index)
{
    PyObject *pair = PyList_GetItem(list, index);
    if (!pair || !PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "expected pairs of descriptions");
        return NULL;
    }
    return descriptor_new(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
}

/* Asks for the description for values of these types. Null with an exception, or without one if the
 * interpreter had no room for that now. */
static PyObject *describe(const struct call *call, PyObject *const *values, Py_ssize_t count)
{
    if (!describer)
        return PyErr_SetString(PyExc_RuntimeError, "tompion was not imported as a whole"), NULL;
    PyObject *answer = NULL, *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        Py_INCREF(values[i]);
        PyTuple_SET_ITEM(tuple, i, values[i]);
    }
    if (tuple)
        answer = PyObject_CallFunction(describer, "iOOOO", call->kind, call->name, or_none(call->level),
                                       or_none(call->names), tuple);
    Py_XDECREF(tuple);
    if (!answer && (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_RecursionError)))
        note_refusal("there was no room to describe an event");
    return answer;
}

/* Sets what such values are recorded as: by pairs of descriptions, or by the bytes that say why
 * they are refused. False with an exception. */
static bool set_events(struct variant *variant, const struct call *call, PyObject *answer)
{
    if (PyBytes_Check(answer)) {
        variant->refusal = strdup(PyBytes_AS_STRING(answer));
        if (!variant->refusal)
            PyErr_NoMemory();
        return variant->refusal;
    }
    variant->main = described(answer, 0);
    if (variant->main && PyList_GET_SIZE(answer) > 1)
        variant->end = described(answer, 1);
    bool is_numbered = call->kind == KIND_BEGIN_IN_TASK || call->kind == KIND_JOB_IN_TASK;
    if (variant->main && variant->main->field_count != variant->count + (is_numbered ? NUMBERS : 0))
        PyErr_SetString(PyExc_ValueError, "expected a field for each value");
    return !PyErr_Occurred();
}

/* Describes the event for values of these types. */
static const struct variant *add_variant(struct family *family, const struct call *call, PyObject *const *values,
                                         Py_ssize_t count)
{
    struct variant made = {0};
    if (!set_types(&made, values, count)) {
        note_refusal("there is no memory");
        return NULL;
    }
    PyObject *answer = describe(call, values, count);
    bool is_good = answer && set_events(&made, call, answer);
    Py_XDECREF(answer);
    /* The describer may have run code that came here, or another thread. */
    if (is_good && !has_types(&made, values, count)) {
        note_refusal("a list changed while its event was described");
        is_good = false;
    } else if (is_good && family->count == MAX_VARIANTS) {
        note_refusal(TOO_MANY);
        is_good = false;
    }
    if (!is_good) {
        clear_types(&made);
        free(made.refusal);
        return NULL;
    }
    family->variants[family->count] = made;
    return &family->variants[family->count++];
}

const struct variant *find_variant(const struct call *call, PyObject *const *values, Py_ssize_t count)
{
    struct family *family = find_family(call);
    const struct variant *found = NULL;
    if (!family)
        return NULL;
    for (int i = 0; !found && i < family->count; i++)
        if (has_types(&family->variants[i], values, count))
            found = &family->variants[i];
    if (!found && family->count && family->variants[0].count != count) {
        /* A mark: the names of all others say how many values there are. */
        PyErr_Format(PyExc_ValueError, "the format %R has %zd conversions, found %zd arguments", or_none(call->names),
                     family->variants[0].count, count);
        return NULL;
    }
    if (!found && family->count == MAX_VARIANTS) {
        note_refusal(TOO_MANY);
        return NULL;
    }
    if (!found)
        found = add_variant(family, call, values, count);
    if (found && !found->main) {
        note_refusal(found->refusal);
        return NULL;
    }
    return found;
}

/* ---- Functions of the module ---- */

/* Records an event of a call, unless there is an exception. */
static PyObject *record_call(const struct call *call, PyObject *const *values, Py_ssize_t count)
{
    const struct variant *variant = find_variant(call, values, count);
    if (!variant) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    uint32_t recordings;
    if (is_enabled(variant->main) && !record_values(variant->main, values, EXACT, &recordings))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *expected(const char *usage)
{
    PyErr_Format(PyExc_TypeError, "expected %s", usage);
    return NULL;
}

/* event(name, [level,] **fields) */
PyObject *record_event(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (count < 1 || count > 2)
        return expected("event(name, [level,] **fields)");
    struct call call = {KIND_INSTANT, args[0], count == 2 ? args[1] : NULL, names};
    return record_call(&call, args + count, names ? PyTuple_GET_SIZE(names) : 0);
}

/* counter(name, value, [level]) */
PyObject *record_counter(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (count < 2 || count > 3 || names)
        return expected("counter(name, value, [level])");
    struct call call = {KIND_COUNTER, args[0], count == 3 ? args[2] : NULL, NULL};
    return record_call(&call, args + 1, 1);
}

/* flow(name, id, [level]) */
PyObject *record_flow(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (count < 2 || count > 3 || names)
        return expected("flow(name, id, [level])");
    struct call call = {KIND_FLOW, args[0], count == 3 ? args[2] : NULL, NULL};
    return record_call(&call, args + 1, 1);
}

/* mark(name, format, *arguments, level=...) */
PyObject *record_mark(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
    bool has_level = keywords == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "level") == 0;
    if (count < 2 || keywords > has_level || !PyUnicode_Check(args[1]))
        return expected("mark(name, format, *arguments, [level=...])");
    struct call call = {KIND_MARK, args[0], has_level ? args[count] : NULL, args[1]};
    return record_call(&call, args + 2, count - 2);
}

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
    for (Py_ssize_t i = 0; i < count; i++)
        if (variant->types[i] != Py_TYPE(values[i]))
            return false;
    return true;
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

/* Describes the event for values of these types. */
static const struct variant *add_variant(struct family *family, const struct call *call, PyObject *const *values,
                                         Py_ssize_t count)
{
    if (!describer)
        return PyErr_SetString(PyExc_RuntimeError, "tompion was not imported as a whole"), NULL;
    PyObject *tuple = PyTuple_New(count);
    if (!tuple)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(values[i]);
        PyTuple_SET_ITEM(tuple, i, values[i]);
    }
    PyObject *list = PyObject_CallFunction(describer, "iOOOO", call->kind, call->name, or_none(call->level),
                                           or_none(call->names), tuple);
    Py_DECREF(tuple);
    if (!list)
        return NULL;
    struct variant *made = NULL;
    PyTypeObject **types = calloc((size_t)count + 1, sizeof *types);
    struct descriptor *main = described(list, 0);
    struct descriptor *end = main && PyList_GET_SIZE(list) > 1 ? described(list, 1) : NULL;
    /* The describer may have run code that came here. */
    if (types && !PyErr_Occurred() && family->count < MAX_VARIANTS) {
        for (Py_ssize_t i = 0; i < count; i++) {
            types[i] = Py_TYPE(values[i]);
            Py_INCREF(types[i]);
        }
        made = &family->variants[family->count];
        *made = (struct variant){types, main, end};
        family->count++;
    } else {
        free(types);
    }
    Py_DECREF(list);
    return made;
}

const struct variant *find_variant(const struct call *call, PyObject *const *values, Py_ssize_t count)
{
    struct family *family = find_family(call);
    if (!family)
        return NULL;
    for (int i = 0; i < family->count; i++)
        if (has_types(&family->variants[i], values, count))
            return &family->variants[i];
    if (family->count == MAX_VARIANTS) {
        note_refusal("an event has values of more than 16 combinations of types");
        return NULL;
    }
    return add_variant(family, call, values, count);
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
    if (is_enabled(variant->main))
        record_values(variant->main, values);
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

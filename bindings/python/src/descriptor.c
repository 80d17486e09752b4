/*
 * Events: from a description to a site of the library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

enum { EVENT_HEADER = 20, FIELD_HEADER = 12, FIELDS_AT = 14, PROVIDER_SIZE_AT = 16, NAME_SIZE_AT = 18 };

/* Descriptors of the process, for status(). */
static struct descriptor **known;
static size_t known_count, known_room;

static uint16_t read_u16(const char *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Reads the fields behind the names. Returns their number with members, or -1. */
static int read_fields(const char *bytes, Py_ssize_t size, struct field *fields)
{
    if (size < EVENT_HEADER || memcmp(bytes, "TEV1", 4) != 0)
        return -1;
    uint32_t left = read_u16(bytes + FIELDS_AT);
    Py_ssize_t at = EVENT_HEADER + read_u16(bytes + PROVIDER_SIZE_AT) + read_u16(bytes + NAME_SIZE_AT);
    int total = 0;
    for (; left > 0; left--) {
        if (total == MAX_FIELDS || at + FIELD_HEADER > size)
            return -1;
        struct field *field = &fields[total++];
        field->code = (uint8_t)bytes[at + 2];
        field->element = (uint8_t)bytes[at + 3];
        memcpy(&field->count, bytes + at + 4, 4);
        field->flags = read_u16(bytes + at + 8);
        if (field->code == CODE_STRUCT)
            left += field->count;
        at += read_u16(bytes + at);
    }
    return total;
}

static bool remember(struct descriptor *descriptor)
{
    if (known_count == known_room) {
        size_t room = known_room ? known_room * 2 : 64;
        struct descriptor **grown = realloc(known, room * sizeof *grown);
        if (!grown)
            return false;
        known = grown;
        known_room = room;
    }
    known[known_count++] = descriptor;
    return true;
}

/* A copy of the enumerations' descriptions and the pointers to them, for ever. */
static const void *const *copy_enumerations(PyObject *enumerations)
{
    Py_ssize_t count = PyTuple_GET_SIZE(enumerations);
    const void **pointers = calloc((size_t)count + 1, sizeof *pointers);
    for (Py_ssize_t i = 0; pointers && i < count; i++) {
        PyObject *bytes = PyTuple_GET_ITEM(enumerations, i);
        void *copy = malloc((size_t)PyBytes_GET_SIZE(bytes));
        if (!copy)
            return NULL;
        memcpy(copy, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
        pointers[i] = copy;
    }
    return pointers;
}

/* Makes a descriptor that is not known yet. */
static struct descriptor *make(PyObject *description, PyObject *enumerations)
{
    struct field fields[MAX_FIELDS];
    int total = -1;
    if (PyBytes_Check(description) && PyTuple_Check(enumerations))
        total = read_fields(PyBytes_AS_STRING(description), PyBytes_GET_SIZE(description), fields);
    if (total < 0) {
        PyErr_Format(PyExc_ValueError, "expected an event of at most %d fields", MAX_FIELDS);
        return NULL;
    }
    size_t size = (size_t)PyBytes_GET_SIZE(description);
    struct descriptor *made = calloc(1, sizeof *made + (size_t)total * sizeof(struct field));
    void *copy = malloc(size);
    const void *const *enums = copy_enumerations(enumerations);
    if (!made || !copy || !enums || !remember(made)) {
        free(made);
        free(copy);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(copy, PyBytes_AS_STRING(description), size);
    memcpy(made->fields, fields, (size_t)total * sizeof(struct field));
    made->total = (uint32_t)total;
    made->field_count = read_u16((const char *)copy + FIELDS_AT);
    made->site.description = copy;
    made->site.enums = enums;
    made->sites[0] = &made->site;
    made->module.abi = TOMPION_ABI;
    made->module.sites_begin = made->sites;
    made->module.sites_end = made->sites + 1;
    /* In no file: nothing has to be kept loaded for it. */
    made->module.flags = TOMPION_ANONYMOUS;
    library_register(made);
    return made;
}

struct descriptor *descriptor_new(PyObject *description, PyObject *enumerations)
{
    /* (description, enumerations) ─► capsule: what a function declares at each call is one event.
     * */
    static PyObject *by_description;
    if (!by_description && !(by_description = PyDict_New()))
        return NULL;
    PyObject *key = PyTuple_Pack(2, description, enumerations);
    PyObject *capsule = key ? PyDict_GetItemWithError(by_description, key) : NULL;
    struct descriptor *found = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (key && !found && !PyErr_Occurred() && (found = make(description, enumerations))) {
        capsule = PyCapsule_New(found, NULL, NULL);
        /* Without memory for that, it is described once more the next time. */
        if (!capsule || PyDict_SetItem(by_description, key, capsule) != 0)
            PyErr_Clear();
        Py_XDECREF(capsule);
    }
    Py_XDECREF(key);
    return found;
}

void descriptor_count(size_t *all, size_t *enabled)
{
    *all = known_count;
    *enabled = 0;
    for (size_t i = 0; i < known_count; i++)
        *enabled += is_enabled(known[i]);
}

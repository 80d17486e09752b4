/*
 * The type Event: an event with declared types.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <structmember.h>

struct event {
    PyObject_HEAD
    vectorcallfunc call;
    struct descriptor *descriptor;
    PyObject *names; /* of the fields */
    /* The keywords of the latest call, and the field that each is. Calls of one place have the
     * same. */
    PyObject *keywords;
    uint8_t order[MAX_FIELDS];
};

/* Learns which fields these keywords are. False with an exception: what was learned before stays
 * then. */
static bool learn_order(struct event *event, PyObject *keywords, Py_ssize_t positional)
{
    uint8_t order[MAX_FIELDS];
    uint64_t given = 0;
    Py_ssize_t count = PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i);
        Py_ssize_t at = PySequence_Index(event->names, name);
        if (at < 0 && !PyErr_ExceptionMatches(PyExc_ValueError))
            return false;
        if (at < positional || given >> at & 1) {
            PyErr_Format(PyExc_TypeError, at < 0 ? "the event has no field %R" : "field %R twice", name);
            return false;
        }
        given |= (uint64_t)1 << at;
        order[i] = (uint8_t)at;
    }
    memcpy(event->order, order, (size_t)count);
    Py_INCREF(keywords);
    Py_XSETREF(event->keywords, keywords);
    return true;
}

static PyObject *event_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords)
{
    struct event *event = (struct event *)self;
    Py_ssize_t positional = PyVectorcall_NARGS(flags);
    Py_ssize_t fields = PyTuple_GET_SIZE(event->names);
    Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    if (positional + named != fields)
        return PyErr_Format(PyExc_TypeError, "expected %zd values, found %zd", fields, positional + named);
    /* Once, unless what is released meanwhile runs code that comes here. */
    while (named && keywords != event->keywords)
        if (!learn_order(event, keywords, positional))
            return NULL;
    if (!is_enabled(event->descriptor))
        Py_RETURN_NONE;
    uint32_t recordings;
    PyObject *values[MAX_FIELDS];
    if (!named) {
        if (!record_values(event->descriptor, args, CUT, &recordings))
            return NULL;
        Py_RETURN_NONE;
    }
    for (Py_ssize_t i = 0; i < positional; i++)
        values[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++)
        values[event->order[i]] = args[positional + i];
    if (!record_values(event->descriptor, values, CUT, &recordings))
        return NULL;
    Py_RETURN_NONE;
}

/* Event(description, enumerations, names) */
static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *description, *enumerations, *names;
    if (keywords && PyDict_GET_SIZE(keywords))
        return PyErr_Format(PyExc_TypeError, "expected no keywords"), NULL;
    if (!PyArg_ParseTuple(args, "SO!O!", &description, &PyTuple_Type, &enumerations, &PyTuple_Type, &names))
        return NULL;
    struct event *event = (struct event *)type->tp_alloc(type, 0);
    if (!event)
        return NULL;
    event->call = event_call;
    Py_INCREF(names);
    event->names = names;
    event->descriptor = descriptor_new(description, enumerations);
    if (event->descriptor && event->descriptor->field_count != (uint32_t)PyTuple_GET_SIZE(names)) {
        PyErr_SetString(PyExc_ValueError, "expected a name for each field");
        event->descriptor = NULL;
    }
    if (!event->descriptor)
        Py_CLEAR(event);
    return (PyObject *)event;
}

static int event_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct event *)self)->names);
    Py_VISIT(((struct event *)self)->keywords);
    return 0;
}

static void event_dealloc(PyObject *self)
{
    struct event *event = (struct event *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(event->names);
    Py_XDECREF(event->keywords);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *event_enabled(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(is_enabled(((struct event *)self)->descriptor));
}

static PyGetSetDef event_getters[] = {
    {"enabled", event_enabled, NULL, "True while a recording takes the event.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef event_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct event, call), READONLY, NULL},
    {"fields", T_OBJECT_EX, offsetof(struct event, names), READONLY, "Names of the fields, in order."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot event_slots[] = {
    {Py_tp_new, event_new},
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_traverse, event_traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_getset, event_getters},
    {Py_tp_members, event_members},
    {0, NULL},
};

PyType_Spec event_spec = {
    .name = "tompion._tompion.Event",
    .basicsize = sizeof(struct event),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC
#ifdef Py_TPFLAGS_HAVE_VECTORCALL
             | Py_TPFLAGS_HAVE_VECTORCALL
#else
             | _Py_TPFLAGS_HAVE_VECTORCALL
#endif
    ,
    .slots = event_slots,
};

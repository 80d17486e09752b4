/*
 * The module tompion._tompion.
 *
 * One for the process: sub-interpreters are refused, because events and the functions that describe
 * them are shared. There, the package records nothing and says so.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

/* (path, reason, events, enabled, refused, first_refusal) */
static PyObject *status(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    size_t known, enabled;
    descriptor_count(&known, &enabled);
    PyObject *library = library_status();
    PyObject *counts = Py_BuildValue("(nn)", (Py_ssize_t)known, (Py_ssize_t)enabled);
    PyObject *refused = refusals();
    PyObject *result = NULL;
    if (library && counts && refused) {
        PyObject *head = PySequence_Concat(library, counts);
        result = head ? PySequence_Concat(head, refused) : NULL;
        Py_XDECREF(head);
    }
    Py_XDECREF(library);
    Py_XDECREF(counts);
    Py_XDECREF(refused);
    return result;
}

static PyObject *snapshot(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(library_snapshot());
}

#define FAST (METH_FASTCALL | METH_KEYWORDS)
#define FUNCTION(function) ((PyCFunction)(void (*)(void))function)

static PyMethodDef methods[] = {
    {"event", FUNCTION(record_event), FAST,
     "event(name, [level,] /, **fields)\n--\n\nRecords an event."},
    {"span", FUNCTION(make_span), FAST,
     "span(name, [level,] /, **fields)\n--\n\nReturns a context manager and decorator for a span."},
    {"job", FUNCTION(make_job), FAST,
     "job(name, deadline_ns, [level,] /, **fields)\n--\n\n"
     "Returns a span that is one activation of a periodic job; a deadline of 0 is none."},
    {"counter", FUNCTION(record_counter), FAST,
     "counter(name, value, [level,] /)\n--\n\nRecords that a quantity has a new value."},
    {"flow", FUNCTION(record_flow), FAST,
     "flow(name, id, [level,] /)\n--\n\nRecords that the work with this id passes here."},
    {"mark", FUNCTION(record_mark), FAST,
     "mark(name, format, /, *arguments, level=...)\n--\n\n"
     "Records the message that format % arguments would make."},
    {"snapshot", snapshot, METH_NOARGS,
     "snapshot()\n--\n\nAsks that flight recorders be saved; returns whether there is one."},
    {"_status", status, METH_NOARGS, NULL},
    {"_add_state_dump", library_add_state_dump, METH_O, NULL},
    {"_remove_state_dump", library_remove_state_dump, METH_O, NULL},
    {"_set_describer", set_describer, METH_O, NULL},
    {"_set_decorator", set_decorator, METH_O, NULL},
    {"_set_task_events", set_task_events, METH_O, NULL},
    {"_current_task", current_task, METH_NOARGS, NULL},
    {"_function", make_function, METH_O, NULL},
    {"_start_functions", start_functions, METH_O, NULL},
    {"_start_functions_of_thread", start_functions_of_thread, METH_NOARGS, NULL},
    {"_stop_functions", stop_functions, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Adds a type to the module. Returns a borrowed reference, or null with an exception. */
static PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type || PyModule_AddObject(module, name, type) != 0) {
        Py_XDECREF(type);
        return NULL;
    }
    return type;
}

static int execute(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "sub-interpreters are not recorded");
        return -1;
    }
    PyObject *span = add_type(module, "Span", &span_spec);
    if (!span || !add_type(module, "Event", &event_spec) || !add_type(module, "Steps", &steps_spec))
        return -1;
    Py_INCREF(span);
    Py_XSETREF(span_type, (PyTypeObject *)span);
    library_open();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tompion._tompion",
    .m_doc = "Events by libtompion: see the package tompion.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__tompion(void)
{
    return PyModuleDef_Init(&definition);
}

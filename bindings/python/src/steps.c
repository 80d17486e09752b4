/*
 * The type Steps: a coroutine around a task's, which records when a thread runs the task.
 *
 * asyncio runs a task by sending to its coroutine until that awaits something that is not ready. So
 * each call of send() or throw() is the time that a thread spends on the task. Everything else is
 * the inner coroutine's.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <structmember.h>

struct steps {
    PyObject_HEAD
    PyObject *coroutine;
    PyObject *start; /* called with the id at the first step; then null */
    uint64_t id;
    uint64_t parent;
    uint64_t innermost; /* number of its innermost open span, or 0 */
};

/* How a task ended, as _tasks.py labels it. */
enum outcome { RETURNED, RAISED, CANCELLED };

static struct descriptor *resumed, *suspended, *ended;
static uint64_t last_id;
/* The task that this thread runs; null outside of tasks. Its caller has a reference. */
static _Thread_local struct steps *running;

uint64_t running_task(void)
{
    return running ? running->id : 0;
}

uint64_t *innermost_span(void)
{
    return running ? &running->innermost : NULL;
}

/* set_task_events([(description, enumerations) of resume, suspend, end]) */
PyObject *set_task_events(PyObject *module, PyObject *list)
{
    struct descriptor **places[] = {&resumed, &suspended, &ended};
    (void)module;
    for (Py_ssize_t i = 0; i < 3; i++) {
        PyObject *description, *enumerations;
        PyObject *pair = PyList_GetItem(list, i);
        if (!pair || !PyArg_ParseTuple(pair, "OO", &description, &enumerations))
            return NULL;
        if (!*places[i] && !(*places[i] = descriptor_new(description, enumerations)))
            return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *current_task(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLongLong(running_task());
}

static void record_id(const struct descriptor *descriptor, uint64_t id)
{
    if (descriptor)
        record_image(descriptor, &id, sizeof id);
}

/* `outer` is the task that this thread has run before. False with an exception that is the
 * program's, such as KeyboardInterrupt; the task is not run then. */
static bool resume(struct steps *steps, struct steps **outer)
{
    PyObject *start = steps->start;
    if (start) {
        steps->start = NULL;
        PyObject *result = PyObject_CallFunction(start, "K", (unsigned long long)steps->id);
        bool is_good = result || note_refusal("a task's name is not known");
        Py_XDECREF(result);
        Py_DECREF(start);
        if (!is_good)
            return false;
    }
    *outer = running;
    running = steps;
    record_id(resumed, steps->id);
    return true;
}

static void suspend(const struct steps *steps, struct steps *outer)
{
    record_id(suspended, steps->id);
    running = outer;
}

static void record_outcome(const struct steps *steps, uint8_t outcome)
{
    uint64_t image[2] = {steps->id, outcome};
    if (ended)
        record_image(ended, image, sizeof(uint64_t) + 1);
}

/* Whether the pending exception is asyncio's for a cancelled task. */
static enum outcome outcome_of_exception(void)
{
    PyObject *type = PyErr_Occurred();
    const char *name = type && PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "";
    const char *dot = strrchr(name, '.');
    if (PyErr_ExceptionMatches(PyExc_StopIteration))
        return RETURNED;
    return strcmp(dot ? dot + 1 : name, "CancelledError") == 0 ? CANCELLED : RAISED;
}

/* Calls a method of the coroutine as one step. An exception of it ends the task. */
static PyObject *step(PyObject *self, const char *method, PyObject *args)
{
    struct steps *steps = (struct steps *)self;
    PyObject *function = PyObject_GetAttrString(steps->coroutine, method);
    if (!function)
        return NULL;
    struct steps *outer;
    PyObject *result = NULL;
    if (resume(steps, &outer)) {
        result = PyObject_Call(function, args, NULL);
        suspend(steps, outer);
    }
    if (!result)
        record_outcome(steps, (uint8_t)outcome_of_exception());
    Py_DECREF(function);
    return result;
}

static PyObject *steps_send(PyObject *self, PyObject *args)
{
    return step(self, "send", args);
}

static PyObject *steps_throw(PyObject *self, PyObject *args)
{
    return step(self, "throw", args);
}

static PyObject *steps_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_CallMethod(((struct steps *)self)->coroutine, "close", NULL);
}

static PyObject *steps_next(PyObject *self)
{
    PyObject *args = Py_BuildValue("(O)", Py_None);
    PyObject *result = args ? step(self, "send", args) : NULL;
    Py_XDECREF(args);
    return result;
}

#if PY_VERSION_HEX >= 0x030a0000
static PySendResult steps_am_send(PyObject *self, PyObject *value, PyObject **result)
{
    struct steps *steps = (struct steps *)self;
    struct steps *outer;
    PySendResult sent = PYGEN_ERROR;
    *result = NULL;
    if (resume(steps, &outer)) {
        sent = PyIter_Send(steps->coroutine, value, result);
        suspend(steps, outer);
    }
    if (sent != PYGEN_NEXT)
        record_outcome(steps, (uint8_t)(sent == PYGEN_RETURN ? RETURNED : outcome_of_exception()));
    return sent;
}
#endif

static PyObject *steps_self(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

/* What is not here is the coroutine's: cr_frame, cr_await, __name__ and the like. */
static PyObject *steps_getattr(PyObject *self, PyObject *name)
{
    PyObject *own = PyObject_GenericGetAttr(self, name);
    if (own || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return own;
    PyErr_Clear();
    return PyObject_GetAttr(((struct steps *)self)->coroutine, name);
}

static PyObject *steps_repr(PyObject *self)
{
    return PyObject_Repr(((struct steps *)self)->coroutine);
}

/* Steps(coroutine, start) */
static PyObject *steps_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *coroutine, *start;
    if (keywords && PyDict_GET_SIZE(keywords))
        return PyErr_Format(PyExc_TypeError, "expected no keywords"), NULL;
    if (!PyArg_ParseTuple(args, "OO", &coroutine, &start))
        return NULL;
    struct steps *steps = (struct steps *)type->tp_alloc(type, 0);
    if (!steps)
        return NULL;
    Py_INCREF(coroutine);
    steps->coroutine = coroutine;
    Py_INCREF(start);
    steps->start = start;
    steps->id = ++last_id;
    steps->parent = running_task();
    return (PyObject *)steps;
}

static int steps_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct steps *)self)->coroutine);
    Py_VISIT(((struct steps *)self)->start);
    return 0;
}

static void steps_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((struct steps *)self)->coroutine);
    Py_XDECREF(((struct steps *)self)->start);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef steps_methods[] = {
    {"send", steps_send, METH_VARARGS, "Runs the coroutine until it awaits."},
    {"throw", steps_throw, METH_VARARGS, "Raises an exception in the coroutine."},
    {"close", steps_close, METH_NOARGS, "Closes the coroutine."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef steps_members[] = {
    {"coroutine", T_OBJECT_EX, offsetof(struct steps, coroutine), READONLY, "The task's coroutine."},
    {"id", T_ULONGLONG, offsetof(struct steps, id), READONLY, "The task's number in traces."},
    {"parent", T_ULONGLONG, offsetof(struct steps, parent), READONLY, "The task that has made it, or 0."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot steps_slots[] = {
    {Py_tp_new, steps_new},
    {Py_tp_dealloc, steps_dealloc},
    {Py_tp_traverse, steps_traverse},
    {Py_tp_getattro, steps_getattr},
    {Py_tp_repr, steps_repr},
    {Py_tp_iter, steps_self},
    {Py_tp_iternext, steps_next},
    {Py_am_await, steps_self},
#if PY_VERSION_HEX >= 0x030a0000
    {Py_am_send, steps_am_send},
#endif
    {Py_tp_methods, steps_methods},
    {Py_tp_members, steps_members},
    {0, NULL},
};

PyType_Spec steps_spec = {
    .name = "tompion._tompion.Steps",
    .basicsize = sizeof(struct steps),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = steps_slots,
};

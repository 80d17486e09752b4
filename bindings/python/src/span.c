/*
 * The type Span: a context manager that records a begin and its end, and a decorator.
 *
 * A span of a thread ends on its thread, after those within it. A task's thread runs other tasks
 * meanwhile, which have spans, too. So the events of a span that is made within a task have the
 * span's number in the context field `span`, and the begin also `parent` (the task's span around
 * it, or 0) and `task`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

/* Depth to which one object may be entered again before it is left. */
enum { MAX_DEPTH = 4 };

struct span {
    PyObject_VAR_HEAD
    struct call call; /* with references of its own */
    const struct variant *variant; /* of the values; null if there is none */
    uint16_t depth;
    uint16_t beyond; /* entries beyond MAX_DEPTH */
    bool is_numbered;
    uint32_t recordings[MAX_DEPTH];
    uint64_t numbers[MAX_DEPTH];
    uint64_t parents[MAX_DEPTH];
    PyObject *values[]; /* of a numbered span, with NUMBERS places behind */
};

static uint64_t last_number;

PyTypeObject *span_type;
/* Wraps functions: see tompion/_decorate.py. */
static PyObject *decorator;

PyObject *set_decorator(PyObject *module, PyObject *function)
{
    (void)module;
    Py_INCREF(function);
    Py_XSETREF(decorator, function);
    Py_RETURN_NONE;
}

/* A span with these values. The first of a job is its deadline. */
static PyObject *new_span(struct call call, PyObject *const *values, Py_ssize_t count)
{
    bool is_numbered = innermost_span();
    if (is_numbered)
        call.kind = call.kind == KIND_JOB ? KIND_JOB_IN_TASK : KIND_BEGIN_IN_TASK;
    const struct variant *variant = find_variant(&call, values, count);
    if (!variant && PyErr_Occurred())
        return NULL;
    Py_ssize_t behind = is_numbered ? NUMBERS : 0;
    struct span *span = (struct span *)span_type->tp_alloc(span_type, count + behind);
    if (!span)
        return NULL;
    span->call = call;
    span->variant = variant;
    span->is_numbered = is_numbered;
    Py_INCREF(call.name);
    Py_XINCREF(call.level);
    Py_XINCREF(call.names);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(values[i]);
        span->values[i] = values[i];
    }
    return (PyObject *)span;
}

/* span(name, [level,] **fields) */
PyObject *make_span(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (count < 1 || count > 2)
        return PyErr_Format(PyExc_TypeError, "expected span(name, [level,] **fields)");
    struct call call = {KIND_BEGIN, args[0], count == 2 ? args[1] : NULL, names};
    return new_span(call, args + count, names ? PyTuple_GET_SIZE(names) : 0);
}

/* job(name, deadline_ns, [level,] **fields) */
PyObject *make_job(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    PyObject *values[MAX_FIELDS];
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    if (count < 2 || count > 3)
        return PyErr_Format(PyExc_TypeError, "expected job(name, deadline_ns, [level,] **fields)");
    if (named >= MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "expected at most %d fields", MAX_FIELDS - 1);
    struct call call = {KIND_JOB, args[0], count == 3 ? args[2] : NULL, names};
    values[0] = args[1];
    for (Py_ssize_t i = 0; i < named; i++)
        values[i + 1] = args[count + i];
    return new_span(call, values, named + 1);
}

/* Records the begin of a span with a new number. False with an exception that is the program's. */
static bool begin_numbered(struct span *span, uint64_t number, uint64_t parent, uint32_t *recordings)
{
    uint64_t numbers[NUMBERS] = {number, parent, running_task()};
    PyObject **places = span->values + Py_SIZE(span) - NUMBERS;
    for (int i = 0; i < NUMBERS; i++) {
        PyObject *made = PyLong_FromUnsignedLongLong(numbers[i]);
        if (!made) {
            return note_refusal("there is no memory");
        }
        Py_XSETREF(places[i], made);
    }
    return record_values(span->variant->main, span->values, EXACT, recordings);
}

/* A span that is entered again within itself more than MAX_DEPTH times has no numbers left. False
 * with an exception; the span is not entered then. */
static bool enter_numbered(struct span *span)
{
    uint64_t *innermost = innermost_span();
    if (span->depth == MAX_DEPTH) {
        span->beyond++;
        return true;
    }
    uint64_t number = ++last_number, parent = innermost ? *innermost : 0;
    uint32_t recordings = 0;
    if (span->variant && is_enabled(span->variant->main) && !begin_numbered(span, number, parent, &recordings))
        return false;
    /* The values' code may have entered it, too. */
    if (span->depth == MAX_DEPTH) {
        span->beyond++;
        return true;
    }
    int at = span->depth++;
    span->numbers[at] = number;
    span->parents[at] = parent;
    span->recordings[at] = recordings;
    if (innermost)
        *innermost = number;
    return true;
}

static void exit_numbered(struct span *span)
{
    uint64_t *innermost = innermost_span();
    if (span->beyond) {
        span->beyond--;
    } else if (span->depth) {
        int at = --span->depth;
        if (span->recordings[at])
            record_numbered_end(span->variant->end, span->recordings[at], span->numbers[at]);
        if (innermost && *innermost == span->numbers[at])
            *innermost = span->parents[at];
    }
}

static PyObject *span_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct span *span = (struct span *)self;
    uint32_t recordings = 0;
    if (span->is_numbered) {
        if (!enter_numbered(span))
            return NULL;
    } else {
        if (span->variant && is_enabled(span->variant->main) &&
            !record_values(span->variant->main, span->values, EXACT, &recordings))
            return NULL;
        if (span->depth < MAX_DEPTH)
            span->recordings[span->depth++] = recordings;
        else
            span->beyond++;
    }
    Py_INCREF(self);
    return self;
}

static PyObject *span_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    struct span *span = (struct span *)self;
    uint32_t recordings = 0;
    if (span->is_numbered) {
        exit_numbered(span);
    } else if (span->beyond) {
        /* Its begin was recorded, in which recordings is not known: in those of the deepest. */
        span->beyond--;
        recordings = span->recordings[MAX_DEPTH - 1];
    } else if (span->depth) {
        recordings = span->recordings[--span->depth];
    }
    /* Without a variant, no recording has the begin. */
    if (recordings)
        record_end(span->variant->end, recordings);
    Py_RETURN_FALSE;
}

static PyObject *span_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (!decorator || PyTuple_GET_SIZE(args) != 1 || (keywords && PyDict_GET_SIZE(keywords)))
        return PyErr_Format(PyExc_TypeError, "expected a function to be decorated");
    return PyObject_CallFunctionObjArgs(decorator, self, PyTuple_GET_ITEM(args, 0), NULL);
}

/* Another span with the same values, for an activation of a decorated function. */
static PyObject *span_again(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct span *span = (struct span *)self;
    struct call call = span->call;
    Py_ssize_t behind = span->is_numbered ? NUMBERS : 0;
    if (call.kind == KIND_BEGIN_IN_TASK || call.kind == KIND_JOB_IN_TASK)
        call.kind = call.kind == KIND_JOB_IN_TASK ? KIND_JOB : KIND_BEGIN;
    return new_span(call, span->values, Py_SIZE(self) - behind);
}

/* There is no clear, as for tuples: a span's values are there from the start, so that what closes a
 * cycle is another object, which can be cleared. */
static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct span *span = (struct span *)self;
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_VISIT(span->values[i]);
    return 0;
}

static void span_dealloc(PyObject *self)
{
    struct span *span = (struct span *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++)
        Py_XDECREF(span->values[i]);
    Py_XDECREF(span->call.name);
    Py_XDECREF(span->call.level);
    Py_XDECREF(span->call.names);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, "Records the begin."},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, "Records the end."},
    {"again", span_again, METH_NOARGS, "Returns another span with the same values."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, span_dealloc}, {Py_tp_traverse, span_traverse}, {Py_tp_call, span_call},
    {Py_tp_methods, span_methods}, {0, NULL},
};

PyType_Spec span_spec = {
    .name = "tompion._tompion.Span",
    .basicsize = offsetof(struct span, values),
    .itemsize = sizeof(PyObject *),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
             | Py_TPFLAGS_DISALLOW_INSTANTIATION
#endif
    ,
    .slots = span_slots,
};

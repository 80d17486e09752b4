/*
 * Entries and exits of Python functions: a span for each call, with the function's name.
 *
 * Before Python 3.12 a profile function is called for every call (PyEval_SetProfile), from 3.12 on
 * sys.monitoring calls on_enter and on_leave, and stops calling them for functions that are left
 * out. Each code object remembers its events in a slot of its own.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

#include <stdlib.h>

#if PY_VERSION_HEX >= 0x030c0000
#define get_extra PyUnstable_Code_GetExtra
#define set_extra PyUnstable_Code_SetExtra
#define request_extra PyUnstable_Eval_RequestCodeExtraIndex
#else
#define get_extra _PyCode_GetExtra
#define set_extra _PyCode_SetExtra
#define request_extra _PyEval_RequestCodeExtraIndex
#endif

/* The two events of a function; null for one that is left out. */
struct function {
    struct descriptor *begin, *end;
};

static struct function left_out __attribute__((__aligned__(16)));
/* Stands for one that was not described, as if it had no events. The next entry asks for them. */
static const struct function undescribed;
static Py_ssize_t extra_index = -1;
/* Number of this start, in the lowest bits of what code objects remember: a later start may choose
 * other functions. */
static uintptr_t generation;
enum { GENERATIONS = 16 };
/* (code, module) ─► what _function() has made, or None: see tompion/_functions.py. */
static PyObject *describe;
/* Whether this thread is describing a function: what it calls meanwhile is not recorded. */
static _Thread_local bool is_describing;

/* _function([begin, end]): a capsule, whose content stays for ever. */
PyObject *make_function(PyObject *module, PyObject *list)
{
    (void)module;
    /* malloc aligns to 16 bytes, which GENERATIONS needs. */
    struct function *made = calloc(1, sizeof *made);
    for (Py_ssize_t i = 0; made && i < 2; i++) {
        PyObject *pair = PyList_GetItem(list, i);
        PyObject *description, *enumerations;
        if (!pair || !PyArg_ParseTuple(pair, "OO", &description, &enumerations))
            return NULL;
        struct descriptor *descriptor = descriptor_new(description, enumerations);
        if (!descriptor)
            return NULL;
        *(i ? &made->end : &made->begin) = descriptor;
    }
    return made ? PyCapsule_New(made, NULL, NULL) : PyErr_NoMemory();
}

/* Asks for a function's events, and keeps the answer in its code. Keeps a pending exception. Null
 * with an exception that is the program's, such as KeyboardInterrupt. */
static const struct function *learn(PyObject *code)
{
    const struct function *found = &left_out;
    PyObject *type, *error, *trace, *module = NULL, *answer = NULL;
    if (!describe || is_describing)
        return &undescribed;
    is_describing = true;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *globals = PyEval_GetGlobals();
    if (globals)
        module = PyDict_GetItemString(globals, "__name__");
    answer = PyObject_CallFunctionObjArgs(describe, code, module ? module : Py_None, NULL);
    if (answer && PyCapsule_CheckExact(answer))
        found = PyCapsule_GetPointer(answer, NULL);
    is_describing = false;
    if (!answer && !note_refusal("a function could not be described")) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return NULL;
    }
    /* After a failure, the next entry asks again: there may be memory then, or less recursion. */
    if (!answer)
        found = &undescribed;
    else if (set_extra(code, extra_index, (void *)((uintptr_t)found | generation)) != 0)
        PyErr_Clear();
    /* The capsule may go: what it points to stays. */
    Py_XDECREF(answer);
    PyErr_Restore(type, error, trace);
    return found;
}

/* An exit of a function that is not known yet has no begin in the trace: it is not asked for. Null
 * with an exception that is the program's. */
static inline const struct function *function_of(PyObject *code, bool is_entry)
{
    void *extra = NULL;
    if (get_extra(code, extra_index, &extra) != 0) {
        PyErr_Clear();
        return &undescribed;
    }
    uintptr_t remembered = (uintptr_t)extra;
    if (!extra || remembered % GENERATIONS != generation)
        return is_entry ? learn(code) : &undescribed;
    return (const struct function *)(remembered - generation);
}

static inline void record_empty(const struct descriptor *descriptor)
{
    static const uint64_t nothing;
    record_image(descriptor, &nothing, 0);
}

static bool prepare(PyObject *function)
{
    if (extra_index < 0 && (extra_index = request_extra(NULL)) < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no room in code objects: too many profilers");
        return false;
    }
    generation = (generation + 1) % GENERATIONS;
    Py_INCREF(function);
    Py_XSETREF(describe, function);
    return true;
}

#if PY_VERSION_HEX >= 0x030c0000

static PyObject *disable; /* sys.monitoring.DISABLE */

/* Answer to an event: that it is not wanted for this code any more. */
static PyObject *answer(const struct function *function, bool may_disable)
{
    PyObject *result = may_disable && function == &left_out ? disable : Py_None;
    Py_INCREF(result);
    return result;
}

static PyObject *enter(PyObject *const *args, Py_ssize_t count, bool may_disable)
{
    const struct function *function = count ? function_of(args[0], true) : &undescribed;
    if (!function)
        return NULL;
    if (function->begin)
        record_empty(function->begin);
    return answer(function, may_disable);
}

static PyObject *leave(PyObject *const *args, Py_ssize_t count, bool may_disable)
{
    const struct function *function = count ? function_of(args[0], false) : &undescribed;
    if (!function)
        return NULL;
    if (function->end)
        record_empty(function->end);
    return answer(function, may_disable);
}

/* PY_START, PY_RESUME */
static PyObject *on_enter(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return enter(args, count, true);
}

/* PY_THROW, which can't be disabled for a code object */
static PyObject *on_throw(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return enter(args, count, false);
}

/* PY_RETURN, PY_YIELD */
static PyObject *on_leave(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return leave(args, count, true);
}

/* PY_UNWIND, which can't be disabled for a code object */
static PyObject *on_unwind(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return leave(args, count, false);
}

static PyMethodDef callbacks[] = {
    {"on_enter", (PyCFunction)(void (*)(void))on_enter, METH_FASTCALL, NULL},
    {"on_throw", (PyCFunction)(void (*)(void))on_throw, METH_FASTCALL, NULL},
    {"on_leave", (PyCFunction)(void (*)(void))on_leave, METH_FASTCALL, NULL},
    {"on_unwind", (PyCFunction)(void (*)(void))on_unwind, METH_FASTCALL, NULL},
};

/* Returns the callbacks for sys.monitoring, in this order. */
PyObject *start_functions(PyObject *module, PyObject *function)
{
    (void)module;
    PyObject *monitoring = PySys_GetObject("monitoring");
    PyObject *result = NULL;
    if (!monitoring || !prepare(function))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_RuntimeError, "sys.monitoring is missing");
    if (!disable && !(disable = PyObject_GetAttrString(monitoring, "DISABLE")))
        return NULL;
    if (!(result = PyTuple_New(4)))
        return NULL;
    for (Py_ssize_t i = 0; i < 4; i++) {
        PyObject *callback = PyCFunction_New(&callbacks[i], NULL);
        if (!callback) {
            Py_DECREF(result);
            return NULL;
        }
        PyTuple_SET_ITEM(result, i, callback);
    }
    return result;
}

/* sys.monitoring is for all threads. */
PyObject *start_functions_of_thread(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_RETURN_NONE;
}

PyObject *stop_functions(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_RETURN_NONE;
}

#else

static int profile(PyObject *unused, PyFrameObject *frame, int what, PyObject *value)
{
    (void)unused;
    (void)value;
    if (what != PyTrace_CALL && what != PyTrace_RETURN)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    const struct function *function = function_of((PyObject *)code, what == PyTrace_CALL);
    Py_DECREF(code);
    if (!function)
        return -1;
    const struct descriptor *descriptor = what == PyTrace_CALL ? function->begin : function->end;
    if (descriptor)
        record_empty(descriptor);
    return 0;
}

/* Begins in this thread. Returns None: there is nothing for sys.monitoring. */
PyObject *start_functions(PyObject *module, PyObject *function)
{
    if (!prepare(function))
        return NULL;
    return start_functions_of_thread(module, NULL);
}

PyObject *start_functions_of_thread(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyEval_SetProfile(profile, NULL);
    Py_RETURN_NONE;
}

PyObject *stop_functions(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    /* Another profiler may be there by now. */
    if (PyThreadState_Get()->c_profilefunc == profile)
        PyEval_SetProfile(NULL, NULL);
    Py_RETURN_NONE;
}

#endif

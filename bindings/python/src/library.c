/*
 * The native library: found, loaded, given sites.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "binding.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

typedef int (*agent_function)(struct tompion_module *, uint32_t);
typedef int (*state_dump_function)(const struct tompion_module *, uint32_t, void (*)(void *), void *);

static agent_function agent;
static state_dump_function state_dump;
/* Why there is no library, or its path. Text of this file's own. */
static char reason[4200];
static char path[4096];

/* A module of no sites, which state dumps and snapshots name. */
static struct tompion_module own_module = {.abi = TOMPION_ABI};

static void *find_symbol(void *library, const char *name)
{
    return dlsym(library ? library : RTLD_DEFAULT, name);
}

/* Takes the library's functions. */
static bool take(void *library)
{
    Dl_info info;
    void *symbol = find_symbol(library, "tompion_agent_v1");
    if (!symbol)
        return false;
    *(void **)&agent = symbol;
    *(void **)&state_dump = find_symbol(library, "tompion_state_dump_v1");
    if (dladdr(symbol, &info) && info.dli_fname)
        snprintf(path, sizeof path, "%s", info.dli_fname);
    return true;
}

/* Loads it: by TOMPION_LIBRARY, then by its name. */
static bool load(void)
{
    const char *named = secure_getenv("TOMPION_LIBRARY");
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!library)
        library = dlopen("libtompion.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        snprintf(reason, sizeof reason, "libtompion.so.0 was not found (%s)", dlerror());
        return false;
    }
    if (!take(library)) {
        snprintf(reason, sizeof reason, "libtompion.so.0 has no tompion_agent_v1");
        return false;
    }
    return true;
}

void library_open(void)
{
    const char *disabled = secure_getenv("TOMPION_DISABLE");
    if (getauxval(AT_SECURE)) {
        snprintf(reason, sizeof reason, "the program runs with more rights than its starter");
        return;
    }
    if (disabled && strcmp(disabled, "1") == 0) {
        snprintf(reason, sizeof reason, "TOMPION_DISABLE=1");
        return;
    }
    if (!take(NULL) && !load())
        return;
    int result;
    /* The library may wait for a recorder's answer. */
    Py_BEGIN_ALLOW_THREADS
    result = agent(&own_module, TOMPION_LOAD);
    Py_END_ALLOW_THREADS
    if (result != 0 || !own_module.append_begin || !own_module.append_end) {
        snprintf(reason, sizeof reason, "%s is too old for this package", path);
        agent = NULL;
    }
}

void library_register(struct descriptor *descriptor)
{
    if (!agent)
        return;
    /* Another thread may hold the library's lock and wait for the GIL: a state dump's. */
    Py_BEGIN_ALLOW_THREADS
    agent(&descriptor->module, TOMPION_LOAD);
    Py_END_ALLOW_THREADS
}

PyObject *library_status(void)
{
    const char *text = agent ? path : reason;
    /* Paths may be no UTF-8. */
    PyObject *decoded = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!decoded)
        return NULL;
    return agent ? Py_BuildValue("(NO)", decoded, Py_None) : Py_BuildValue("(ON)", Py_None, decoded);
}

bool library_snapshot(void)
{
    return agent && agent(&own_module, TOMPION_SNAPSHOT) == 0;
}

static bool is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

/* Calls a state dump's function. The library's thread does so, or the one that has added it. */
static void call_state_dump(void *data)
{
    if (is_finalizing())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallNoArgs(data);
    if (result)
        Py_DECREF(result);
    else
        PyErr_WriteUnraisable(data);
    PyGILState_Release(state);
}

static PyObject *change_state_dump(uint32_t verb, PyObject *function)
{
    int result = -1;
    if (agent && state_dump) {
        Py_BEGIN_ALLOW_THREADS
        result = state_dump(&own_module, verb, call_state_dump, function);
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(result == 0);
}

PyObject *library_add_state_dump(PyObject *module, PyObject *function)
{
    (void)module;
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "expected a function, found %R", function);
    /* tompion/_dumps.py keeps the function for as long as the library may call it. */
    return change_state_dump(TOMPION_STATE_DUMP_ADD, function);
}

PyObject *library_remove_state_dump(PyObject *module, PyObject *function)
{
    (void)module;
    return change_state_dump(TOMPION_STATE_DUMP_REMOVE, function);
}

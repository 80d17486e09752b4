/*
 * What the elements of a list, a tuple or an array are. With the value's type, that says by which
 * type it is recorded.
 *
 * No code of the program is run here: only types are looked at.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "binding.h"

/* array.array and its getter of `typecode`, once a program has imported the module. */
static PyTypeObject *array_type;
static PyObject *typecode;

/* Whether a value can be an array: the program has imported its module then. */
static bool find_array_type(void)
{
    if (array_type)
        return true;
    PyObject *name = PyUnicode_FromString("array");
    PyObject *module = name ? PyImport_GetModule(name) : NULL;
    PyObject *type = module ? PyObject_GetAttrString(module, "array") : NULL;
    Py_XDECREF(name);
    Py_XDECREF(module);
    if (type && PyType_Check(type) && (typecode = PyObject_GetAttrString(type, "typecode"))) {
        array_type = (PyTypeObject *)type;
        return true;
    }
    Py_XDECREF(type);
    PyErr_Clear();
    return false;
}

static char element_of_array(PyObject *value)
{
    if (!find_array_type() || !PyType_IsSubtype(Py_TYPE(value), array_type) || !Py_TYPE(typecode)->tp_descr_get)
        return ELEMENT_NONE;
    /* The array's own: a subclass may have another attribute of this name. */
    PyObject *letter = Py_TYPE(typecode)->tp_descr_get(typecode, value, (PyObject *)Py_TYPE(value));
    char element = ELEMENT_OTHER;
    if (letter && PyUnicode_Check(letter) && PyUnicode_GET_LENGTH(letter) == 1)
        element = (char)PyUnicode_READ_CHAR(letter, 0);
    Py_XDECREF(letter);
    PyErr_Clear();
    return element;
}

char element_of(PyObject *value)
{
    if (PyList_Check(value) || PyTuple_Check(value)) {
        PyObject **items = PySequence_Fast_ITEMS(value);
        for (Py_ssize_t i = 0, count = PySequence_Fast_GET_SIZE(value); i < count; i++)
            if (!PyLong_Check(items[i]))
                return ELEMENT_OTHER;
        return ELEMENT_INTEGER;
    }
    if (!PyObject_CheckBuffer(value) || PyBytes_Check(value) || PyByteArray_Check(value) || PyMemoryView_Check(value))
        return ELEMENT_NONE;
    return element_of_array(value);
}

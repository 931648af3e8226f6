/* What the extension modules share: contiguous buffers of one item type (NumPy arrays, array.array) as arguments, and
 * objects of heap types. */

#ifndef WATTLOOP_BUFFERS_H
#define WATTLOOP_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef enum { INT16_ITEMS, INT32_ITEMS, INT64_ITEMS, DOUBLE_ITEMS } item_type;

static inline const char *item_name(item_type type) {
    static const char *const names[] = {"int16", "int32", "int64", "float64"};
    return names[type];
}

static inline int format_is(const char *format, item_type type) {
    static const char *const codes[] = {"h", "il", "lq", "d"};
    if (format == NULL)
        return 0;
    if (*format == '@' || *format == '=')
        format++;
    return format[0] != '\0' && format[1] == '\0' && strchr(codes[type], format[0]) != NULL;
}

/* Fill view with the object's buffer; release it with PyBuffer_Release. Returns 0 with an exception set if the object
 * has no contiguous buffer of these items or, for count >= 0, another number of items. */
static inline int get_items(PyObject *object, const char *name, item_type type, Py_ssize_t count, int writable,
                            Py_buffer *view) {
    static const Py_ssize_t sizes[] = {2, 4, 8, 8};
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return 0;
    if (view->itemsize != sizes[type] || !format_is(view->format, type)) {
        PyErr_Format(PyExc_TypeError, "%s: expected %s items", name, item_name(type));
        PyBuffer_Release(view);
        return 0;
    }
    if (count >= 0 && view->len != count * view->itemsize) {
        PyErr_Format(PyExc_ValueError, "%s: expected %zd items, found %zd", name, count, view->len / view->itemsize);
        PyBuffer_Release(view);
        return 0;
    }
    return 1;
}

/* A new object of a heap type, whose fields are zero; NULL with an exception set. */
static inline void *new_object(PyTypeObject *type) {
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

/* Frees an object of a heap type after its fields. */
static inline void free_object(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

#endif

/* wattloop_planner.frequency._parametric_flow: the Python interface of parametric_flow.h, on the stable ABI. */

#include "buffers.h"
#include "parametric_flow.h"

typedef struct {
    PyObject_HEAD
    network *net;
} parametric_flow;

enum { TAILS, HEADS, FIRST_POINTS, LENGTHS, CAPACITIES, ARRAYS };

static network *network_from(int nodes, int source, int sink, Py_buffer views[ARRAYS]) {
    Py_ssize_t activities = views[TAILS].len / 4, corners = views[LENGTHS].len / 8;
    const int32_t *first_points = views[FIRST_POINTS].buf;
    if (activities >= INT32_MAX / 4 || first_points[activities] != corners) {
        PyErr_SetString(PyExc_ValueError, "first_points: the last must be the number of lengths");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < activities; i++)
        if (first_points[i] < 0 || first_points[i] > first_points[i + 1]) {
            PyErr_SetString(PyExc_ValueError, "first_points: must rise from 0");
            return NULL;
        }
    network_input input = {nodes,
                           (int32_t)activities,
                           source,
                           sink,
                           views[TAILS].buf,
                           views[HEADS].buf,
                           first_points,
                           views[LENGTHS].buf,
                           views[CAPACITIES].buf};
    const char *problem = NULL;
    network *net = network_create(&input, &problem);
    if (net == NULL) {
        if (problem != NULL)
            PyErr_SetString(PyExc_ValueError, problem);
        else
            PyErr_NoMemory();
    }
    return net;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"nodes", "source", "sink", "tails", "heads", "first_points", "lengths", "capacities", NULL};
    static const item_type types[ARRAYS] = {INT32_ITEMS, INT32_ITEMS, INT32_ITEMS, INT64_ITEMS, INT64_ITEMS};
    int nodes, source, sink, taken = 0;
    PyObject *objects[ARRAYS];
    Py_buffer views[ARRAYS];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiiOOOOO", names, &nodes, &source, &sink, &objects[TAILS],
                                     &objects[HEADS], &objects[FIRST_POINTS], &objects[LENGTHS], &objects[CAPACITIES]))
        return NULL;
    for (; taken < ARRAYS; taken++) {
        Py_ssize_t counts[ARRAYS] = {-1, taken > TAILS ? views[TAILS].len / 4 : -1,
                                     taken > TAILS ? views[TAILS].len / 4 + 1 : -1, -1,
                                     taken > LENGTHS ? views[LENGTHS].len / 8 : -1};
        if (!get_items(objects[taken], names[3 + taken], types[taken], counts[taken], 0, &views[taken]))
            break;
    }
    network *net = taken == ARRAYS ? network_from(nodes, source, sink, views) : NULL;
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (net == NULL)
        return NULL;
    parametric_flow *self = new_object(type);
    if (self == NULL)
        network_free(net);
    else
        self->net = net;
    return (PyObject *)self;
}

static void destroy(PyObject *object) {
    network_free(((parametric_flow *)object)->net);
    free_object(object);
}

static PyObject *advance(PyObject *object, PyObject *args) {
    network *net = ((parametric_flow *)object)->net;
    PyObject *targets[2];
    Py_buffer times, rises;
    double until;
    if (!PyArg_ParseTuple(args, "dOO", &until, &targets[0], &targets[1]))
        return NULL;
    if (!get_items(targets[0], "times", INT64_ITEMS, -1, 1, &times))
        return NULL;
    Py_ssize_t most = times.len / 8;
    if (!get_items(targets[1], "rises", DOUBLE_ITEMS, most, 1, &rises)) {
        PyBuffer_Release(&times);
        return NULL;
    }
    int32_t passed = network_advance(net, most < INT32_MAX ? (int32_t)most : INT32_MAX, until, times.buf, rises.buf);
    PyBuffer_Release(&times);
    PyBuffer_Release(&rises);
    return PyLong_FromLong(passed);
}

static PyObject *durations(PyObject *object, PyObject *args) {
    const network *net = ((parametric_flow *)object)->net;
    long long time;
    double unit;
    PyObject *target;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "LdO", &time, &unit, &target))
        return NULL;
    if (time > network_previous_time(net) || time < network_time(net)) {
        PyErr_SetString(PyExc_ValueError, "time: must lie between the time and the previous time");
        return NULL;
    }
    if (!get_items(target, "durations", DOUBLE_ITEMS, -1, 1, &view))
        return NULL;
    Py_ssize_t count = view.len / 8;
    if (count > network_activities(net)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "durations: more items than activities");
        return NULL;
    }
    network_durations(net, time, unit, (int32_t)count, view.buf);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *get_time(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(network_time(((parametric_flow *)object)->net));
}

static PyObject *get_previous_time(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(network_previous_time(((parametric_flow *)object)->net));
}

static PyObject *get_flow(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(network_flow(((parametric_flow *)object)->net));
}

static PyObject *get_spread(PyObject *object, void *Py_UNUSED(closure)) {
    return PyFloat_FromDouble(network_spread(((parametric_flow *)object)->net));
}

static PyObject *get_finished(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(network_finished(((parametric_flow *)object)->net));
}

static PyMethodDef methods[] = {
    {"advance", advance, METH_VARARGS,
     "advance(until, times, rises): go on by up to len(times) breakpoints, or until the spread is `until`; how many."},
    {"durations", durations, METH_VARARGS, "durations(time, unit, out): of the first len(out) activities at that time."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"time", get_time, NULL, "Length of the longest path at the last breakpoint.", NULL},
    {"previous_time", get_previous_time, NULL, "The same at the breakpoint before.", NULL},
    {"flow", get_flow, NULL, "By how much the cost rises per unit of time between the two.", NULL},
    {"spread", get_spread, NULL, "Sum of square root of flow times fall of time over the pieces passed.", NULL},
    {"finished", get_finished, NULL, "Whether no schedule is faster.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_doc, "The time-cost frontier of a project network, computed breakpoint by breakpoint."},
    {0, NULL},
};

static PyType_Spec specification = {
    "wattloop_planner.frequency._parametric_flow.ParametricFlow",
    sizeof(parametric_flow),
    0,
    Py_TPFLAGS_DEFAULT,
    slots,
};

static int execute(PyObject *module) {
    PyObject *type = PyType_FromSpec(&specification);
    if (type == NULL)
        return -1;
    int result = PyModule_AddObjectRef(module, "ParametricFlow", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_parametric_flow", "Parametric flow in compiled code.", 0, NULL, module_slots,
    NULL,                  NULL,               NULL,
};

PyMODINIT_FUNC PyInit__parametric_flow(void) { return PyModuleDef_Init(&definition); }

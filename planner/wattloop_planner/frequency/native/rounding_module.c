/* wattloop_planner.frequency._rounding: the Python interface of rounding.h, on the stable ABI. */

#include "buffers.h"
#include "rounding.h"

typedef struct {
    PyObject_HEAD
    pipeline *pipe;
} python_pipeline;

enum { BEFORES, AFTERS, KIND_OF, FIRST_OPTIONS, TIMES, COSTS, ARRAYS };

static pipeline *pipeline_from(Py_buffer views[ARRAYS]) {
    Py_ssize_t kinds = views[FIRST_OPTIONS].len / 4 - 1, options = views[TIMES].len / 8;
    const int32_t *first_options = views[FIRST_OPTIONS].buf;
    if (kinds < 1 || first_options[kinds] != options) {
        PyErr_SetString(PyExc_ValueError, "first_options: the last must be the number of times");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < kinds; i++)
        if (first_options[i] < 0 || first_options[i] > first_options[i + 1]) {
            PyErr_SetString(PyExc_ValueError, "first_options: must rise from 0");
            return NULL;
        }
    pipeline_input input = {(int32_t)(views[KIND_OF].len / 4),
                            (int32_t)(views[BEFORES].len / 4),
                            (int32_t)kinds,
                            views[BEFORES].buf,
                            views[AFTERS].buf,
                            views[KIND_OF].buf,
                            first_options,
                            views[TIMES].buf,
                            views[COSTS].buf};
    const char *problem = NULL;
    pipeline *pipe = pipeline_create(&input, &problem);
    if (pipe == NULL) {
        if (problem != NULL)
            PyErr_SetString(PyExc_ValueError, problem);
        else
            PyErr_NoMemory();
    }
    return pipe;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"befores", "afters", "kind_of", "first_options", "times", "costs", NULL};
    static const item_type types[ARRAYS] = {INT32_ITEMS, INT32_ITEMS, INT32_ITEMS, INT32_ITEMS, DOUBLE_ITEMS, DOUBLE_ITEMS};
    int taken = 0;
    PyObject *objects[ARRAYS];
    Py_buffer views[ARRAYS];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOO", names, &objects[BEFORES], &objects[AFTERS],
                                     &objects[KIND_OF], &objects[FIRST_OPTIONS], &objects[TIMES], &objects[COSTS]))
        return NULL;
    for (; taken < ARRAYS; taken++) {
        Py_ssize_t count = taken == AFTERS ? views[BEFORES].len / 4 : taken == COSTS ? views[TIMES].len / 8 : -1;
        if (!get_items(objects[taken], names[taken], types[taken], count, 0, &views[taken]))
            break;
    }
    pipeline *pipe = taken == ARRAYS ? pipeline_from(views) : NULL;
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (pipe == NULL)
        return NULL;
    python_pipeline *self = new_object(type);
    if (self == NULL)
        pipeline_free(pipe);
    else
        self->pipe = pipe;
    return (PyObject *)self;
}

static void destroy(PyObject *object) {
    pipeline_free(((python_pipeline *)object)->pipe);
    free_object(object);
}

static int get_plan(PyObject *self, PyObject *object, int checked, Py_buffer *view) {
    const pipeline *pipe = ((python_pipeline *)self)->pipe;
    if (!get_items(object, "plan", INT16_ITEMS, pipeline_operations(pipe), !checked, view))
        return 0;
    if (checked && !pipeline_has_options(pipe, view->buf)) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "plan: an operation has no such option");
        return 0;
    }
    return 1;
}

/* A plan that the function reads and writes. */
static int get_changing_plan(PyObject *self, PyObject *object, Py_buffer *view) {
    if (!get_plan(self, object, 0, view))
        return 0;
    if (pipeline_has_options(((python_pipeline *)self)->pipe, view->buf))
        return 1;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "plan: an operation has no such option");
    return 0;
}

static PyObject *pair(realised result) { return Py_BuildValue("(dd)", result.time, result.cost); }

static PyObject *realise(PyObject *self, PyObject *object) {
    Py_buffer plan;
    if (!get_plan(self, object, 1, &plan))
        return NULL;
    realised result = pipeline_realise(((python_pipeline *)self)->pipe, plan.buf);
    PyBuffer_Release(&plan);
    return pair(result);
}

static PyObject *longest_path(PyObject *self, PyObject *object) {
    pipeline *pipe = ((python_pipeline *)self)->pipe;
    Py_buffer durations;
    if (!get_items(object, "durations", DOUBLE_ITEMS, pipeline_operations(pipe), 0, &durations))
        return NULL;
    double time = pipeline_longest_path(pipe, durations.buf);
    PyBuffer_Release(&durations);
    return PyFloat_FromDouble(time);
}

static PyObject *finish_times(PyObject *self, PyObject *args) {
    pipeline *pipe = ((python_pipeline *)self)->pipe;
    PyObject *durations_object, *finishes_object;
    Py_buffer durations, finishes;
    if (!PyArg_ParseTuple(args, "OO", &durations_object, &finishes_object) ||
        !get_items(durations_object, "durations", DOUBLE_ITEMS, pipeline_operations(pipe), 0, &durations))
        return NULL;
    int right = get_items(finishes_object, "finishes", DOUBLE_ITEMS, pipeline_operations(pipe), 1, &finishes);
    if (right) {
        pipeline_finish_times(pipe, durations.buf, finishes.buf);
        PyBuffer_Release(&finishes);
    }
    PyBuffer_Release(&durations);
    return right ? Py_NewRef(Py_None) : NULL;
}

typedef realised (*rounding)(pipeline *, const double *, double, option_index *);

static PyObject *round_by(PyObject *self, PyObject *args, rounding method) {
    pipeline *pipe = ((python_pipeline *)self)->pipe;
    PyObject *durations_object, *plan_object;
    double deadline;
    Py_buffer durations, plan;
    if (!PyArg_ParseTuple(args, "OdO", &durations_object, &deadline, &plan_object) ||
        !get_items(durations_object, "durations", DOUBLE_ITEMS, pipeline_operations(pipe), 0, &durations))
        return NULL;
    PyObject *result = NULL;
    if (get_plan(self, plan_object, 0, &plan)) {
        result = pair(method(pipe, durations.buf, deadline, plan.buf));
        PyBuffer_Release(&plan);
    }
    PyBuffer_Release(&durations);
    return result;
}

static PyObject *round_durations(PyObject *self, PyObject *args) { return round_by(self, args, pipeline_round); }

static PyObject *fill(PyObject *self, PyObject *args) { return round_by(self, args, pipeline_fill); }

static PyObject *reclaim(PyObject *self, PyObject *object) {
    Py_buffer plan;
    if (!get_changing_plan(self, object, &plan))
        return NULL;
    realised result = pipeline_reclaim(((python_pipeline *)self)->pipe, plan.buf);
    PyBuffer_Release(&plan);
    return pair(result);
}

static PyObject *split(PyObject *self, PyObject *args) {
    pipeline *pipe = ((python_pipeline *)self)->pipe;
    PyObject *until_object, *after_object, *plan_object, *result = NULL;
    double cut;
    Py_buffer until, after, plan;
    if (!PyArg_ParseTuple(args, "OOdO", &until_object, &after_object, &cut, &plan_object) ||
        !get_plan(self, until_object, 1, &until))
        return NULL;
    if (get_plan(self, after_object, 1, &after)) {
        if (get_plan(self, plan_object, 0, &plan)) {
            result = pair(pipeline_split(pipe, until.buf, after.buf, cut, plan.buf));
            PyBuffer_Release(&plan);
        }
        PyBuffer_Release(&after);
    }
    PyBuffer_Release(&until);
    return result;
}

static PyObject *improve(PyObject *self, PyObject *args) {
    PyObject *plan_object;
    double price;
    int trials;
    unsigned long long seed;
    Py_buffer plan;
    if (!PyArg_ParseTuple(args, "OdiK", &plan_object, &price, &trials, &seed) ||
        !get_changing_plan(self, plan_object, &plan))
        return NULL;
    realised result = pipeline_improve(((python_pipeline *)self)->pipe, plan.buf, price, trials, seed);
    PyBuffer_Release(&plan);
    return pair(result);
}

static PyMethodDef methods[] = {
    {"realise", realise, METH_O, "realise(plan): its time and cost."},
    {"longest_path", longest_path, METH_O, "longest_path(durations)"},
    {"finish_times", finish_times, METH_VARARGS, "finish_times(durations, out): when each operation ends."},
    {"round", round_durations, METH_VARARGS, "round(durations, deadline, out): a plan that meets the deadline."},
    {"fill", fill, METH_VARARGS, "fill(durations, deadline, out): the same; slack is not reclaimed."},
    {"reclaim", reclaim, METH_O, "reclaim(plan): slow operations down within its time, in place."},
    {"split", split, METH_VARARGS, "split(until, after, cut, out): one plan until the cut, then the other."},
    {"improve", improve, METH_VARARGS, "improve(plan, price, trials, seed): local search on cost + price * time."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Operations, precedences and the options of each kind; creates and evaluates plans."},
    {0, NULL},
};

static PyType_Spec specification = {
    "wattloop_planner.frequency._rounding.Pipeline", sizeof(python_pipeline), 0, Py_TPFLAGS_DEFAULT, slots,
};

static int execute(PyObject *module) {
    PyObject *type = PyType_FromSpec(&specification);
    if (type == NULL)
        return -1;
    int result = PyModule_AddObjectRef(module, "Pipeline", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_rounding", "Real plans in compiled code.", 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rounding(void) { return PyModuleDef_Init(&definition); }

/* wattloop_planner.bandit._cost_model: the Python interface of conditioning.h, trial_value.h and normal.h, on the stable
 * ABI. */

#include "buffers.h"
#include "conditioning.h"
#include "normal.h"
#include "trial_value.h"

/* An argument that is an array of float64, its name and its number of items; -1: any. */
typedef struct {
    const char *name;
    Py_ssize_t count;
    int writable;
} argument;

/* Fill the views of arrays; returns 0, with an exception set and no view held, if one does not fit. */
static int get_arrays(PyObject *const objects[], const argument arguments[], Py_ssize_t count, Py_buffer views[]) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (!get_items(objects[i], arguments[i].name, DOUBLE_ITEMS, arguments[i].count, arguments[i].writable,
                       &views[i])) {
            while (i > 0)
                PyBuffer_Release(&views[--i]);
            return 0;
        }
    return 1;
}

static void release(Py_buffer views[], Py_ssize_t count) {
    while (count > 0)
        PyBuffer_Release(&views[--count]);
}

/* The number of items of an array; -1 with an exception set if it is none. */
static Py_ssize_t items_of(PyObject *object, const char *name) {
    Py_buffer view;
    if (!get_items(object, name, DOUBLE_ITEMS, -1, 0, &view))
        return -1;
    Py_ssize_t count = view.len / view.itemsize;
    PyBuffer_Release(&view);
    return count;
}

static PyObject *normal_cdf_of(PyObject *module, PyObject *value) {
    (void)module;
    double x = PyFloat_AsDouble(value);
    return x == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(normal_cdf(x));
}

static PyObject *log_normal_cdf_of(PyObject *module, PyObject *value) {
    (void)module;
    double x = PyFloat_AsDouble(value);
    return x == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(log_normal_cdf(x));
}

static PyObject *log_limit_factor_of(PyObject *module, PyObject *args) {
    (void)module;
    double log_epochs, spread, log_limit;
    if (!PyArg_ParseTuple(args, "ddd", &log_epochs, &spread, &log_limit))
        return NULL;
    return PyFloat_FromDouble(log_limit_factor(log_epochs, spread, log_limit));
}

static PyObject *condition_mixture_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *objects[6];
    if (!PyArg_ParseTuple(args, "OOOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4], &objects[5]))
        return NULL;
    Py_ssize_t arms = items_of(objects[3], "precisions");
    if (arms < 0)
        return NULL;
    argument arguments[] = {{"means", -1, 0},         {"covariance", arms * arms, 0}, {"values", arms, 0},
                            {"precisions", arms, 0}, {"mean", arms, 1},              {"posterior", arms * arms, 1}};
    Py_buffer views[6];
    if (!get_arrays(objects, arguments, 6, views))
        return NULL;
    Py_ssize_t items = views[0].len / views[0].itemsize;
    PyObject *result = NULL;
    if (arms == 0 || items == 0 || items % arms) {
        PyErr_SetString(PyExc_ValueError, "means: expected rows of as many items as precisions");
    } else {
        mixture prior = {items / arms, arms, views[0].buf, views[1].buf, views[2].buf, views[3].buf};
        conditioning found = condition_mixture(&prior, views[4].buf, views[5].buf);
        result = found == NO_MEMORY ? PyErr_NoMemory() : PyBool_FromLong(found == CONDITIONED);
    }
    release(views, 6);
    return result;
}

enum { LOG_COST, COVARIANCE, LOG_EPOCHS, EPOCHS_COVARIANCE, MOMENTS_OF_ARMS, POSTERIOR_VIEWS };

/* Fill the views of a cost posterior's arrays. */
static int get_posterior(PyObject *const objects[], int fills_moments, Py_buffer views[], cost_posterior *cost) {
    Py_ssize_t arms = items_of(objects[LOG_COST], "log_cost");
    if (arms < 0)
        return 0;
    argument arguments[] = {{"log_cost", arms, 0},
                            {"covariance", arms * arms, 0},
                            {"log_epochs", arms, 0},
                            {"epochs_covariance", arms * arms, 0},
                            {"moments", MOMENTS * arms, fills_moments}};
    if (!get_arrays(objects, arguments, POSTERIOR_VIEWS, views))
        return 0;
    cost->arms = arms;
    cost->log_cost = views[LOG_COST].buf;
    cost->covariance = views[COVARIANCE].buf;
    cost->log_epochs = views[LOG_EPOCHS].buf;
    cost->epochs_covariance = views[EPOCHS_COVARIANCE].buf;
    return 1;
}

static PyObject *expected_costs_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *objects[POSTERIOR_VIEWS];
    Py_buffer views[POSTERIOR_VIEWS];
    cost_posterior cost;
    if (!PyArg_ParseTuple(args, "OOOOddO", &objects[0], &objects[1], &objects[2], &objects[3], &cost.noise_sd,
                          &cost.log_limit, &objects[4]) ||
        !get_posterior(objects, 1, views, &cost))
        return NULL;
    int is_limited = expected_costs(&cost, views[MOMENTS_OF_ARMS].buf);
    release(views, POSTERIOR_VIEWS);
    return PyBool_FromLong(is_limited);
}

/* The flags of the arms offered as an array of bool; 0 with an exception set if it is none. */
static int get_offered(PyObject *object, Py_ssize_t arms, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS) < 0)
        return 0;
    if (view->itemsize == 1 && view->len == arms)
        return 1;
    PyErr_Format(PyExc_ValueError, "offered: expected %zd flags", arms);
    PyBuffer_Release(view);
    return 0;
}

/* A quadrature rule from an array of nodes and weights. */
static int get_rule(PyObject *object, Py_buffer *view, quadrature *rule) {
    if (!get_items(object, "rule", DOUBLE_ITEMS, -1, 0, view))
        return 0;
    *rule = (quadrature){view->len / view->itemsize / 2, view->buf};
    return 1;
}

static PyObject *gain_of(const cost_posterior *cost, const double *moments, int is_limited, const char *offered,
                         Py_ssize_t incumbent, Py_ssize_t arm, double spread, quadrature rule) {
    if (incumbent < 0 || incumbent >= cost->arms || arm < 0 || arm >= cost->arms) {
        PyErr_SetString(PyExc_IndexError, "no such arm");
        return NULL;
    }
    double *scratch = PyMem_Malloc(4 * (size_t)cost->arms * sizeof *scratch);
    if (scratch == NULL)
        return PyErr_NoMemory();
    double gain = knowledge_gain(cost, moments, is_limited, offered, incumbent, arm, spread, rule, scratch);
    PyMem_Free(scratch);
    return PyFloat_FromDouble(gain);
}

static PyObject *knowledge_gain_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *objects[POSTERIOR_VIEWS], *offered_object, *rule_object, *result = NULL;
    Py_buffer views[POSTERIOR_VIEWS], offered, rule_view;
    cost_posterior cost;
    quadrature rule;
    int is_limited;
    Py_ssize_t incumbent, arm;
    double spread;
    if (!PyArg_ParseTuple(args, "OOOOddOpOnndO", &objects[0], &objects[1], &objects[2], &objects[3], &cost.noise_sd,
                          &cost.log_limit, &objects[4], &is_limited, &offered_object, &incumbent, &arm, &spread,
                          &rule_object) ||
        !get_posterior(objects, 0, views, &cost))
        return NULL;
    if (get_offered(offered_object, cost.arms, &offered)) {
        if (get_rule(rule_object, &rule_view, &rule)) {
            result = gain_of(&cost, views[MOMENTS_OF_ARMS].buf, is_limited, offered.buf, incumbent, arm, spread, rule);
            PyBuffer_Release(&rule_view);
        }
        PyBuffer_Release(&offered);
    }
    release(views, POSTERIOR_VIEWS);
    return result;
}

static PyObject *best_stop_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object;
    Py_buffer stops;
    trial run;
    if (!PyArg_ParseTuple(args, "Odddddddd", &object, &run.mean, &run.spread, &run.failing, &run.horizon, &run.paid,
                          &run.limit, &run.max_stop, &run.retry) ||
        !get_items(object, "stops", DOUBLE_ITEMS, -1, 0, &stops))
        return NULL;
    stop_choice best = best_stop(stops.buf, stops.len / stops.itemsize, &run);
    PyBuffer_Release(&stops);
    return Py_BuildValue("(dd)", best.remaining, best.stop);
}

static PyObject *probe_option_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *stops_object, *rule_object;
    Py_buffer stops, rule_view;
    quadrature rule;
    trial run = {.paid = 0.0};
    double log_epoch_cost, epoch_cost_sd;
    if (!PyArg_ParseTuple(args, "OdddddddddO", &stops_object, &run.mean, &run.spread, &run.failing, &run.horizon,
                          &run.limit, &run.max_stop, &run.retry, &log_epoch_cost, &epoch_cost_sd, &rule_object) ||
        !get_items(stops_object, "stops", DOUBLE_ITEMS, -1, 0, &stops))
        return NULL;
    PyObject *result = NULL;
    if (get_rule(rule_object, &rule_view, &rule)) {
        Py_ssize_t count = stops.len / stops.itemsize;
        result = PyFloat_FromDouble(probe_option(stops.buf, count, &run, log_epoch_cost, epoch_cost_sd, rule));
        PyBuffer_Release(&rule_view);
    }
    PyBuffer_Release(&stops);
    return result;
}

static PyMethodDef methods[] = {
    {"normal_cdf", normal_cdf_of, METH_O, "normal_cdf(x): probability of a standard normal value below x."},
    {"log_normal_cdf", log_normal_cdf_of, METH_O, "log_normal_cdf(x): its logarithm."},
    {"log_limit_factor", log_limit_factor_of, METH_VARARGS, "log_limit_factor(log_epochs, spread, log_limit)"},
    {"condition_mixture", condition_mixture_of, METH_VARARGS,
     "condition_mixture(means, covariance, values, precisions, mean, posterior): fill the last two; returns whether the "
     "covariance of the values is positive definite."},
    {"expected_costs", expected_costs_of, METH_VARARGS,
     "expected_costs(log_cost, covariance, log_epochs, epochs_covariance, noise_sd, log_limit, moments): fill the last; "
     "returns whether the limit has an effect."},
    {"knowledge_gain", knowledge_gain_of, METH_VARARGS,
     "knowledge_gain(log_cost, covariance, log_epochs, epochs_covariance, noise_sd, log_limit, moments, is_limited, "
     "offered, incumbent, arm, spread, rule)"},
    {"best_stop", best_stop_of, METH_VARARGS,
     "best_stop(stops, mean, spread, failing, horizon, paid, limit, max_stop, retry): remaining cost, and the stop."},
    {"probe_option", probe_option_of, METH_VARARGS,
     "probe_option(stops, mean, spread, failing, horizon, limit, max_stop, retry, log_epoch_cost, epoch_cost_sd, rule)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_cost_model", "The model of costs in compiled code.", 0, methods, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__cost_model(void) { return PyModuleDef_Init(&definition); }

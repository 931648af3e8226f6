/* A project network in memory: what network.c makes and parametric_flow.c works on. */

#ifndef WATTLOOP_NETWORK_H
#define WATTLOOP_NETWORK_H

#include "parametric_flow.h"

/* A step from a node: 2 * activity along its direction, 2 * activity + 1 against it. */
#define STEP_ACTIVITY(step) ((step) >> 1)
#define STEP_IS_BACKWARD(step) ((step) & 1)
#define NO_LENGTH (-1)

/* An activity stands for parallel arcs, one a corner. In an optimum the longer arcs fill first, so the whole state is the
 * corner that is being filled and how far. */
typedef struct {
    int32_t tail, head;
    int32_t corner, fastest, slowest;
    int64_t length;      /* of the corner being filled: what a schedule must leave between tail and head to shorten it */
    int64_t next_length; /* of the next slower corner, which is full; NO_LENGTH where there is none */
    int64_t filled, room;
} activity;

struct network {
    int32_t nodes, activity_count, source, sink;
    activity *activities;
    int64_t *lengths, *capacities;
    int32_t *first_steps, *steps; /* the steps out of each node */
    int32_t *targets;             /* where each of them leads: beside the steps, as it is looked at most often */
    int64_t *potentials;
    int64_t flow, time, previous_time;
    int finished;

    /* One search: a node is reached when its mark is the search's stamp. */
    int32_t stamp, reached_count;
    int32_t *marks, *reached, *arrivals, *positions, *path, *stack;
    int64_t *distances;

    /* Steps that leave the reached nodes with slack, a heap by distance once the search goes beyond tight steps. */
    int32_t boundary_count;
    int32_t *boundary_steps;
    int64_t *boundary_distances;
};

static inline int32_t step_target(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    return STEP_IS_BACKWARD(step) ? a->tail : a->head;
}

static inline int32_t step_origin(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    return STEP_IS_BACKWARD(step) ? a->head : a->tail;
}

/* By how much T must fall before the step may carry flow; 0: it may now; NO_LENGTH: it never may. The step leads from an
 * origin with this potential to the target: given, as looking them up again is what a search would spend its time on. */
static inline int64_t step_slack(const network *net, int32_t step, int64_t origin_potential, int32_t target) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    int64_t rise = net->potentials[target] - origin_potential;
    if (!STEP_IS_BACKWARD(step))
        return rise - a->length;
    if (a->filled > 0)
        return 0;
    return a->next_length == NO_LENGTH ? NO_LENGTH : a->next_length + rise;
}

static inline int64_t step_residual(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    if (!STEP_IS_BACKWARD(step))
        return a->corner > a->fastest ? a->room : UNLIMITED;
    return a->filled > 0 ? a->filled : net->capacities[a->corner + 1];
}

static inline void go_to_corner(network *net, activity *a, int32_t corner, int64_t filled) {
    a->corner = corner;
    a->length = net->lengths[corner];
    a->next_length = corner < a->slowest ? net->lengths[corner + 1] : NO_LENGTH;
    a->filled = filled;
    a->room = net->capacities[corner] - filled;
}

/* Returns whether the step is saturated afterwards. */
static inline int push_flow(network *net, int32_t step, int64_t amount) {
    activity *a = &net->activities[STEP_ACTIVITY(step)];
    if (STEP_IS_BACKWARD(step)) {
        if (a->filled == 0)
            go_to_corner(net, a, a->corner + 1, net->capacities[a->corner + 1]);
        a->filled -= amount;
        a->room += amount;
        return a->filled == 0;
    }
    a->filled += amount;
    if (a->corner == a->fastest)
        return 0;
    a->room -= amount;
    if (a->room > 0)
        return 0;
    go_to_corner(net, a, a->corner - 1, 0);
    return 1;
}

#endif

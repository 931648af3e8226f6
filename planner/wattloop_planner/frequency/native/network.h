/* A project network in memory: network.c creates it, augmentation.c and search.c operate on it, parametric_flow.c
 * controls them. */

#ifndef WATTLOOP_NETWORK_H
#define WATTLOOP_NETWORK_H

#include "parametric_flow.h"

/* Flow can go along an activity, step 2 * activity, and against it, step 2 * activity + 1. */
#define STEP_ACTIVITY(step) ((step) >> 1)
#define STEP_IS_BACKWARD(step) ((step) & 1)
#define OPPOSITE(step) ((step) ^ 1)
#define NO_LENGTH (-1)
#define NO_PLACE (-1)
/* Lower bound of the slack of a step that can never carry flow; all other slacks are far below. */
#define NEVER (UNLIMITED / 2)

/* A search goes along the flow from the source, or against it from the sink. */
typedef enum { FROM_SOURCE, FROM_SINK, DIRECTIONS } direction;

/* An activity represents parallel arcs, one per corner. In an optimum the longer arcs fill first, so the state is the
 * corner being filled and its fill. */
typedef struct {
    int64_t filled, room; /* of the corner being filled */
    int32_t corner, fastest, slowest;
    int32_t tail, head;
} activity;

typedef struct {
    int64_t potential;
    int32_t mark; /* a node is reached if its mark equals the search's stamp */
    int32_t first_link;
} event;

/* The data that a search reads, in one place: the node that a step leads to (in a search from the sink: comes from), and
 * the minimum rise of the potential along the step. The step can carry flow if the rise equals it. */
typedef struct {
    int64_t need;
    int32_t node, step;
} flow_link;

/* The link of the last flow out of a node, and the node it leads to; place is NO_PLACE before any flow. */
typedef struct {
    int32_t node, place;
} onward_link;

/* The step by which a search reached a node. */
typedef struct {
    int32_t from, step;
} arrival;

/* A step with slack that leaves the reached nodes. */
typedef struct {
    int64_t distance;
    int32_t from, place;
} exit_step;

struct network {
    int32_t nodes, activity_count, ends[DIRECTIONS]; /* where each search starts: the source, the sink */
    activity *activities;
    int64_t *lengths, *capacities;
    event *events;                   /* one more than nodes, for the end of the last node's links */
    flow_link *links[DIRECTIONS];    /* of each node, at the same places for both directions */
    int32_t *places;                 /* of each step, its place among the links of its origin */
    onward_link *onward[DIRECTIONS]; /* of each node */
    int64_t flow, time, previous_time;
    int64_t piece_flow; /* on the linear piece that ends at the time; the flow may have risen since */
    __int128 rise; /* of the cost relative to the slowest schedule */
    double spread;
    int finished, balanced; /* balanced: several paths were tight at the last breakpoint */

    direction searched; /* by the last search */
    int32_t stamp, reached_count;
    int32_t *reached, *positions, *stack, *path;
    arrival *arrivals;
    int64_t *distances;
    int32_t boundary_count;
    exit_step *boundary; /* a heap by distance once the search continues beyond tight steps */
};

static inline int32_t step_origin(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    return STEP_IS_BACKWARD(step) ? a->head : a->tail;
}

/* Fall of T after which the link's step can carry flow; 0: now; NEVER or more: never. */
static inline int64_t link_slack(const flow_link *l, direction from, int64_t potential, int64_t next_potential) {
    int64_t rise = from == FROM_SOURCE ? next_potential - potential : potential - next_potential;
    return rise - l->need;
}

static inline void reach(network *net, int32_t node, int32_t from, int32_t step, int64_t distance) {
    net->events[node].mark = net->stamp;
    net->arrivals[node] = (arrival){from, step};
    net->distances[node] = distance;
    net->reached[net->reached_count++] = node;
}

/* ---- network.c ---- */

/* Update the needs of the activity's two steps in their links. */
void refresh_links(network *net, int32_t index);

/* ---- augmentation.c: flow along tight steps, at constant time ---- */

/* Augment along the path on which the last search reached the other end. Returns the flow pushed, UNLIMITED if the path is
 * unbounded, and in *next the end from which a search will probably reach fewer nodes. */
int64_t augment_found_path(network *net, direction *next);

/* Augment along at most limit tight paths, depth first: long paths balance the flow of many microbatches at once. Returns
 * the flow pushed, UNLIMITED if a path is unbounded. */
int64_t augment_depth_first(network *net, int32_t limit);

/* Augment along shortest tight paths until none is left (Edmonds and Karp: their number does not depend on capacities). */
int64_t augment_breadth_first(network *net);

/* ---- search.c ---- */

/* Reach all nodes along tight steps, and collect the steps with slack that leave them. Returns whether the search reached
 * the other end, where it stops. */
int search_tight(network *net, direction from);

/* Continue the search by distance (Dijkstra) until it reaches the other end. Returns the distance, NO_LENGTH if it cannot
 * be reached. */
int64_t search_beyond(network *net);

#endif

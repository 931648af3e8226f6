/* A project network in memory: network.c makes it, augmentation.c and search.c work on it, parametric_flow.c leads. */

#ifndef WATTLOOP_NETWORK_H
#define WATTLOOP_NETWORK_H

#include "parametric_flow.h"

/* Flow may go along an activity, step 2 * activity, and against it, step 2 * activity + 1. */
#define STEP_ACTIVITY(step) ((step) >> 1)
#define STEP_IS_BACKWARD(step) ((step) & 1)
#define OPPOSITE(step) ((step) ^ 1)
#define NO_LENGTH (-1)
#define NO_PLACE (-1)
/* The slack of a step that can never carry flow is at least this; all others are far below. */
#define NEVER (UNLIMITED / 2)

/* A search follows the flow from the source, or goes against it from the sink. */
typedef enum { FROM_SOURCE, FROM_SINK, DIRECTIONS } direction;

/* An activity stands for parallel arcs, one a corner. In an optimum the longer arcs fill first, so the whole state is the
 * corner that is being filled and how far. */
typedef struct {
    int64_t filled, room; /* of the corner being filled */
    int32_t corner, fastest, slowest;
    int32_t tail, head;
} activity;

typedef struct {
    int64_t potential;
    int32_t mark; /* a node is reached when its mark is the search's stamp */
    int32_t first_link;
} event;

/* What a search looks at, all in one place: the node that a step leads to (from the sink: comes from), and by how much the
 * potential must rise along the step at least. The step may carry flow when it rises by no more. */
typedef struct {
    int64_t need;
    int32_t node, step;
} flow_link;

/* The link by which flow last went on from a node, and where it leads; place NO_PLACE before any did. */
typedef struct {
    int32_t node, place;
} onward_link;

/* How a search came to a node. */
typedef struct {
    int32_t from, step;
} arrival;

/* A step that leaves the reached nodes, with slack. */
typedef struct {
    int64_t distance;
    int32_t from, place;
} exit_step;

struct network {
    int32_t nodes, activity_count, ends[DIRECTIONS]; /* where each search starts: the source, the sink */
    activity *activities;
    int64_t *lengths, *capacities;
    event *events;                   /* one more than nodes, for the end of the last one's links */
    flow_link *links[DIRECTIONS];    /* of each node, in the same places for both directions */
    int32_t *places;                 /* of each step, where it stands among the links of its origin */
    onward_link *onward[DIRECTIONS]; /* of each node */
    int64_t flow, time, previous_time;
    int64_t piece_flow; /* on the straight piece that ends at the time; the flow may have been raised since */
    __int128 rise; /* of the cost since the slowest schedule */
    double spread;
    int finished, balanced; /* balanced: at the last breakpoint more paths were tight than the one found before */

    direction searched; /* by the last search */
    int32_t stamp, reached_count;
    int32_t *reached, *positions, *stack, *path;
    arrival *arrivals;
    int64_t *distances;
    int32_t boundary_count;
    exit_step *boundary; /* a heap by distance once the search goes beyond tight steps */
};

static inline int32_t step_origin(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    return STEP_IS_BACKWARD(step) ? a->head : a->tail;
}

/* By how much T must fall before the link's step may carry flow; 0: it may now; NEVER or more: it never may. */
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

/* Write what the activity's two steps now need into their links. */
void refresh_links(network *net, int32_t index);

/* ---- augmentation.c: flow along tight steps; time stays ---- */

/* Augment along the way by which the last search came to the other end. Returns the flow pushed, UNLIMITED when that way
 * has no bound, and in *next from which end a search will probably reach less. */
int64_t augment_found_path(network *net, direction *next);

/* Augment along tight paths, at most so many, depth first: its long paths level the flow of many microbatches at once.
 * Returns the flow pushed, UNLIMITED when a path has no bound. */
int64_t augment_depth_first(network *net, int32_t limit);

/* Augment along shortest tight paths until there is none (Edmonds and Karp: a bounded number, whatever the capacities). */
int64_t augment_breadth_first(network *net);

/* ---- search.c ---- */

/* Reach all nodes that tight steps lead to, and collect the steps that leave them with slack. Returns whether the
 * other end is among them; the search stops there. */
int search_tight(network *net, direction from);

/* Carry the search on by distance (Dijkstra) until it reaches the other end. Returns the distance, NO_LENGTH when it cannot
 * be reached. */
int64_t search_beyond(network *net);

#endif

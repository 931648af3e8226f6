/* The whole time-cost frontier of a project network, by parametric flow. Method and proof: docs/frequency.md.
 *
 * An activity runs from node tail to node head. Its cost is convex and piecewise linear in its duration, with corners at
 * lengths[first_points[a] .. first_points[a + 1]), fastest first. capacities[k] is by how much the slope changes at corner
 * k; the fastest corner's capacity is unlimited. A precedence is an activity with the one corner 0.
 *
 * Everything is a whole number of the caller's units, so no sum is rounded and no step is lost. */

#ifndef WATTLOOP_PARAMETRIC_FLOW_H
#define WATTLOOP_PARAMETRIC_FLOW_H

#include <stdint.h>

#define UNLIMITED (INT64_MAX / 4)

typedef struct network network;

typedef struct {
    int32_t nodes, activities, source, sink;
    const int32_t *tails, *heads, *first_points;
    const int64_t *lengths, *capacities;
} network_input;

/* Longest-path potentials at the slowest corners, no flow. NULL with *problem set when the input cannot be right, with
 * *problem NULL when memory is short. */
network *network_create(const network_input *input, const char **problem);
void network_free(network *net);

/* Go on by at most so many breakpoints of the frontier, and no further than to the first at which the spread is `until`.
 * Writes the time of each, and by how much the cost has risen since the slowest schedule (exact, rounded once). Returns how
 * many were passed, 0 when no schedule is faster. */
int32_t network_advance(network *net, int32_t most, double until, int64_t *times, double *rises);

/* Between the previous time and the time the frontier is straight, and its slope is minus the flow. */
int64_t network_time(const network *net);
int64_t network_previous_time(const network *net);
int64_t network_flow(const network *net);
/* The sum of square root of flow times fall of time over the straight pieces passed. */
double network_spread(const network *net);
/* Whether no schedule is faster. */
int network_finished(const network *net);
int32_t network_activities(const network *net);

/* Durations of the first count activities in an optimal schedule of this time, which lies between the previous time and
 * the time; in multiples of unit. */
void network_durations(const network *net, int64_t time, double unit, int32_t count, double *durations);

#endif

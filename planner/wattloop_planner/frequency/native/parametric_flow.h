/* The complete time-cost frontier of a project network, by parametric flow. Method and proof: docs/internals/frequency.md.
 *
 * An activity runs from node tail to node head. Its cost is convex and piecewise linear in its duration, with corners at
 * lengths[first_points[a] .. first_points[a + 1]), fastest first. capacities[k] is the change of slope at corner k;
 * the fastest corner's capacity is unlimited. A precedence is an activity with the single corner 0.
 *
 * All values are integers in the caller's units, so sums are exact. */

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

/* Longest-path potentials at the slowest corners, without flow. Returns NULL with *problem set if the input is invalid,
 * and with *problem NULL if memory is exhausted. */
network *network_create(const network_input *input, const char **problem);
void network_free(network *net);

/* Advance by at most max_count breakpoints of the frontier, and to the first at which the spread reaches `until`. Writes
 * the time of each, and the rise of the cost since the slowest schedule (exact, rounded once). Returns the number of
 * breakpoints passed, 0 if no schedule is faster. */
int32_t network_advance(network *net, int32_t max_count, double until, int64_t *times, double *rises);

/* Between the previous time and the time, the frontier is linear, and its slope is minus the flow. */
int64_t network_time(const network *net);
int64_t network_previous_time(const network *net);
int64_t network_flow(const network *net);
/* The sum over the pieces passed of the square root of the flow times the fall of the time. */
double network_spread(const network *net);
/* Whether no schedule is faster. */
int network_finished(const network *net);
int32_t network_activities(const network *net);

/* Durations of the first count activities in an optimal schedule of this time, between the previous time and the time; in
 * multiples of unit. */
void network_durations(const network *net, int64_t time, double unit, int32_t count, double *durations);

#endif

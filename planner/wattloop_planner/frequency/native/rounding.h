/* Plans from relaxed durations: one option per operation. Method: docs/internals/frequency.md.
 *
 * The options of an operation are those of its kind, fastest first, with falling cost. A plan is one option index (0: the
 * fastest) per operation; its time is the longest path through the chosen durations, its cost the sum of the chosen
 * costs. */

#ifndef WATTLOOP_ROUNDING_H
#define WATTLOOP_ROUNDING_H

#include <stdint.h>

typedef int16_t option_index;

typedef struct pipeline pipeline;

typedef struct {
    int32_t operations, edges, kinds;
    const int32_t *befores, *afters;      /* an edge: the operation before, the operation after */
    const int32_t *kind_of;               /* the kind of each operation */
    const int32_t *first_options;         /* kinds + 1 places in times and costs */
    const double *times, *costs;
} pipeline_input;

typedef struct {
    double time, cost;
} realised;

/* Returns NULL with *problem set if the input is invalid, and with *problem NULL if memory is exhausted. */
pipeline *pipeline_create(const pipeline_input *input, const char **problem);
void pipeline_free(pipeline *pipe);
int32_t pipeline_operations(const pipeline *pipe);
int pipeline_has_options(const pipeline *pipe, const option_index *plan);

realised pipeline_realise(pipeline *pipe, const option_index *plan);
double pipeline_longest_path(pipeline *pipe, const double *durations);
void pipeline_finish_times(pipeline *pipe, const double *durations, double *finishes);

/* A plan that meets the deadline, which the durations must meet: each operation, in topological order, takes its slowest
 * option that ends by its latest finish under the durations. Then slack is reclaimed. */
realised pipeline_round(pipeline *pipe, const double *durations, double deadline, option_index *plan);

/* As pipeline_round, but without reclaiming slack. An operation that cannot end by its latest finish takes its fastest
 * option, so the durations need not meet the deadline. */
realised pipeline_fill(pipeline *pipe, const double *durations, double deadline, option_index *plan);

/* Slow down operations within the plan's own time. */
realised pipeline_reclaim(pipeline *pipe, option_index *plan);

/* Follow the first plan until the cut, in its time, then the second plan; then reclaim slack. */
realised pipeline_split(pipeline *pipe, const option_index *until, const option_index *after, double cut,
                        option_index *plan);

/* Local search on cost + price * time: random single changes of an option, each with its slack reclaimed. */
realised pipeline_improve(pipeline *pipe, option_index *plan, double price, int32_t trials, uint64_t seed);

#endif

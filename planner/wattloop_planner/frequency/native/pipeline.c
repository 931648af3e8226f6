#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

static const char *check(const pipeline_input *in) {
    if (in->operations < 1 || in->kinds < 1 || in->first_options[0] != 0)
        return "there must be operations and kinds";
    for (int32_t i = 0; i < in->edges; i++)
        if (in->befores[i] < 0 || in->befores[i] >= in->operations || in->afters[i] < 0 ||
            in->afters[i] >= in->operations)
            return "an edge's operation is out of range";
    for (int32_t i = 0; i < in->operations; i++)
        if (in->kind_of[i] < 0 || in->kind_of[i] >= in->kinds)
            return "an operation's kind is out of range";
    for (int32_t kind = 0; kind < in->kinds; kind++) {
        int32_t first = in->first_options[kind], end = in->first_options[kind + 1];
        if (first >= end || end - first > INT16_MAX)
            return "every kind needs an option, and at most 32767";
        for (int32_t at = first + 1; at < end; at++)
            if (in->times[at] <= in->times[at - 1] || in->costs[at] >= in->costs[at - 1])
                return "a kind's times must rise and its costs fall";
    }
    return NULL;
}

static void *copied(const void *source, size_t size) {
    void *target = malloc(size > 0 ? size : 1);
    if (target != NULL && size > 0)
        memcpy(target, source, size);
    return target;
}

static int allocate(pipeline *pipe, const pipeline_input *in) {
    size_t operations = (size_t)in->operations, edges = (size_t)in->edges;
    size_t options = (size_t)in->first_options[in->kinds];
    pipe->order = malloc(operations * sizeof(int32_t));
    pipe->first_before = calloc(operations + 1, sizeof(int32_t));
    pipe->first_after = calloc(operations + 1, sizeof(int32_t));
    pipe->befores = malloc((edges + 1) * sizeof(int32_t));
    pipe->afters = malloc((edges + 1) * sizeof(int32_t));
    pipe->fastest = malloc(operations * sizeof(int32_t));
    pipe->option_counts = malloc(operations * sizeof(int32_t));
    pipe->times = copied(in->times, options * sizeof(double));
    pipe->costs = copied(in->costs, options * sizeof(double));
    pipe->finishes = malloc(operations * sizeof(double));
    pipe->latest = malloc(operations * sizeof(double));
    pipe->durations = malloc(operations * sizeof(double));
    pipe->trial = malloc(operations * sizeof(option_index));
    pipe->rounded = calloc(operations, sizeof(option_index));
    return pipe->order && pipe->first_before && pipe->first_after && pipe->befores && pipe->afters && pipe->fastest &&
           pipe->option_counts && pipe->times && pipe->costs && pipe->finishes && pipe->latest && pipe->durations &&
           pipe->trial && pipe->rounded;
}

/* Group the edges' other ends by operation; `next` is scratch memory. */
static void group(int32_t operations, int32_t edges, const int32_t *by, const int32_t *other, int32_t *first,
                  int32_t *grouped, int32_t *next) {
    for (int32_t i = 0; i < edges; i++)
        first[by[i] + 1]++;
    for (int32_t i = 0; i < operations; i++)
        first[i + 1] += first[i];
    memcpy(next, first, (size_t)operations * sizeof(int32_t));
    for (int32_t i = 0; i < edges; i++)
        grouped[next[by[i]]++] = other[i];
}

/* Topological order (Kahn); returns 0 on a cycle. */
static int sort_topologically(pipeline *pipe, int32_t *missing) {
    int32_t ready = 0;
    for (int32_t i = 0; i < pipe->operations; i++) {
        missing[i] = pipe->first_before[i + 1] - pipe->first_before[i];
        if (missing[i] == 0)
            pipe->order[ready++] = i;
    }
    for (int32_t done = 0; done < ready; done++)
        for (int32_t at = pipe->first_after[pipe->order[done]]; at < pipe->first_after[pipe->order[done] + 1]; at++)
            if (--missing[pipe->afters[at]] == 0)
                pipe->order[ready++] = pipe->afters[at];
    return ready == pipe->operations;
}

pipeline *pipeline_create(const pipeline_input *in, const char **problem) {
    *problem = check(in);
    if (*problem != NULL)
        return NULL;
    pipeline *pipe = calloc(1, sizeof(pipeline));
    if (pipe == NULL)
        return NULL;
    if (!allocate(pipe, in)) {
        pipeline_free(pipe);
        return NULL;
    }
    pipe->operations = in->operations;
    int32_t *scratch = pipe->option_counts;
    group(in->operations, in->edges, in->afters, in->befores, pipe->first_before, pipe->befores, scratch);
    group(in->operations, in->edges, in->befores, in->afters, pipe->first_after, pipe->afters, scratch);
    if (!sort_topologically(pipe, scratch)) {
        *problem = "the operations wait for each other in a cycle";
        pipeline_free(pipe);
        return NULL;
    }
    for (int32_t i = 0; i < in->operations; i++) {
        pipe->fastest[i] = in->first_options[in->kind_of[i]];
        pipe->option_counts[i] = in->first_options[in->kind_of[i] + 1] - pipe->fastest[i];
    }
    return pipe;
}

int32_t pipeline_operations(const pipeline *pipe) { return pipe->operations; }

int pipeline_has_options(const pipeline *pipe, const option_index *plan) {
    for (int32_t i = 0; i < pipe->operations; i++)
        if (plan[i] < 0 || plan[i] >= pipe->option_counts[i])
            return 0;
    return 1;
}

void pipeline_free(pipeline *pipe) {
    if (pipe == NULL)
        return;
    void *parts[] = {pipe->order,         pipe->first_before, pipe->befores, pipe->first_after, pipe->afters,
                     pipe->fastest,       pipe->option_counts, pipe->times,   pipe->costs,       pipe->finishes,
                     pipe->latest,        pipe->durations,    pipe->trial,   pipe->rounded};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    free(pipe);
}

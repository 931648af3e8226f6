#include "pipeline.h"

#include <string.h>

/* Relative tolerance in comparisons of sums of durations, so that rounding errors do not reject a duration that exactly
 * fills its room. */
#define RELATIVE_TOLERANCE 1e-12

static double start_of(const pipeline *pipe, int32_t operation) {
    double start = 0;
    for (int32_t at = pipe->first_before[operation]; at < pipe->first_before[operation + 1]; at++)
        if (pipe->finishes[pipe->befores[at]] > start)
            start = pipe->finishes[pipe->befores[at]];
    return start;
}

double pipeline_longest_path(pipeline *pipe, const double *durations) {
    double time = 0;
    for (int32_t i = 0; i < pipe->operations; i++) {
        int32_t operation = pipe->order[i];
        double finish = start_of(pipe, operation) + durations[operation];
        pipe->finishes[operation] = finish;
        if (finish > time)
            time = finish;
    }
    return time;
}

static void look_up_durations(pipeline *pipe, const option_index *plan) {
    for (int32_t i = 0; i < pipe->operations; i++)
        pipe->durations[i] = pipe->times[pipe->fastest[i] + plan[i]];
}

static double total_cost(const pipeline *pipe, const option_index *plan) {
    double cost = 0;
    for (int32_t i = 0; i < pipe->operations; i++)
        cost += pipe->costs[pipe->fastest[i] + plan[i]];
    return cost;
}

realised pipeline_realise(pipeline *pipe, const option_index *plan) {
    look_up_durations(pipe, plan);
    realised result = {pipeline_longest_path(pipe, pipe->durations), total_cost(pipe, plan)};
    return result;
}

void pipeline_finish_times(pipeline *pipe, const double *durations, double *finishes) {
    pipeline_longest_path(pipe, durations);
    memcpy(finishes, pipe->finishes, (size_t)pipe->operations * sizeof(double));
}

static void find_latest_finishes(pipeline *pipe, const double *durations, double deadline) {
    for (int32_t i = pipe->operations - 1; i >= 0; i--) {
        int32_t operation = pipe->order[i];
        double latest = deadline;
        for (int32_t at = pipe->first_after[operation]; at < pipe->first_after[operation + 1]; at++) {
            int32_t next = pipe->afters[at];
            double start = pipe->latest[next] - durations[next];
            if (start < latest)
                latest = start;
        }
        pipe->latest[operation] = latest;
    }
}

/* The slowest option of at most this duration, or the fastest. The search starts at the guess with doubling steps, so that
 * the time of a near guess does not depend on the number of options. */
static option_index slowest_within(const pipeline *pipe, int32_t operation, double room, option_index guess) {
    const double *times = pipe->times + pipe->fastest[operation];
    int32_t low = guess, high = guess, step = 1, last = pipe->option_counts[operation] - 1;
    if (times[guess] <= room && (guess == last || times[guess + 1] > room))
        return guess;
    if (times[guess] > room) {
        /* low fits, or no option does; high does not fit. */
        do {
            high = low;
            low = high > step ? high - step : 0;
            step *= 2;
        } while (low > 0 && times[low] > room);
    } else {
        do {
            low = high;
            high = last - low >= step ? low + step : last + 1;
            step *= 2;
        } while (high <= last && times[high] <= room);
    }
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (times[middle] <= room)
            low = middle;
        else
            high = middle;
    }
    return (option_index)low;
}

/* Each operation, in order, fills the room between its actual start and its latest finish. The plan holds guesses. */
static realised fill_room(pipeline *pipe, double deadline, option_index *plan) {
    double tolerance = deadline * RELATIVE_TOLERANCE, time = 0, cost = 0;
    for (int32_t i = 0; i < pipe->operations; i++) {
        int32_t operation = pipe->order[i];
        double start = start_of(pipe, operation);
        option_index option = slowest_within(pipe, operation, pipe->latest[operation] - start + tolerance, plan[operation]);
        double finish = start + pipe->times[pipe->fastest[operation] + option];
        plan[operation] = option;
        pipe->finishes[operation] = finish;
        cost += pipe->costs[pipe->fastest[operation] + option];
        if (finish > time)
            time = finish;
    }
    realised result = {time, cost};
    return result;
}

realised pipeline_reclaim(pipeline *pipe, option_index *plan) {
    look_up_durations(pipe, plan);
    double time = pipeline_longest_path(pipe, pipe->durations);
    find_latest_finishes(pipe, pipe->durations, time);
    return fill_room(pipe, time, plan);
}

realised pipeline_fill(pipeline *pipe, const double *durations, double deadline, option_index *plan) {
    memset(plan, 0, (size_t)pipe->operations * sizeof(option_index));
    find_latest_finishes(pipe, durations, deadline);
    return fill_room(pipe, deadline, plan);
}

realised pipeline_round(pipeline *pipe, const double *durations, double deadline, option_index *plan) {
    size_t bytes = (size_t)pipe->operations * sizeof(option_index);
    memcpy(plan, pipe->rounded, bytes);
    find_latest_finishes(pipe, durations, deadline);
    fill_room(pipe, deadline, plan);
    realised result = pipeline_reclaim(pipe, plan);
    memcpy(pipe->rounded, plan, bytes);
    return result;
}

realised pipeline_split(pipeline *pipe, const option_index *until, const option_index *after, double cut,
                        option_index *plan) {
    look_up_durations(pipe, until);
    pipeline_longest_path(pipe, pipe->durations);
    for (int32_t i = 0; i < pipe->operations; i++)
        plan[i] = pipe->finishes[i] - pipe->durations[i] < cut ? until[i] : after[i];
    return pipeline_reclaim(pipe, plan);
}

/* splitmix64 (Steele, Lea, Flood 2014): equal numbers on every machine. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

realised pipeline_improve(pipeline *pipe, option_index *plan, double price, int32_t trials, uint64_t seed) {
    size_t bytes = (size_t)pipe->operations * sizeof(option_index);
    realised best = pipeline_realise(pipe, plan);
    for (int32_t i = 0; i < trials; i++) {
        uint64_t random = next_random(&seed);
        int32_t operation = (int32_t)((random >> 3) % (uint64_t)pipe->operations);
        int32_t change = (random & 6) == 6 ? 2 : 1;
        int32_t option = plan[operation] + ((random & 1) ? change : -change);
        if (option < 0 || option >= pipe->option_counts[operation])
            continue;
        memcpy(pipe->trial, plan, bytes);
        pipe->trial[operation] = (option_index)option;
        realised result = pipeline_reclaim(pipe, pipe->trial);
        if (result.cost + price * result.time < best.cost + price * best.time) {
            memcpy(plan, pipe->trial, bytes);
            best = result;
        }
    }
    return best;
}

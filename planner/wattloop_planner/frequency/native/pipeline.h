/* A pipeline in memory: pipeline.c creates it, rounding.c operates on it. */

#ifndef WATTLOOP_PIPELINE_H
#define WATTLOOP_PIPELINE_H

#include "rounding.h"

struct pipeline {
    int32_t operations;
    int32_t *order; /* topological */
    int32_t *first_before, *befores, *first_after, *afters;
    int32_t *fastest, *option_counts; /* of each operation: its first place in times and costs, and its number of options */
    double *times, *costs;
    double *finishes, *latest, *durations;
    option_index *trial, *rounded; /* rounded: the options of the last rounding, as initial guesses of the next */
};

#endif

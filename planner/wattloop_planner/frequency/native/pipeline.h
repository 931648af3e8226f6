/* A pipeline in memory: what pipeline.c makes and rounding.c works on. */

#ifndef WATTLOOP_PIPELINE_H
#define WATTLOOP_PIPELINE_H

#include "rounding.h"

struct pipeline {
    int32_t operations;
    int32_t *order; /* topological */
    int32_t *first_before, *befores, *first_after, *afters;
    int32_t *fastest, *option_counts; /* of each operation: its place in times and costs, and how many there are */
    double *times, *costs;
    double *finishes, *latest, *durations;
    option_index *trial, *rounded; /* rounded: what the last rounding chose, a guess at the next */
};

#endif

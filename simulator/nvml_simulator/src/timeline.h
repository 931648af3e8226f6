/* A GPU moves through time in stretches of constant power: energy, work done, counter and sensors follow. */
#ifndef TIMELINE_H
#define TIMELINE_H

#include "layout.h"
#include "models.h"
#include "power.h"

/* Brings the GPU to `target_ns`; nothing where that is past. */
void timeline_advance(struct gpu *gpu, const struct model *model, uint64_t target_ns);

/* How the GPU runs now. */
struct operating_point timeline_point(const struct gpu *gpu, const struct model *model);

/* When an occupancy that nothing else disturbs will be done, in GPU time. */
uint64_t timeline_finish_ns(const struct gpu *gpu, const struct model *model, const struct occupancy *occupancy);

/* The sensors: the counter as of its last step, power and shares of the last second as of the last sample. */
uint64_t timeline_counter_mj(const struct gpu *gpu);
void timeline_reset_counter(struct gpu *gpu);
uint32_t timeline_instant_power_mw(const struct gpu *gpu, const struct model *model);
uint32_t timeline_average_power_mw(const struct gpu *gpu, const struct model *model);
void timeline_utilization_percent(const struct gpu *gpu, unsigned *busy, unsigned *load);

#endif

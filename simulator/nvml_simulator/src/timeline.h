/* Advances a GPU through intervals of constant power, with its energy, work, counter and sensors. */
#ifndef TIMELINE_H
#define TIMELINE_H

#include "layout.h"
#include "models.h"
#include "power.h"

/* Advances the GPU to `target_ns`; does nothing if that is in the past. */
void timeline_advance(struct gpu *gpu, const struct model *model, uint64_t target_ns);

/* Current operating point of the GPU. */
struct operating_point timeline_point(const struct gpu *gpu, const struct model *model);

/* GPU time at which an occupancy ends if nothing changes. */
uint64_t timeline_finish_ns(const struct gpu *gpu, const struct model *model, const struct occupancy *occupancy);

/* Sensors: counter at its last update; power and utilization of the last second at the last sample. */
uint64_t timeline_counter_mj(const struct gpu *gpu);
void timeline_reset_counter(struct gpu *gpu);
uint32_t timeline_instant_power_mw(const struct gpu *gpu, const struct model *model);
uint32_t timeline_average_power_mw(const struct gpu *gpu, const struct model *model);
void timeline_utilization_percent(const struct gpu *gpu, unsigned *busy, unsigned *load);

#endif

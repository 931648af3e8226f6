/* The power curve: which clock a GPU runs at, what it draws there, and how fast it works. Pure functions, in integers,
 * so that every machine gets the same bits.
 *
 * Busy with intensity u at graphics clock f, a GPU draws
 *     waiting + u · dynamic · (f / f_max) · (V(f) / V(f_max))²
 * where V stays at its floor up to the knee and rises linearly from there to the highest clock. It runs at the highest
 * clock of its table that locked and application clocks allow and that keeps that power within the limit; where none
 * does, at the lowest, above the limit, as real GPUs do. Of the time a piece of work takes at the highest clocks, a
 * share s is bound by memory, so that the rest alone grows with f_max / f.
 */
#ifndef POWER_H
#define POWER_H

#include "layout.h"
#include "models.h"

struct operating_point {
    uint32_t graphics_mhz, memory_mhz;
    uint32_t power_mw;
    uint64_t megaflops_per_second; /* of all the work on the GPU together */
    bool capped;                   /* the power limit holds the clock back */
};

uint32_t power_at_mw(const struct model *model, uint32_t graphics_mhz, uint32_t intensity_ppm);

uint64_t power_throughput(const struct model *model, uint32_t graphics_mhz, uint32_t memory_mhz);

struct operating_point power_point(const struct gpu *gpu, const struct model *model, bool busy, uint32_t intensity_ppm);

/* The highest clock of the table that is not above `mhz`, or the lowest of the table. */
uint32_t power_supported_graphics_clock(const struct model *model, uint32_t mhz);
uint32_t power_supported_memory_clock(const struct model *model, uint32_t mhz);

#endif

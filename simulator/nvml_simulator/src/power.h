/* The power curve: clock, power and speed of a GPU. Pure integer functions, so that results are the same
 * on every machine.
 *
 * A GPU that is busy with intensity u at graphics clock f draws
 *     waiting + u · dynamic · (f / f_max) · (V(f) / V(f_max))²
 * V is constant up to the knee and rises linearly from there to the highest clock. The GPU runs at the
 * highest clock of its table that locked and application clocks allow and that keeps the power within the
 * limit; if none does, at the lowest, above the limit, like real GPUs. A share s of the time of work at the
 * highest clocks is bound by memory; only the rest grows with f_max / f.
 */
#ifndef POWER_H
#define POWER_H

#include "layout.h"
#include "models.h"

struct operating_point {
    uint32_t graphics_mhz, memory_mhz;
    uint32_t power_mw;
    uint64_t megaflops_per_second; /* of all work on the GPU */
    bool capped;                   /* the power limit reduces the clock */
};

uint32_t power_at_mw(const struct model *model, uint32_t graphics_mhz, uint32_t intensity_ppm);

uint64_t power_throughput(const struct model *model, uint32_t graphics_mhz, uint32_t memory_mhz);

struct operating_point power_point(const struct gpu *gpu, const struct model *model, bool busy, uint32_t intensity_ppm);

/* The highest clock of the table up to `mhz`, or the lowest of the table. */
uint32_t power_supported_graphics_clock(const struct model *model, uint32_t mhz);
uint32_t power_supported_memory_clock(const struct model *model, uint32_t mhz);

#endif

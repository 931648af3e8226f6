#include "thermal.h"

#define SETTLED_NANOKELVIN 1000000LL /* a millikelvin */
#define LEAST_POWER_MW 1000

bool thermal_is_modelled(const struct gpu *gpu) { return gpu->thermal.time_constant_ns != 0; }

/* Temperature at which the GPU settles if the power stays constant, minus the current one. */
static int64_t difference_nk(const struct gpu *gpu, uint32_t power_mw) {
    int64_t rise_uk = (int64_t)power_mw * gpu->thermal.resistance_mk_per_w;
    int64_t target_nk = gpu->thermal.ambient_mc * NANOKELVIN_PER_MILLIKELVIN + rise_uk * 1000;
    return target_nk - gpu->thermal.temperature_nc;
}

int32_t thermal_leakage_mw(const struct gpu *gpu) {
    int64_t above_mk = gpu->thermal.temperature_nc / NANOKELVIN_PER_MILLIKELVIN - THERMAL_REFERENCE_MC;
    return thermal_is_modelled(gpu) ? (int32_t)(above_mk * gpu->thermal.leakage_mw_per_k / 1000) : 0;
}

uint32_t thermal_power_mw(const struct gpu *gpu, uint32_t power_mw) {
    int64_t total = (int64_t)power_mw + thermal_leakage_mw(gpu);
    return total > LEAST_POWER_MW || !thermal_is_modelled(gpu) ? (uint32_t)total : LEAST_POWER_MW;
}

uint64_t thermal_stretch_ns(const struct gpu *gpu, uint32_t power_mw) {
    int64_t difference = difference_nk(gpu, power_mw);
    bool settled = difference < SETTLED_NANOKELVIN && difference > -SETTLED_NANOKELVIN;
    return thermal_is_modelled(gpu) && !settled ? THERMAL_SLICE_NS : UINT64_MAX;
}

void thermal_pass(struct gpu *gpu, uint32_t power_mw, uint64_t duration_ns) {
    if (!thermal_is_modelled(gpu)) {
        return;
    }
    /* A settled GPU has long intervals, in which it does not pass its target. */
    uint64_t step_ns = duration_ns < THERMAL_SLICE_NS ? duration_ns : THERMAL_SLICE_NS;
    gpu->thermal.temperature_nc +=
        (int64_t)((__int128)difference_nk(gpu, power_mw) * step_ns / (__int128)gpu->thermal.time_constant_ns);
}

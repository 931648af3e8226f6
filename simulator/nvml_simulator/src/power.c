#include "power.h"

#include "thermal.h"

#define MILLION 1000000ULL

static uint64_t voltage_ppm(const struct model *model, uint32_t graphics_mhz) {
    if (graphics_mhz <= model->voltage_knee_mhz) {
        return model->voltage_floor_ppm;
    }
    uint64_t rise = MILLION - model->voltage_floor_ppm;
    return model->voltage_floor_ppm +
           rise * (graphics_mhz - model->voltage_knee_mhz) / (model->clock_max_mhz - model->voltage_knee_mhz);
}

uint32_t power_at_mw(const struct model *model, uint32_t graphics_mhz, uint32_t intensity_ppm) {
    uint64_t voltage = voltage_ppm(model, graphics_mhz);
    uint64_t curve_ppm = voltage * voltage / MILLION * graphics_mhz / model->clock_max_mhz;
    return model->waiting_mw + (uint32_t)(model->dynamic_mw * curve_ppm / MILLION * intensity_ppm / MILLION);
}

uint64_t power_throughput(const struct model *model, uint32_t graphics_mhz, uint32_t memory_mhz) {
    uint64_t share = model->memory_share_permille;
    uint64_t memory_max = model->memory_clocks_mhz[0];
    uint64_t slowdown = (1000 - share) * model->clock_max_mhz * memory_mhz + share * memory_max * graphics_mhz;
    wide_t rate = (wide_t)model->megaflops_per_second * 1000 * graphics_mhz * memory_mhz / slowdown;
    return rate > 0 ? (uint64_t)rate : 1;
}

uint32_t power_supported_graphics_clock(const struct model *model, uint32_t mhz) {
    unsigned last = model_graphics_clock_count(model) - 1;
    unsigned position = 0;
    while (position < last && model_graphics_clock(model, position) > mhz) {
        position++;
    }
    return model_graphics_clock(model, position);
}

uint32_t power_supported_memory_clock(const struct model *model, uint32_t mhz) {
    unsigned last = model_memory_clock_count(model) - 1;
    unsigned position = 0;
    while (position < last && model->memory_clocks_mhz[position] > mhz) {
        position++;
    }
    return model->memory_clocks_mhz[position];
}

/* The highest clock that the settings allow, without the power limit. */
static uint32_t ceiling_mhz(const struct gpu *gpu, const struct model *model) {
    uint32_t ceiling = model->clock_max_mhz;
    if (gpu->application_mhz != 0 && gpu->application_mhz < ceiling) {
        ceiling = gpu->application_mhz;
    }
    if (gpu->locked_max_mhz != 0 && gpu->locked_max_mhz < ceiling) {
        ceiling = gpu->locked_max_mhz;
    }
    return ceiling;
}

/* Binary search, because power rises with the clock. */
static uint32_t capped_mhz(const struct gpu *gpu, const struct model *model, uint32_t ceiling, uint32_t intensity_ppm) {
    unsigned low = 0;
    unsigned high = model_graphics_clock_count(model) - 1;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        uint32_t clock = model_graphics_clock(model, middle);
        uint32_t power_mw = thermal_power_mw(gpu, power_at_mw(model, clock, intensity_ppm));
        if (clock <= ceiling && power_mw <= gpu->limit_mw) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return model_graphics_clock(model, low);
}

static uint32_t memory_mhz(const struct gpu *gpu, const struct model *model) {
    uint32_t clock = model->memory_clocks_mhz[0];
    if (gpu->application_memory_mhz != 0 && gpu->application_memory_mhz < clock) {
        clock = gpu->application_memory_mhz;
    }
    if (gpu->locked_memory_max_mhz != 0 && gpu->locked_memory_max_mhz < clock) {
        clock = gpu->locked_memory_max_mhz;
    }
    return clock;
}

struct operating_point power_point(const struct gpu *gpu, const struct model *model, bool busy, uint32_t intensity_ppm) {
    struct operating_point point = {.memory_mhz = memory_mhz(gpu, model)};
    if (!busy) {
        uint32_t floor = gpu->locked_min_mhz;
        point.graphics_mhz = floor > model->clock_idle_mhz ? floor : model->clock_idle_mhz;
        point.power_mw = thermal_power_mw(gpu, model->idle_mw);
        point.memory_mhz = model->memory_idle_mhz != 0 ? model->memory_idle_mhz : point.memory_mhz;
        return point;
    }
    uint32_t ceiling = ceiling_mhz(gpu, model);
    point.graphics_mhz = capped_mhz(gpu, model, ceiling, intensity_ppm);
    point.capped = point.graphics_mhz < ceiling;
    point.power_mw = thermal_power_mw(gpu, power_at_mw(model, point.graphics_mhz, intensity_ppm));
    point.megaflops_per_second = power_throughput(model, point.graphics_mhz, point.memory_mhz);
    return point;
}

/* The exact state, and the tables of the models, for tests and for nvml_simulator's Python code. */
#include <string.h>

#include "clock.h"
#include "machine.h"
#include "thermal.h"
#include "timeline.h"

struct machine_description {
    char model[16];
    uint32_t gpu_count, clock_mode, permission, driver_loaded;
    double scale;
    uint64_t seed;
};

struct gpu_description {
    char uuid[48];
    uint64_t time_ns, energy_uj, busy_ns, counter_mj;
    uint32_t limit_mw;
    uint32_t locked_min_mhz, locked_max_mhz;
    uint32_t locked_memory_min_mhz, locked_memory_max_mhz;
    uint32_t application_mhz, application_memory_mhz;
    uint32_t graphics_mhz, memory_mhz, power_mw;
    uint32_t has_temperature; /* a thermal model is set */
    int64_t temperature_nc;
    uint32_t instance_count;
    struct instance instances[MAX_INSTANCES];
};

struct model_description {
    char key[16];
    char name[64];
    uint64_t memory_bytes, megaflops_per_second;
    uint32_t power_min_mw, power_max_mw, power_default_mw, power_idle_mw, power_waiting_mw;
    uint32_t has_energy_counter;
    uint32_t graphics_clock_count, memory_clock_count;
    uint32_t graphics_clocks_mhz[MAX_GRAPHICS_CLOCKS];
    uint32_t memory_clocks_mhz[MAX_MEMORY_CLOCKS];
};

EXPORT void wattloopSimulatorDescribe(struct machine *machine, struct machine_description *description) {
    const struct layout *layout = machine->layout;
    *description = (struct machine_description){
        .gpu_count = layout->gpu_count,
        .clock_mode = layout->clock_mode,
        .permission = layout->permission,
        .driver_loaded = layout->driver_loaded,
        .scale = layout->scale,
        .seed = layout->seed,
    };
    strncpy(description->model, machine_model(machine)->key, sizeof description->model - 1);
}

EXPORT nvmlReturn_t wattloopSimulatorDescribeGpu(struct machine *machine, unsigned index,
                                                 struct gpu_description *description) {
    if (index >= machine->layout->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    machine_lock(machine);
    const struct gpu *gpu = machine_modify(machine, index);
    struct operating_point point = timeline_point(gpu, machine_model(machine));
    *description = (struct gpu_description){
        .time_ns = gpu->time_ns,
        .energy_uj = gpu->energy_uj,
        .busy_ns = gpu->busy_ns,
        .counter_mj = timeline_counter_mj(gpu),
        .limit_mw = gpu->limit_mw,
        .locked_min_mhz = gpu->locked_min_mhz,
        .locked_max_mhz = gpu->locked_max_mhz,
        .locked_memory_min_mhz = gpu->locked_memory_min_mhz,
        .locked_memory_max_mhz = gpu->locked_memory_max_mhz,
        .application_mhz = gpu->application_mhz,
        .application_memory_mhz = gpu->application_memory_mhz,
        .graphics_mhz = point.graphics_mhz,
        .memory_mhz = point.memory_mhz,
        .power_mw = point.power_mw,
        .has_temperature = thermal_is_modelled(gpu),
        .temperature_nc = gpu->thermal.temperature_nc,
        .instance_count = gpu->instance_count,
    };
    memcpy(description->uuid, gpu->uuid, sizeof description->uuid);
    memcpy(description->instances, gpu->instances, sizeof description->instances);
    machine_unlock(machine);
    return NVML_SUCCESS;
}

/* Copies the last settings of the graphics clock, oldest first, into an array of CLOCK_SETTINGS; returns their number. */
EXPORT unsigned wattloopSimulatorClockSettings(struct machine *machine, unsigned index, struct clock_setting *settings) {
    if (index >= machine->layout->gpu_count) {
        return 0;
    }
    machine_lock(machine);
    const struct trace *trace = machine_trace(machine, index);
    uint64_t last = trace->setting_count;
    uint64_t first = last > CLOCK_SETTINGS ? last - CLOCK_SETTINGS : 0;
    for (uint64_t number = first; number < last; number++) {
        settings[number - first] = trace->settings[number % CLOCK_SETTINGS];
    }
    machine_unlock(machine);
    return (unsigned)(last - first);
}

/* The same for the last works. */
EXPORT unsigned wattloopSimulatorWorks(struct machine *machine, unsigned index, struct work_record *works) {
    if (index >= machine->layout->gpu_count) {
        return 0;
    }
    machine_lock(machine);
    const struct trace *trace = machine_trace(machine, index);
    uint64_t last = trace->work_count;
    uint64_t first = last > WORK_RECORDS ? last - WORK_RECORDS : 0;
    for (uint64_t number = first; number < last; number++) {
        works[number - first] = trace->works[number % WORK_RECORDS];
    }
    machine_unlock(machine);
    return (unsigned)(last - first);
}

/* Number of calls of a function by all processes; returns its name, or NULL after the last. */
EXPORT const char *wattloopSimulatorCalls(struct machine *machine, unsigned function, uint64_t *calls) {
    const char *name = function_name(function);
    if (name != NULL) {
        machine_lock(machine);
        *calls = machine->layout->calls[function];
        machine_unlock(machine);
    }
    return name;
}

/* NVML_ERROR_NOT_FOUND after the last model. */
EXPORT nvmlReturn_t wattloopSimulatorModel(unsigned number, struct model_description *description) {
    const struct model *model = model_at(number);
    if (model == NULL) {
        return NVML_ERROR_NOT_FOUND;
    }
    *description = (struct model_description){
        .memory_bytes = model->memory_mebibytes << 20,
        .megaflops_per_second = model->megaflops_per_second,
        .power_min_mw = model->power_min_mw,
        .power_max_mw = model->power_max_mw,
        .power_default_mw = model->power_default_mw,
        .power_idle_mw = model->idle_mw,
        .power_waiting_mw = model->waiting_mw,
        .has_energy_counter = model->has_energy_counter,
        .graphics_clock_count = model_graphics_clock_count(model),
        .memory_clock_count = model_memory_clock_count(model),
    };
    strncpy(description->key, model->key, sizeof description->key - 1);
    strncpy(description->name, model->name, sizeof description->name - 1);
    for (unsigned position = 0; position < description->graphics_clock_count; position++) {
        description->graphics_clocks_mhz[position] = model_graphics_clock(model, position);
    }
    memcpy(description->memory_clocks_mhz, model->memory_clocks_mhz, sizeof description->memory_clocks_mhz);
    return NVML_SUCCESS;
}

/* Power and throughput of a busy model at a clock, by the power curve. */
EXPORT nvmlReturn_t wattloopSimulatorCurve(unsigned number, unsigned graphics_mhz, double intensity, unsigned *milliwatts,
                                           uint64_t *megaflops_per_second) {
    const struct model *model = model_at(number);
    if (model == NULL || !(intensity >= 0 && intensity <= 1) || graphics_mhz == 0 ||
        power_supported_graphics_clock(model, graphics_mhz) != graphics_mhz) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *milliwatts = power_at_mw(model, graphics_mhz, (uint32_t)(intensity * 1e6 + 0.5));
    *megaflops_per_second = power_throughput(model, graphics_mhz, model->memory_clocks_mhz[0]);
    return NVML_SUCCESS;
}

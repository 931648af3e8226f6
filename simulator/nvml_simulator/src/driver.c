#include "driver.h"

#include "timeline.h"

nvmlReturn_t driver_answer(const struct layout *layout, uint64_t starts) {
    bool runs = layout->driver_loaded && layout->driver_starts == starts;
    return runs ? NVML_SUCCESS : (nvmlReturn_t)layout->driver_stale_code;
}

void driver_stop(struct machine *machine, nvmlReturn_t stale_code) {
    machine_lock(machine);
    machine->layout->driver_stale_code = stale_code;
    machine->layout->driver_loaded = false;
    machine_unlock(machine);
}

static void start_gpu(struct machine *machine, unsigned index) {
    struct gpu *gpu = machine_modify(machine, index);
    timeline_reset_counter(gpu);
    gpu->limit_mw = machine_model(machine)->power_default_mw;
    machine_set_clock_lock(machine, index, 0, 0);
    gpu->locked_memory_min_mhz = 0;
    gpu->locked_memory_max_mhz = 0;
    gpu->application_mhz = 0;
    gpu->application_memory_mhz = 0;
}

void driver_start(struct machine *machine) {
    machine_lock(machine);
    struct layout *layout = machine->layout;
    if (!layout->driver_loaded) {
        for (unsigned index = 0; index < layout->gpu_count; index++) {
            start_gpu(machine, index);
        }
        layout->driver_starts++;
        layout->driver_loaded = true;
    }
    machine_unlock(machine);
}

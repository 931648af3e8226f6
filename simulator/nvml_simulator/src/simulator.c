/* Calls beyond NVML, with which nvml_simulator (Python) creates, controls and inspects simulated GPUs. They
 * use a state that the caller opens, independent of NVML's initialization. They return an NVML code unless
 * documented otherwise. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "driver.h"
#include "faults.h"
#include "machine.h"
#include "mig.h"
#include "power.h"
#include "processes.h"
#include "thermal.h"
#include "timeline.h"
#include "work.h"

#define MEGAFLOPS_PER_TERAFLOP 1e6
#define MOST_TERAFLOPS 1e9

/* Returns an errno. `clock` and `permission` are enum values of layout.h. */
EXPORT int wattloopSimulatorCreate(const char *path, const char *model, unsigned count, unsigned clock, double scale,
                                   unsigned permission, uint64_t seed, int replace) {
    struct machine_options options = {
        .model = model_by_key(model),
        .gpu_count = count,
        .clock_mode = clock,
        .permission = permission,
        .scale = scale,
        .seed = seed,
    };
    bool right = options.model < model_count() && count <= MAX_GPUS && clock <= CLOCK_MODE_VIRTUAL &&
                 permission <= PERMISSION_NOBODY && scale > 0 && scale <= 1e6;
    return right ? machine_create(path, &options, replace != 0) : EINVAL;
}

EXPORT nvmlReturn_t wattloopSimulatorOpen(const char *path, struct machine **machine) {
    *machine = calloc(1, sizeof **machine);
    if (*machine == NULL) {
        return NVML_ERROR_MEMORY;
    }
    nvmlReturn_t result = machine_open(path, *machine);
    if (result != NVML_SUCCESS) {
        free(*machine);
        *machine = NULL;
    }
    return result;
}

EXPORT void wattloopSimulatorClose(struct machine *machine) {
    machine_close(machine);
    free(machine);
}

/* Returns -1 if no GPU has the UUID. */
EXPORT int wattloopSimulatorIndex(struct machine *machine, const char *uuid) {
    for (unsigned index = 0; index < machine->layout->gpu_count; index++) {
        if (strcmp(machine->layout->gpus[index].uuid, uuid) == 0) {
            return (int)index;
        }
    }
    return -1;
}

static bool distinct(const struct machine *machine, const unsigned *gpus, unsigned count) {
    uint64_t seen = 0;
    for (unsigned position = 0; position < count && position < MAX_GPUS; position++) {
        if (gpus[position] >= machine->layout->gpu_count || (seen >> gpus[position] & 1) != 0) {
            return false;
        }
        seen |= 1ULL << gpus[position];
    }
    return count >= 1 && count <= MAX_GPUS;
}

static bool make_request(const struct machine *machine, const unsigned *gpus, unsigned count, double teraflops,
                         double intensity, struct request *request) {
    bool right = teraflops >= 0 && teraflops <= MOST_TERAFLOPS && intensity >= 0 && intensity <= 1;
    if (!right || !distinct(machine, gpus, count)) {
        return false;
    }
    *request = (struct request){
        .count = count,
        .megaflops = (uint64_t)(teraflops * MEGAFLOPS_PER_TERAFLOP + 0.5),
        .intensity_ppm = (uint32_t)(intensity * 1e6 + 0.5),
    };
    memcpy(request->gpus, gpus, count * sizeof *gpus);
    return true;
}

/* Starts work on GPUs together; see work.h. Call wattloopSimulatorWorkWait until it returns 1, then
 * wattloopSimulatorWorkEnd, which may be called early. */
EXPORT nvmlReturn_t wattloopSimulatorWorkBegin(struct machine *machine, const unsigned *gpus, unsigned count,
                                               double teraflops, double intensity, struct work **work) {
    struct request request;
    if (!make_request(machine, gpus, count, teraflops, intensity, &request)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *work = malloc(sizeof **work);
    if (*work == NULL) {
        return NVML_ERROR_MEMORY;
    }
    nvmlReturn_t result = work_begin(machine, &request, *work);
    if (result != NVML_SUCCESS) {
        free(*work);
    }
    return result;
}

EXPORT int wattloopSimulatorWorkWait(struct machine *machine, const struct work *work) {
    return work_wait(machine, work) ? 1 : 0;
}

EXPORT void wattloopSimulatorWorkEnd(struct machine *machine, struct work *work) {
    work_end(machine, work);
    free(work);
}

/* All three calls in one, for programs that do not handle signals meanwhile. */
EXPORT nvmlReturn_t wattloopSimulatorWork(struct machine *machine, const unsigned *gpus, unsigned count, double teraflops,
                                          double intensity) {
    struct work *work;
    nvmlReturn_t result = wattloopSimulatorWorkBegin(machine, gpus, count, teraflops, intensity, &work);
    if (result == NVML_SUCCESS) {
        while (!work_wait(machine, work)) {
        }
        wattloopSimulatorWorkEnd(machine, work);
    }
    return result;
}

/* Work from now on is that of another process of the caller's PID namespace, which NVML then lists; 0: of the caller. */
EXPORT void wattloopSimulatorActFor(int pid) {
    processes_act_for(pid);
}

/* Virtual clock only: advances idle GPUs to the latest time among them plus `nanoseconds`. */
EXPORT nvmlReturn_t wattloopSimulatorIdle(struct machine *machine, const unsigned *gpus, unsigned count,
                                          uint64_t nanoseconds) {
    if (!distinct(machine, gpus, count)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (machine->layout->clock_mode != CLOCK_MODE_VIRTUAL) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    work_idle(machine, gpus, count, nanoseconds);
    return NVML_SUCCESS;
}

/* Virtual clock only: the GPU waits until a time of its clock, as for a message. */
EXPORT nvmlReturn_t wattloopSimulatorBlocked(struct machine *machine, unsigned gpu, uint64_t until_ns) {
    if (gpu >= machine->layout->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (machine->layout->clock_mode != CLOCK_MODE_VIRTUAL) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    work_blocked(machine, gpu, until_ns);
    return NVML_SUCCESS;
}

/* Simulated nanoseconds since creation: of a GPU, or of the machine with -1. */
EXPORT nvmlReturn_t wattloopSimulatorMachineTime(struct machine *machine, int gpu, uint64_t *nanoseconds) {
    if (gpu >= (int)machine->layout->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    machine_lock(machine);
    *nanoseconds = gpu < 0 ? clock_machine_ns(machine->layout) : clock_now_ns(machine->layout, &machine->layout->gpus[gpu]);
    machine_unlock(machine);
    return NVML_SUCCESS;
}

/* `ticket` is for wattloopSimulatorClearFault. NVML_ERROR_NOT_FOUND: the function is not supported. */
EXPORT nvmlReturn_t wattloopSimulatorFault(struct machine *machine, const char *function, int gpu, int code,
                                           uint64_t first, uint64_t count, uint64_t delay_ns, uint64_t *ticket) {
    struct fault fault = {.gpu = gpu, .code = code, .first = first, .count = count, .delay_ns = delay_ns};
    if (first < 1 || gpu >= (int)machine->layout->gpu_count || strlen(function) >= sizeof fault.function) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strcmp(function, "*") != 0 && function_by_name(function) == FUNCTION_COUNT) {
        return NVML_ERROR_NOT_FOUND;
    }
    strcpy(fault.function, function);
    machine_lock(machine);
    *ticket = faults_add(machine->layout, &fault);
    machine_unlock(machine);
    return *ticket != 0 ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

/* Ticket 0 clears all faults. */
EXPORT void wattloopSimulatorClearFault(struct machine *machine, uint64_t ticket) {
    machine_lock(machine);
    faults_clear(machine->layout, ticket);
    machine_unlock(machine);
}

/* Changes the limit like another administrator: without permission check, call count and faults. */
EXPORT nvmlReturn_t wattloopSimulatorSetPowerLimit(struct machine *machine, unsigned gpu, unsigned milliwatts) {
    const struct model *model = machine_model(machine);
    if (gpu >= machine->layout->gpu_count || milliwatts < model->power_min_mw || milliwatts > model->power_max_mw) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    machine_lock(machine);
    machine_modify(machine, gpu)->limit_mw = milliwatts;
    machine_unlock(machine);
    return NVML_SUCCESS;
}

/* Sets the thermal model of a GPU; see thermal.h. Time constant 0 removes it. Temperatures are in thousandths of a degree Celsius. */
EXPORT nvmlReturn_t wattloopSimulatorSetThermal(struct machine *machine, unsigned gpu, uint64_t time_constant_ns,
                                                unsigned resistance_mk_per_w, unsigned leakage_mw_per_k, int ambient_mc,
                                                int temperature_mc) {
    if (gpu >= machine->layout->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    machine_lock(machine);
    machine_modify(machine, gpu)->thermal = (struct thermal){
        .time_constant_ns = time_constant_ns,
        .resistance_mk_per_w = resistance_mk_per_w,
        .leakage_mw_per_k = leakage_mw_per_k,
        .ambient_mc = ambient_mc,
        .temperature_nc = temperature_mc * NANOKELVIN_PER_MILLIKELVIN,
    };
    machine_unlock(machine);
    return NVML_SUCCESS;
}

/* Resets the energy counter to zero, as a reset of the GPU does; nothing else changes. */
EXPORT nvmlReturn_t wattloopSimulatorResetCounter(struct machine *machine, unsigned gpu) {
    if (gpu >= machine->layout->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    machine_lock(machine);
    timeline_reset_counter(machine_modify(machine, gpu));
    machine_unlock(machine);
    return NVML_SUCCESS;
}

/* See mig.h. */
EXPORT nvmlReturn_t wattloopSimulatorPartition(struct machine *machine, unsigned gpu, unsigned count) {
    return mig_partition(machine, gpu, count);
}

/* See driver.h. */
EXPORT void wattloopSimulatorStopDriver(struct machine *machine, int stale_code) {
    driver_stop(machine, (nvmlReturn_t)stale_code);
}

EXPORT void wattloopSimulatorStartDriver(struct machine *machine) { driver_start(machine); }

/* Takes the lock, changes a GPU partially and returns, for a test that then kills this process. */
EXPORT void wattloopSimulatorAbandonLock(struct machine *machine, unsigned gpu) {
    machine_lock(machine);
    struct gpu *half = machine_modify(machine, gpu);
    half->limit_mw = 1;
    half->energy_uj = 0;
}

/* Activity of a GPU: memory, utilization, processes, temperature, performance state. */
#include <stddef.h>
#include <string.h>

#include "api.h"
#include "mig.h"
#include "processes.h"
#include "thermal.h"

#define MEBIBYTE 1048576ULL

enum { RESERVED_MEBIBYTES = 600, AMBIENT_CELSIUS = 27, MILLIWATTS_PER_KELVIN = 9000 };

/* Result of a call that fills an array: its size, and whether the array fits. */
static nvmlReturn_t fit(unsigned *count, unsigned needed, const void *array) {
    bool fits = *count >= needed;
    *count = needed;
    if (!fits) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    return needed > 0 && array == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

/* The MIG device of a process is not modelled: no memory of MIG devices is in use. */
static uint64_t used_bytes(const struct call *call) {
    return call->instance == NULL ? (uint64_t)processes_prune(call->machine->layout, call->gpu) * CONTEXT_BYTES : 0;
}

static uint64_t total_bytes(const struct call *call) {
    return call->instance == NULL ? call->model->memory_mebibytes * MEBIBYTE
                                  : mig_memory_bytes(call->model, call->instance);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceGetMemoryInfo, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (memory == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    /* The first version of the call counts reserved memory as used. */
    memory->total = total_bytes(&call);
    memory->used = used_bytes(&call) + RESERVED_MEBIBYTES * MEBIBYTE;
    memory->free = memory->total - memory->used;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceGetMemoryInfo_v2, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (memory == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) {
        return call_end(&call, NVML_ERROR_FUNCTION_NOT_FOUND); /* like driver 580 */
    }
    memory->total = total_bytes(&call);
    memory->reserved = RESERVED_MEBIBYTES * MEBIBYTE;
    memory->used = used_bytes(&call);
    memory->free = memory->total - memory->reserved - memory->used;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetUtilizationRates, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (utilization == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (call.gpu->instance_count > 0) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    timeline_utilization_percent(call.gpu, &utilization->gpu, &utilization->memory);
    return call_end(&call, NVML_SUCCESS);
}

/* The processes that the caller can see, with pids of its namespace. */
static unsigned processes_seen(struct call *call, nvmlProcessInfo_t *seen) {
    unsigned count = 0;
    processes_prune(call->machine->layout, call->gpu);
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        const struct process *process = &call->gpu->processes[number];
        int32_t pid;
        if (processes_state(call->machine->layout, process, &pid) == PROCESS_ALIVE) {
            seen[count++] = (nvmlProcessInfo_t){
                .pid = (unsigned)pid,
                .used_gpu_memory = process->memory_bytes,
                .gpu_instance_id = 0xFFFFFFFF,
                .compute_instance_id = 0xFFFFFFFF,
            };
        }
    }
    return count;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *processes) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetComputeRunningProcesses_v3, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    nvmlProcessInfo_t seen[MAX_PROCESSES];
    unsigned needed = processes_seen(&call, seen);
    result = fit(count, needed, processes);
    if (result == NVML_SUCCESS && needed > 0) {
        memcpy(processes, seen, needed * sizeof *seen);
    }
    return call_end(&call, result);
}

static unsigned temperature_celsius(const struct call *call) {
    if (thermal_is_modelled(call->gpu)) {
        return (unsigned)(call->gpu->thermal.temperature_nc / 1000 / NANOKELVIN_PER_MILLIKELVIN);
    }
    return AMBIENT_CELSIUS + timeline_average_power_mw(call->gpu, call->model) / MILLIWATTS_PER_KELVIN;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *temperature) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetTemperature, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (sensor != NVML_TEMPERATURE_GPU || temperature == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *temperature = temperature_celsius(&call);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetTemperatureV, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (temperature == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (temperature->version != NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)) {
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    if (temperature->sensor_type != NVML_TEMPERATURE_GPU) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    temperature->temperature = (int)temperature_celsius(&call);
    return call_end(&call, NVML_SUCCESS);
}

static unsigned performance_state(const struct call *call) {
    bool idle = timeline_point(call->gpu, call->model).megaflops_per_second == 0;
    return idle && call->model->memory_idle_mhz != 0 ? NVML_PSTATE_8 : NVML_PSTATE_0;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state) {
    ANSWER(nvmlDeviceGetPerformanceState, device, state, performance_state(&call));
}

/* Settings besides the power limit: locked clocks, application clocks, persistence mode. */
#include <stddef.h>

#include "api.h"

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned min_mhz, unsigned max_mhz) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetGpuLockedClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!call.model->locks_graphics_clocks) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    if (min_mhz > max_mhz || max_mhz == 0) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    /* Like real GPUs: a clock that is not in the table is replaced by one of the table. */
    machine_set_clock_lock(call.machine, call.index, power_supported_graphics_clock(call.model, min_mhz),
                           power_supported_graphics_clock(call.model, max_mhz));
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceResetGpuLockedClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!call.model->locks_graphics_clocks) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    machine_set_clock_lock(call.machine, call.index, 0, 0);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned min_mhz, unsigned max_mhz) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetMemoryLockedClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!call.model->locks_memory_clocks) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    if (min_mhz > max_mhz || max_mhz == 0) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    call.gpu->locked_memory_min_mhz = power_supported_memory_clock(call.model, min_mhz);
    call.gpu->locked_memory_max_mhz = power_supported_memory_clock(call.model, max_mhz);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceResetMemoryLockedClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!call.model->locks_memory_clocks) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    call.gpu->locked_memory_min_mhz = 0;
    call.gpu->locked_memory_max_mhz = 0;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned graphics_mhz) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetApplicationsClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (power_supported_memory_clock(call.model, memory_mhz) != memory_mhz ||
        power_supported_graphics_clock(call.model, graphics_mhz) != graphics_mhz) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    call.gpu->application_memory_mhz = memory_mhz;
    call.gpu->application_mhz = graphics_mhz;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceResetApplicationsClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    call.gpu->application_memory_mhz = 0;
    call.gpu->application_mhz = 0;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    ANSWER(nvmlDeviceGetPersistenceMode, device, mode, call.gpu->persistence_mode);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetPersistenceMode, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (mode > 1) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    call.gpu->persistence_mode = mode;
    return call_end(&call, NVML_SUCCESS);
}

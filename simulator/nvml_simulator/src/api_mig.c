/* MIG: mode of a GPU, handles of its MIG devices, and the GPU of a MIG device. */
#include <stddef.h>

#include "api.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetMigMode, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (current == NULL || pending == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (!call.model->has_mig) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    *current = call.gpu->instance_count > 0;
    *pending = *current;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ANSWER(nvmlDeviceGetMaxMigDeviceCount, device, count, call.gpu->instance_count > 0 ? MAX_INSTANCES : 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *part) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetMigDeviceHandleByIndex, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (part == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (!call.model->has_mig) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    if (index >= call.gpu->instance_count) {
        return call_end(&call, NVML_ERROR_NOT_FOUND);
    }
    *part = call_instance_handle(call.index, index);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t part, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, part);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (call.instance == NULL || device == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *device = call_handle(call.index);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_part) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceIsMigDeviceHandle, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (is_part == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *is_part = call.instance != NULL;
    return call_end(&call, NVML_SUCCESS);
}

/* Id of the GPU instance or compute instance of a MIG device; a GPU has neither. */
static nvmlReturn_t answer_id(enum function function, nvmlDevice_t part, unsigned *id) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, function, part);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (call.instance == NULL || id == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    /* Each GPU instance has one compute instance, with id 0. */
    *id = function == FUNCTION_nvmlDeviceGetGpuInstanceId ? call.instance->gpu_instance_id : 0;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t part, unsigned *id) {
    return answer_id(FUNCTION_nvmlDeviceGetGpuInstanceId, part, id);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t part, unsigned *id) {
    return answer_id(FUNCTION_nvmlDeviceGetComputeInstanceId, part, id);
}

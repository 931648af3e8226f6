/* Number of GPUs, and handles by index, UUID, serial number and bus id. */
#include <stdio.h>
#include <strings.h>

#include "api.h"

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlDeviceGetCount_v2);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *count = call.machine->layout->gpu_count;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlDeviceGetHandleByIndex_v2);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device == NULL || index >= call.machine->layout->gpu_count) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *device = call_handle(index);
    return call_end(&call, NVML_SUCCESS);
}

typedef bool (*matcher)(const struct gpu *gpu, const char *wanted);

static nvmlReturn_t find(enum function function, matcher matches, const char *wanted, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (wanted == NULL || device == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned index = 0; index < call.machine->layout->gpu_count; index++) {
        if (matches(&call.machine->layout->gpus[index], wanted)) {
            *device = call_handle(index);
            return call_end(&call, NVML_SUCCESS);
        }
    }
    return call_end(&call, NVML_ERROR_NOT_FOUND);
}

static nvmlReturn_t find_instance(const char *wanted, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlDeviceGetHandleByUUID);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned index = 0; index < call.machine->layout->gpu_count; index++) {
        const struct gpu *gpu = &call.machine->layout->gpus[index];
        for (unsigned number = 0; number < gpu->instance_count; number++) {
            if (strcasecmp(gpu->instances[number].uuid, wanted) == 0) {
                *device = call_instance_handle(index, number);
                return call_end(&call, NVML_SUCCESS);
            }
        }
    }
    return call_end(&call, NVML_ERROR_NOT_FOUND);
}

static bool uuid_matches(const struct gpu *gpu, const char *wanted) { return strcasecmp(gpu->uuid, wanted) == 0; }

static bool serial_matches(const struct gpu *gpu, const char *wanted) { return strcasecmp(gpu->serial, wanted) == 0; }

/* "domain:bus:device.function" with a domain of any width, or without a domain. */
static bool bus_id_matches(const struct gpu *gpu, const char *wanted) {
    unsigned domain = 0, bus, device, function;
    char rest;
    if (sscanf(wanted, "%x:%x:%x.%x%c", &domain, &bus, &device, &function, &rest) != 4) {
        domain = 0;
        if (sscanf(wanted, "%x:%x.%x%c", &bus, &device, &function, &rest) != 3) {
            return false;
        }
    }
    char whole[32];
    snprintf(whole, sizeof whole, "%08X:%02X:%02X.%X", domain, bus & 0xFF, device & 0xFF, function & 0xF);
    return strcasecmp(gpu->bus_id, whole) == 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (uuid != NULL && strncasecmp(uuid, "MIG-", 4) == 0) {
        return find_instance(uuid, device);
    }
    return find(FUNCTION_nvmlDeviceGetHandleByUUID, uuid_matches, uuid, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find(FUNCTION_nvmlDeviceGetHandleBySerial, serial_matches, serial, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return find(FUNCTION_nvmlDeviceGetHandleByPciBusId_v2, bus_id_matches, bus_id, device);
}

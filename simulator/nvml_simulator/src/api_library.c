/* Initialization, versions, error strings. */
#include <stdio.h>
#include <stddef.h>

#include "api.h"

#define DRIVER_VERSION "580.95.05"
#define CUDA_DRIVER_VERSION 13000

EXPORT nvmlReturn_t nvmlInit_v2(void) { return call_initialize(FUNCTION_nvmlInit_v2); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    if ((flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_FORCE_INIT)) != 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return call_initialize(FUNCTION_nvmlInitWithFlags);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlShutdown);
    if (result != NVML_SUCCESS) {
        return result;
    }
    call_end(&call, NVML_SUCCESS);
    return call_shutdown();
}

EXPORT const char *nvmlErrorString(int result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device, becasue ECC is enabled",
        "Insufficient Resources", "Freq Not Supported", "Argument Version Mismatch", "Deprecated", "Not Ready",
        "GPU not found", "Invalid state",
    };
    return result >= 0 && (size_t)result < sizeof texts / sizeof texts[0] ? texts[result] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlSystemGetDriverVersion);
    return result == NVML_SUCCESS ? call_end(&call, call_text(version, length, DRIVER_VERSION)) : result;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    /* Version of the library: the only query that works before initialization. */
    return call_text(version, length, "13." DRIVER_VERSION);
}

static nvmlReturn_t answer_cuda_version(enum function function, int *version) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, function);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (version == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *version = CUDA_DRIVER_VERSION;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return answer_cuda_version(FUNCTION_nvmlSystemGetCudaDriverVersion, version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return answer_cuda_version(FUNCTION_nvmlSystemGetCudaDriverVersion_v2, version);
}

/* Full path of the program, truncated to the buffer. */
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    struct call call;
    nvmlReturn_t result = call_begin(&call, FUNCTION_nvmlSystemGetProcessName);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (name == NULL || length == 0) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t read = file == NULL ? 0 : fread(name, 1, length - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    name[read] = '\0';
    return call_end(&call, read == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS);
}

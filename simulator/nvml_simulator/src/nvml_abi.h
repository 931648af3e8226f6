/* The supported part of NVML's ABI: constants and layouts as documented in NVIDIA's nvml.h. */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

struct nvml_device;
typedef struct nvml_device *nvmlDevice_t;

enum { NVML_INIT_FLAG_NO_GPUS = 1, NVML_INIT_FLAG_NO_ATTACH = 2, NVML_INIT_FLAG_FORCE_INIT = 4 };
enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 };
enum {
    NVML_CLOCK_ID_CURRENT = 0,
    NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
    NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
    NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3
};
enum { NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8 };
enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_POWER_SCOPE_GPU = 0 };
enum { NVML_BRAND_TESLA = 2, NVML_BRAND_NVIDIA = 14 };
enum {
    NVML_DEVICE_ARCH_KEPLER = 2,
    NVML_DEVICE_ARCH_PASCAL = 4,
    NVML_DEVICE_ARCH_VOLTA = 5,
    NVML_DEVICE_ARCH_AMPERE = 7,
    NVML_DEVICE_ARCH_HOPPER = 9
};

#define NVML_EVENT_REASON_GPU_IDLE 0x1ULL
#define NVML_EVENT_REASON_APPLICATIONS_CLOCKS_SETTING 0x2ULL
#define NVML_EVENT_REASON_SW_POWER_CAP 0x4ULL

enum {
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83,
    NVML_FI_DEV_POWER_AVERAGE = 185,
    NVML_FI_DEV_POWER_INSTANT = 186,
    NVML_FI_DEV_POWER_MIN_LIMIT = 187,
    NVML_FI_DEV_POWER_MAX_LIMIT = 188,
    NVML_FI_DEV_POWER_DEFAULT_LIMIT = 189,
    NVML_FI_DEV_POWER_CURRENT_LIMIT = 190,
    NVML_FI_DEV_POWER_REQUESTED_LIMIT = 192
};
enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3 };

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long used_gpu_memory;
    unsigned gpu_instance_id, compute_instance_id;
} nvmlProcessInfo_t;

typedef struct {
    unsigned version, power_scope, power_value_mw;
} nvmlPowerValue_v2_t;

typedef struct {
    unsigned version, sensor_type;
    int temperature;
} nvmlTemperature_v1_t;

typedef union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned_long_long;
} nvmlValue_t;

typedef struct {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_usec;
    unsigned value_type;
    nvmlReturn_t nvml_return;
    nvmlValue_t value;
} nvmlFieldValue_t;

/* The first member of a versioned structure has its size and version. */
#define NVML_STRUCT_VERSION(type, version) ((unsigned)(sizeof(type) | ((unsigned)(version) << 24)))

#endif

/* List of the supported NVML functions, for the faults, the call counters and the tests. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#define NVML_FUNCTIONS(X) \
    X(nvmlInit_v2) \
    X(nvmlInitWithFlags) \
    X(nvmlShutdown) \
    X(nvmlErrorString) \
    X(nvmlSystemGetDriverVersion) \
    X(nvmlSystemGetNVMLVersion) \
    X(nvmlSystemGetCudaDriverVersion) \
    X(nvmlSystemGetCudaDriverVersion_v2) \
    X(nvmlSystemGetProcessName) \
    X(nvmlDeviceGetCount_v2) \
    X(nvmlDeviceGetHandleByIndex_v2) \
    X(nvmlDeviceGetHandleByUUID) \
    X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetHandleBySerial) \
    X(nvmlDeviceGetName) \
    X(nvmlDeviceGetUUID) \
    X(nvmlDeviceGetSerial) \
    X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetMinorNumber) \
    X(nvmlDeviceGetPciInfo_v3) \
    X(nvmlDeviceGetArchitecture) \
    X(nvmlDeviceGetBrand) \
    X(nvmlDeviceGetCudaComputeCapability) \
    X(nvmlDeviceGetMemoryInfo) \
    X(nvmlDeviceGetMemoryInfo_v2) \
    X(nvmlDeviceGetUtilizationRates) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetTemperature) \
    X(nvmlDeviceGetTemperatureV) \
    X(nvmlDeviceGetPerformanceState) \
    X(nvmlDeviceGetPowerUsage) \
    X(nvmlDeviceGetTotalEnergyConsumption) \
    X(nvmlDeviceGetPowerManagementMode) \
    X(nvmlDeviceGetPowerManagementLimit) \
    X(nvmlDeviceGetPowerManagementLimitConstraints) \
    X(nvmlDeviceGetPowerManagementDefaultLimit) \
    X(nvmlDeviceGetEnforcedPowerLimit) \
    X(nvmlDeviceSetPowerManagementLimit) \
    X(nvmlDeviceSetPowerManagementLimit_v2) \
    X(nvmlDeviceGetFieldValues) \
    X(nvmlDeviceGetSupportedMemoryClocks) \
    X(nvmlDeviceGetSupportedGraphicsClocks) \
    X(nvmlDeviceGetClockInfo) \
    X(nvmlDeviceGetMaxClockInfo) \
    X(nvmlDeviceGetClock) \
    X(nvmlDeviceGetMaxCustomerBoostClock) \
    X(nvmlDeviceGetCurrentClocksThrottleReasons) \
    X(nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetSupportedClocksThrottleReasons) \
    X(nvmlDeviceGetSupportedClocksEventReasons) \
    X(nvmlDeviceSetGpuLockedClocks) \
    X(nvmlDeviceResetGpuLockedClocks) \
    X(nvmlDeviceSetMemoryLockedClocks) \
    X(nvmlDeviceResetMemoryLockedClocks) \
    X(nvmlDeviceGetApplicationsClock) \
    X(nvmlDeviceGetDefaultApplicationsClock) \
    X(nvmlDeviceSetApplicationsClocks) \
    X(nvmlDeviceResetApplicationsClocks) \
    X(nvmlDeviceGetPersistenceMode) \
    X(nvmlDeviceSetPersistenceMode) \
    X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceGetMaxMigDeviceCount) \
    X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    X(nvmlDeviceIsMigDeviceHandle) \
    X(nvmlDeviceGetGpuInstanceId) \
    X(nvmlDeviceGetComputeInstanceId)

#define FUNCTION_NUMBER(name) FUNCTION_##name,
enum function { NVML_FUNCTIONS(FUNCTION_NUMBER) FUNCTION_COUNT };

/* Name of a function, or NULL after the last. */
const char *function_name(unsigned function);

/* Number of the function with a name, or FUNCTION_COUNT. */
unsigned function_by_name(const char *name);

#endif

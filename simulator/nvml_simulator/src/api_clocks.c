/* Clocks: supported clocks, current clocks, and reasons for a reduced clock. */
#include <stddef.h>

#include "api.h"

static uint32_t least(uint32_t one, uint32_t other) { return one < other ? one : other; }

static uint32_t current_mhz(const struct call *call, unsigned type) {
    struct operating_point point = timeline_point(call->gpu, call->model);
    switch (type) {
        case NVML_CLOCK_MEM:
            return point.memory_mhz;
        case NVML_CLOCK_VIDEO:
            return least(point.graphics_mhz, call->model->clock_video_max_mhz);
        default:
            return point.graphics_mhz;
    }
}

static uint32_t highest_mhz(const struct model *model, unsigned type) {
    switch (type) {
        case NVML_CLOCK_MEM:
            return model->memory_clocks_mhz[0];
        case NVML_CLOCK_VIDEO:
            return model->clock_video_max_mhz;
        default:
            return model->clock_max_mhz;
    }
}

static uint32_t application_default_mhz(const struct model *model, unsigned type) {
    return type == NVML_CLOCK_MEM ? model->memory_clocks_mhz[0] : model->clock_application_default_mhz;
}

static uint32_t application_target_mhz(const struct call *call, unsigned type) {
    uint32_t set = type == NVML_CLOCK_MEM ? call->gpu->application_memory_mhz : call->gpu->application_mhz;
    return set != 0 ? set : application_default_mhz(call->model, type);
}

static nvmlReturn_t clock_by_id(const struct call *call, unsigned type, unsigned id, unsigned *mhz) {
    if (id > NVML_CLOCK_ID_CUSTOMER_BOOST_MAX || mhz == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (type > NVML_CLOCK_VIDEO) {
        /* Two codes for one mistake, like driver 580. */
        return id == NVML_CLOCK_ID_CURRENT ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    }
    bool application = id == NVML_CLOCK_ID_APP_CLOCK_TARGET || id == NVML_CLOCK_ID_APP_CLOCK_DEFAULT;
    bool boost = id == NVML_CLOCK_ID_CUSTOMER_BOOST_MAX;
    if ((application && type == NVML_CLOCK_VIDEO) || (boost && type >= NVML_CLOCK_MEM)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    switch (id) {
        case NVML_CLOCK_ID_CURRENT:
            *mhz = current_mhz(call, type);
            break;
        case NVML_CLOCK_ID_APP_CLOCK_TARGET:
            *mhz = application_target_mhz(call, type);
            break;
        case NVML_CLOCK_ID_APP_CLOCK_DEFAULT:
            *mhz = application_default_mhz(call->model, type);
            break;
        default:
            *mhz = highest_mhz(call->model, type);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_clock(enum function function, nvmlDevice_t device, unsigned type, unsigned id, unsigned *mhz) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, function, device);
    return result == NVML_SUCCESS ? call_end(&call, clock_by_id(&call, type, id, mhz)) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    return answer_clock(FUNCTION_nvmlDeviceGetClockInfo, device, type, NVML_CLOCK_ID_CURRENT, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetMaxClockInfo, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (type > NVML_CLOCK_VIDEO || mhz == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *mhz = highest_mhz(call.model, type);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    return answer_clock(FUNCTION_nvmlDeviceGetMaxCustomerBoostClock, device, type, NVML_CLOCK_ID_CUSTOMER_BOOST_MAX, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    return answer_clock(FUNCTION_nvmlDeviceGetApplicationsClock, device, type, NVML_CLOCK_ID_APP_CLOCK_TARGET, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    return answer_clock(FUNCTION_nvmlDeviceGetDefaultApplicationsClock, device, type, NVML_CLOCK_ID_APP_CLOCK_DEFAULT,
                        mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *mhz) {
    return answer_clock(FUNCTION_nvmlDeviceGetClock, device, type, id, mhz);
}

static nvmlReturn_t list_clocks(unsigned *count, unsigned *clocks, const struct model *model, unsigned needed,
                                uint32_t (*clock_at)(const struct model *, unsigned)) {
    bool fits = *count >= needed;
    *count = needed;
    if (!fits) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (clocks == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned position = 0; position < needed; position++) {
        clocks[position] = clock_at(model, position);
    }
    return NVML_SUCCESS;
}

static uint32_t memory_clock(const struct model *model, unsigned position) { return model->memory_clocks_mhz[position]; }

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetSupportedMemoryClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    unsigned needed = model_memory_clock_count(call.model);
    return call_end(&call, list_clocks(count, clocks, call.model, needed, memory_clock));
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned *count,
                                                         unsigned *clocks) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetSupportedGraphicsClocks, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (power_supported_memory_clock(call.model, memory_mhz) != memory_mhz) {
        return call_end(&call, NVML_ERROR_NOT_FOUND);
    }
    unsigned needed = model_graphics_clock_count(call.model);
    return call_end(&call, list_clocks(count, clocks, call.model, needed, model_graphics_clock));
}

static unsigned long long event_reasons(const struct call *call) {
    struct operating_point point = timeline_point(call->gpu, call->model);
    if (point.megaflops_per_second == 0) {
        return NVML_EVENT_REASON_GPU_IDLE;
    }
    bool held = call->gpu->application_mhz != 0 && call->gpu->application_mhz < call->model->clock_max_mhz;
    return (point.capped ? NVML_EVENT_REASON_SW_POWER_CAP : 0) |
           (held && !point.capped ? NVML_EVENT_REASON_APPLICATIONS_CLOCKS_SETTING : 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ANSWER(nvmlDeviceGetCurrentClocksEventReasons, device, reasons, event_reasons(&call));
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ANSWER(nvmlDeviceGetCurrentClocksThrottleReasons, device, reasons, event_reasons(&call));
}

#define SUPPORTED_REASONS 0x1FFULL /* those of an H200; the simulator reports three of them */

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ANSWER(nvmlDeviceGetSupportedClocksEventReasons, device, reasons, SUPPORTED_REASONS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ANSWER(nvmlDeviceGetSupportedClocksThrottleReasons, device, reasons, SUPPORTED_REASONS);
}

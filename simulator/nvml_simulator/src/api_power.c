/* Power, power limit and energy. */
#include <stddef.h>

#include "api.h"

/* nvmlDeviceGetPowerUsage: mean of the last second on GA10x and Hopper, else the last sample. */
static uint32_t power_usage_mw(const struct call *call) {
    return call->model->averages_power ? timeline_average_power_mw(call->gpu, call->model)
                                       : timeline_instant_power_mw(call->gpu, call->model);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    ANSWER(nvmlDeviceGetPowerUsage, device, milliwatts, power_usage_mw(&call));
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetTotalEnergyConsumption, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (millijoules == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (!call.model->has_energy_counter) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    *millijoules = timeline_counter_mj(call.gpu);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned *mode) {
    ANSWER(nvmlDeviceGetPowerManagementMode, device, mode, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts) {
    ANSWER(nvmlDeviceGetPowerManagementLimit, device, milliwatts, call.gpu->limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    ANSWER(nvmlDeviceGetEnforcedPowerLimit, device, milliwatts, call.gpu->limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned *milliwatts) {
    ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, device, milliwatts, call.model->power_default_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *minimum,
                                                                  unsigned *maximum) {
    ANSWER_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, device, minimum, maximum, call.model->power_min_mw,
                call.model->power_max_mw);
}

static nvmlReturn_t set_limit(struct call *call, unsigned milliwatts) {
    if (milliwatts < call->model->power_min_mw || milliwatts > call->model->power_max_mw) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    call->gpu->limit_mw = milliwatts;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned milliwatts) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetPowerManagementLimit, device);
    return result == NVML_SUCCESS ? call_end(&call, set_limit(&call, milliwatts)) : result;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, const nvmlPowerValue_v2_t *value) {
    struct call call;
    nvmlReturn_t result = begin_change(&call, FUNCTION_nvmlDeviceSetPowerManagementLimit_v2, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (value == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    if (value->version != NVML_STRUCT_VERSION(nvmlPowerValue_v2_t, 2)) {
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    if (value->power_scope != NVML_POWER_SCOPE_GPU) {
        return call_end(&call, NVML_ERROR_NOT_SUPPORTED);
    }
    return call_end(&call, set_limit(&call, value->power_value_mw));
}

/* Value of a field, or NOT_SUPPORTED if the model or this library does not have it. */
static nvmlReturn_t fill_field(const struct call *call, nvmlFieldValue_t *field) {
    if (field->field_id == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION) {
        if (!call->model->has_energy_counter) {
            return NVML_ERROR_NOT_SUPPORTED;
        }
        field->value_type = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        field->value.as_unsigned_long_long = timeline_counter_mj(call->gpu);
        return NVML_SUCCESS;
    }
    if (!call->model->has_power_fields || field->scope_id != NVML_POWER_SCOPE_GPU) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    field->value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    switch (field->field_id) {
        case NVML_FI_DEV_POWER_AVERAGE:
            field->value.as_unsigned = timeline_average_power_mw(call->gpu, call->model);
            return NVML_SUCCESS;
        case NVML_FI_DEV_POWER_INSTANT:
            field->value.as_unsigned = timeline_instant_power_mw(call->gpu, call->model);
            return NVML_SUCCESS;
        case NVML_FI_DEV_POWER_MIN_LIMIT:
            field->value.as_unsigned = call->model->power_min_mw;
            return NVML_SUCCESS;
        case NVML_FI_DEV_POWER_MAX_LIMIT:
            field->value.as_unsigned = call->model->power_max_mw;
            return NVML_SUCCESS;
        case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
            field->value.as_unsigned = call->model->power_default_mw;
            return NVML_SUCCESS;
        case NVML_FI_DEV_POWER_CURRENT_LIMIT:
        case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
            field->value.as_unsigned = call->gpu->limit_mw;
            return NVML_SUCCESS;
        default:
            return NVML_ERROR_NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetFieldValues, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (fields == NULL || count <= 0) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (int number = 0; number < count; number++) {
        fields[number].timestamp = (int64_t)(call.gpu->time_ns / 1000);
        fields[number].latency_usec = 0;
        fields[number].nvml_return = fill_field(&call, &fields[number]);
    }
    return call_end(&call, NVML_SUCCESS);
}

/* Macros shared by the api_*.c files: the common body of most NVML functions. */
#ifndef API_H
#define API_H

#include "call.h"
#include "power.h"
#include "timeline.h"

/* Body of a function that returns one number; `value` may use `call`. */
#define ANSWER(function, device, out, value) \
    do { \
        struct call call; \
        nvmlReturn_t result = call_begin_on(&call, FUNCTION_##function, device); \
        if (result != NVML_SUCCESS) { \
            return result; \
        } \
        if ((out) == NULL) { \
            return call_end(&call, NVML_ERROR_INVALID_ARGUMENT); \
        } \
        *(out) = (value); \
        return call_end(&call, NVML_SUCCESS); \
    } while (0)

/* Body of a function that returns two numbers; the values may use `call`. */
#define ANSWER_PAIR(function, device, first, second, first_value, second_value) \
    do { \
        struct call call; \
        nvmlReturn_t result = call_begin_on(&call, FUNCTION_##function, device); \
        if (result != NVML_SUCCESS) { \
            return result; \
        } \
        if ((first) == NULL || (second) == NULL) { \
            return call_end(&call, NVML_ERROR_INVALID_ARGUMENT); \
        } \
        *(first) = (first_value); \
        *(second) = (second_value); \
        return call_end(&call, NVML_SUCCESS); \
    } while (0)

/* Body of a function that returns a string in a buffer of a given size. */
#define ANSWER_TEXT(function, device, buffer, size, text) \
    do { \
        struct call call; \
        nvmlReturn_t result = call_begin_on(&call, FUNCTION_##function, device); \
        if (result != NVML_SUCCESS) { \
            return result; \
        } \
        return call_end(&call, call_text(buffer, size, text)); \
    } while (0)

/* Begins a function that changes a GPU; checks the handle before the permission. */
static inline nvmlReturn_t begin_change(struct call *call, enum function function, nvmlDevice_t device) {
    nvmlReturn_t result = call_begin_on(call, function, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    result = call_permission(call);
    return result == NVML_SUCCESS ? result : call_end(call, result);
}

#endif

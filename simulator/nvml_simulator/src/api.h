/* What the api_*.c files share: the few lines that most NVML functions consist of. */
#ifndef API_H
#define API_H

#include "call.h"
#include "power.h"
#include "timeline.h"

/* The body of a function that answers one number: `value` may use `call`. */
#define ANSWER(function, device, out, value) \
    do { \
        struct call call; \
        nvmlReturn_t begun = call_begin_on(&call, FUNCTION_##function, device); \
        if (begun != NVML_SUCCESS) { \
            return begun; \
        } \
        if ((out) == NULL) { \
            return call_end(&call, NVML_ERROR_INVALID_ARGUMENT); \
        } \
        *(out) = (value); \
        return call_end(&call, NVML_SUCCESS); \
    } while (0)

/* The same for a text with its buffer's size. */
#define ANSWER_TEXT(function, device, buffer, size, text) \
    do { \
        struct call call; \
        nvmlReturn_t begun = call_begin_on(&call, FUNCTION_##function, device); \
        if (begun != NVML_SUCCESS) { \
            return begun; \
        } \
        return call_end(&call, call_text(buffer, size, text)); \
    } while (0)

/* Begins a function that changes the GPU; the handle is looked at before the permission. */
static inline nvmlReturn_t begin_change(struct call *call, enum function function, nvmlDevice_t device) {
    nvmlReturn_t result = call_begin_on(call, function, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    result = call_permission(call);
    return result == NVML_SUCCESS ? result : call_end(call, result);
}

#endif

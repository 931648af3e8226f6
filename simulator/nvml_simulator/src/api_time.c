/* The calls beyond NVML that a measuring program needs: what time it is where the GPUs are, and which load of the driver. */
#include <stddef.h>

#include "api.h"
#include "clock.h"

/* The present in simulated nanoseconds since creation, of the state that nvmlInit has opened: of one GPU, or without a
 * device of the machine. */
EXPORT nvmlReturn_t wattloopSimulatorTime(nvmlDevice_t device, unsigned long long *nanoseconds) {
    struct call call;
    nvmlReturn_t result = call_begin_quietly(&call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (nanoseconds == NULL || (device != NULL && !call_find(&call, device))) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    const struct layout *layout = call.machine->layout;
    *nanoseconds = device == NULL ? clock_machine_ns(layout) : clock_now_ns(layout, &layout->gpus[call.index]);
    return call_end(&call, NVML_SUCCESS);
}

/* How often the driver was started: what the kernel tells of a real one. */
EXPORT nvmlReturn_t wattloopSimulatorDriverStarts(unsigned long long *starts) {
    struct call call;
    nvmlReturn_t result = call_begin_quietly(&call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (starts == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *starts = call.machine->layout->driver_starts;
    return call_end(&call, NVML_SUCCESS);
}

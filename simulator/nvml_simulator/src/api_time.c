/* Calls beyond NVML for measuring programs: simulated time, driver load, and whose processes are listed. */
#include <stddef.h>

#include "api.h"
#include "clock.h"
#include "processes.h"

/* Simulated nanoseconds since creation of the state that nvmlInit has opened: of a GPU, or of the machine
 * without a device. */
EXPORT nvmlReturn_t wattloopSimulatorTime(nvmlDevice_t device, unsigned long long *nanoseconds) {
    struct call call;
    nvmlReturn_t result = call_begin_uncounted(&call);
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

/* Number of driver starts, which the kernel provides for a real driver. */
EXPORT nvmlReturn_t wattloopSimulatorDriverStarts(unsigned long long *starts) {
    struct call call;
    nvmlReturn_t result = call_begin_uncounted(&call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (starts == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *starts = call.machine->layout->driver_starts;
    return call_end(&call, NVML_SUCCESS);
}

/* Whether the caller sees the processes of the whole machine. In a container it sees its own. A real driver's
 * caller learns that from the kernel. */
EXPORT nvmlReturn_t wattloopSimulatorListsAllProcesses(unsigned *all) {
    struct call call;
    nvmlReturn_t result = call_begin_uncounted(&call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (all == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *all = call.machine->layout->pid_namespace == processes_namespace();
    return call_end(&call, NVML_SUCCESS);
}

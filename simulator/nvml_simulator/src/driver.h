/* The simulated driver, which can be stopped and started while programs use it. */
#ifndef DRIVER_H
#define DRIVER_H

#include "machine.h"

/* Result for a session that was opened at driver start number `starts`: NVML_SUCCESS while that driver
 * runs. Requires the lock. */
nvmlReturn_t driver_answer(const struct layout *layout, uint64_t starts);

/* Unloads the driver. nvmlInit then returns NVML_ERROR_DRIVER_NOT_LOADED, and each open session returns
 * `stale_code`, also after the next start, until it is opened again. */
void driver_stop(struct machine *machine, nvmlReturn_t stale_code);

/* Loads the driver if it is stopped: energy counters from zero, default limits and clocks. */
void driver_start(struct machine *machine);

#endif

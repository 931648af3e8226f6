/* The driver behind the GPUs: it can be stopped and started under the programs that use it. */
#ifndef DRIVER_H
#define DRIVER_H

#include "machine.h"

/* What a session that was opened at this start of the driver is answered: NVML_SUCCESS while that driver still runs.
 * Under the lock. */
nvmlReturn_t driver_answer(const struct layout *layout, uint64_t starts);

/* Unloads it. From now on nvmlInit answers NVML_ERROR_DRIVER_NOT_LOADED, and every session that is open `stale_code`,
 * also after the next start: it has to be opened anew. */
void driver_stop(struct machine *machine, nvmlReturn_t stale_code);

/* Loads it where it is stopped: energy counters from zero, limits and clocks as the vendor ships them. */
void driver_start(struct machine *machine);

#endif

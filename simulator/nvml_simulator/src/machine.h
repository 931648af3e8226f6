/* The simulated machine: the state file in this process's memory, and the lock around it. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stddef.h>

#include "layout.h"
#include "models.h"
#include "nvml_abi.h"

struct machine {
    struct layout *layout;
    size_t size_bytes;
};

struct machine_options {
    uint32_t model, gpu_count, clock_mode, permission;
    double scale;
    uint64_t seed;
};

/* Writes a new state file. 0, or the errno of what failed; the file appears whole or not at all. */
int machine_create(const char *path, const struct machine_options *options, bool replace);

/* Maps a state file. NVML_ERROR_DRIVER_NOT_LOADED where there is none (or no path), NVML_ERROR_LIB_RM_VERSION_MISMATCH
 * where it is another version's. */
nvmlReturn_t machine_open(const char *path, struct machine *machine);
void machine_close(struct machine *machine);

/* The lock is robust: after a process died holding it, the next one takes back what that process left half done. */
void machine_lock(struct machine *machine);
void machine_unlock(struct machine *machine);

/* GPU `index` to be changed under the lock: remembered as it is, and brought to the present of the machine's clock. */
struct gpu *machine_touch(struct machine *machine, unsigned index);

const struct model *machine_model(const struct machine *machine);

#endif

/* The simulated machine: the mapped state file and its lock. */
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

/* Creates a state file atomically. Returns 0 or an errno. */
int machine_create(const char *path, const struct machine_options *options, bool replace);

/* Maps a state file. Returns NVML_ERROR_DRIVER_NOT_LOADED if there is no file or path, and
 * NVML_ERROR_LIB_RM_VERSION_MISMATCH for a file of another version. */
nvmlReturn_t machine_open(const char *path, struct machine *machine);
void machine_close(struct machine *machine);

/* The lock is robust: if a process dies with the lock, the next one undoes its incomplete change. */
void machine_lock(struct machine *machine);
void machine_unlock(struct machine *machine);

/* Returns GPU `index` for a change under the lock: saves a copy, and advances it to the present time. */
struct gpu *machine_modify(struct machine *machine, unsigned index);

/* Locks the graphics clock of GPU `index`, which machine_modify has returned, and traces that; 0, 0: ends the lock.
 * A process that is killed meanwhile may leave a traced setting that the next one undoes. */
void machine_set_clock_lock(struct machine *machine, unsigned index, uint32_t min_mhz, uint32_t max_mhz);

struct trace *machine_trace(const struct machine *machine, unsigned index);

const struct model *machine_model(const struct machine *machine);

#endif

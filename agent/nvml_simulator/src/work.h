/* Work put on GPUs by a training process. */
#ifndef WORK_H
#define WORK_H

#include "machine.h"

struct request {
    const unsigned *gpus;
    unsigned count;
    uint64_t megaflops; /* on each of them */
    uint32_t intensity_ppm;
};

/* Puts the work on all the GPUs at once and returns when the last is done, as a data-parallel step does: a GPU that is
 * done earlier waits at its waiting power. With the virtual clock the GPUs first come to the latest time among them, and
 * end at the same time. NVML_ERROR_INSUFFICIENT_RESOURCES where a GPU has MAX_OCCUPANCIES already. */
nvmlReturn_t work_together(struct machine *machine, const struct request *request);

/* With the virtual clock: brings the GPUs to the latest time among them plus `idle_ns`; no work meanwhile. */
void work_pass_idle(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t idle_ns);

#endif

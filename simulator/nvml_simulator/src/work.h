/* Work put on GPUs by a training process. */
#ifndef WORK_H
#define WORK_H

#include "machine.h"

struct request {
    unsigned gpus[MAX_GPUS]; /* each once */
    unsigned count;
    uint64_t megaflops; /* on each of them */
    uint32_t intensity_ppm;
};

/* Work that was begun: where it lies on each GPU. */
struct work {
    struct request request;
    unsigned places[MAX_GPUS];
};

/* Puts the work on all the GPUs at once, as a data-parallel step does: one that is done before the last waits for it at
 * its waiting power. With the virtual clock the GPUs first come to the latest time among them, all the work is done
 * within this call, and they end at the same time. NVML_ERROR_INSUFFICIENT_RESOURCES where a GPU has MAX_OCCUPANCIES
 * already; then nothing was begun. */
nvmlReturn_t work_begin(struct machine *machine, const struct request *request, struct work *work);

/* Holds the work on its GPUs and sleeps until it is done, but not long, so that the caller can look about. Whether it is
 * done. Work that is not held ends within half a second of real time. */
bool work_wait(struct machine *machine, const struct work *work);

/* Takes what is left of the work off the GPUs. */
void work_end(struct machine *machine, const struct work *work);

/* With the virtual clock: brings the GPUs to the latest time among them plus `idle_ns`; no work meanwhile. */
void work_pass_idle(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t idle_ns);

#endif

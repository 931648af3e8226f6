/* Work of training processes on GPUs. */
#ifndef WORK_H
#define WORK_H

#include "machine.h"

struct request {
    unsigned gpus[MAX_GPUS]; /* each once */
    unsigned count;
    uint64_t megaflops; /* on each of them */
    uint32_t intensity_ppm;
};

/* Work in progress, with its occupancy on each GPU. */
struct work {
    struct request request;
    unsigned slots[MAX_GPUS];
};

/* Starts work on all GPUs at the same time, like a data-parallel step: a GPU that is done waits for the
 * others at its waiting power. With the virtual clock the GPUs first advance to the latest time among them,
 * this call does all the work, and they end at the same time. Returns NVML_ERROR_INSUFFICIENT_RESOURCES,
 * without starting any work, if a GPU has MAX_OCCUPANCIES already. */
nvmlReturn_t work_begin(struct machine *machine, const struct request *request, struct work *work);

/* Keeps the work on its GPUs and sleeps until it is done, but only briefly, so that the caller can handle
 * signals. Returns whether it is done. Without this call, work ends within half a second of real time. */
bool work_wait(struct machine *machine, const struct work *work);

/* Removes the remaining work from the GPUs. */
void work_end(struct machine *machine, const struct work *work);

/* With the virtual clock: advances a GPU to a time at its waiting power, as while it waits for a message. */
void work_blocked(struct machine *machine, unsigned gpu, uint64_t until_ns);

/* With the virtual clock: advances idle GPUs to the latest time among them plus `idle_ns`. */
void work_idle(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t idle_ns);

#endif

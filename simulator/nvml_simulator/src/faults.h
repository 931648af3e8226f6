/* Faults that a test injects: the calls that they affect, and how. */
#ifndef FAULTS_H
#define FAULTS_H

#include "machine.h"

struct fault_effect {
    nvmlReturn_t code;
    uint64_t delay_ns;
    uint64_t ticket; /* of the fault that applies; 0: none */
};

/* Counts the call for each fault and returns the effect on it. `gpu` is -1 for a call without a GPU.
 * Requires the lock. */
struct fault_effect faults_apply(struct layout *layout, unsigned function, int gpu);

/* Whether every function on a GPU fails with NVML_ERROR_GPU_IS_LOST permanently. Requires the lock. */
bool faults_lost(const struct layout *layout, int gpu);

/* Waits for a delay in real time without the lock; returns early when the fault is cleared. */
void faults_wait(struct machine *machine, const struct fault_effect *effect);

/* Returns the ticket of the new fault, or 0 if there are MAX_FAULTS. Requires the lock. */
uint64_t faults_add(struct layout *layout, const struct fault *fault);

/* Clears a fault, or with ticket 0 all. Requires the lock. */
void faults_clear(struct layout *layout, uint64_t ticket);

#endif

/* Faults that a test has put into the machine: which call they strike, and with what. */
#ifndef FAULTS_H
#define FAULTS_H

#include "machine.h"

struct verdict {
    nvmlReturn_t code;
    uint64_t delay_ns;
    uint64_t ticket; /* of the fault that struck, 0: none */
};

/* Counts the call against every fault and says what is to befall it. Under the lock. `gpu` is -1 for a call that names
 * none. */
struct verdict faults_strike(struct layout *layout, unsigned function, int gpu);

/* Whether a GPU is lost: every function on it fails with NVML_ERROR_GPU_IS_LOST, for good. Under the lock. */
bool faults_lost(const struct layout *layout, int gpu);

/* Waits out a delay in real time, without the lock; ends early when the fault is cleared. */
void faults_wait(struct machine *machine, const struct verdict *verdict);

/* The new fault's ticket, or 0 where all places are taken. Under the lock. */
uint64_t faults_add(struct layout *layout, const struct fault *fault);

/* Clears one fault, or with ticket 0 all. Under the lock. */
void faults_clear(struct layout *layout, uint64_t ticket);

#endif

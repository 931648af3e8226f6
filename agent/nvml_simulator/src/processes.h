/* The processes that a GPU holds a context for: those that have worked on it and live. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "layout.h"

enum { CONTEXT_BYTES = 536870912 }; /* what a process takes of the GPU's memory */

/* When a process began, in clock ticks since boot; 0 where there is none. With the pid it names a process for good. */
uint64_t processes_start_ticks(int32_t pid);

/* Remembers this process. One beyond MAX_PROCESSES works all the same, unlisted. */
void processes_register(struct gpu *gpu, const struct process *self);

/* The calling process. */
struct process processes_self(void);

/* Forgets processes that have ended, and returns how many are left. */
unsigned processes_prune(struct gpu *gpu);

#endif

/* The processes that a GPU holds a context for: those that have worked on it and live. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "layout.h"

enum { CONTEXT_BYTES = 536870912 }; /* what a process takes of the GPU's memory */

/* Remembers the calling process. A process beyond MAX_PROCESSES works all the same, unlisted. */
void processes_register(struct gpu *gpu);

/* Forgets processes that have ended, and returns how many are left. */
unsigned processes_prune(struct gpu *gpu);

#endif

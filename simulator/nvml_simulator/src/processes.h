/* The processes that a GPU holds a context for: those that have worked on it and live. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "layout.h"

enum { CONTEXT_BYTES = 536870912 }; /* what a process takes of the GPU's memory */

/* What can be said of a process from here. */
enum sight { PROCESS_GONE, PROCESS_LIVES, PROCESS_OUT_OF_SIGHT };

/* Whether a process lives, and the pid by which the caller knows it, if it does. Of another container's processes
 * nothing is seen from inside a container: they are out of sight, dead or alive. */
enum sight processes_look(const struct layout *layout, const struct process *process, int32_t *pid);

/* Remembers this process. One beyond MAX_PROCESSES works all the same, unlisted. */
void processes_register(const struct layout *layout, struct gpu *gpu, const struct process *self);

/* The calling process. */
struct process processes_self(void);

/* Forgets processes that have ended, and returns how many are left. */
unsigned processes_prune(const struct layout *layout, struct gpu *gpu);

#endif

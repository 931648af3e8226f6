/* The processes with a context on a GPU: running processes that have worked on it. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "layout.h"

enum { CONTEXT_BYTES = 536870912 }; /* GPU memory per process */

/* State of a process as this process sees it. */
enum process_state { PROCESS_GONE, PROCESS_ALIVE, PROCESS_INVISIBLE };

/* State of a process, and its pid in the caller's namespace if it is alive. Processes of another container
 * are invisible in a container, alive or not. */
enum process_state processes_state(const struct layout *layout, const struct process *process, int32_t *pid);

/* Adds this process. Above MAX_PROCESSES, a process works without being listed. */
void processes_register(const struct layout *layout, struct gpu *gpu, const struct process *self);

/* PID namespace of this process. */
uint64_t processes_namespace(void);

/* The calling process, or the one that it acts for. */
struct process processes_self(void);

/* From now on the calling process works on behalf of another one of its namespace; 0: for itself. */
void processes_act_for(int32_t pid);

/* Removes processes that have ended; returns the number of the others. */
unsigned processes_prune(const struct layout *layout, struct gpu *gpu);

#endif

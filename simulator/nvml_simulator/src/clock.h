/* The three clocks: wall (system time), scaled (a multiple of it), virtual (advances only with work). */
#ifndef CLOCK_H
#define CLOCK_H

#include "layout.h"

uint64_t clock_monotonic_ns(void);

/* Time of a GPU, in simulated nanoseconds since creation. It never decreases.
 *
 * With the virtual clock each GPU has its own time, which only its own work advances. The state of a GPU
 * then depends on its own work and the order of that work, and not on processes on other GPUs. */
uint64_t clock_now_ns(const struct layout *layout, const struct gpu *gpu);

/* Time of the machine: with the virtual clock the latest of its GPUs. */
uint64_t clock_machine_ns(const struct layout *layout);

/* Real duration of a simulated one. */
uint64_t clock_real_ns(const struct layout *layout, uint64_t simulated_ns);

/* Sleeps; continues after signals. */
void clock_sleep_ns(uint64_t real_ns);

#endif

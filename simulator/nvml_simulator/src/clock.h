/* The three clocks: wall (as the system's), scaled (the system's times a factor), virtual (moves only with work). */
#ifndef CLOCK_H
#define CLOCK_H

#include "layout.h"

uint64_t clock_monotonic_ns(void);

/* The present of a GPU, in simulated nanoseconds since creation. It never falls.
 *
 * With the virtual clock every GPU has a time of its own, that only its own work moves: what a GPU sees then depends on
 * what was done on it and in which order, and not on what other processes do on other GPUs meanwhile. */
uint64_t clock_now_ns(const struct layout *layout, const struct gpu *gpu);

/* The present of the machine: with the virtual clock the latest of its GPUs. */
uint64_t clock_machine_ns(const struct layout *layout);

/* The real time that a simulated one takes. */
uint64_t clock_real_ns(const struct layout *layout, uint64_t simulated_ns);

/* Sleeps, through signals. */
void clock_sleep_ns(uint64_t real_ns);

#endif

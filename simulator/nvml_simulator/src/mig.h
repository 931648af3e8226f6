/* How a GPU is cut into MIG devices. */
#ifndef MIG_H
#define MIG_H

#include "machine.h"

/* Cuts a GPU into `count` MIG devices, as large as so many equal ones can be; 0 switches MIG off. NVML_ERROR_NOT_SUPPORTED
 * where its model has no MIG. */
nvmlReturn_t mig_partition(struct machine *machine, unsigned index, unsigned count);

/* What a MIG device has of its GPU's memory, as its name says it, and in bytes. */
unsigned mig_gigabytes(const struct model *model, const struct instance *instance);
uint64_t mig_memory_bytes(const struct model *model, const struct instance *instance);

#endif

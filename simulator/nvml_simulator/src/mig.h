/* Partitioning of GPUs into MIG devices. */
#ifndef MIG_H
#define MIG_H

#include "machine.h"

/* Partitions a GPU into `count` equal MIG devices of maximum size; 0 disables MIG. Returns
 * NVML_ERROR_NOT_SUPPORTED for a model without MIG. */
nvmlReturn_t mig_partition(struct machine *machine, unsigned index, unsigned count);

/* Memory of a MIG device: as in its name, and in bytes. */
unsigned mig_gigabytes(const struct model *model, const struct instance *instance);
uint64_t mig_memory_bytes(const struct model *model, const struct instance *instance);

#endif

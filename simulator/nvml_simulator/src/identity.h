/* Identity of a simulated GPU, which depends only on seed and index. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "layout.h"

void identity_fill(struct gpu *gpu, uint64_t seed, unsigned index);

/* UUID of a MIG device: the same for the same partition of the same GPU. */
void identity_fill_instance(struct instance *instance, uint64_t seed, unsigned index);

#endif

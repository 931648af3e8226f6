/* What tells one simulated GPU from another, from (seed, index) alone. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "layout.h"

void identity_fill(struct gpu *gpu, uint64_t seed, unsigned index);

/* The UUID of a MIG device: the same again when the same GPU is cut the same way again. */
void identity_fill_instance(struct instance *instance, uint64_t seed, unsigned index);

#endif

/* What tells one simulated GPU from another, from (seed, index) alone. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "layout.h"

void identity_fill(struct gpu *gpu, uint64_t seed, unsigned index);

#endif

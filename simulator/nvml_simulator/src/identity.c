#include "identity.h"

#include <stdio.h>

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014): well mixed bits from a counter. */
static uint64_t mixed(uint64_t *state) {
    uint64_t bits = *state += 0x9E3779B97F4A7C15ULL;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ULL;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBULL;
    return bits ^ bits >> 31;
}

static void fill_uuid(char uuid[48], const char *kind, uint64_t *state) {
    uint64_t high = mixed(state);
    uint64_t low = mixed(state);
    snprintf(uuid, 48, "%s-%08x-%04x-%04x-%04x-%04x%08x", kind, (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xFFFF), (unsigned)(high & 0xFFFF), (unsigned)(low >> 48),
             (unsigned)(low >> 32 & 0xFFFF), (unsigned)(low & 0xFFFFFFFF));
}

void identity_fill_instance(struct instance *instance, uint64_t seed, unsigned index) {
    uint64_t state = seed * 0x2545F4914F6CDD1DULL + index;
    state = mixed(&state) + (instance->gpu_instance_id << 8 | instance->memory_slices);
    fill_uuid(instance->uuid, "MIG", &state);
}

void identity_fill(struct gpu *gpu, uint64_t seed, unsigned index) {
    uint64_t state = seed * 0x2545F4914F6CDD1DULL + index;
    fill_uuid(gpu->uuid, "GPU", &state);
    gpu->bus = 0x07 + 3 * index; /* below 0x100 for all MAX_GPUS */
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%08X:%02X:%02X.0", 0u, gpu->bus, 0u);
    snprintf(gpu->serial, sizeof gpu->serial, "%013llu", (unsigned long long)(mixed(&state) % 10000000000000ULL));
    gpu->phase_ns = mixed(&state) % SAMPLE_STEP_NS;
    /* A nonzero start value reveals programs that use the counter as a difference. */
    gpu->counter_base_mj = mixed(&state) % 4000000000ULL;
}

#include "mig.h"

#include "identity.h"

/* Profiles of NVIDIA's MIG user guide by the number of equal devices: 7g, 3g, 2g and 1g, with the first id
 * of their GPU instances and their memory. */
static const struct profile {
    uint32_t first_id, compute_slices, memory_slices;
} PROFILES[MAX_INSTANCES + 1] = {
    [1] = {0, 7, 8}, [2] = {1, 3, 4}, [3] = {3, 2, 2}, [4] = {7, 1, 1}, [5] = {7, 1, 1}, [6] = {7, 1, 1}, [7] = {7, 1, 1},
};

nvmlReturn_t mig_partition(struct machine *machine, unsigned index, unsigned count) {
    if (index >= machine->layout->gpu_count || count > MAX_INSTANCES) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!machine_model(machine)->has_mig) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    machine_lock(machine);
    struct gpu *gpu = machine_modify(machine, index);
    for (unsigned number = 0; number < count; number++) {
        struct instance *instance = &gpu->instances[number];
        instance->gpu_instance_id = PROFILES[count].first_id + number;
        instance->compute_slices = PROFILES[count].compute_slices;
        instance->memory_slices = PROFILES[count].memory_slices;
        identity_fill_instance(instance, machine->layout->seed, index);
    }
    gpu->instance_count = count;
    machine_unlock(machine);
    return NVML_SUCCESS;
}

unsigned mig_gigabytes(const struct model *model, const struct instance *instance) {
    unsigned position = 0;
    while (1u << position < instance->memory_slices) {
        position++;
    }
    return model->mig_gigabytes[position];
}

uint64_t mig_memory_bytes(const struct model *model, const struct instance *instance) {
    return (model->memory_mebibytes << 20) * instance->memory_slices / 8;
}

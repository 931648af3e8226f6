/* Begin and end of every NVML function: checks the initialization, the handle and injected faults,
 * and holds the lock while the function runs. */
#ifndef CALL_H
#define CALL_H

#include "machine.h"

struct call {
    struct machine *machine;
    const struct model *model;
    struct gpu *gpu; /* NULL if the call has no GPU */
    unsigned index;
    const struct instance *instance; /* NULL for the handle of a GPU */
};

/* A result other than NVML_SUCCESS is that of the function. After NVML_SUCCESS the lock is held until
 * call_end. */
nvmlReturn_t call_begin(struct call *call, enum function function);
nvmlReturn_t call_begin_on(struct call *call, enum function function, nvmlDevice_t device);

/* For the few functions that also accept a MIG device; for the others it is NOT_SUPPORTED. */
nvmlReturn_t call_begin_on_part(struct call *call, enum function function, nvmlDevice_t device);

/* For a call that is not part of NVML: not counted, not subject to faults. */
nvmlReturn_t call_begin_uncounted(struct call *call);

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);

/* NVML_SUCCESS if this process may change GPUs. */
nvmlReturn_t call_permission(const struct call *call);

/* Handle of GPU `index`, and of its MIG device `instance`. */
nvmlDevice_t call_handle(unsigned index);
nvmlDevice_t call_instance_handle(unsigned index, unsigned instance);

/* Sets `call->index` and `call->instance` from a handle; returns false for a foreign handle. */
bool call_find(struct call *call, nvmlDevice_t device);

/* nvmlInit and nvmlShutdown, with the count of initializations. */
nvmlReturn_t call_initialize(enum function function);
nvmlReturn_t call_shutdown(void);

/* Copies a string as NVML does: INVALID_ARGUMENT without a buffer, INSUFFICIENT_SIZE if it is too small. */
nvmlReturn_t call_text(char *buffer, unsigned size, const char *text);

#endif

/* What every NVML function begins and ends with: is the library initialised, is the handle one of ours, does a fault
 * strike, and the lock for as long as the answer is put together. */
#ifndef CALL_H
#define CALL_H

#include "machine.h"

struct call {
    struct machine *machine;
    const struct model *model;
    struct gpu *gpu; /* NULL in a call that names none */
    unsigned index;
    const struct instance *instance; /* NULL where the handle is the whole GPU's */
};

/* Anything but NVML_SUCCESS is the function's answer; after NVML_SUCCESS the lock is held until call_end. */
nvmlReturn_t call_begin(struct call *call, enum function function);
nvmlReturn_t call_begin_on(struct call *call, enum function function, nvmlDevice_t device);

/* The same for the few functions that take a MIG device's handle too; the others refuse it as not supported. */
nvmlReturn_t call_begin_on_part(struct call *call, enum function function, nvmlDevice_t device);

/* For a call that NVML has not: neither counted nor struck by faults. */
nvmlReturn_t call_begin_quietly(struct call *call);

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);

/* NVML_SUCCESS where this process may change GPUs. */
nvmlReturn_t call_permission(const struct call *call);

/* The handle of GPU `index`, and of its MIG device number `instance`. */
nvmlDevice_t call_handle(unsigned index);
nvmlDevice_t call_instance_handle(unsigned index, unsigned instance);

/* The way back: false where the handle is none of ours, else `call->index` and `call->instance` are set. */
bool call_find(struct call *call, nvmlDevice_t device);

/* nvmlInit and nvmlShutdown, counted. */
nvmlReturn_t call_initialize(enum function function);
nvmlReturn_t call_shutdown(void);

/* Copies a text out as NVML does: INVALID_ARGUMENT without a buffer, INSUFFICIENT_SIZE where it does not fit. */
nvmlReturn_t call_text(char *buffer, unsigned size, const char *text);

#endif

#include "call.h"

#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"
#include "faults.h"

/* The state file that this process has open, until no thread uses it after nvmlShutdown. */
struct session {
    struct machine machine;
    uint64_t driver_starts; /* when it was opened */
    unsigned calls;
    bool closed;
};

static pthread_mutex_t session_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct session *session;
static unsigned initializations;

/* Handles are addresses in this array, so that foreign pointers are detected without a read. */
struct nvml_device {
    char unused;
};
static struct nvml_device devices[MAX_GPUS][1 + MAX_INSTANCES]; /* the GPU itself first */

nvmlDevice_t call_handle(unsigned index) { return &devices[index][0]; }

nvmlDevice_t call_instance_handle(unsigned index, unsigned instance) { return &devices[index][1 + instance]; }

bool call_find(struct call *call, nvmlDevice_t device) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)devices;
    if (offset >= sizeof devices) {
        return false;
    }
    unsigned position = (unsigned)(offset / sizeof(struct nvml_device));
    unsigned part = position % (1 + MAX_INSTANCES);
    call->index = position / (1 + MAX_INSTANCES);
    if (call->index >= call->machine->layout->gpu_count) {
        return false;
    }
    const struct gpu *gpu = &call->machine->layout->gpus[call->index];
    call->instance = part == 0 ? NULL : &gpu->instances[part - 1];
    return part <= gpu->instance_count;
}

static struct session *session_enter(void) {
    pthread_mutex_lock(&session_mutex);
    struct session *entered = initializations > 0 ? session : NULL;
    if (entered != NULL) {
        entered->calls++;
    }
    pthread_mutex_unlock(&session_mutex);
    return entered;
}

static void session_leave(struct session *left) {
    pthread_mutex_lock(&session_mutex);
    bool last = --left->calls == 0 && left->closed;
    pthread_mutex_unlock(&session_mutex);
    if (last) {
        machine_close(&left->machine);
        free(left);
    }
}

static struct session *session_of(struct call *call) { return (struct session *)call->machine; }

/* Counts the call and applies faults; after NVML_SUCCESS the lock is held. */
static nvmlReturn_t admit(struct call *call, enum function function, int gpu) {
    struct machine *machine = call->machine;
    machine_lock(machine);
    machine->layout->calls[function]++;
    struct fault_effect effect = faults_apply(machine->layout, function, gpu);
    if (effect.delay_ns > 0) {
        machine_unlock(machine);
        faults_wait(machine, &effect);
        machine_lock(machine);
    }
    /* A stale session can still be closed. */
    if (effect.code == NVML_SUCCESS && function != FUNCTION_nvmlShutdown) {
        effect.code = driver_answer(machine->layout, session_of(call)->driver_starts);
    }
    if (effect.code != NVML_SUCCESS) {
        machine_unlock(machine);
    }
    return effect.code;
}

static nvmlReturn_t enter(struct call *call) {
    struct session *entered = session_enter();
    if (entered == NULL) {
        return NVML_ERROR_UNINITIALIZED;
    }
    call->machine = &entered->machine;
    call->model = machine_model(call->machine);
    call->gpu = NULL;
    call->instance = NULL;
    return NVML_SUCCESS;
}

nvmlReturn_t call_begin(struct call *call, enum function function) {
    nvmlReturn_t result = enter(call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    result = admit(call, function, -1);
    if (result != NVML_SUCCESS) {
        session_leave(session_of(call));
    }
    return result;
}

nvmlReturn_t call_begin_uncounted(struct call *call) {
    nvmlReturn_t result = enter(call);
    if (result == NVML_SUCCESS) {
        machine_lock(call->machine);
    }
    return result;
}

nvmlReturn_t call_begin_on(struct call *call, enum function function, nvmlDevice_t device) {
    nvmlReturn_t result = call_begin_on_part(call, function, device);
    return result == NVML_SUCCESS && call->instance != NULL ? call_end(call, NVML_ERROR_NOT_SUPPORTED) : result;
}

nvmlReturn_t call_begin_on_part(struct call *call, enum function function, nvmlDevice_t device) {
    nvmlReturn_t result = enter(call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!call_find(call, device)) {
        session_leave(session_of(call));
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    result = admit(call, function, (int)call->index);
    if (result != NVML_SUCCESS) {
        session_leave(session_of(call));
        return result;
    }
    call->gpu = machine_modify(call->machine, call->index);
    return NVML_SUCCESS;
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result) {
    machine_unlock(call->machine);
    session_leave(session_of(call));
    return result;
}

/* Like the driver, require the capability, which root in a container does not have. */
static bool is_administrator(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective >> CAP_SYS_ADMIN & 1) != 0;
}

nvmlReturn_t call_permission(const struct call *call) {
    switch (call->machine->layout->permission) {
        case PERMISSION_ANYONE:
            return NVML_SUCCESS;
        case PERMISSION_ROOT:
            return is_administrator() ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
        default:
            return NVML_ERROR_NO_PERMISSION;
    }
}

static nvmlReturn_t open_session(void) {
    struct session *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        return NVML_ERROR_MEMORY;
    }
    nvmlReturn_t result = machine_open(getenv("WATTLOOP_SIMULATED_GPUS_STATE"), &opened->machine);
    if (result != NVML_SUCCESS) {
        free(opened);
        return result;
    }
    machine_lock(&opened->machine);
    bool loaded = opened->machine.layout->driver_loaded;
    opened->driver_starts = opened->machine.layout->driver_starts;
    machine_unlock(&opened->machine);
    if (!loaded) {
        machine_close(&opened->machine);
        free(opened);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    session = opened;
    return NVML_SUCCESS;
}

/* Ends the session; its last call, or this one, closes it. Requires `session_mutex`. */
static struct session *retire_session(void) {
    struct session *retired = session;
    session = NULL;
    retired->closed = true;
    return retired->calls == 0 ? retired : NULL;
}

static void dispose(struct session *retired) {
    if (retired != NULL) {
        machine_close(&retired->machine);
        free(retired);
    }
}

/* Whether the driver was stopped since the session was opened. Requires `session_mutex`. */
static bool is_stale(void) {
    machine_lock(&session->machine);
    bool stale = driver_answer(session->machine.layout, session->driver_starts) != NVML_SUCCESS;
    machine_unlock(&session->machine);
    return stale;
}

nvmlReturn_t call_initialize(enum function function) {
    struct session *retired = NULL;
    pthread_mutex_lock(&session_mutex);
    if (initializations > 0 && is_stale()) {
        retired = retire_session();
        initializations = 0;
    }
    nvmlReturn_t result = initializations == 0 ? open_session() : NVML_SUCCESS;
    if (result == NVML_SUCCESS) {
        initializations++;
    }
    pthread_mutex_unlock(&session_mutex);
    dispose(retired);
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct call call;
    result = call_begin(&call, function);
    if (result == NVML_SUCCESS) {
        return call_end(&call, NVML_SUCCESS);
    }
    call_shutdown();
    return result;
}

nvmlReturn_t call_shutdown(void) {
    struct session *retired = NULL;
    pthread_mutex_lock(&session_mutex);
    nvmlReturn_t result = initializations > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (result == NVML_SUCCESS && --initializations == 0) {
        retired = retire_session();
    }
    pthread_mutex_unlock(&session_mutex);
    dispose(retired);
    return result;
}

nvmlReturn_t call_text(char *buffer, unsigned size, const char *text) {
    if (buffer == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    size_t needed = strlen(text) + 1;
    if (needed > size) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(buffer, text, needed);
    return NVML_SUCCESS;
}

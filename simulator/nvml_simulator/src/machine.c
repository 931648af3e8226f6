#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "identity.h"
#include "processes.h"
#include "timeline.h"

static size_t traces_offset(uint32_t gpu_count) { return sizeof(struct layout) + 2 * gpu_count * sizeof(struct gpu); }

static size_t layout_size(uint32_t gpu_count) {
    return traces_offset(gpu_count) + gpu_count * sizeof(struct trace);
}

static int make_mutex(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (error == 0) {
        error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    }
    if (error == 0) {
        error = pthread_mutex_init(mutex, &attributes);
    }
    pthread_mutexattr_destroy(&attributes);
    return error;
}

static int fill(struct layout *layout, const struct machine_options *options) {
    layout->version = LAYOUT_VERSION;
    layout->gpu_count = options->gpu_count;
    layout->size_bytes = layout_size(options->gpu_count);
    layout->seed = options->seed;
    layout->model = options->model;
    layout->clock_mode = options->clock_mode;
    layout->permission = options->permission;
    layout->scale = options->scale;
    layout->origin_ns = clock_monotonic_ns();
    layout->pid_namespace = processes_namespace();
    layout->driver_loaded = true;
    for (unsigned index = 0; index < options->gpu_count; index++) {
        identity_fill(&layout->gpus[index], options->seed, index);
        layout->gpus[index].limit_mw = model_at(options->model)->power_default_mw;
        layout->gpus[index].persistence_mode = 1;
    }
    int error = make_mutex(&layout->mutex);
    layout->magic = LAYOUT_MAGIC;
    return error;
}

static int write_file(int file, const struct machine_options *options) {
    size_t size = layout_size(options->gpu_count);
    /* Allocate the file, so that a full disk is an error here and not a SIGBUS later. */
    int error = posix_fallocate(file, 0, (off_t)size);
    if (error != 0) {
        return error;
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    error = fill(memory, options);
    munmap(memory, size);
    return error;
}

int machine_create(const char *path, const struct machine_options *options, bool replace) {
    char aside[4096];
    int length = snprintf(aside, sizeof aside, "%s.%ld.new", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof aside) {
        return ENAMETOOLONG;
    }
    int file = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return errno;
    }
    /* Processes with write access share the file; the permission in the state restricts NVML calls. */
    int error = fchmod(file, options->permission == PERMISSION_ROOT ? 0666 : 0600) == 0 ? 0 : errno;
    if (error == 0) {
        error = write_file(file, options);
    }
    close(file);
    if (error == 0) {
        /* link() fails for an existing name, rename() replaces it. */
        int done = replace ? rename(aside, path) : link(aside, path);
        error = done == 0 ? 0 : errno;
    }
    unlink(aside);
    return error;
}

nvmlReturn_t machine_open(const char *path, struct machine *machine) {
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    struct stat found;
    if (fstat(file, &found) != 0 || found.st_size < (off_t)sizeof(struct layout)) {
        close(file);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    size_t size = (size_t)found.st_size;
    struct layout *layout = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (layout == MAP_FAILED) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    nvmlReturn_t result = NVML_SUCCESS;
    if (layout->magic != LAYOUT_MAGIC) {
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    } else if (layout->version != LAYOUT_VERSION || layout->gpu_count > MAX_GPUS || layout->model >= model_count() ||
               layout->size_bytes != size || layout_size(layout->gpu_count) != size) {
        result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    if (result != NVML_SUCCESS) {
        munmap(layout, size);
        return result;
    }
    machine->layout = layout;
    machine->size_bytes = size;
    return NVML_SUCCESS;
}

void machine_close(struct machine *machine) {
    munmap(machine->layout, machine->size_bytes);
    machine->layout = NULL;
}

static void take_back(struct layout *layout) {
    for (unsigned index = 0; index < layout->gpu_count; index++) {
        if (layout->modified >> index & 1) {
            layout->gpus[index] = layout->gpus[layout->gpu_count + index];
        }
    }
    layout->modified = 0;
}

void machine_lock(struct machine *machine) {
    if (pthread_mutex_lock(&machine->layout->mutex) == EOWNERDEAD) {
        take_back(machine->layout);
        pthread_mutex_consistent(&machine->layout->mutex);
    }
}

void machine_unlock(struct machine *machine) {
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint64_t *)&machine->layout->modified = 0;
    pthread_mutex_unlock(&machine->layout->mutex);
}

struct gpu *machine_modify(struct machine *machine, unsigned index) {
    struct layout *layout = machine->layout;
    struct gpu *gpu = &layout->gpus[index];
    if ((layout->modified >> index & 1) == 0) {
        layout->gpus[layout->gpu_count + index] = *gpu;
        /* The copy must be complete before it is marked. A killed process loses no store that it has made,
         * so only the compiler's order matters here. */
        atomic_signal_fence(memory_order_seq_cst);
        *(volatile uint64_t *)&layout->modified |= 1ULL << index;
        atomic_signal_fence(memory_order_seq_cst);
    }
    timeline_advance(gpu, machine_model(machine), clock_now_ns(layout, gpu));
    return gpu;
}

struct trace *machine_trace(const struct machine *machine, unsigned index) {
    struct layout *layout = machine->layout;
    return (struct trace *)((char *)layout + traces_offset(layout->gpu_count)) + index;
}

void machine_set_clock_lock(struct machine *machine, unsigned index, uint32_t min_mhz, uint32_t max_mhz) {
    struct gpu *gpu = &machine->layout->gpus[index];
    struct trace *trace = machine_trace(machine, index);
    gpu->locked_min_mhz = min_mhz;
    gpu->locked_max_mhz = max_mhz;
    trace->settings[trace->setting_count % CLOCK_SETTINGS] =
        (struct clock_setting){.time_ns = gpu->time_ns, .min_mhz = min_mhz, .max_mhz = max_mhz};
    /* The setting must be complete before it is counted. */
    atomic_signal_fence(memory_order_seq_cst);
    trace->setting_count++;
}

const struct model *machine_model(const struct machine *machine) { return model_at(machine->layout->model); }

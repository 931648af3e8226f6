#include "faults.h"

#include <string.h>

#include "clock.h"

#define LOOK_AGAIN_NS 10000000ULL

static bool matches(const struct fault *fault, unsigned function, int gpu) {
    return fault->ticket != 0 && (fault->gpu < 0 || fault->gpu == gpu) &&
           (strcmp(fault->function, "*") == 0 || strcmp(fault->function, function_name(function)) == 0);
}

struct fault_effect faults_apply(struct layout *layout, unsigned function, int gpu) {
    struct fault_effect effect = {.code = NVML_SUCCESS};
    for (unsigned place = 0; place < MAX_FAULTS; place++) {
        struct fault *fault = &layout->faults[place];
        if (!matches(fault, function, gpu)) {
            continue;
        }
        uint64_t call = ++fault->seen;
        bool strikes = call >= fault->first && (fault->count == 0 || call - fault->first < fault->count);
        if (strikes && effect.ticket == 0) {
            effect = (struct fault_effect){(nvmlReturn_t)fault->code, fault->delay_ns, fault->ticket};
        }
    }
    return effect;
}

bool faults_lost(const struct layout *layout, int gpu) {
    for (unsigned place = 0; place < MAX_FAULTS; place++) {
        const struct fault *fault = &layout->faults[place];
        bool applies = fault->ticket != 0 && fault->seen + 1 >= fault->first && fault->count == 0;
        if (applies && fault->gpu == gpu && fault->code == NVML_ERROR_GPU_IS_LOST && strcmp(fault->function, "*") == 0) {
            return true;
        }
    }
    return false;
}

static bool still_there(const struct layout *layout, uint64_t ticket) {
    for (unsigned place = 0; place < MAX_FAULTS; place++) {
        if (layout->faults[place].ticket == ticket) {
            return true;
        }
    }
    return false;
}

void faults_wait(struct machine *machine, const struct fault_effect *effect) {
    uint64_t begin = clock_monotonic_ns();
    for (;;) {
        uint64_t waited = clock_monotonic_ns() - begin;
        if (waited >= effect->delay_ns) {
            return;
        }
        machine_lock(machine);
        bool there = still_there(machine->layout, effect->ticket);
        machine_unlock(machine);
        if (!there) {
            return;
        }
        uint64_t left = effect->delay_ns - waited;
        clock_sleep_ns(left < LOOK_AGAIN_NS ? left : LOOK_AGAIN_NS);
    }
}

uint64_t faults_add(struct layout *layout, const struct fault *fault) {
    for (unsigned place = 0; place < MAX_FAULTS; place++) {
        struct fault *free_place = &layout->faults[place];
        if (free_place->ticket == 0) {
            *free_place = *fault;
            free_place->seen = 0;
            free_place->ticket = ++layout->tickets;
            return free_place->ticket;
        }
    }
    return 0;
}

void faults_clear(struct layout *layout, uint64_t ticket) {
    for (unsigned place = 0; place < MAX_FAULTS; place++) {
        if (ticket == 0 || layout->faults[place].ticket == ticket) {
            layout->faults[place].ticket = 0;
        }
    }
}

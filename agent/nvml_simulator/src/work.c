#include "work.h"

#include "clock.h"
#include "processes.h"
#include "timeline.h"

/* How long work lasts without a sign from its process, and how long that process sleeps at most, both in real time. */
#define HOLD_NS 500000000ULL
#define SLEEP_NS 20000000ULL

/* Where the request's work lies: its place on each of the GPUs. */
struct places {
    unsigned place[MAX_GPUS];
};

static struct occupancy *occupancy_of(struct gpu *gpu, const struct places *places, unsigned position) {
    return &gpu->occupancies[places->place[position]];
}

static uint64_t hold_until_ns(const struct layout *layout, const struct gpu *gpu) {
    if (layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return UINT64_MAX;
    }
    return gpu->time_ns + (uint64_t)((double)HOLD_NS * (layout->clock_mode == CLOCK_MODE_SCALED ? layout->scale : 1.0));
}

static bool find_place(struct gpu *gpu, unsigned *place) {
    for (*place = 0; *place < MAX_OCCUPANCIES; ++*place) {
        const struct occupancy *occupancy = &gpu->occupancies[*place];
        if (!occupancy->active || occupancy->holds_until_ns <= gpu->time_ns) {
            return true;
        }
    }
    return false;
}

static void remove_work(struct machine *machine, const struct request *request, const struct places *places,
                        unsigned count) {
    for (unsigned position = 0; position < count; position++) {
        struct gpu *gpu = machine_touch(machine, request->gpus[position]);
        *occupancy_of(gpu, places, position) = (struct occupancy){0};
    }
}

static nvmlReturn_t put_work(struct machine *machine, const struct request *request, struct places *places) {
    for (unsigned position = 0; position < request->count; position++) {
        struct gpu *gpu = machine_touch(machine, request->gpus[position]);
        if (!find_place(gpu, &places->place[position])) {
            remove_work(machine, request, places, position);
            return NVML_ERROR_INSUFFICIENT_RESOURCES;
        }
        processes_register(gpu);
        *occupancy_of(gpu, places, position) = (struct occupancy){
            .remaining = (wide_t)request->megaflops * SECOND_NS,
            .holds_until_ns = hold_until_ns(machine->layout, gpu),
            .intensity_ppm = request->intensity_ppm,
            .active = true,
            .waits = request->count > 1,
        };
    }
    return NVML_SUCCESS;
}

/* The time until the last GPU is done as things stand, in GPU time; 0 when all are. Holds the work meanwhile. */
static uint64_t time_left_ns(struct machine *machine, const struct request *request, const struct places *places) {
    uint64_t longest = 0;
    for (unsigned position = 0; position < request->count; position++) {
        struct gpu *gpu = machine_touch(machine, request->gpus[position]);
        struct occupancy *occupancy = occupancy_of(gpu, places, position);
        occupancy->holds_until_ns = hold_until_ns(machine->layout, gpu);
        uint64_t left = timeline_finish_ns(gpu, machine_model(machine), occupancy) - gpu->time_ns;
        longest = left > longest ? left : longest;
    }
    return longest;
}

static nvmlReturn_t work_in_real_time(struct machine *machine, const struct request *request) {
    struct places places;
    machine_lock(machine);
    nvmlReturn_t result = put_work(machine, request, &places);
    uint64_t left = result == NVML_SUCCESS ? time_left_ns(machine, request, &places) : 0;
    while (left > 0) {
        machine_unlock(machine);
        uint64_t real = clock_real_ns(machine->layout, left) + 1;
        clock_sleep_ns(real < SLEEP_NS ? real : SLEEP_NS);
        machine_lock(machine);
        left = time_left_ns(machine, request, &places);
    }
    if (result == NVML_SUCCESS) {
        remove_work(machine, request, &places, request->count);
    }
    machine_unlock(machine);
    return result;
}

static uint64_t latest_ns(struct machine *machine, const unsigned *gpus, unsigned count) {
    uint64_t latest = 0;
    for (unsigned position = 0; position < count; position++) {
        uint64_t time = machine->layout->gpus[gpus[position]].time_ns;
        latest = time > latest ? time : latest;
    }
    return latest;
}

static void advance_all(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t target_ns) {
    for (unsigned position = 0; position < count; position++) {
        timeline_advance(machine_touch(machine, gpus[position]), machine_model(machine), target_ns);
    }
}

/* The whole step under one lock: no other process sees, or changes, the middle of it. */
static nvmlReturn_t work_in_virtual_time(struct machine *machine, const struct request *request) {
    struct places places;
    machine_lock(machine);
    advance_all(machine, request->gpus, request->count, latest_ns(machine, request->gpus, request->count));
    nvmlReturn_t result = put_work(machine, request, &places);
    if (result == NVML_SUCCESS) {
        uint64_t begin = latest_ns(machine, request->gpus, request->count);
        uint64_t end = begin + time_left_ns(machine, request, &places);
        advance_all(machine, request->gpus, request->count, end);
        remove_work(machine, request, &places, request->count);
    }
    machine_unlock(machine);
    return result;
}

nvmlReturn_t work_together(struct machine *machine, const struct request *request) {
    if (machine->layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return work_in_virtual_time(machine, request);
    }
    return work_in_real_time(machine, request);
}

void work_pass_idle(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t idle_ns) {
    machine_lock(machine);
    advance_all(machine, gpus, count, latest_ns(machine, gpus, count) + idle_ns);
    machine_unlock(machine);
}

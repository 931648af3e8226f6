#include "work.h"

#include "clock.h"
#include "faults.h"
#include "processes.h"
#include "thermal.h"
#include "timeline.h"

/* Lifetime of work without an update by its process, and maximum sleep of work_wait, in real time. */
#define HOLD_NS 500000000ULL
#define SLEEP_NS 20000000ULL
#define FORGOTTEN_NS (60 * SECOND_NS)

static struct occupancy *occupancy_of(struct gpu *gpu, const struct work *work, unsigned position) {
    return &gpu->occupancies[work->slots[position]];
}

static uint64_t hold_until_ns(const struct layout *layout, const struct gpu *gpu) {
    if (layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return UINT64_MAX;
    }
    return gpu->time_ns + (uint64_t)((double)HOLD_NS * (layout->clock_mode == CLOCK_MODE_SCALED ? layout->scale : 1.0));
}

/* Work without updates may be that of a stopped process, which can continue. A slot is free if its process
 * has ended, or is invisible in another container and has not updated its work for a long time. */
static bool is_free(const struct layout *layout, const struct gpu *gpu, const struct occupancy *occupancy) {
    if (!occupancy->active) {
        return true;
    }
    if (occupancy->holds_until_ns > gpu->time_ns) {
        return false;
    }
    int32_t pid;
    enum process_state state = processes_state(layout, &occupancy->owner, &pid);
    uint64_t silent_ns = clock_real_ns(layout, gpu->time_ns - occupancy->holds_until_ns);
    return state == PROCESS_GONE || (state == PROCESS_INVISIBLE && silent_ns > FORGOTTEN_NS);
}

static bool find_place(const struct layout *layout, struct gpu *gpu, unsigned *place) {
    for (*place = 0; *place < MAX_OCCUPANCIES; ++*place) {
        if (is_free(layout, gpu, &gpu->occupancies[*place])) {
            return true;
        }
    }
    return false;
}

static nvmlReturn_t find_slots(struct machine *machine, struct work *work) {
    for (unsigned position = 0; position < work->request.count; position++) {
        if (faults_lost(machine->layout, (int)work->request.gpus[position])) {
            return NVML_ERROR_GPU_IS_LOST;
        }
        if (!find_place(machine->layout, machine_modify(machine, work->request.gpus[position]), &work->slots[position])) {
            return NVML_ERROR_INSUFFICIENT_RESOURCES;
        }
    }
    return NVML_SUCCESS;
}

static void put_work(struct machine *machine, const struct work *work) {
    const struct request *request = &work->request;
    struct process self = processes_self();
    for (unsigned position = 0; position < request->count; position++) {
        struct gpu *gpu = machine_modify(machine, request->gpus[position]);
        processes_register(machine->layout, gpu, &self);
        *occupancy_of(gpu, work, position) = (struct occupancy){
            .remaining = (wide_t)request->megaflops * SECOND_NS,
            .holds_until_ns = hold_until_ns(machine->layout, gpu),
            .owner = self,
            .intensity_ppm = request->intensity_ppm,
            .active = true,
            .waits = request->count > 1,
        };
    }
}

static void remove_work(struct machine *machine, const struct work *work) {
    for (unsigned position = 0; position < work->request.count; position++) {
        struct gpu *gpu = machine_modify(machine, work->request.gpus[position]);
        *occupancy_of(gpu, work, position) = (struct occupancy){0};
    }
}

/* GPU time until the last GPU is done if nothing changes; 0 if all are. Extends the work. */
static uint64_t time_left_ns(struct machine *machine, const struct work *work) {
    uint64_t longest = 0;
    for (unsigned position = 0; position < work->request.count; position++) {
        struct gpu *gpu = machine_modify(machine, work->request.gpus[position]);
        struct occupancy *occupancy = occupancy_of(gpu, work, position);
        occupancy->holds_until_ns = hold_until_ns(machine->layout, gpu);
        uint64_t left = timeline_finish_ns(gpu, machine_model(machine), occupancy) - gpu->time_ns;
        longest = left > longest ? left : longest;
    }
    return longest;
}

static uint64_t latest_ns(const struct machine *machine, const unsigned *gpus, unsigned count) {
    uint64_t latest = 0;
    for (unsigned position = 0; position < count; position++) {
        uint64_t time = machine->layout->gpus[gpus[position]].time_ns;
        latest = time > latest ? time : latest;
    }
    return latest;
}

static void advance_all(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t target_ns) {
    for (unsigned position = 0; position < count; position++) {
        timeline_advance(machine_modify(machine, gpus[position]), machine_model(machine), target_ns);
    }
}

static struct work_record *next_record(struct machine *machine, unsigned gpu) {
    struct trace *trace = machine_trace(machine, gpu);
    return &trace->works[trace->work_count % WORK_RECORDS];
}

/* A record that a killed process has begun is not counted, and the next one overwrites it. */
static void begin_records(struct machine *machine, const struct request *request) {
    for (unsigned position = 0; position < request->count; position++) {
        const struct gpu *gpu = &machine->layout->gpus[request->gpus[position]];
        *next_record(machine, request->gpus[position]) = (struct work_record){
            .begin_ns = gpu->time_ns,
            .begin_uj = gpu->energy_uj,
            .graphics_mhz = timeline_point(gpu, machine_model(machine)).graphics_mhz,
        };
    }
}

static void end_records(struct machine *machine, const struct request *request) {
    for (unsigned position = 0; position < request->count; position++) {
        const struct gpu *gpu = &machine->layout->gpus[request->gpus[position]];
        struct work_record *record = next_record(machine, request->gpus[position]);
        record->end_ns = gpu->time_ns;
        record->end_uj = gpu->energy_uj;
        machine_trace(machine, request->gpus[position])->work_count++;
    }
}

/* One lock for the whole step, so that no other process sees or changes an intermediate state. */
static void work_in_virtual_time(struct machine *machine, const struct work *work) {
    const struct request *request = &work->request;
    uint64_t now = latest_ns(machine, request->gpus, request->count);
    advance_all(machine, request->gpus, request->count, now);
    put_work(machine, work);
    begin_records(machine, request);
    /* In slices, because with a thermal model the temperature changes the speed of capped GPUs. */
    uint64_t slice = thermal_is_modelled(&machine->layout->gpus[request->gpus[0]]) ? THERMAL_SLICE_NS : UINT64_MAX;
    for (uint64_t left = time_left_ns(machine, work); left > 0; left = time_left_ns(machine, work)) {
        now += left < slice ? left : slice;
        advance_all(machine, request->gpus, request->count, now);
    }
    end_records(machine, request);
    remove_work(machine, work);
}

nvmlReturn_t work_begin(struct machine *machine, const struct request *request, struct work *work) {
    work->request = *request;
    machine_lock(machine);
    nvmlReturn_t result = find_slots(machine, work);
    if (result == NVML_SUCCESS && machine->layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        work_in_virtual_time(machine, work);
    } else if (result == NVML_SUCCESS) {
        put_work(machine, work);
    }
    machine_unlock(machine);
    return result;
}

bool work_wait(struct machine *machine, const struct work *work) {
    if (machine->layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return true;
    }
    machine_lock(machine);
    uint64_t left = time_left_ns(machine, work);
    machine_unlock(machine);
    if (left == 0) {
        return true;
    }
    uint64_t real = clock_real_ns(machine->layout, left) + 1;
    clock_sleep_ns(real < SLEEP_NS ? real : SLEEP_NS);
    return false;
}

void work_end(struct machine *machine, const struct work *work) {
    if (machine->layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return;
    }
    machine_lock(machine);
    remove_work(machine, work);
    machine_unlock(machine);
}

void work_blocked(struct machine *machine, unsigned gpu, uint64_t until_ns) {
    struct work work = {.request = {.gpus = {gpu}, .count = 1}};
    machine_lock(machine);
    if (find_slots(machine, &work) == NVML_SUCCESS) {
        put_work(machine, &work);
        occupancy_of(machine_modify(machine, gpu), &work, 0)->waits = true;
        timeline_advance(machine_modify(machine, gpu), machine_model(machine), until_ns);
        remove_work(machine, &work);
    }
    machine_unlock(machine);
}

void work_idle(struct machine *machine, const unsigned *gpus, unsigned count, uint64_t idle_ns) {
    machine_lock(machine);
    advance_all(machine, gpus, count, latest_ns(machine, gpus, count) + idle_ns);
    machine_unlock(machine);
}

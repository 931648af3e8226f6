#include "timeline.h"

#include "thermal.h"

enum { SAMPLES_PER_SECOND = 24 }; /* 24 · 42 ms: averaging time */

#define PICOJOULES_PER_MICROJOULE 1000000ULL
#define HOUR_NS (3600 * SECOND_NS) /* milliwatts times nanoseconds of an hour are far below 2^64 */

struct load {
    unsigned working; /* occupancies that share the throughput */
    bool busy;        /* working or waiting */
    uint32_t intensity_ppm;
};

static bool holds(const struct gpu *gpu, const struct occupancy *occupancy) {
    return occupancy->active && occupancy->holds_until_ns > gpu->time_ns;
}

static struct load load_of(const struct gpu *gpu) {
    struct load load = {0};
    uint64_t intensities = 0;
    for (unsigned place = 0; place < MAX_OCCUPANCIES; place++) {
        const struct occupancy *occupancy = &gpu->occupancies[place];
        if (!holds(gpu, occupancy)) {
            continue;
        }
        if (occupancy->remaining > 0) {
            load.working++;
            intensities += occupancy->intensity_ppm;
        }
        load.busy = load.busy || occupancy->remaining > 0 || occupancy->waits;
    }
    if (load.working > 0) {
        load.intensity_ppm = (uint32_t)(intensities / load.working);
    }
    return load;
}

/* Number of updates in (0, time] of a sensor with this period. */
static uint64_t edges(const struct gpu *gpu, uint64_t time_ns, uint64_t step_ns) {
    return time_ns < gpu->phase_ns ? 0 : (time_ns - gpu->phase_ns) / step_ns + 1;
}

static uint64_t edge_time_ns(const struct gpu *gpu, uint64_t number, uint64_t step_ns) {
    return gpu->phase_ns + (number - 1) * step_ns;
}

/* Energy at a time within the interval that begins now. */
static uint64_t energy_at_uj(const struct gpu *gpu, uint32_t power_mw, uint64_t time_ns) {
    uint64_t picojoules = gpu->energy_remainder_pj + power_mw * (time_ns - gpu->time_ns);
    return gpu->energy_uj + picojoules / PICOJOULES_PER_MICROJOULE;
}

static void step_counter(struct gpu *gpu, uint32_t power_mw, uint64_t end_ns) {
    uint64_t last = edges(gpu, end_ns, COUNTER_STEP_NS);
    if (last > edges(gpu, gpu->time_ns, COUNTER_STEP_NS)) {
        gpu->counter_uj = energy_at_uj(gpu, power_mw, edge_time_ns(gpu, last, COUNTER_STEP_NS));
    }
}

static void take_samples(struct gpu *gpu, const struct load *load, uint32_t power_mw, uint64_t end_ns) {
    uint64_t last = edges(gpu, end_ns, SAMPLE_STEP_NS);
    uint64_t first = gpu->samples_taken + 1;
    if (last >= SAMPLES && first < last - SAMPLES + 1) {
        first = last - SAMPLES + 1;
    }
    for (uint64_t number = first; number <= last; number++) {
        uint64_t time = edge_time_ns(gpu, number, SAMPLE_STEP_NS);
        uint64_t since = time - gpu->time_ns;
        gpu->samples[number % SAMPLES] = (struct sample){
            .energy_uj = energy_at_uj(gpu, power_mw, time),
            .busy_ns = gpu->busy_ns + (load->busy ? since : 0),
            .load_ns = gpu->load_ns + since * load->intensity_ppm / 1000000,
            .power_mw = power_mw,
        };
    }
    gpu->samples_taken = last;
}

static void do_work(struct gpu *gpu, const struct load *load, uint64_t rate, uint64_t duration_ns) {
    wide_t done = load->working > 0 ? (wide_t)rate * duration_ns / load->working : 0;
    for (unsigned place = 0; place < MAX_OCCUPANCIES; place++) {
        struct occupancy *occupancy = &gpu->occupancies[place];
        if (holds(gpu, occupancy)) {
            occupancy->remaining -= occupancy->remaining < done ? occupancy->remaining : done;
        }
    }
}

static void pass(struct gpu *gpu, const struct load *load, const struct operating_point *point, uint64_t end_ns) {
    uint64_t duration = end_ns - gpu->time_ns;
    step_counter(gpu, point->power_mw, end_ns);
    take_samples(gpu, load, point->power_mw, end_ns);
    do_work(gpu, load, point->megaflops_per_second, duration);
    uint64_t picojoules = gpu->energy_remainder_pj + point->power_mw * duration;
    gpu->energy_uj += picojoules / PICOJOULES_PER_MICROJOULE;
    gpu->energy_remainder_pj = (uint32_t)(picojoules % PICOJOULES_PER_MICROJOULE);
    gpu->busy_ns += load->busy ? duration : 0;
    gpu->load_ns += duration * load->intensity_ppm / 1000000;
    thermal_pass(gpu, point->power_mw, duration);
    gpu->time_ns = end_ns;
}

static uint64_t finish_ns(const struct gpu *gpu, const struct occupancy *occupancy, unsigned working, uint64_t rate) {
    return gpu->time_ns + (uint64_t)((occupancy->remaining * working + rate - 1) / rate);
}

/* End of constant power: when the first occupancy ends or the temperature has changed, after at most an hour. */
static uint64_t stretch_end_ns(const struct gpu *gpu, const struct load *load, const struct operating_point *point,
                               uint64_t target_ns) {
    uint64_t longest = thermal_stretch_ns(gpu, point->power_mw);
    longest = longest < HOUR_NS ? longest : HOUR_NS;
    uint64_t end = gpu->time_ns + longest < target_ns ? gpu->time_ns + longest : target_ns;
    for (unsigned place = 0; place < MAX_OCCUPANCIES; place++) {
        const struct occupancy *occupancy = &gpu->occupancies[place];
        if (!holds(gpu, occupancy)) {
            continue;
        }
        end = occupancy->holds_until_ns < end ? occupancy->holds_until_ns : end;
        if (occupancy->remaining > 0) {
            uint64_t finish = finish_ns(gpu, occupancy, load->working, point->megaflops_per_second);
            end = finish < end ? finish : end;
        }
    }
    return end;
}

void timeline_advance(struct gpu *gpu, const struct model *model, uint64_t target_ns) {
    while (gpu->time_ns < target_ns) {
        struct load load = load_of(gpu);
        struct operating_point point = power_point(gpu, model, load.busy, load.intensity_ppm);
        pass(gpu, &load, &point, stretch_end_ns(gpu, &load, &point, target_ns));
    }
}

struct operating_point timeline_point(const struct gpu *gpu, const struct model *model) {
    struct load load = load_of(gpu);
    return power_point(gpu, model, load.busy, load.intensity_ppm);
}

uint64_t timeline_finish_ns(const struct gpu *gpu, const struct model *model, const struct occupancy *occupancy) {
    struct load load = load_of(gpu);
    if (occupancy->remaining == 0 || load.working == 0) {
        return gpu->time_ns;
    }
    struct operating_point point = power_point(gpu, model, load.busy, load.intensity_ppm);
    return finish_ns(gpu, occupancy, load.working, point.megaflops_per_second);
}

uint64_t timeline_counter_mj(const struct gpu *gpu) {
    return gpu->counter_base_mj + (gpu->counter_uj - gpu->counter_zero_uj) / 1000;
}

void timeline_reset_counter(struct gpu *gpu) {
    gpu->counter_base_mj = 0;
    gpu->counter_zero_uj = gpu->energy_uj;
    gpu->counter_uj = gpu->energy_uj;
}

uint32_t timeline_instant_power_mw(const struct gpu *gpu, const struct model *model) {
    return gpu->samples_taken == 0 ? model->idle_mw : gpu->samples[gpu->samples_taken % SAMPLES].power_mw;
}

/* The newest sample and that of a second before, or the first; false if there are fewer than two. */
static bool last_second(const struct gpu *gpu, const struct sample **newest, const struct sample **oldest, uint64_t *ns) {
    if (gpu->samples_taken < 2) {
        return false;
    }
    uint64_t span = gpu->samples_taken - 1 < SAMPLES_PER_SECOND ? gpu->samples_taken - 1 : SAMPLES_PER_SECOND;
    *newest = &gpu->samples[gpu->samples_taken % SAMPLES];
    *oldest = &gpu->samples[(gpu->samples_taken - span) % SAMPLES];
    *ns = span * SAMPLE_STEP_NS;
    return true;
}

uint32_t timeline_average_power_mw(const struct gpu *gpu, const struct model *model) {
    const struct sample *newest, *oldest;
    uint64_t ns;
    if (!last_second(gpu, &newest, &oldest, &ns)) {
        return timeline_instant_power_mw(gpu, model);
    }
    return (uint32_t)((newest->energy_uj - oldest->energy_uj) * PICOJOULES_PER_MICROJOULE / ns);
}

void timeline_utilization_percent(const struct gpu *gpu, unsigned *busy, unsigned *load) {
    const struct sample *newest, *oldest;
    uint64_t ns;
    *busy = 0;
    *load = 0;
    if (last_second(gpu, &newest, &oldest, &ns)) {
        *busy = (unsigned)((newest->busy_ns - oldest->busy_ns) * 100 / ns);
        *load = (unsigned)((newest->load_ns - oldest->load_ns) * 100 / ns);
    }
}

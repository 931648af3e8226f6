#include "clock.h"

#include <errno.h>
#include <time.h>

uint64_t clock_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static uint64_t elapsed_ns(const struct layout *layout) {
    uint64_t now = clock_monotonic_ns();
    /* Before the origin: the machine was rebooted, so its clock started from zero. */
    uint64_t elapsed = now > layout->origin_ns ? now - layout->origin_ns : 0;
    return layout->clock_mode == CLOCK_MODE_SCALED ? (uint64_t)((double)elapsed * layout->scale) : elapsed;
}

uint64_t clock_now_ns(const struct layout *layout, const struct gpu *gpu) {
    if (layout->clock_mode == CLOCK_MODE_VIRTUAL) {
        return gpu->time_ns;
    }
    uint64_t now = elapsed_ns(layout);
    return now > gpu->time_ns ? now : gpu->time_ns;
}

uint64_t clock_machine_ns(const struct layout *layout) {
    if (layout->clock_mode != CLOCK_MODE_VIRTUAL) {
        return elapsed_ns(layout);
    }
    uint64_t latest = 0;
    for (unsigned index = 0; index < layout->gpu_count; index++) {
        uint64_t time = layout->gpus[index].time_ns;
        latest = time > latest ? time : latest;
    }
    return latest;
}

uint64_t clock_real_ns(const struct layout *layout, uint64_t simulated_ns) {
    return layout->clock_mode == CLOCK_MODE_SCALED ? (uint64_t)((double)simulated_ns / layout->scale) : simulated_ns;
}

void clock_sleep_ns(uint64_t real_ns) {
    struct timespec left = {.tv_sec = (time_t)(real_ns / SECOND_NS), .tv_nsec = (long)(real_ns % SECOND_NS)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

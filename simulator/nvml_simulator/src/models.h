/* Properties of a GPU model: identity, limits, clock tables and constants of its power curve. */
#ifndef MODELS_H
#define MODELS_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_MEMORY_CLOCKS = 4, MAX_GRAPHICS_CLOCKS = 256 };

struct model {
    const char *key;   /* for users: "A100" */
    const char *name;  /* from NVML */
    unsigned architecture, brand, compute_major, compute_minor;
    unsigned pci_device_id, pci_subsystem_id;
    uint64_t memory_mebibytes;
    uint32_t power_min_mw, power_max_mw, power_default_mw;
    uint32_t clock_min_mhz, clock_max_mhz;
    uint32_t clock_step_half_mhz; /* Volta has steps of 7.5 MHz and reports the integer part */
    uint32_t clock_idle_mhz, clock_application_default_mhz, clock_video_max_mhz;
    uint32_t memory_clocks_mhz[MAX_MEMORY_CLOCKS]; /* descending; 0 after the last */
    uint32_t memory_idle_mhz; /* in performance state 8; 0: always state 0, as for GPUs with HBM */
    bool averages_power;       /* nvmlDeviceGetPowerUsage is the mean of the last second (GA10x, Hopper) */
    bool has_power_fields;     /* NVML_FI_DEV_POWER_AVERAGE and later fields, from Ampere on */
    bool has_energy_counter;    /* from Volta on */
    bool locks_graphics_clocks; /* from Volta on */
    bool locks_memory_clocks;  /* from Ampere on */
    bool has_mig;              /* MIG can be enabled */
    unsigned mig_gigabytes[4]; /* in the names of MIG devices with 1, 2, 4 and 8 memory slices */
    /* The power curve; see power.h. */
    uint32_t idle_mw;
    uint32_t waiting_mw; /* with a spinning process and no work: blocking power of pipeline training */
    uint32_t dynamic_mw; /* in addition, at intensity 1 and the highest clock */
    uint32_t voltage_knee_mhz;
    uint32_t voltage_floor_ppm; /* voltage up to the knee, as a share of that at the highest clock */
    uint32_t memory_share_permille; /* share of the time at the highest clocks that is bound by memory */
    uint64_t megaflops_per_second;  /* dense half precision on tensor cores, if it has any; at the highest clocks */
};

unsigned model_count(void);
const struct model *model_at(unsigned number);

/* Number of the model with a key, or model_count(). */
unsigned model_by_key(const char *key);

unsigned model_graphics_clock_count(const struct model *model);

/* Clock at `position` of the table; 0 is the highest. */
uint32_t model_graphics_clock(const struct model *model, unsigned position);

unsigned model_memory_clock_count(const struct model *model);

#endif

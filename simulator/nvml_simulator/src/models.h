/* What is fixed by a GPU's model: identity, limits, clock tables and the constants of its power curve. */
#ifndef MODELS_H
#define MODELS_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_MEMORY_CLOCKS = 4, MAX_GRAPHICS_CLOCKS = 256 };

struct model {
    const char *key;   /* as a user names it: "A100" */
    const char *name;  /* as NVML reports it */
    unsigned architecture, brand, compute_major, compute_minor;
    unsigned pci_device_id, pci_subsystem_id;
    uint64_t memory_mebibytes;
    uint32_t power_min_mw, power_max_mw, power_default_mw;
    uint32_t clock_min_mhz, clock_max_mhz;
    uint32_t clock_step_half_mhz; /* Volta steps by 7.5 MHz and reports the whole part */
    uint32_t clock_idle_mhz, clock_application_default_mhz, clock_video_max_mhz;
    uint32_t memory_clocks_mhz[MAX_MEMORY_CLOCKS]; /* falling, ended by 0 where there are fewer */
    uint32_t memory_idle_mhz; /* in performance state 8; 0: it stays in 0, as GPUs with HBM do */
    bool averages_power;       /* nvmlDeviceGetPowerUsage is the mean of the last second, as on GA10x and Hopper */
    bool has_power_fields;     /* NVML_FI_DEV_POWER_AVERAGE and what follows it, from Ampere on */
    bool locks_memory_clocks;  /* from Ampere on */
    bool has_mig;              /* MIG can be switched on */
    unsigned mig_gigabytes[4]; /* as in the names of MIG devices with 1, 2, 4 and 8 slices of memory */
    /* The power curve; see power.h. */
    uint32_t idle_mw;
    uint32_t waiting_mw; /* a process spins on it, no work: the blocking power of pipeline training */
    uint32_t dynamic_mw; /* on top of that at intensity 1 and the highest clock */
    uint32_t voltage_knee_mhz;
    uint32_t voltage_floor_ppm; /* voltage up to the knee, of that at the highest clock */
    uint32_t memory_share_permille; /* of the time at the highest clocks, bound by memory and not by the SM clock */
    uint64_t megaflops_per_second;  /* dense half precision on tensor cores, at the highest clocks */
};

unsigned model_count(void);
const struct model *model_at(unsigned number);

/* The number of the model of that key, or model_count(). */
unsigned model_by_key(const char *key);

unsigned model_graphics_clock_count(const struct model *model);

/* Clock number `position` of the table, 0 the highest. */
uint32_t model_graphics_clock(const struct model *model, unsigned position);

unsigned model_memory_clock_count(const struct model *model);

#endif

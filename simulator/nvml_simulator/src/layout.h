/* What lies in the shared mapping. Only integers and bytes, no pointers: every process maps it at its own address. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "functions.h"

#define LAYOUT_MAGIC 0x53555047544c5457ULL /* "WTLTGPUS" */
#define LAYOUT_VERSION 3

enum { MAX_GPUS = 64, MAX_OCCUPANCIES = 16, MAX_PROCESSES = 16, MAX_FAULTS = 32, SAMPLES = 32, MAX_INSTANCES = 7 };

/* Measured on an H200 with driver 580: the energy counter moves every 100 ms, power readings every 42 ms. */
#define COUNTER_STEP_NS 100000000ULL
#define SAMPLE_STEP_NS 42000000ULL
#define SECOND_NS 1000000000ULL

enum clock_mode { CLOCK_MODE_WALL = 0, CLOCK_MODE_SCALED = 1, CLOCK_MODE_VIRTUAL = 2 };
enum permission { PERMISSION_ROOT = 0, PERMISSION_ANYONE = 1, PERMISSION_NOBODY = 2 };

typedef unsigned __int128 wide_t;

/* A process that has worked on a GPU and lives: what a CUDA context would be. */
struct process {
    uint64_t start_ticks;   /* with the pid, its identity */
    uint64_t memory_bytes;
    uint64_t pid_namespace; /* that its pid is of: processes in containers have pids of their own */
    int32_t pid;            /* 0: the place is free */
};

/* Work that a process has put on a GPU and waits for. */
struct occupancy {
    wide_t remaining;        /* megaflops times SECOND_NS, so that rate times nanoseconds takes from it exactly */
    uint64_t holds_until_ns; /* GPU time; its process moves it on, so that the work of a killed process ends */
    struct process owner;
    uint32_t intensity_ppm;
    bool active;
    bool waits; /* when done it keeps the GPU at its waiting power, as a collective operation does */
};

/* What the sensors saw at one edge of SAMPLE_STEP_NS. */
struct sample {
    uint64_t energy_uj, busy_ns, load_ns;
    uint32_t power_mw;
};

/* A MIG device: a GPU instance with one compute instance that has all of it. */
struct instance {
    char uuid[48];
    uint32_t gpu_instance_id;
    uint32_t compute_slices; /* of seven */
    uint32_t memory_slices;  /* of eight */
};

struct gpu {
    char uuid[48];
    char bus_id[32];
    char serial[32];
    uint32_t bus;
    uint64_t phase_ns;        /* the edges of its sensors, since GPUs do not step together */
    uint64_t counter_base_mj; /* what the counter showed at its zero */
    uint64_t counter_zero_uj; /* energy where the counter began, or was last reset */
    uint64_t time_ns;         /* everything below is as of this time */
    uint64_t energy_uj;
    uint32_t energy_remainder_pj;
    uint64_t busy_ns;         /* time with work on it */
    uint64_t load_ns;         /* the same, weighed by intensity */
    uint64_t counter_uj;      /* energy at the last edge of COUNTER_STEP_NS */
    uint64_t samples_taken;
    struct sample samples[SAMPLES]; /* sample number n at n modulo SAMPLES, from 1 */
    uint32_t limit_mw;
    uint32_t locked_min_mhz, locked_max_mhz;               /* 0, 0: not locked */
    uint32_t locked_memory_min_mhz, locked_memory_max_mhz; /* likewise */
    uint32_t application_mhz, application_memory_mhz;      /* 0: the default, which does not hold the boost back */
    uint32_t persistence_mode;
    struct occupancy occupancies[MAX_OCCUPANCIES];
    struct process processes[MAX_PROCESSES];
    struct instance instances[MAX_INSTANCES];
    uint32_t instance_count; /* 0: MIG is off */
};

struct fault {
    uint64_t ticket; /* 0: the place is free */
    char function[64]; /* "*": any */
    int32_t gpu;       /* -1: any */
    int32_t code;      /* NVML_SUCCESS: only delayed */
    uint64_t first;    /* the matching call, from 1, that it begins at */
    uint64_t count;    /* how many calls it strikes; 0: every one from there on */
    uint64_t delay_ns; /* of real time, before the call answers */
    uint64_t seen;     /* matching calls so far */
};

struct layout {
    uint64_t magic;
    uint32_t version;
    uint32_t gpu_count;
    uint64_t size_bytes;
    uint64_t seed;
    uint32_t model;
    uint32_t clock_mode;
    uint32_t permission;
    double scale;
    uint64_t origin_ns; /* CLOCK_MONOTONIC at creation */
    uint64_t pid_namespace; /* of whoever created it: the machine's, in which every container's processes are seen */
    pthread_mutex_t mutex;
    uint64_t driver_starts; /* a session of an earlier start is stale */
    int32_t driver_stale_code; /* what a stale session is answered */
    bool driver_loaded;
    uint64_t touched; /* GPUs whose copy in the second half of `gpus` is what to go back to */
    uint64_t tickets;
    uint64_t calls[FUNCTION_COUNT];
    struct fault faults[MAX_FAULTS];
    struct gpu gpus[]; /* gpu_count of them, then as many copies */
};

#endif

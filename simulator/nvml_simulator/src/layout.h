/* Layout of the shared mapping: integers and bytes without pointers, because each process maps it at
 * another address. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "functions.h"

#define LAYOUT_MAGIC 0x53555047544c5457ULL /* "WTLTGPUS" */
#define LAYOUT_VERSION 7

enum { MAX_GPUS = 64, MAX_OCCUPANCIES = 16, MAX_PROCESSES = 16, MAX_FAULTS = 32, SAMPLES = 32, MAX_INSTANCES = 7 };
enum { CLOCK_SETTINGS = 4096, WORK_RECORDS = 4096 };

/* Update periods, measured on an H200 with driver 580: energy counter 100 ms, power readings 42 ms. */
#define COUNTER_STEP_NS 100000000ULL
#define SAMPLE_STEP_NS 42000000ULL
#define SECOND_NS 1000000000ULL

enum clock_mode { CLOCK_MODE_WALL = 0, CLOCK_MODE_SCALED = 1, CLOCK_MODE_VIRTUAL = 2 };
enum permission { PERMISSION_ROOT = 0, PERMISSION_ANYONE = 1, PERMISSION_NOBODY = 2 };

typedef unsigned __int128 wide_t;

/* A running process that has worked on a GPU; corresponds to a CUDA context. */
struct process {
    uint64_t start_ticks;   /* with the pid, its identity */
    uint64_t memory_bytes;
    uint64_t pid_namespace; /* namespace of its pid: containers have their own */
    uint64_t lock;          /* inode of the file that it has locked; 0: none */
    int32_t pid;            /* 0: unused entry */
};

/* Work of a process on a GPU; the process waits for it. */
struct occupancy {
    wide_t remaining;        /* megaflops times SECOND_NS, so that rate times nanoseconds subtracts exactly */
    uint64_t holds_until_ns; /* GPU time; the process extends it, so that work of a killed process ends */
    struct process owner;
    uint32_t intensity_ppm;
    bool active;
    bool waits; /* when done, the GPU stays at waiting power, as in a collective operation */
};

/* Sensor values at one update, every SAMPLE_STEP_NS. */
struct sample {
    uint64_t energy_uj, busy_ns, load_ns;
    uint32_t power_mw;
};

/* A MIG device: a GPU instance with one compute instance of the same size. */
struct instance {
    char uuid[48];
    uint32_t gpu_instance_id;
    uint32_t compute_slices; /* of seven */
    uint32_t memory_slices;  /* of eight */
};

/* See thermal.h. */
struct thermal {
    uint64_t time_constant_ns; /* 0: no thermal model */
    uint32_t resistance_mk_per_w;
    uint32_t leakage_mw_per_k;
    int32_t ambient_mc;     /* in thousandths of a degree Celsius */
    int64_t temperature_nc; /* in billionths of a degree Celsius */
};

struct gpu {
    char uuid[48];
    char bus_id[32];
    char serial[32];
    uint32_t bus;
    uint64_t phase_ns;        /* offset of its sensor updates, which differs between GPUs */
    uint64_t counter_base_mj; /* counter value at counter_zero_uj */
    uint64_t counter_zero_uj; /* energy at creation or at the last counter reset */
    uint64_t time_ns;         /* time of all fields below */
    uint64_t energy_uj;
    uint32_t energy_remainder_pj;
    uint64_t busy_ns;         /* time with work on it */
    uint64_t load_ns;         /* busy time weighted by intensity */
    uint64_t counter_uj;      /* energy at the last update, every COUNTER_STEP_NS */
    uint64_t samples_taken;
    struct sample samples[SAMPLES]; /* sample number n, from 1, at n modulo SAMPLES */
    struct thermal thermal;
    uint32_t limit_mw;
    uint32_t locked_min_mhz, locked_max_mhz;               /* 0, 0: not locked */
    uint32_t locked_memory_min_mhz, locked_memory_max_mhz; /* 0, 0: not locked */
    uint32_t application_mhz, application_memory_mhz;      /* 0: default, which does not limit the clock */
    uint32_t persistence_mode;
    struct occupancy occupancies[MAX_OCCUPANCIES];
    struct process processes[MAX_PROCESSES];
    struct instance instances[MAX_INSTANCES];
    uint32_t instance_count; /* 0: MIG disabled */
};

/* A lock of the graphics clock, or its end (0, 0). */
struct clock_setting {
    uint64_t time_ns; /* GPU time */
    uint32_t min_mhz, max_mhz;
};

/* Work that a GPU has done, with the virtual clock: GPU times and energies, and its clock at the beginning. */
struct work_record {
    uint64_t begin_ns, end_ns;
    uint64_t begin_uj, end_uj;
    uint64_t graphics_mhz;
};

/* The last settings and works of a GPU: number n, from 0, at n modulo the size of the array. */
struct trace {
    uint64_t setting_count;
    uint64_t work_count;
    struct clock_setting settings[CLOCK_SETTINGS];
    struct work_record works[WORK_RECORDS];
};

struct fault {
    uint64_t ticket; /* 0: unused entry */
    char function[64]; /* "*": any */
    int32_t gpu;       /* -1: any */
    int32_t code;      /* NVML_SUCCESS: delay only */
    uint64_t first;    /* first matching call that is affected, from 1 */
    uint64_t count;    /* number of affected calls; 0: all from the first on */
    uint64_t delay_ns; /* real time before the call returns */
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
    uint64_t pid_namespace; /* of the creator: that of the machine, which sees processes of all containers */
    pthread_mutex_t mutex;
    uint64_t driver_starts; /* a session of an earlier start is stale */
    int32_t driver_stale_code; /* result for a stale session */
    bool driver_loaded;
    uint64_t modified; /* GPUs that must be restored from their copy in the second half of `gpus` */
    uint64_t tickets;
    uint64_t calls[FUNCTION_COUNT];
    struct fault faults[MAX_FAULTS];
    struct gpu gpus[]; /* gpu_count GPUs, then as many copies, then a trace of each */
};

#endif

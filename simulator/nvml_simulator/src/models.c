#include "models.h"

#include <string.h>

#include "nvml_abi.h"

/* The curves of the A40 and the A100 are fitted to the stage profiles published with Perseus (SOSP '24);
 * their waiting power is the blocking power published there. Curve and tables of the H200 were measured on
 * one (driver 580: idle, waiting, and matrix products at two clocks). The H100 has the shape of the H200;
 * the V100, the P100 and the K80 have that of the A100. A K80 is one of the two GPUs of its board. Its clocks have steps
 * of 13.04 MHz and those of the P100 of 12.65 MHz; the tables here have 13 and 12.5. */
static const struct model MODELS[] = {
    {
        .key = "A40", .name = "NVIDIA A40",
        .architecture = NVML_DEVICE_ARCH_AMPERE, .brand = NVML_BRAND_NVIDIA, .compute_major = 8, .compute_minor = 6,
        .pci_device_id = 0x223510DE, .pci_subsystem_id = 0x145A10DE, .memory_mebibytes = 46068,
        .power_min_mw = 100000, .power_max_mw = 300000, .power_default_mw = 300000,
        .clock_min_mhz = 210, .clock_max_mhz = 1740, .clock_step_half_mhz = 30,
        .clock_idle_mhz = 210, .clock_application_default_mhz = 1740, .clock_video_max_mhz = 1530,
        .memory_clocks_mhz = {7251, 6501, 810, 405}, .memory_idle_mhz = 405,
        .averages_power = true, .has_power_fields = true, .locks_memory_clocks = true,
        .has_energy_counter = true, .locks_graphics_clocks = true,
        .idle_mw = 30000, .waiting_mw = 70380, .dynamic_mw = 300000,
        .voltage_knee_mhz = 1110, .voltage_floor_ppm = 803000, .memory_share_permille = 450,
        .megaflops_per_second = 149700000,
    },
    {
        .key = "V100", .name = "Tesla V100-SXM2-32GB",
        .architecture = NVML_DEVICE_ARCH_VOLTA, .brand = NVML_BRAND_TESLA, .compute_major = 7, .compute_minor = 0,
        .pci_device_id = 0x1DB510DE, .pci_subsystem_id = 0x124910DE, .memory_mebibytes = 32768,
        .power_min_mw = 150000, .power_max_mw = 300000, .power_default_mw = 300000,
        .clock_min_mhz = 135, .clock_max_mhz = 1530, .clock_step_half_mhz = 15,
        .clock_idle_mhz = 135, .clock_application_default_mhz = 1290, .clock_video_max_mhz = 1372,
        .memory_clocks_mhz = {877},
        .has_energy_counter = true, .locks_graphics_clocks = true,
        .idle_mw = 42000, .waiting_mw = 60000, .dynamic_mw = 285000,
        .voltage_knee_mhz = 1100, .voltage_floor_ppm = 800000, .memory_share_permille = 200,
        .megaflops_per_second = 125000000,
    },
    {
        .key = "A100", .name = "NVIDIA A100-SXM4-80GB",
        .architecture = NVML_DEVICE_ARCH_AMPERE, .brand = NVML_BRAND_NVIDIA, .compute_major = 8, .compute_minor = 0,
        .pci_device_id = 0x20B210DE, .pci_subsystem_id = 0x147F10DE, .memory_mebibytes = 81920,
        .power_min_mw = 100000, .power_max_mw = 400000, .power_default_mw = 400000,
        .clock_min_mhz = 210, .clock_max_mhz = 1410, .clock_step_half_mhz = 30,
        .clock_idle_mhz = 210, .clock_application_default_mhz = 1275, .clock_video_max_mhz = 1290,
        .memory_clocks_mhz = {1593},
        .has_power_fields = true, .locks_memory_clocks = true, .has_mig = true,
        .mig_gigabytes = {10, 20, 40, 80},
        .has_energy_counter = true, .locks_graphics_clocks = true,
        .idle_mw = 55000, .waiting_mw = 83640, .dynamic_mw = 396000,
        .voltage_knee_mhz = 1050, .voltage_floor_ppm = 820000, .memory_share_permille = 220,
        .megaflops_per_second = 312000000,
    },
    {
        .key = "H100", .name = "NVIDIA H100 80GB HBM3",
        .architecture = NVML_DEVICE_ARCH_HOPPER, .brand = NVML_BRAND_NVIDIA, .compute_major = 9, .compute_minor = 0,
        .pci_device_id = 0x233010DE, .pci_subsystem_id = 0x16C110DE, .memory_mebibytes = 81559,
        .power_min_mw = 200000, .power_max_mw = 700000, .power_default_mw = 700000,
        .clock_min_mhz = 210, .clock_max_mhz = 1980, .clock_step_half_mhz = 30,
        .clock_idle_mhz = 345, .clock_application_default_mhz = 1980, .clock_video_max_mhz = 1545,
        .memory_clocks_mhz = {2619, 1593},
        .averages_power = true, .has_power_fields = true, .locks_memory_clocks = true, .has_mig = true,
        .mig_gigabytes = {10, 20, 40, 80},
        .has_energy_counter = true, .locks_graphics_clocks = true,
        .idle_mw = 72000, .waiting_mw = 115000, .dynamic_mw = 860000,
        .voltage_knee_mhz = 480, .voltage_floor_ppm = 820000, .memory_share_permille = 300,
        .megaflops_per_second = 989000000,
    },
    {
        .key = "H200", .name = "NVIDIA H200",
        .architecture = NVML_DEVICE_ARCH_HOPPER, .brand = NVML_BRAND_NVIDIA, .compute_major = 9, .compute_minor = 0,
        .pci_device_id = 0x233510DE, .pci_subsystem_id = 0x18BF10DE, .memory_mebibytes = 143771,
        .power_min_mw = 200000, .power_max_mw = 700000, .power_default_mw = 700000,
        .clock_min_mhz = 345, .clock_max_mhz = 1980, .clock_step_half_mhz = 30,
        .clock_idle_mhz = 345, .clock_application_default_mhz = 1980, .clock_video_max_mhz = 1545,
        .memory_clocks_mhz = {3201, 2201},
        .averages_power = true, .has_power_fields = true, .locks_memory_clocks = true, .has_mig = true,
        .mig_gigabytes = {18, 35, 71, 141},
        .has_energy_counter = true, .locks_graphics_clocks = true,
        .idle_mw = 79600, .waiting_mw = 121800, .dynamic_mw = 880000,
        .voltage_knee_mhz = 480, .voltage_floor_ppm = 820000, .memory_share_permille = 300,
        .megaflops_per_second = 989000000,
    },
    {
        .key = "P100", .name = "Tesla P100-SXM2-16GB",
        .architecture = NVML_DEVICE_ARCH_PASCAL, .brand = NVML_BRAND_TESLA, .compute_major = 6, .compute_minor = 0,
        .pci_device_id = 0x15F910DE, .pci_subsystem_id = 0x116B10DE, .memory_mebibytes = 16280,
        .power_min_mw = 150000, .power_max_mw = 300000, .power_default_mw = 300000,
        .clock_min_mhz = 555, .clock_max_mhz = 1480, .clock_step_half_mhz = 25,
        .clock_idle_mhz = 555, .clock_application_default_mhz = 1330, .clock_video_max_mhz = 1328,
        .memory_clocks_mhz = {715},
        .idle_mw = 30000, .waiting_mw = 45000, .dynamic_mw = 290000,
        .voltage_knee_mhz = 1050, .voltage_floor_ppm = 820000, .memory_share_permille = 250,
        .megaflops_per_second = 21200000,
    },
    {
        .key = "K80", .name = "Tesla K80",
        .architecture = NVML_DEVICE_ARCH_KEPLER, .brand = NVML_BRAND_TESLA, .compute_major = 3, .compute_minor = 7,
        .pci_device_id = 0x102D10DE, .pci_subsystem_id = 0x106C10DE, .memory_mebibytes = 11441,
        .power_min_mw = 100000, .power_max_mw = 175000, .power_default_mw = 149000,
        .clock_min_mhz = 563, .clock_max_mhz = 875, .clock_step_half_mhz = 26,
        .clock_idle_mhz = 563, .clock_application_default_mhz = 563, .clock_video_max_mhz = 540,
        .memory_clocks_mhz = {2505, 324}, .memory_idle_mhz = 324,
        .idle_mw = 27000, .waiting_mw = 57000, .dynamic_mw = 125000,
        .voltage_knee_mhz = 640, .voltage_floor_ppm = 820000, .memory_share_permille = 250,
        .megaflops_per_second = 4368000,
    },
};

unsigned model_count(void) { return sizeof MODELS / sizeof MODELS[0]; }

const struct model *model_at(unsigned number) { return number < model_count() ? &MODELS[number] : 0; }

unsigned model_by_key(const char *key) {
    unsigned number = 0;
    while (number < model_count() && strcmp(MODELS[number].key, key) != 0) {
        number++;
    }
    return number;
}

unsigned model_graphics_clock_count(const struct model *model) {
    return 2 * (model->clock_max_mhz - model->clock_min_mhz) / model->clock_step_half_mhz + 1;
}

uint32_t model_graphics_clock(const struct model *model, unsigned position) {
    return (2 * model->clock_max_mhz - position * model->clock_step_half_mhz) / 2;
}

unsigned model_memory_clock_count(const struct model *model) {
    unsigned count = 0;
    while (count < MAX_MEMORY_CLOCKS && model->memory_clocks_mhz[count] != 0) {
        count++;
    }
    return count;
}

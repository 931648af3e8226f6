/* Identity of a GPU: names, numbers, PCI address, architecture. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "mig.h"

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceGetName, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    char text[96];
    snprintf(text, sizeof text, "%s", call.model->name);
    if (call.instance != NULL) {
        snprintf(text, sizeof text, "%s MIG %ug.%ugb", call.model->name, call.instance->compute_slices,
                 mig_gigabytes(call.model, call.instance));
    }
    return call_end(&call, call_text(name, length, text));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    struct call call;
    nvmlReturn_t result = call_begin_on_part(&call, FUNCTION_nvmlDeviceGetUUID, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    return call_end(&call, call_text(uuid, length, call.instance == NULL ? call.gpu->uuid : call.instance->uuid));
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    ANSWER_TEXT(nvmlDeviceGetSerial, device, serial, length, call.gpu->serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ANSWER(nvmlDeviceGetIndex, device, index, call.index);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    ANSWER(nvmlDeviceGetMinorNumber, device, minor, call.index);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    ANSWER(nvmlDeviceGetArchitecture, device, architecture, call.model->architecture);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand) {
    ANSWER(nvmlDeviceGetBrand, device, brand, call.model->brand);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ANSWER_PAIR(nvmlDeviceGetCudaComputeCapability, device, major, minor, (int)call.model->compute_major,
                (int)call.model->compute_minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct call call;
    nvmlReturn_t result = call_begin_on(&call, FUNCTION_nvmlDeviceGetPciInfo_v3, device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (pci == NULL) {
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    }
    *pci = (nvmlPciInfo_t){
        .bus = call.gpu->bus,
        .pci_device_id = call.model->pci_device_id,
        .pci_subsystem_id = call.model->pci_subsystem_id,
    };
    memcpy(pci->bus_id, call.gpu->bus_id, sizeof pci->bus_id);
    /* The legacy form has four of the eight digits of the domain. */
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%.12s", call.gpu->bus_id + 4);
    return call_end(&call, NVML_SUCCESS);
}

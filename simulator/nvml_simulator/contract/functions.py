"""The table of supported functions with their parameters."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from typing import Any

from nvml_simulator.contract.function_parameters import (
    Device,
    Function,
    MigDeviceHandle,
    Parameter,
    Pointer,
    Text,
    Value,
)


def _number(value: int) -> Value:
    return Value(lambda _: c_uint(value))


def _versioned(words: int, version: int, *, size: int | None = None) -> Callable[[], Any]:
    """Return a maker of a structure of 32-bit words; the first has its size and version."""
    return lambda: (c_uint * words)((size or 4 * words) | version << 24)


_UINT, _INT, _ULL = Pointer(c_uint), Pointer(c_int), Pointer(c_ulonglong)
_HANDLE = Pointer(c_void_p)
_MEMORY_CLOCK = Value(lambda gpu: c_uint(gpu.memory_clock))
_GRAPHICS_CLOCK = Value(lambda gpu: c_uint(gpu.graphics_clock))
_ROOM_FOR_CLOCKS = Value(lambda _: (c_uint * 512)())
_FIELD_BYTES = 40


def _field() -> Any:
    return (c_uint * (_FIELD_BYTES // 4))(83)


def _get(*parameters: Parameter) -> Function:
    return Function((Device(), *parameters))


def _set(*parameters: Parameter) -> Function:
    return Function((Device(), *parameters), changes=True)


FUNCTIONS: dict[str, Function] = {
    "nvmlInit_v2": Function(()),
    "nvmlInitWithFlags": Function((_number(0),)),
    "nvmlShutdown": Function(()),
    "nvmlErrorString": Function((_number(0),)),
    "nvmlSystemGetDriverVersion": Function((Text(80),)),
    "nvmlSystemGetNVMLVersion": Function((Text(80),)),
    "nvmlSystemGetCudaDriverVersion": Function((_INT,)),
    "nvmlSystemGetCudaDriverVersion_v2": Function((_INT,)),
    "nvmlSystemGetProcessName": Function((Value(lambda gpu: c_uint(gpu.pid)), Text(1024, truncates=True))),
    "nvmlDeviceGetCount_v2": Function((_UINT,)),
    "nvmlDeviceGetHandleByIndex_v2": Function((_number(0), _HANDLE)),
    "nvmlDeviceGetHandleByUUID": Function((Value(lambda gpu: c_char_p(gpu.uuid)), _HANDLE)),
    "nvmlDeviceGetHandleByPciBusId_v2": Function((Value(lambda gpu: c_char_p(gpu.bus_id)), _HANDLE)),
    "nvmlDeviceGetHandleBySerial": Function((Value(lambda gpu: c_char_p(gpu.serial)), _HANDLE)),
    "nvmlDeviceGetName": _get(Text(96)),
    "nvmlDeviceGetUUID": _get(Text(96)),
    "nvmlDeviceGetSerial": _get(Text(30)),
    "nvmlDeviceGetIndex": _get(_UINT),
    "nvmlDeviceGetMinorNumber": _get(_UINT),
    "nvmlDeviceGetPciInfo_v3": _get(Pointer(lambda: create_string_buffer(68))),
    "nvmlDeviceGetArchitecture": _get(_UINT),
    "nvmlDeviceGetBrand": _get(_UINT),
    "nvmlDeviceGetCudaComputeCapability": _get(_INT, _INT),
    "nvmlDeviceGetMemoryInfo": _get(Pointer(c_ulonglong * 3)),
    "nvmlDeviceGetMemoryInfo_v2": _get(Pointer(_versioned(10, 2))),
    "nvmlDeviceGetUtilizationRates": _get(Pointer(c_uint * 2)),
    "nvmlDeviceGetComputeRunningProcesses_v3": _get(Pointer(lambda: c_uint(64)), Value(lambda _: (c_uint * 512)())),
    "nvmlDeviceGetTemperature": _get(_number(0), _UINT),
    "nvmlDeviceGetTemperatureV": _get(Pointer(_versioned(3, 1))),
    "nvmlDeviceGetPerformanceState": _get(_UINT),
    "nvmlDeviceGetPowerUsage": _get(_UINT),
    "nvmlDeviceGetTotalEnergyConsumption": _get(_ULL),
    "nvmlDeviceGetPowerManagementMode": _get(_UINT),
    "nvmlDeviceGetPowerManagementLimit": _get(_UINT),
    "nvmlDeviceGetPowerManagementLimitConstraints": _get(_UINT, _UINT),
    "nvmlDeviceGetPowerManagementDefaultLimit": _get(_UINT),
    "nvmlDeviceGetEnforcedPowerLimit": _get(_UINT),
    "nvmlDeviceSetPowerManagementLimit": _set(Value(lambda gpu: c_uint(gpu.power_limit_milliwatts))),
    "nvmlDeviceSetPowerManagementLimit_v2": _set(Pointer(lambda: (c_uint * 3)(12 | 2 << 24, 0, 250000))),
    "nvmlDeviceGetFieldValues": _get(Value(lambda _: c_int(1)), Pointer(_field)),
    "nvmlDeviceGetSupportedMemoryClocks": _get(Pointer(lambda: c_uint(512)), _ROOM_FOR_CLOCKS),
    "nvmlDeviceGetSupportedGraphicsClocks": _get(_MEMORY_CLOCK, Pointer(lambda: c_uint(512)), _ROOM_FOR_CLOCKS),
    "nvmlDeviceGetClockInfo": _get(_number(0), _UINT),
    "nvmlDeviceGetMaxClockInfo": _get(_number(0), _UINT),
    "nvmlDeviceGetClock": _get(_number(0), _number(0), _UINT),
    "nvmlDeviceGetMaxCustomerBoostClock": _get(_number(0), _UINT),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _get(_ULL),
    "nvmlDeviceGetCurrentClocksEventReasons": _get(_ULL),
    "nvmlDeviceGetSupportedClocksThrottleReasons": _get(_ULL),
    "nvmlDeviceGetSupportedClocksEventReasons": _get(_ULL),
    "nvmlDeviceSetGpuLockedClocks": _set(_GRAPHICS_CLOCK, _GRAPHICS_CLOCK),
    "nvmlDeviceResetGpuLockedClocks": _set(),
    "nvmlDeviceSetMemoryLockedClocks": _set(_MEMORY_CLOCK, _MEMORY_CLOCK),
    "nvmlDeviceResetMemoryLockedClocks": _set(),
    "nvmlDeviceGetApplicationsClock": _get(_number(0), _UINT),
    "nvmlDeviceGetDefaultApplicationsClock": _get(_number(0), _UINT),
    "nvmlDeviceSetApplicationsClocks": _set(_MEMORY_CLOCK, _GRAPHICS_CLOCK),
    "nvmlDeviceResetApplicationsClocks": _set(),
    "nvmlDeviceGetPersistenceMode": _get(_UINT),
    "nvmlDeviceSetPersistenceMode": _set(_number(1)),
    "nvmlDeviceGetMigMode": _get(_UINT, _UINT),
    "nvmlDeviceGetMaxMigDeviceCount": _get(_UINT),
    "nvmlDeviceGetMigDeviceHandleByIndex": Function((Device(), _number(0), _HANDLE), needs_mig=True),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": Function((MigDeviceHandle(), _HANDLE), needs_mig=True),
    "nvmlDeviceIsMigDeviceHandle": _get(_UINT),
    "nvmlDeviceGetGpuInstanceId": Function((MigDeviceHandle(), _UINT), needs_mig=True),
    "nvmlDeviceGetComputeInstanceId": Function((MigDeviceHandle(), _UINT), needs_mig=True),
}

ALLOWED_UNINITIALIZED = {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlSystemGetNVMLVersion"}
"""Functions that succeed before NVML is initialized."""

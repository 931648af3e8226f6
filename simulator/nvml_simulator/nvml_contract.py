"""NVML's documentation as a table: parameters of each function, and codes for invalid arguments.

The tests check the simulated library against this table. ``python -m nvml_simulator.nvml_contract``
checks the ``libnvidia-ml.so.1`` that the process loads, so that the table can be verified on a
machine with a real GPU; it changes no setting.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from dataclasses import dataclass
from typing import Any

# NVML return codes.
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25


class Device:
    """Handle of GPU 0."""


class MigDeviceHandle:
    """Handle of the first MIG device of GPU 0."""


@dataclass(frozen=True)
class Pointer:
    """Pointer to a result or a structure, which `make` makes; NULL is invalid."""

    make: Callable[[], Any]


@dataclass(frozen=True)
class Text:
    """A buffer and its size, sufficient by NVML's documentation: two parameters.

    NULL is invalid, as is a size of 1 unless the function truncates the text to the buffer.
    """

    bytes: int
    truncates: bool = False


@dataclass(frozen=True)
class Value:
    """A value, or a pointer that may be NULL, which `make` makes from the properties of GPU 0."""

    make: Callable[[ArgumentProperties], Any]


@dataclass(frozen=True)
class ArgumentProperties:
    """Properties of GPU 0 that valid arguments need."""

    uuid: bytes
    serial: bytes
    bus_id: bytes
    memory_clock: int
    graphics_clock: int
    power_limit_milliwatts: int
    pid: int


Parameter = Device | MigDeviceHandle | Pointer | Text | Value


@dataclass(frozen=True)
class Function:
    """An NVML function; it may change a GPU and so require permission, or fail unless GPU 0 has MIG devices."""

    parameters: tuple[Parameter, ...]
    changes: bool = False
    needs_mig: bool = False


def _number(value: int) -> Value:
    return Value(lambda _: c_uint(value))


def _versioned(words: int, version: int) -> Callable[[], Any]:
    """Return a maker of a structure of 32-bit words; the first has its size and version."""
    return lambda: (c_uint * words)(4 * words | version << 24)


_UINT, _INT, _ULL = Pointer(c_uint), Pointer(c_int), Pointer(c_ulonglong)
_HANDLE = Pointer(c_void_p)
_MEMORY_CLOCK = Value(lambda gpu: c_uint(gpu.memory_clock))
_GRAPHICS_CLOCK = Value(lambda gpu: c_uint(gpu.graphics_clock))
_ROOM_FOR_CLOCKS = Value(lambda _: (c_uint * 512)())


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
    "nvmlDeviceGetFieldValues": _get(Value(lambda _: c_int(1)), Pointer(lambda: (c_uint * 10)(83))),
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

# Functions that succeed before NVML is initialized.
ALLOWED_UNINITIALIZED = {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlSystemGetNVMLVersion"}


NULL_HANDLE = "null handle"


@dataclass(frozen=True)
class InvalidCall:
    """A call with an invalid argument at a position, and the code that NVML documents for it."""

    function: str
    mistake: str
    position: int
    make: Callable[[], Any]
    code: int

    def __str__(self) -> str:
        """Return function and mistake, as the name of the test case."""
        return f"{self.function}, {self.mistake}"


_SPECIFIC = (
    InvalidCall("nvmlDeviceGetHandleByIndex_v2", "index past the last", 0, lambda: c_uint(4096), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetHandleByUUID", "unknown UUID", 0, lambda: c_char_p(b"GPU-0"), NOT_FOUND),
    InvalidCall("nvmlDeviceGetHandleByUUID", "no UUID", 0, c_char_p, INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetHandleByPciBusId_v2", "unknown bus id", 0, lambda: c_char_p(b"0000:ee:1f.0"), NOT_FOUND),
    InvalidCall("nvmlDeviceGetHandleByPciBusId_v2", "no bus id", 0, c_char_p, INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetHandleBySerial", "unknown serial", 0, lambda: c_char_p(b"77"), NOT_FOUND),
    InvalidCall("nvmlDeviceGetHandleBySerial", "no serial", 0, c_char_p, INVALID_ARGUMENT),
    InvalidCall("nvmlSystemGetProcessName", "no such process", 0, lambda: c_uint(2**31 - 7), NOT_FOUND),
    InvalidCall("nvmlDeviceGetMemoryInfo_v2", "unknown version", 1, c_uint * 10, FUNCTION_NOT_FOUND),
    InvalidCall("nvmlDeviceGetTemperature", "unknown sensor", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetTemperatureV", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    InvalidCall("nvmlDeviceGetFieldValues", "no fields", 1, lambda: c_int(0), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetSupportedMemoryClocks", "no room", 1, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    InvalidCall("nvmlDeviceGetSupportedGraphicsClocks", "no room", 2, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    InvalidCall("nvmlDeviceGetSupportedGraphicsClocks", "unknown memory clock", 1, lambda: c_uint(7), NOT_FOUND),
    InvalidCall("nvmlDeviceGetClockInfo", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    InvalidCall("nvmlDeviceGetMaxClockInfo", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetClock", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    InvalidCall("nvmlDeviceGetClock", "unknown id", 2, lambda: c_uint(99), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetApplicationsClock", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetPowerManagementLimit", "below the range", 1, lambda: c_uint(1000), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetPowerManagementLimit", "above the range", 1, lambda: c_uint(10**7), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetPowerManagementLimit_v2", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    InvalidCall(
        "nvmlDeviceSetPowerManagementLimit_v2",
        "below the range",
        1,
        lambda: (c_uint * 3)(12 | 2 << 24, 0, 1000),
        INVALID_ARGUMENT,
    ),
    InvalidCall("nvmlDeviceSetGpuLockedClocks", "minimum above maximum", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetMemoryLockedClocks", "minimum above maximum", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetApplicationsClocks", "no such memory clock", 1, lambda: c_uint(7), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceSetApplicationsClocks", "no such graphics clock", 2, lambda: c_uint(7), INVALID_ARGUMENT),
    InvalidCall("nvmlDeviceGetMigDeviceHandleByIndex", "no such MIG device", 1, lambda: c_uint(6), NOT_FOUND),
    InvalidCall("nvmlDeviceSetPersistenceMode", "neither on nor off", 1, lambda: c_uint(2), INVALID_ARGUMENT),
)


def invalid_calls() -> Iterator[InvalidCall]:
    """Yield null handles, null pointers, small buffers, and the cases specific to a function."""
    for name, function in FUNCTIONS.items():
        position = 0
        for parameter in function.parameters:
            if isinstance(parameter, Device | MigDeviceHandle):
                yield InvalidCall(name, NULL_HANDLE, position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Pointer):
                yield InvalidCall(name, f"null pointer, argument {position}", position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Text):
                yield InvalidCall(name, "null buffer", position, c_void_p, INVALID_ARGUMENT)
                if not parameter.truncates:
                    yield InvalidCall(name, "buffer too small", position + 1, lambda: c_uint(1), INSUFFICIENT_SIZE)
            position += 2 if isinstance(parameter, Text) else 1
    yield from _SPECIFIC


class FunctionCaller:
    """Calls the table's functions in a loaded library with valid arguments, one of which can be replaced."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._device = c_void_p()
        self._mig_device = c_void_p()
        self._gpu = ArgumentProperties(b"", b"", b"", 0, 0, 0, 1)

    def read_properties(self, pid: int) -> None:
        """Read the properties of GPU 0 from the initialized library, for calls about a running process."""
        self._library.nvmlDeviceGetHandleByIndex_v2(0, byref(self._device))
        self._library.nvmlDeviceGetMigDeviceHandleByIndex(self._device, 0, byref(self._mig_device))
        texts = {name: create_string_buffer(96) for name in ("UUID", "Serial")}
        for name, text in texts.items():
            getattr(self._library, f"nvmlDeviceGet{name}")(self._device, text, 30 if name == "Serial" else 96)
        pci = create_string_buffer(68)
        self._library.nvmlDeviceGetPciInfo_v3(self._device, pci)
        memory, graphics, limit = c_uint(), c_uint(), c_uint()
        self._library.nvmlDeviceGetMaxClockInfo(self._device, 2, byref(memory))
        self._library.nvmlDeviceGetMaxClockInfo(self._device, 0, byref(graphics))
        self._library.nvmlDeviceGetPowerManagementDefaultLimit(self._device, byref(limit))
        bus_id = pci.raw[36:68].split(b"\0")[0]
        self._gpu = ArgumentProperties(
            texts["UUID"].value, texts["Serial"].value, bus_id, memory.value, graphics.value, limit.value, pid
        )

    @property
    def has_mig_device(self) -> bool:
        """Whether GPU 0 has a MIG device."""
        return self._mig_device.value is not None

    def call(self, name: str, position: int = 0, make: Callable[[], Any] | None = None) -> int:
        """Call a function of `FUNCTIONS` and return its code; `make` replaces the argument at a position."""
        arguments: list[Any] = []
        for parameter in FUNCTIONS[name].parameters:
            arguments.extend(self._valid(parameter))
        if make is not None:
            arguments[position] = make()
        return int(getattr(self._library, name)(*arguments))

    def _valid(self, parameter: Parameter) -> list[Any]:
        if isinstance(parameter, Device):
            return [self._device]
        if isinstance(parameter, MigDeviceHandle):
            return [self._mig_device]
        if isinstance(parameter, Pointer):
            return [byref(parameter.make())]
        if isinstance(parameter, Text):
            return [create_string_buffer(parameter.bytes), c_uint(parameter.bytes)]
        return [parameter.make(self._gpu)]


def differences(library: ctypes.CDLL) -> Iterator[str]:
    """Return how an initialized library differs from the table.

    Functions that change a GPU are skipped. So are null handles on a real NVML: driver 580
    documents an error for them but crashes.
    """
    simulated = hasattr(library, "wattloopSimulatorTime")
    caller = FunctionCaller(library)
    caller.read_properties(os.getpid())
    reads = {
        name
        for name, function in FUNCTIONS.items()
        if not function.changes and (caller.has_mig_device or not function.needs_mig)
    }
    for name in sorted(reads - {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlShutdown"}):
        if (code := caller.call(name)) != SUCCESS:
            yield f"{name}, valid arguments: returned {code}, expected {SUCCESS}"
    for case in invalid_calls():
        if case.function not in reads or (case.mistake == NULL_HANDLE and not simulated):
            continue
        if (code := caller.call(case.function, case.position, case.make)) != case.code:
            yield f"{case}: returned {code}, expected {case.code}"
    library.nvmlShutdown()
    for name in sorted(reads - ALLOWED_UNINITIALIZED):
        if (code := caller.call(name)) != UNINITIALIZED:
            yield f"{name}, not initialized: returned {code}, expected {UNINITIALIZED}"


def main() -> int:
    """Print how the library of the dynamic linker differs from the table; return 1 without one."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        print(f"no NVML library found: {error}", file=sys.stderr)
        return 1
    if (code := library.nvmlInit_v2()) != SUCCESS:
        print(f"nvmlInit_v2 returned {code}", file=sys.stderr)
        return 1
    found = list(differences(library))
    print("\n".join(found) or "no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())

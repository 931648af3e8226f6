"""What NVML documents of every function that is offered here: its parameters, and how it refuses wrong ones.

The tests hold the simulated library to this table. ``python -m nvml_simulator.contract`` holds whichever
``libnvidia-ml.so.1`` the process loads to it, so that the table itself can be checked on a machine with a real GPU;
there nothing is ever set.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from dataclasses import dataclass
from typing import Any

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25


NULL_HANDLE = "null handle"


@dataclass(frozen=True)
class Device:
    """A handle of GPU 0."""


@dataclass(frozen=True)
class Pointer:
    """Where an answer is written to, or a structure is read from; NULL is refused.

    Attributes:
        make: A fresh one of what it points to.
    """

    make: Callable[[], Any]


@dataclass(frozen=True)
class Text:
    """A buffer and its size, two parameters: NULL is refused, and so is a size of 1 where it is cut by no rule.

    Attributes:
        bytes: The size that NVML documents as enough.
        truncates: The text is cut to the buffer instead.
    """

    bytes: int
    truncates: bool = False


@dataclass(frozen=True)
class Value:
    """A plain value. For a pointer that may be NULL, too.

    Attributes:
        make: The value for a right call, from GPU 0's truth.
    """

    make: Callable[[Truth], Any]


@dataclass(frozen=True)
class Truth:
    """What the right calls need to know of GPU 0."""

    uuid: bytes
    serial: bytes
    bus_id: bytes
    memory_clock: int
    graphics_clock: int
    power_limit_milliwatts: int
    pid: int


Parameter = Device | Pointer | Text | Value


@dataclass(frozen=True)
class Function:
    """A function's parameters, and whether it changes a GPU (and so needs permission)."""

    parameters: tuple[Parameter, ...]
    changes: bool = False


def _number(value: int) -> Value:
    return Value(lambda _: c_uint(value))


def _versioned(words: int, version: int, *, size: int | None = None) -> Callable[[], Any]:
    """A structure of this many 32-bit words whose first says its size and version."""
    return lambda: (c_uint * words)((size or 4 * words) | version << 24)


_UINT, _INT, _ULL = Pointer(c_uint), Pointer(c_int), Pointer(c_ulonglong)
_HANDLE = Pointer(c_void_p)
_MEMORY_CLOCK = Value(lambda truth: c_uint(truth.memory_clock))
_GRAPHICS_CLOCK = Value(lambda truth: c_uint(truth.graphics_clock))
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
    "nvmlSystemGetProcessName": Function((Value(lambda truth: c_uint(truth.pid)), Text(1024, truncates=True))),
    "nvmlDeviceGetCount_v2": Function((_UINT,)),
    "nvmlDeviceGetHandleByIndex_v2": Function((_number(0), _HANDLE)),
    "nvmlDeviceGetHandleByUUID": Function((Value(lambda truth: c_char_p(truth.uuid)), _HANDLE)),
    "nvmlDeviceGetHandleByPciBusId_v2": Function((Value(lambda truth: c_char_p(truth.bus_id)), _HANDLE)),
    "nvmlDeviceGetHandleBySerial": Function((Value(lambda truth: c_char_p(truth.serial)), _HANDLE)),
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
    "nvmlDeviceSetPowerManagementLimit": _set(Value(lambda truth: c_uint(truth.power_limit_milliwatts))),
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
}

ANSWERED_UNINITIALIZED = {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlSystemGetNVMLVersion"}
"""What NVML answers without being initialised."""


@dataclass(frozen=True)
class Refusal:
    """A call with one thing wrong, and the code NVML documents for it.

    Attributes:
        function: Which.
        wrong: What is wrong, in words.
        replaced: By position, what stands in the place of the right arguments.
        code: NVML's.
    """

    function: str
    wrong: str
    replaced: dict[int, Callable[[], Any]]
    code: int

    def __str__(self) -> str:
        """Function and fault: the case's name in a test."""
        return f"{self.function}, {self.wrong}"


def _refusal(function: str, wrong: str, position: int, make: Callable[[], Any], code: int) -> Refusal:
    return Refusal(function, wrong, {position: make}, code)


_SPECIFIC = (
    _refusal("nvmlDeviceGetHandleByIndex_v2", "index past the last", 0, lambda: c_uint(4096), INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetHandleByUUID", "unknown UUID", 0, lambda: c_char_p(b"GPU-0"), NOT_FOUND),
    _refusal("nvmlDeviceGetHandleByUUID", "no UUID", 0, c_char_p, INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetHandleByPciBusId_v2", "unknown bus id", 0, lambda: c_char_p(b"0000:ee:1f.0"), NOT_FOUND),
    _refusal("nvmlDeviceGetHandleByPciBusId_v2", "no bus id", 0, c_char_p, INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetHandleBySerial", "unknown serial", 0, lambda: c_char_p(b"77"), NOT_FOUND),
    _refusal("nvmlDeviceGetHandleBySerial", "no serial", 0, c_char_p, INVALID_ARGUMENT),
    _refusal("nvmlSystemGetProcessName", "no such process", 0, lambda: c_uint(2**31 - 7), NOT_FOUND),
    _refusal("nvmlDeviceGetMemoryInfo_v2", "unknown version", 1, c_uint * 10, FUNCTION_NOT_FOUND),
    _refusal("nvmlDeviceGetTemperature", "unknown sensor", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetTemperatureV", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    _refusal("nvmlDeviceGetFieldValues", "no fields", 1, lambda: c_int(0), INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetSupportedMemoryClocks", "no room", 1, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    _refusal("nvmlDeviceGetSupportedGraphicsClocks", "no room", 2, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    _refusal("nvmlDeviceGetSupportedGraphicsClocks", "unknown memory clock", 1, lambda: c_uint(7), NOT_FOUND),
    _refusal("nvmlDeviceGetClockInfo", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    _refusal("nvmlDeviceGetMaxClockInfo", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetClock", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    _refusal("nvmlDeviceGetClock", "unknown id", 2, lambda: c_uint(99), INVALID_ARGUMENT),
    _refusal("nvmlDeviceGetApplicationsClock", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetPowerManagementLimit", "below the range", 1, lambda: c_uint(1000), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetPowerManagementLimit", "above the range", 1, lambda: c_uint(10**7), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetPowerManagementLimit_v2", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    _refusal(
        "nvmlDeviceSetPowerManagementLimit_v2",
        "below the range",
        1,
        lambda: (c_uint * 3)(12 | 2 << 24, 0, 1000),
        INVALID_ARGUMENT,
    ),
    _refusal("nvmlDeviceSetGpuLockedClocks", "least above largest", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetMemoryLockedClocks", "least above largest", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetApplicationsClocks", "no such memory clock", 1, lambda: c_uint(7), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetApplicationsClocks", "no such graphics clock", 2, lambda: c_uint(7), INVALID_ARGUMENT),
    _refusal("nvmlDeviceSetPersistenceMode", "neither on nor off", 1, lambda: c_uint(2), INVALID_ARGUMENT),
)


def refusals() -> Iterator[Refusal]:
    """Every wrong call of the table: null handles, null pointers, buffers too small, and what is special to one."""
    for name, function in FUNCTIONS.items():
        position = 0
        for parameter in function.parameters:
            if isinstance(parameter, Device):
                yield _refusal(name, NULL_HANDLE, position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Pointer):
                yield _refusal(name, f"null pointer, argument {position}", position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Text):
                yield _refusal(name, "null buffer", position, c_void_p, INVALID_ARGUMENT)
                if not parameter.truncates:
                    yield _refusal(name, "buffer too small", position + 1, lambda: c_uint(1), INSUFFICIENT_SIZE)
            position += 2 if isinstance(parameter, Text) else 1
    yield from _SPECIFIC


class Caller:
    """Calls the functions of the table in a library, with right arguments but for those that are replaced.

    Args:
        library: A loaded ``libnvidia-ml.so.1``.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._device = c_void_p()
        self._truth = Truth(b"", b"", b"", 0, 0, 0, 1)

    def learn(self, pid: int) -> None:
        """Asks the library itself, initialised, what the right arguments for GPU 0 are.

        Args:
            pid: Of a process that lives.
        """
        self._library.nvmlDeviceGetHandleByIndex_v2(0, byref(self._device))
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
        self._truth = Truth(
            texts["UUID"].value, texts["Serial"].value, bus_id, memory.value, graphics.value, limit.value, pid
        )

    def call(self, name: str, replaced: dict[int, Callable[[], Any]] | None = None) -> int:
        """The code that a function answers.

        Args:
            name: In `FUNCTIONS`.
            replaced: By position, arguments to use in place of the right ones.
        """
        arguments: list[Any] = []
        for parameter in FUNCTIONS[name].parameters:
            arguments.extend(self._right(parameter))
        for position, make in (replaced or {}).items():
            arguments[position] = make()
        return int(getattr(self._library, name)(*arguments))

    def _right(self, parameter: Parameter) -> list[Any]:
        if isinstance(parameter, Device):
            return [self._device]
        if isinstance(parameter, Pointer):
            return [byref(parameter.make())]
        if isinstance(parameter, Text):
            return [create_string_buffer(parameter.bytes), c_uint(parameter.bytes)]
        return [parameter.make(self._truth)]


def differences(library: ctypes.CDLL) -> Iterator[str]:
    """Where an initialised library does otherwise than the table says.

    Functions that change a GPU are left alone, and no real NVML is given a null handle: driver 580 documents an error
    for it, and crashes.
    """
    simulated = hasattr(library, "wattloopSimulatorTime")
    caller = Caller(library)
    caller.learn(os.getpid())
    reads = {name for name, function in FUNCTIONS.items() if not function.changes}
    for name in sorted(reads - {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlShutdown"}):
        if (code := caller.call(name)) != SUCCESS:
            yield f"{name}, all right: answered {code}, expected {SUCCESS}"
    for refusal in refusals():
        if refusal.function not in reads or (refusal.wrong == NULL_HANDLE and not simulated):
            continue
        if (code := caller.call(refusal.function, refusal.replaced)) != refusal.code:
            yield f"{refusal}: answered {code}, expected {refusal.code}"
    library.nvmlShutdown()
    for name in sorted(reads - ANSWERED_UNINITIALIZED):
        if (code := caller.call(name)) != UNINITIALIZED:
            yield f"{name}, not initialised: answered {code}, expected {UNINITIALIZED}"


def main() -> int:
    """Prints how the library that the dynamic linker finds differs from the table; 1 where there is none to load."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        print(f"no NVML to compare with: {error}", file=sys.stderr)
        return 1
    if (code := library.nvmlInit_v2()) != SUCCESS:
        print(f"nvmlInit_v2 answered {code}", file=sys.stderr)
        return 1
    found = list(differences(library))
    print("\n".join(found) or "no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())

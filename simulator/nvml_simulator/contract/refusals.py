"""How each function refuses wrong arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from nvml_simulator.contract.codes import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
)
from nvml_simulator.contract.functions import FUNCTIONS
from nvml_simulator.contract.parameters import Device, MigDevice, Pointer, Text

NULL_HANDLE = "null handle"


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
    _refusal("nvmlDeviceGetMigDeviceHandleByIndex", "no such MIG device", 1, lambda: c_uint(6), NOT_FOUND),
    _refusal("nvmlDeviceSetPersistenceMode", "neither on nor off", 1, lambda: c_uint(2), INVALID_ARGUMENT),
)


def refusals() -> Iterator[Refusal]:
    """Every wrong call of the table: null handles, null pointers, buffers too small, and what is special to one."""
    for name, function in FUNCTIONS.items():
        position = 0
        for parameter in function.parameters:
            if isinstance(parameter, Device | MigDevice):
                yield _refusal(name, NULL_HANDLE, position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Pointer):
                yield _refusal(name, f"null pointer, argument {position}", position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Text):
                yield _refusal(name, "null buffer", position, c_void_p, INVALID_ARGUMENT)
                if not parameter.truncates:
                    yield _refusal(name, "buffer too small", position + 1, lambda: c_uint(1), INSUFFICIENT_SIZE)
            position += 2 if isinstance(parameter, Text) else 1
    yield from _SPECIFIC
